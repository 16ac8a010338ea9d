// SPDX-License-Identifier: Apache-2.0
// Schedules recorded from other people's tools: one case per line, orders as PyTorch's tokens.
#pragma once

#include "program/op_lists.hpp"
#include "schedules/generator.hpp"
#include "tests/shared.hpp"
#include "traces/byte_sink.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

namespace penstock {

struct RecordedCase {
  nlohmann::json all;  ///< as in the file
  std::string schedule;
  std::uint32_t p = 0, m = 0, v = 1;
  std::vector<std::string> order;  ///< per device: tokens with blanks between them; may be empty

  double number(const char* key, double otherwise = 0) const { return all.value(key, otherwise); }
  bool deadlocks() const { return all.contains("ref") && all["ref"].value("deadlock", false); }
  /// p, m, v and the times of the case, the same for every one of `stages` virtual stages.
  ScheduleShape shape(std::uint32_t stages) const {
    ScheduleShape s{.depth = p, .microbatches_per_update = m};
    s.times.assign(stages, {number("f", 1), number("b", 1), number("w", 1), 1, 1});
    s.transfer = number("c");
    return s;
  }
  std::string name() const {
    return fmt::format(
        "{} p={} m={} v={} {}", schedule, p, m, v,
        all.contains("cost") && all["cost"].is_string() ? all["cost"].get<std::string>() : "");
  }
};

inline std::filesystem::path recorded_file(const std::string& file) {
  return shared_folder() / "oracles" / "schedules" / file;
}

/// The cases of a recorded file; none where it is missing (the test then skips).
inline std::vector<RecordedCase> recorded_cases(const std::string& file) {
  std::vector<RecordedCase> cases;
  if (!std::filesystem::exists(recorded_file(file))) return cases;
  std::istringstream lines(read_file(recorded_file(file).string()));
  std::string line;
  while (std::getline(lines, line)) {
    RecordedCase one{nlohmann::json::parse(line), "", 0, 0, 1, {}};
    if (one.all.contains("_meta")) continue;
    one.schedule = one.all["schedule"];
    one.p = one.all["p"];
    one.m = one.all["m"];
    if (one.all.contains("v") && one.all["v"].is_number()) one.v = one.all["v"];
    if (one.all.contains("order") && one.all["order"].is_array())
      one.order = one.all["order"].get<std::vector<std::string>>();
    cases.push_back(std::move(one));
  }
  return cases;
}

#define SKIP_WITHOUT_RECORDED(file) SKIP_WITHOUT_SHARED(recorded_file(file))

/// A device's compute ops as the recorded files write them: "0F0 (1F3;0B0)OVERLAP_F_B 0I1 0W1".
inline std::string tokens_of(const OpLists& lists, int device) {
  std::string text;
  const auto ops = lists.of_device(device);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!is_compute(ops[i].kind)) continue;
    if (!text.empty()) text += ' ';
    if (ops[i].has(Op::paired)) {
      text += fmt::format("({};{})OVERLAP_F_B", to_string(ops[i]), to_string(ops[i + 1]));
      ++i;
    } else {
      text += to_string(ops[i]);
    }
  }
  return text;
}

/// The recorded order as op lists, one device after the other.
inline OpLists recorded_order(const RecordedCase& one) {
  const auto parse = [](const std::string& token, std::uint8_t flags) {
    std::size_t used = 0;
    const auto stage = static_cast<std::uint32_t>(std::stoul(token, &used));
    const char kind = token.at(used);
    Op op = make_op(kind == 'F'   ? OpKind::forward
                    : kind == 'B' ? OpKind::backward
                    : kind == 'I' ? OpKind::backward_input
                                  : OpKind::backward_weight,
                    stage, static_cast<std::uint32_t>(std::stoul(token.substr(used + 1))));
    op.flags = flags;
    return op;
  };
  OpLists lists;
  for (const std::string& device : one.order) {
    std::istringstream tokens(device);
    std::string token;
    while (tokens >> token) {
      if (token.front() == '(') {
        const std::size_t middle = token.find(';');
        lists.add_op(parse(token.substr(1, middle - 1), Op::paired));
        token = token.substr(middle + 1, token.find(')') - middle - 1);
      }
      lists.add_op(parse(token, 0));
    }
    lists.end_device();
  }
  return lists;
}

inline constexpr const char* kRecordedFiles[] = {"sail_simple.jsonl.gz",
                                                 "sail_zb_auto.jsonl.gz",
                                                 "sail_zb_ilp.jsonl.gz",
                                                 "sail_zbv_heuristic.jsonl.gz",
                                                 "sail_vhalf_vmin_greedy.jsonl.gz",
                                                 "sail_v_adaptive_search.jsonl.gz",
                                                 "megatron_interleaved.jsonl.gz",
                                                 "torch_pipelining_2.14.1.jsonl.gz",
                                                 "deepseek_dualpipe.jsonl.gz"};

/// Devices hold the stages their ops name: any placement a recorded order may come with.
inline Placement placement_of(const RecordedCase& one) {
  const std::vector<int> widths(one.p, 1);
  const auto stages = static_cast<std::uint32_t>(one.number("n_stages_total", one.p));
  if (one.schedule == "dualpipe") return mirrored_placement(widths, one.m);
  const auto chunks = static_cast<int>(stages / one.p);
  const bool snake = one.schedule.starts_with("v_") || one.schedule.starts_with("zbv") ||
                     one.schedule == "dualpipev" || one.schedule == "ZBVZeroBubble" ||
                     one.schedule == "DualPipeV";
  return snake ? snake_placement(widths, chunks) : loop_placement(widths, chunks);
}

}  // namespace penstock
