// SPDX-License-Identifier: Apache-2.0
// Measures what a scenario's costs are made of: ops of a stage and messages of a link, on the same
// devices, stages and channels that execute a Program, so that nothing differs but the schedule.
//
// Ops: stages in the middle of the model with several numbers of layers, a first and a last one,
// each alone on a device and under load, when all devices run the same op at the same time. Ops are
// issued back to back with events between them, as in a run, on the buffers of several microbatches
// in turn, so that caches are as cold as in a run. Rounds of F, B, F, I, W and STEP are repeated
// until the spread of every op is small.
// Links: messages of growing size one way, and two flows at once: both ways, twice the same way,
// out of one device, into one, and between devices apart; how much slower they get says what they
// share. The fits are made elsewhere (validate/profile.hpp): a result holds what was measured and
// no more.
#pragma once

#include "hw/backend.hpp"
#include "hw/stage.hpp"

#include <functional>
#include <string>
#include <vector>

namespace penstock {

struct CalibrationRequest {
  TransformerSpec model;
  Precision precision = Precision::fp32;
  OptimizerSpec optimizer;
  std::vector<std::int64_t> microbatch_sizes = {1, 2, 4};
  std::vector<Recompute> recompute = {Recompute::none};
  std::vector<int> layer_counts = {1, 3};  ///< of middle stages; first and last ones take the first
  std::vector<std::int64_t> message_bytes = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23};
  int workers = 2;           ///< devices, all at work under load; 1: no load, no links
  int rotation = 3;          ///< microbatches whose buffers are used in turn
  int warmup = 1;            ///< rounds that are not counted
  int min_repetitions = 15;  ///< samples of every op, at least
  int max_repetitions = 120;
  double stage_s = 2;   ///< of ops of one stage after which their minimum is enough
  double spread = 0.1;  ///< (p95 - p5) / median that is small enough to stop
  std::string link;     ///< as RunSettings::link
  int partitions = 0;   ///< as RunSettings::partitions
  std::uint64_t seed = 1;
};

/// Of repeated times: seconds.
struct Sample {
  int n = 0;
  double median_s = 0, p5_s = 0, p95_s = 0;
  double spread() const { return median_s > 0 ? (p95_s - p5_s) / median_s : 0; }
};
/// Percentiles interpolate between neighbours. Precondition: not empty.
Sample summarize_times(std::vector<double> times_s);

/// Where a stage stands in the model.
enum class StageRole : std::uint8_t { first, middle, last };
inline constexpr std::string_view kStageRoleNames[] = {"first", "middle", "last"};

/// Which stage was measured.
struct StageShape {
  StageRole role = StageRole::middle;
  int layers = 1;
  std::int64_t microbatch_size = 1;
  Recompute recompute = Recompute::none;
  bool operator==(const StageShape&) const = default;
};

struct OpMeasurement {
  StageShape stage;
  int load = 1;  ///< devices at work
  OpKind kind = OpKind::forward;
  Sample time;
};

struct StageMeasurement {
  StageShape stage;
  StageSizes sizes;
};

/// Flows that were sent at once.
enum class TrafficPattern : std::uint8_t {
  one_way,    ///< 0 -> 1
  both_ways,  ///< 0 -> 1 and 1 -> 0
  same_way,   ///< 0 -> 1 twice, on two channels
  out,        ///< 0 -> 1 and 0 -> 2
  into,       ///< 0 -> 1 and 2 -> 1
  apart,      ///< 0 -> 1 and 2 -> 3
};
inline constexpr std::string_view kTrafficNames[] = {"one way", "both ways", "same way",
                                                     "out",     "into",      "apart"};

struct LinkMeasurement {
  TrafficPattern traffic = TrafficPattern::one_way;
  std::int64_t bytes = 0;  ///< of each message
  int load = 1;            ///< devices that computed meanwhile, or 1: none did
  Sample first, last;      ///< from the first departure until the first, the last arrival
};

struct CalibrationResult {
  CalibrationRequest request;
  std::string backend;
  Description machine;
  std::vector<StageMeasurement> stages;
  std::vector<OpMeasurement> ops;
  std::vector<LinkMeasurement> links;
};

/// The stage of the request's model that such a shape stands for. Throws InputError when the model
/// cannot be executed.
std::unique_ptr<Stage> calibrated_stage(const CalibrationRequest& request, const StageShape& shape);

/// What calibrate() measures with; tests put scripted devices and stages there.
struct CalibrationRig {
  std::function<std::unique_ptr<Backend>(const BackendRequest&)> open;
  std::function<std::unique_ptr<Stage>(const CalibrationRequest&, const StageShape&)> stage =
      calibrated_stage;
  /// Called before each measurement; may be empty.
  std::function<void(int done, int total, const std::string& what)> progress;
  /// Called with everything so far after each stage and each load of the links; may be empty.
  std::function<void(const CalibrationResult&)> keep = {};
  /// What an earlier call kept of the same request; it is not measured again.
  CalibrationResult former = {};
  /// After so many seconds nothing more is begun, and the result is partial; 0: no limit.
  double budget_s = 0;
};

/// Is everything there that its request asks for?
bool is_complete(const CalibrationResult& result);

/// Measures. Throws InputError when the request makes no sense, SystemError and NoHardware as the
/// backend does.
CalibrationResult calibrate(const CalibrationRequest& request, const CalibrationRig& rig);

// As JSON text. Reading throws InputError that names `origin`.
std::string to_json(const CalibrationRequest& request);
std::string to_json(const CalibrationResult& result);
CalibrationRequest parse_calibration_request(const std::string& json, const std::string& origin);
CalibrationResult parse_calibration_result(const std::string& json, const std::string& origin);

}  // namespace penstock
