// SPDX-License-Identifier: Apache-2.0
// Requests and results of a calibration as JSON, for the program that measures on another machine.
#include "base/error.hpp"
#include "hw/calibration.hpp"
#include "hw/fields.hpp"

namespace penstock {

constexpr std::string_view kPrecisionNames[] = {"fp32", "bf16"};
constexpr std::string_view kOpNames[] = {"F", "B", "I", "W", "REDUCE_GRAD", "STEP"};

constexpr const auto& names_of(Precision) { return kPrecisionNames; }
constexpr const auto& names_of(StageRole) { return kStageRoleNames; }
constexpr const auto& names_of(OpKind) { return kOpNames; }
constexpr const auto& names_of(TrafficPattern) { return kTrafficNames; }

void each_field(Like<CalibrationRequest> auto& r, auto&& visit) {
  visit("model", r.model);
  visit("precision", r.precision);
  visit("optimizer", r.optimizer);
  visit("microbatch_sizes", r.microbatch_sizes);
  visit("recompute", r.recompute);
  visit("layer_counts", r.layer_counts);
  visit("message_bytes", r.message_bytes);
  visit("workers", r.workers);
  visit("rotation", r.rotation);
  visit("warmup", r.warmup);
  visit("min_repetitions", r.min_repetitions);
  visit("max_repetitions", r.max_repetitions);
  visit("stage_s", r.stage_s);
  visit("spread", r.spread);
  visit("link", r.link);
  visit("partitions", r.partitions);
  visit("seed", r.seed);
}

void each_field(Like<Sample> auto& s, auto&& visit) {
  visit("n", s.n);
  constexpr FieldRange kAnySign{-kLongestField_s};  // of clocks of two devices
  visit("median_s", s.median_s, kAnySign);
  visit("p5_s", s.p5_s, kAnySign);
  visit("p95_s", s.p95_s, kAnySign);
}

void each_field(Like<StageShape> auto& s, auto&& visit) {
  visit("role", s.role);
  visit("layers", s.layers);
  visit("microbatch_size", s.microbatch_size);
  visit("recompute", s.recompute);
}

void each_field(Like<StageSizes> auto& s, auto&& visit) {
  visit("parameters", s.parameters);
  visit("input_bytes", s.input_bytes);
  visit("output_bytes", s.output_bytes);
  visit("saved_bytes", s.saved_bytes);
  visit("saved_for_weight_bytes", s.saved_for_weight_bytes);
  visit("kept_bytes", s.kept_bytes);
  visit("weight_needs_input", s.weight_needs_input);
  visit("forward_workspace_bytes", s.forward_workspace_bytes);
  visit("backward_workspace_bytes", s.backward_workspace_bytes);
}

void each_field(Like<OpMeasurement> auto& m, auto&& visit) {
  visit("stage", m.stage);
  visit("load", m.load);
  visit("op", m.kind);
  visit("time", m.time);
}

void each_field(Like<StageMeasurement> auto& m, auto&& visit) {
  visit("stage", m.stage);
  visit("sizes", m.sizes);
}

void each_field(Like<LinkMeasurement> auto& m, auto&& visit) {
  visit("traffic", m.traffic);
  visit("bytes", m.bytes);
  visit("load", m.load);
  visit("first", m.first);
  visit("last", m.last);
}

void each_field(Like<CalibrationResult> auto& r, auto&& visit) {
  visit("request", r.request);
  visit("backend", r.backend);
  visit("machine", r.machine);
  visit("stages", r.stages);
  visit("ops", r.ops);
  visit("links", r.links);
}

namespace {

constexpr int kVersion = 1;

template <class T>
T read(const std::string& text, const std::string& origin, const char* mark) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || !json.contains(mark) || json.at(mark) != kVersion)
    throw InputError(origin, fmt::format("has no '{}': {}", mark, kVersion));
  return from_fields<T>(json, origin, mark);
}

constexpr const char* kRequest = "penstock_calibration_request";
constexpr const char* kResult = "penstock_calibration_result";

}  // namespace

std::string to_json(const CalibrationRequest& request) {
  return text_of_fields(request, kRequest, kVersion);
}
std::string to_json(const CalibrationResult& result) {
  return text_of_fields(result, kResult, kVersion);
}

CalibrationRequest parse_calibration_request(const std::string& json, const std::string& origin) {
  return read<CalibrationRequest>(json, origin, kRequest);
}

CalibrationResult parse_calibration_result(const std::string& json, const std::string& origin) {
  return read<CalibrationResult>(json, origin, kResult);
}

}  // namespace penstock
