// The table of schedules: one row each.
#include "schedules/generator.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

double fill_and_drain(const ScheduleShape& shape) {
  const double p = shape.depth;
  return (p - 1) / (shape.microbatches_per_update + p - 1);
}
double all_but_one(const ScheduleShape& shape) { return (shape.depth - 1.0) / shape.depth; }
double none(const ScheduleShape&) { return 0; }

std::string admit(const ScheduleShape&) { return ""; }

std::string refuse_uneven(const ScheduleShape& shape) {
  if (shape.widths.empty()) return "";
  return "dapple-pb is defined for as many replicas of every stage: width must be one number";
}

std::string refuse_unless_one_per_update(const ScheduleShape& shape) {
  if (shape.microbatches_per_update == 1) return "";
  return fmt::format(
      "PipeDream updates the weights after every microbatch, so microbatches must be 1, not {}; "
      "set microbatches: 1 and batches: {} for the same amount of work",
      shape.microbatches_per_update, shape.total());
}

std::string refuse_unless_m_covers_depth(const ScheduleShape& shape) {
  if (shape.microbatches_per_update >= shape.depth) return "";
  return fmt::format(
      "PipeDream-2BW needs at least as many microbatches per update as stages (m >= p), or two "
      "weight versions are not enough: microbatches is {}, the nearest legal value is {}",
      shape.microbatches_per_update, shape.depth);
}

std::string refuse_stages(const ScheduleShape& shape) {
  if (shape.depth == 1) return "";
  return fmt::format(
      "data parallelism keeps the whole model on every replica, so stages must be 1, not {}; set "
      "width for the number of replicas, or take a pipeline with replicated stages, such as 1f1b",
      shape.depth);
}

const std::vector<Schedule>& table() {
  static const std::vector<Schedule> kTable = {
      {"model-parallel",
       {"inter-layer-mp"},
       "PipeDream, SOSP'19, section 2",
       "one microbatch in the whole system; the baseline without pipelining",
       "(p-1)/p",
       "1",
       UpdateRule::flush,
       generate_model_parallel,
       all_but_one,
       admit},
      {"gpipe",
       {},
       "GPipe, NeurIPS'19",
       "all forwards, then all backwards in reverse; flush",
       "(p-1)/(m+p-1)",
       "m",
       UpdateRule::flush,
       generate_gpipe,
       fill_and_drain,
       admit},
      {"gpipe-fifo",
       {"ScheduleGPipe"},
       "GPipe, NeurIPS'19",
       "all forwards, then all backwards in order; flush",
       "(p-1)/(m+p-1)",
       "m",
       UpdateRule::flush,
       generate_gpipe_fifo,
       fill_and_drain,
       admit},
      {"1f1b",
       {"pipedream-flush", "dapple", "dapple-pa", "Schedule1F1B"},
       "PipeDream-2BW, ICML'21; DAPPLE, PPoPP'21",
       "one forward, one backward in turn; flush",
       "(p-1)/(m+p-1)",
       "min(p-s, m)",
       UpdateRule::flush,
       generate_1f1b,
       fill_and_drain,
       admit},
      {"dapple-pb",
       {},
       "DAPPLE, PPoPP'21",
       "1F1B with twice the warm-up, for expensive transfers; flush",
       "(p-1)/(m+p-1)",
       "min(2(p-s)-1, m)",
       UpdateRule::flush,
       generate_dapple_pb,
       fill_and_drain,
       refuse_uneven},
      {"pipedream",
       {},
       "PipeDream, SOSP'19",
       "1F1B without flush, update per microbatch, weight stashing",
       "0 in steady state",
       "p-s",
       UpdateRule::stash,
       generate_pipedream,
       none,
       refuse_unless_one_per_update},
      {"pipedream-2bw",
       {"2bw"},
       "PipeDream-2BW, ICML'21",
       "1F1B without flush, update per m >= p microbatches, two weight versions",
       "0 in steady state",
       "min(p-s, m)",
       UpdateRule::double_buffer,
       generate_pipedream_2bw,
       none,
       refuse_unless_m_covers_depth},
      {"data-parallel",
       {"bsp", "ddp"},
       "Valiant, CACM'90 (BSP); Zhang et al., ATC'17",
       "whole model per replica; bucket k, ready at r_k, reduced beside the backward; flush",
       "0; e_k = max(r_k, e_(k-1)) + t_k",
       "1",
       UpdateRule::flush,
       generate_data_parallel,
       none,
       refuse_stages,
       true},
  };
  return kTable;
}

}  // namespace

std::span<const Schedule> schedules() { return table(); }

const Schedule* find_schedule(std::string_view name) {
  const std::string wanted = folded(name);
  for (const Schedule& schedule : table()) {
    const auto is_wanted = [&](std::string_view known) { return folded(known) == wanted; };
    if (is_wanted(schedule.name) || std::ranges::any_of(schedule.aliases, is_wanted))
      return &schedule;
  }
  return nullptr;
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
