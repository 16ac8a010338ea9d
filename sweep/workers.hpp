// SPDX-License-Identifier: Apache-2.0
// Spreads points over workers and hands their rows to one sink, in the order in which they come.
//
// Every worker is a process, also for `exact` points, which could share one: a crash in a thread
// would end the sweep, that of a process costs its point only. A worker answers one point after the
// other, several being handed over at a time so that messages cost nothing; it is small, as SimGrid
// forks it for each of its points.
//
// A worker that crashes: the point it had in hand is tried again in a process of its own, and is a
// row `failed` when that crashes, too; whatever else it held is handed out again. A point
// that takes longer than the limit is `failed` at once (a second try would cost as much). When
// there is nothing left to hand out, who is idle gets what others have not begun. Rows are counted
// once, whoever sends them. When the parent ends, however it does, so do its workers.
//
// Workers are of one machine; many machines take a shard each: see sweep/shard.hpp.
#pragma once

#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <atomic>
#include <functional>
#include <optional>

namespace penstock {

struct WorkerOptions {
  int jobs = 0;              ///< workers; 0: as many as there are cores for this process
  double point_limit_s = 0;  ///< of one point; 0: none
  /// Set by a signal: no new points, those that have been begun are finished.
  const std::atomic<bool>* stop = nullptr;
  /// True while too many rows wait for one that is still to come: no new points. None: never.
  std::function<bool()> full = {};
  std::function<void()> tick = {};  ///< called several times a second; none: nothing
  /// Points that have no row yet, so that the last ones are spread evenly. None: unknown.
  std::function<std::uint64_t()> left = {};
};

/// Called in a worker. What it throws makes a row `failed`.
using Evaluate = std::function<Row(const Point&)>;
/// The next point to visit, or nothing when there are no more.
using NextPoint = std::function<std::optional<Point>()>;
using TakeRow = std::function<void(Row&&)>;

/// Visits all points; `next` and `take` are called on this thread. To be called on the main thread
/// (when a thread ends, so do its workers), while the process is small and has no other threads.
/// Throws SystemError when there can be no processes, and what `next` and `take` throw.
void visit(const Evaluate& evaluate, const NextPoint& next, const TakeRow& take,
           const WorkerOptions& options);

}  // namespace penstock
