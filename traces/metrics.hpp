// SPDX-License-Identifier: Apache-2.0
// Metrics of a Timeline: busy and idle time, the cause of every idle gap, the critical path.
//
// Each idle gap of a device has one cause per instant: before its first op = warmup; its message is
// in flight (or its own send holds it) = transfer_wait; the peer has not finished the op =
// imbalance; after its last op = drain; waiting for the reduction or the optimizer =
// gradient_reduction. REDUCE_GRAD itself is communication: idle, gradient_reduction.
#pragma once

#include "program/dependencies.hpp"
#include "program/program.hpp"
#include "program/timeline.hpp"

#include <array>
#include <functional>
#include <limits>
#include <string_view>

namespace penstock {

enum class Cause : std::uint8_t { warmup, imbalance, transfer_wait, drain, gradient_reduction };
inline constexpr std::size_t kCauses = 5;
inline constexpr std::string_view kCauseNames[kCauses] = {"warmup", "imbalance", "transfer_wait",
                                                          "drain", "gradient_reduction"};

/// A part of a run.
struct TimeWindow {
  double from_s = 0, to_s = std::numeric_limits<double>::infinity();

  bool shows(double start_s, double end_s) const { return end_s >= from_s && start_s <= to_s; }
};

/// What metrics are computed from: a run and its times.
struct TimelineView {
  const Program& program;
  const DependencyTable& table;
  const Timeline& timeline;
};

/// One idle stretch with one cause.
struct Gap {
  Span span;
  Cause cause;
  std::uint32_t op;  ///< the op that the device waits to start; kNoOp in the drain
  /// with transfer_wait, the op that receives the message in flight
  std::uint32_t message = kNoOp;
};

/// Calls `report` for every gap of a device, in order.
void for_each_gap(const TimelineView& view, int device,
                  const std::function<void(const Gap&)>& report);

struct DeviceMetrics {
  double busy_s = 0;        ///< compute, recomputation and optimizer steps
  double stage_time_s = 0;  ///< from the first start to the last end of its ops
  std::array<double, kCauses> idle_s{};
};
/// Returns the busy and idle time of a device.
DeviceMetrics device_metrics(const TimelineView& view, int device);

/// A stretch of the critical path: consecutive ops of one device, one message, or one all-reduce.
/// Only measured timelines have `wait`, as an op may start later there than anything that it waited
/// for.
struct PathSegment {
  enum class Kind : std::uint8_t { compute, transfer, reduction, wait } kind;
  int device;  ///< the device of the ops, or that of the receiver of a message
  std::uint32_t first, last;
  double start_s, end_s;
  double contended_s = 0;  ///< the part of it that links of its own would save
  int link = -1;           ///< the link on which most of that was lost; -1: none, or unknown
};
inline constexpr std::string_view kPathKindNames[] = {"compute", "transfer", "reduction", "wait"};

/// A part of a gradient reduction. It can start when the share `ready` of the time of its stage's
/// last backward has passed on every replica, and takes `seconds` while nothing else uses its
/// links.
struct ReductionPart {
  double ready = 1;
  double seconds = 0;
  std::uint16_t stage = GradientBucket::kAllStages;
};
/// The parts of the reduction of each replica group.
using ReductionParts = std::vector<std::vector<ReductionPart>>;

/// Returns the critical path in order of time: the chain of ops, messages and reductions, each of
/// which starts when the one before ends, up to the last op of the run. It enters a reduction at
/// the part after which there was no pause, and leaves the op that this part waited for at the time
/// at which the part was ready. Without `parts` a reduction is one part after the last backward.
/// `contended_s` is set for reductions alone.
std::vector<PathSegment> critical_path(const TimelineView& view, const ReductionParts& parts = {});

}  // namespace penstock
