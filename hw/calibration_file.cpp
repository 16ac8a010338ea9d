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
  VISIT_FIELDS(visit, r, model, precision, optimizer, microbatch_sizes, recompute, layer_counts,
               message_bytes, workers, rotation, warmup, min_repetitions, max_repetitions, stage_s,
               spread, link, partitions, seed);
}

void each_field(Like<Sample> auto& s, auto&& visit) {
  visit("n", s.n);
  constexpr FieldRange kAnySign{-kLongestField_s};  // of clocks of two devices
  visit("median_s", s.median_s, kAnySign);
  visit("p5_s", s.p5_s, kAnySign);
  visit("p95_s", s.p95_s, kAnySign);
}

void each_field(Like<StageShape> auto& s, auto&& visit) {
  VISIT_FIELDS(visit, s, role, layers, microbatch_size, recompute);
}

void each_field(Like<StageSizes> auto& s, auto&& visit) {
  VISIT_FIELDS(visit, s, parameters, input_bytes, output_bytes, saved_bytes, saved_for_weight_bytes,
               kept_bytes, weight_needs_input, forward_workspace_bytes, backward_workspace_bytes);
}

void each_field(Like<OpMeasurement> auto& m, auto&& visit) {
  VISIT_FIELDS(visit, m, stage, load);
  visit("op", m.kind);
  visit("time", m.time);
}

void each_field(Like<StageMeasurement> auto& m, auto&& visit) {
  VISIT_FIELDS(visit, m, stage, sizes);
}

void each_field(Like<LinkMeasurement> auto& m, auto&& visit) {
  VISIT_FIELDS(visit, m, traffic, bytes, load, first, last);
}

void each_field(Like<CalibrationResult> auto& r, auto&& visit) {
  VISIT_FIELDS(visit, r, request, backend, machine, stages, ops, links);
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
