// SPDX-License-Identifier: Apache-2.0
#include "schedules/schedule_json.hpp"

#include "schedules/evaluate.hpp"

#include <algorithm>
#include <string_view>

namespace penstock {
namespace {

std::string_view backward_of(const ImportedSchedule& s) {
  return !s.split_backward ? "full" : s.full_backward ? "full and split" : "split";
}

Json device_times_json(const ImportedSchedule& s, const Evaluation& times, int device) {
  const auto& row = s.table.rows[static_cast<std::size_t>(device)];
  const auto count = [&](bool (*wanted)(const Action&)) {
    return std::ranges::count_if(row, wanted);
  };
  return {{"device", device},
          {"stages", s.placement.stages_at(static_cast<std::uint32_t>(device))},
          {"ops", s.order.of_device(device).size()},
          {"sends", count([](const Action& a) { return is_send(a.kind); })},
          {"empty_cells", count([](const Action& a) { return a.kind == ActionKind::bubble; })},
          {"stage_time", times.stage_times[static_cast<std::size_t>(device)]},
          {"peak_activations", times.peaks[static_cast<std::size_t>(device)]}};
}

}  // namespace

Json to_json(const BuildingBlock& without_weights) {
  const BuildingBlock block = with_weights(without_weights);
  Json bounds = Json::array();
  for (std::uint32_t d = 0; d < block.depth(); ++d) bounds.push_back(memory_bound(block, d));
  return {{"interval", block.period()},
          {"forward", block.forward},
          {"backward", block.backward},
          {"backward_input", block.backward_input},
          {"backward_weight", block.backward_weight},
          {"lifespans", lifespans(block)},
          {"bound", bounds},
          {"drawing", draw(block)}};
}

Json check_json(const ImportedSchedule& s, const std::string& file) {
  const Evaluation times =
      evaluate(s.order, s.placement, {.depth = s.depth, .microbatches_per_update = s.microbatches});
  Json devices = Json::array();
  for (int d = 0; d < s.order.devices(); ++d) devices.push_back(device_times_json(s, times, d));
  return {{"file", file},
          {"ok", true},
          {"devices", s.depth},
          {"stages", s.stages()},
          {"chunks", s.chunks},
          {"microbatches", s.microbatches},
          {"mirrored", s.placement.mirrored()},
          {"backward", backward_of(s)},
          {"communicates", s.communicates},
          {"makespan", times.makespan},
          {"rows", devices},
          {"warnings", s.warnings},
          {"errors", Json::array()}};
}

Json check_json(const InputError& error, const std::string& file) {
  Json errors = Json::array();
  for (const Diagnostic& d : error.diagnostics()) {
    errors.push_back({{"line", d.where.line}, {"column", d.where.column}, {"message", d.message}});
  }
  return {{"file", file}, {"ok", false}, {"warnings", Json::array()}, {"errors", errors}};
}

}  // namespace penstock
