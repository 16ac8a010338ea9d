// SPDX-License-Identifier: Apache-2.0
// The table of schedules.
#include "schedules/catalog.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

const std::vector<Schedule>& table() {
  static const std::vector<Schedule> kTable = {
      model_parallel(),
      gpipe(),
      gpipe_fifo(),
      torchgpipe(),
      one_f_one_b(),
      dapple_pb(),
      eager_one_f_one_b(),
      pipedream(),
      pipedream_2bw(),
      interleaved_1f1b(),
      interleaved_1f1b_torch(),
      looped_bfs(),
      zb_h1(),
      zb_h2(),
      zb(),
      zb_1p(),
      zb_2p(),
      interleaved_zb(),
      zb_v(),
      zb_v_search(),
      v_min(),
      v_half(),
      v_zb(),
      v_search(),
      one_f_one_b_v(),
      search(),
      dualpipe(),
      dualpipev(),
      chimera(),
      hanayo(),
      timeprest(),
      v_timeprest(),
      i_timeprest(),
      pipemare(),
      data_parallel(),
      asp(),
  };
  return kTable;
}

/// The nearest numbers of chunks to `v` that are admitted.
std::string nearest(const Chunks& c, std::uint32_t v) {
  if (v <= c.least) return fmt::format("{}", c.least);
  if (v >= c.most) return fmt::format("{}", c.most);
  const std::uint32_t below = v - (v - c.least) % c.step;
  return fmt::format("{} or {}", below, below + c.step);
}

Refusal refuse_chunks(const Schedule& schedule, const ScheduleShape& shape) {
  const Chunks& c = schedule.chunks;
  const std::uint32_t v = shape.chunks;
  if (v >= c.least && v <= c.most && (v - c.least) % c.step == 0) return {};
  const std::string rule =
      c.least == c.most ? (c.most == 1 ? "one stage" : fmt::format("{} chunks", c.most))
      : c.step > 1
          ? fmt::format("{}, {}, {}, ... chunks", c.least, c.least + c.step, c.least + 2 * c.step)
          : fmt::format("{} to {} chunks", c.least,
                        c.most == kAnyNumber ? "any number of" : fmt::format("{}", c.most));
  return {fmt::format("'{}' runs {} per device: chunks is {}, the nearest legal value is {}",
                      schedule.name, rule, v, nearest(c, v)),
          "chunks"};
}

/// The user's own schedule is what it is.
Refusal refuse_other(const Schedule& schedule, const ScheduleShape& shape) {
  const auto other = [&](std::uint32_t only, std::uint32_t asked, const char* key) -> Refusal {
    if (only == 0 || only == asked) return {};
    return {fmt::format("'{}' is a schedule of {} {}, not {}", schedule.name, only, key, asked),
            key};
  };
  const Refusal depth = other(schedule.only_depth, shape.depth, "stages");
  if (!depth.empty()) return depth;
  return other(schedule.only_microbatches, shape.microbatches_per_update, "microbatches");
}

/// Steps that fill and drain the pipeline, one after the other.
Refusal refuse_steps(const Schedule& schedule, const ScheduleShape& shape) {
  const std::uint32_t steps = shape.accumulation_steps, m = shape.microbatches_per_update;
  if (steps == 1) return {};
  if (!schedule.flushes() || schedule.layout == Layout::mirrored || schedule.whole_backward)
    return {fmt::format("'{}' has no steps of gradient accumulation around it: leave out "
                        "accumulation_steps",
                        schedule.name),
            "accumulation_steps"};
  if (m % steps == 0) return {};
  std::uint32_t below = std::min(steps, m), above = steps;
  while (m % below != 0) --below;
  while (above < m && m % above != 0) ++above;
  return {fmt::format("{} microbatches per update are no {} equal steps of gradient accumulation; "
                      "the nearest numbers that divide them: {}{}",
                      m, steps, below,
                      above <= m && above != below ? fmt::format(" and {}", above) : ""),
          "accumulation_steps"};
}

}  // namespace

double fill_and_drain(const ScheduleShape& shape) {
  const double p = shape.depth, v = shape.chunks;
  return (p - 1) / (v * shape.microbatches_per_update + p - 1);
}

Refusal refuse_uneven(std::string_view schedule, const ScheduleShape& shape) {
  if (shape.replicas.alike()) return {};
  return {fmt::format("{} is defined for as many replicas of every stage: width must be one number",
                      schedule),
          "width"};
}

double no_bubble(const ScheduleShape&) { return 0; }

OpLists Schedule::order(const ScheduleShape& shape) const {
  OpLists all;
  append_order(shape, all);
  return all;
}

void Schedule::append_order(const ScheduleShape& shape, OpLists& order) const {
  if (shape.accumulation_steps == 1) return generate(shape, order);
  const ScheduleShape one = shape.one_step();
  OpLists step;
  generate(one, step);
  for (int d = 0; d < step.devices(); ++d) {
    for (std::uint32_t i = 0; i < shape.accumulation_steps; ++i)
      for (Op op : step.of_device(d)) {
        op.microbatch += i * one.per_batch(static_cast<std::uint32_t>(d));
        order.add_op(op);
      }
    order.end_device();
  }
}

double Schedule::claimed_bubble(const ScheduleShape& shape) const {
  return ideal_bubble == nullptr ? kNoClaim : ideal_bubble(shape.one_step());
}

Refusal Schedule::refuse(const ScheduleShape& whole) const {
  const Refusal by_steps = refuse_steps(*this, whole);
  if (!by_steps.empty()) return by_steps;
  const ScheduleShape shape = whole.one_step();
  const Refusal by_size = refuse_other(*this, shape);
  if (!by_size.empty()) return by_size;
  const Refusal by_chunks = refuse_chunks(*this, shape);
  if (!by_chunks.empty() || refuse_shape == nullptr) return by_chunks;
  return refuse_shape(shape);
}

std::span<const Schedule> schedules() { return table(); }

const Schedule* find_schedule(std::string_view name) {
  static const auto kByName = [] {
    std::map<std::string, const Schedule*> by_name;
    for (const Schedule& schedule : table()) {
      by_name.try_emplace(folded(schedule.name), &schedule);
      for (const std::string_view alias : schedule.aliases)
        by_name.try_emplace(folded(alias), &schedule);
    }
    return by_name;
  }();
  const auto found = kByName.find(folded(name));
  return found == kByName.end() ? nullptr : found->second;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Schedule& schedule : table()) {
    names.emplace_back(schedule.name);
    names.insert(names.end(), schedule.aliases.begin(), schedule.aliases.end());
  }
  return names;
}

}  // namespace penstock
