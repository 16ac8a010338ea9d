// SPDX-License-Identifier: Apache-2.0
#include "validate/validation_json.hpp"

#include "results/fields.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr int kValidationSchema = 1;
Json kind_json(const KindRow& k) {
  Json out = Json::object();
  if (k.stage >= 0) out["stage"] = k.stage;
  out.update({{"kind", k.kind},
              {"count", k.count},
              {"predicted_mean_s", k.predicted_mean_s},
              {"predicted_median_s", k.predicted_median_s},
              {"measured_p5_s", k.measured.p5},
              {"measured_p50_s", k.measured.p50},
              {"measured_p95_s", k.measured.p95},
              {"error", nullable(k.error)}});
  return out;
}

Json memory_json(const MemoryUse& use) {
  Json out = Json::object();
  for (std::size_t i = 0; i < kOwners; ++i) out[std::string(kOwnerNames[i])] = use.bytes[i];
  return out;
}

Json device_row_json(const DeviceRow& d) {
  const bool measured = d.measured_memory.has_value();
  return {{"device", d.device},
          {"predicted_busy_s", d.predicted_busy_s},
          {"measured_busy_s", d.measured_busy_s},
          {"busy_error", nullable(d.busy_error)},
          {"predicted_idle_s", d.predicted_idle_s},
          {"measured_idle_s", d.measured_idle_s},
          {"predicted_bytes", d.predicted_memory.total()},
          {"measured_bytes", measured ? Json(d.measured_memory->total()) : Json()},
          {"allocator_peak_bytes", nullable(d.allocator_peak_bytes)},
          {"memory_error", nullable(d.memory_error)},
          {"predicted_memory", memory_json(d.predicted_memory)},
          {"measured_memory", measured ? memory_json(*d.measured_memory) : Json()}};
}

Json causes_json(const Causes& c) {
  return {{"gap_s", c.sum_s()},         {"op_time_s", c.op_time_s},
          {"exchange_s", c.exchange_s}, {"transfer_time_s", c.transfer_time_s},
          {"wait_s", c.wait_s},         {"launch_overhead_s", c.launch_overhead_s},
          {"rest_s", c.rest_s}};
}

Json spread_json(const IterationTimes& it) {
  if (!it.measured_s) return nullptr;
  return {{"p5_s", it.spread.p5},
          {"p50_s", it.spread.p50},
          {"p95_s", it.spread.p95},
          {"iterations", it.samples},
          {"run_medians_s", it.run_medians}};
}

Json difference_json(const OrderDifference& d) {
  return {{"run", d.run},
          {"device", d.device},
          {"position", d.position},
          {"expected", to_string(d.expected)},
          {"measured", to_string(d.measured)}};
}

Json parameter_json(const ReportedParameter& p) {
  return {{"name", p.name}, {"value", p.value}, {"unit", p.unit}, {"meaning", p.meaning}};
}

Json by_depth_json(const MeasuredSummary& summary) {
  Json out = Json::object();
  for (const auto& [depth, errors] : summary.time_by_depth)
    out[std::to_string(depth)] = to_json(errors);
  return out;
}

Json by_class_json(const MeasuredSummary& summary) {
  Json out = Json::object();
  for (const auto& [name, errors] : summary.time_by_class) out[name] = to_json(errors);
  return out;
}

Json finish_json(const FinishSummary& s) {
  return {{"n", s.count()},
          {"finished", s.finished},
          {"right", s.right()},
          {"false_alarms", s.false_alarms},
          {"missed", s.missed}};
}

bool predicted_row(const Json& row) { return !row.value("calibrated", false); }

}  // namespace

Json to_json(const ErrorSummary& s) {
  const bool any = s.n > 0;
  const auto value = [&](double number) { return any ? Json(number) : Json(nullptr); };
  return {{"mape", value(s.mape)},
          {"median", value(s.median)},
          {"max", value(s.max)},
          {"bias", value(s.bias)},
          {"n", s.n}};
}

Json row_json(const ValidationInput& in, const Validation& v) {
  const Recording& r = in.recording;
  Json out = {{"name", v.name},
              {"schedule", in.simulation.program.schedule},
              {"transfers", to_string(in.simulation.program.transfers)},
              {"depth", v.depth},
              {"backend", r.backend},
              {"clock", r.clock},
              {"compute", r.compute},
              {"measured_s", nullable(v.iteration.measured_s)},
              {"predicted_s", nullable(v.iteration.predicted_s)},
              {"error", nullable(v.iteration.error)},
              {"error_own_op_times", nullable(v.own_ops_error)},
              {"spread", spread_json(v.iteration)},
              {"measured_bytes", nullable(v.measured_bytes)},
              {"predicted_bytes", nullable(v.predicted_bytes)},
              {"memory_error", nullable(v.memory_error)},
              {"causes", v.causes ? causes_json(*v.causes) : Json()},
              {"order_equal", v.order_differences.empty()}};
  out["order_differences"] = list(v.order_differences, difference_json);
  out["kinds"] = list(v.kinds, kind_json);
  out["stages"] = list(v.stages, kind_json);
  out["devices"] = list(v.devices, device_row_json);
  out["description"] = r.description;
  out["notes"] = v.notes;
  return out;
}

Json validation_json(const std::vector<Json>& rows, const std::optional<double>& tolerance) {
  // Rows that a prediction was fitted on count only where there are no others.
  const bool any_predicted = std::ranges::any_of(rows, predicted_row);
  std::vector<RowErrors> errors;
  for (const Json& row : rows)
    if (!any_predicted || predicted_row(row))
      errors.push_back({row["depth"].get<int>(), number_in(row, "error"),
                        number_in(row, "memory_error"),
                        row.contains("error_own_op_times") ? number_in(row, "error_own_op_times")
                                                           : std::nullopt});
  const ValidationSummary s = summarize(errors);
  Json by_depth = Json::object();
  for (const auto& [depth, summary] : s.time_by_depth)
    by_depth[std::to_string(depth)] = to_json(summary);
  return {{"schema_version", kValidationSchema},
          {"tolerance", nullable(tolerance)},
          {"time", to_json(s.time)},
          {"time_own_op_times", to_json(s.own_ops)},
          {"memory", to_json(s.memory)},
          {"time_by_pp", by_depth},
          {"rows", rows}};
}

std::vector<Json> measured_rows_json(const MeasuredReport& report) {
  std::vector<Json> out;
  for (const MeasuredRowResult& r : report.rows) {
    out.push_back({{"name", r.name},
                   {"depth", r.pipeline_depth},
                   {"class", r.row_class.empty() ? Json() : Json(r.row_class)},
                   {"measured_s", nullable(r.measured_s)},
                   {"predicted_s", nullable(r.predicted_s)},
                   {"error", nullable(r.error())},
                   {"measured_bytes", nullable(r.measured_bytes)},
                   {"predicted_bytes", nullable(r.predicted_bytes)},
                   {"memory_error", nullable(r.memory_error())},
                   {"finished", nullable(r.finished)},
                   {"predicted_finished", nullable(r.predicted_finished)},
                   {"calibrated", r.fitted},
                   {"file", report.file}});
  }
  return out;
}

Json measured_report_json(const MeasuredReport& report) {
  const MeasuredSummary s = summarize(report, RowChoice::predicted);
  const MeasuredSummary fitted = summarize(report, RowChoice::fitted);
  const MeasuredSummary& by_depth = s.time.n > 0 ? s : fitted;
  Json parameters = Json::array(), notes = report.notes;
  for (const std::string& stack : report.stacks) notes.push_back(stack);
  for (const ReportedParameter& p : report.parameters) parameters.push_back(parameter_json(p));
  return {{"file", report.file},
          {"format", report.format},
          {"protocol", report.protocol},
          {"parameter_count", report.parameters.size()},
          {"parameters", parameters},
          {"time", to_json(s.time)},
          {"time_by_pp", by_depth_json(by_depth)},
          {"time_by_class", by_class_json(by_depth)},
          {"time_of_pipelines", to_json(by_depth.time_of_pipelines)},
          {"time_calibrated", to_json(fitted.time)},
          {"memory", to_json(s.memory)},
          {"memory_calibrated", to_json(fitted.memory)},
          {"finished", finish_json(finish_summary(report))},
          {"left_out", report.left_out},
          {"stacks", report.stacks},
          {"notes", notes}};
}

}  // namespace penstock
