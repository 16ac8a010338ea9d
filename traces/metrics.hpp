// SPDX-License-Identifier: Apache-2.0
// What a Timeline amounts to: busy and idle time, the cause of every idle gap, the critical path.
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

/// What the metrics look at.
struct TimelineView {
  const Program& program;
  const DependencyTable& table;
  const Timeline& timeline;
};

/// One idle stretch with one cause.
struct Gap {
  Span span;
  Cause cause;
  std::uint32_t op;               ///< the op that the device waits to start; kNoOp: drain
  std::uint32_t message = kNoOp;  ///< transfer_wait: the receiver of the message in flight
};

/// Calls `report` for every gap of a device, in order.
void for_each_gap(const TimelineView& view, int device,
                  const std::function<void(const Gap&)>& report);

struct DeviceMetrics {
  double busy_s = 0;        ///< compute, recomputation and optimizer steps
  double stage_time_s = 0;  ///< first start to last end of its ops
  std::array<double, kCauses> idle_s{};
};
DeviceMetrics device_metrics(const TimelineView& view, int device);

/// A stretch of the critical path: consecutive ops of one device, one message, one all-reduce;
/// `wait` only in measured timelines, where an op may start later than anything it waited for.
struct PathSegment {
  enum class Kind : std::uint8_t { compute, transfer, reduction, wait } kind;
  int device;  ///< of the ops; of the receiver for a message
  std::uint32_t first, last;
  double start_s, end_s;
  double contended_s = 0;  ///< part of it that links of its own would have saved
  int link = -1;           ///< where that was lost; -1: nowhere, or unknown
};
inline constexpr std::string_view kPathKindNames[] = {"compute", "transfer", "reduction", "wait"};

/// A part of a gradient reduction: it can start when `ready` of the time of its stage's last
/// backward has passed on every replica, and takes `seconds` where nothing else uses its links.
struct ReductionPart {
  double ready = 1;
  double seconds = 0;
  std::uint16_t stage = GradientBucket::kAllStages;
};
/// By replica group of Barriers.
using ReductionParts = std::vector<std::vector<ReductionPart>>;

/// The chain of ops, messages and reductions, each starting when the one before ends, that ends
/// with the last op of the run; in order of time. It enters a reduction at the part from which on
/// there was no pause, and leaves the op that this part waited for where it was ready. Without
/// `parts` a reduction has one, after the last backward. `contended_s` is set for reductions.
std::vector<PathSegment> critical_path(const TimelineView& view, const ReductionParts& parts = {});

}  // namespace penstock
