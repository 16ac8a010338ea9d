// SPDX-License-Identifier: Apache-2.0
// Distributes points over workers and hands their rows to one sink, in the order in which they
// come.
//
// Every worker is a process, even for `exact` points, which could share one: a crash in a thread
// would end the sweep, while that of a process costs only its point. A worker answers one point
// after the other; several are handed over at a time, so that messages cost nothing. It is small,
// as SimGrid forks it for each of its points.
//
// When a worker crashes, the point that it evaluated is tried again in a process of its own, and is
// a row `failed` when that crashes, too; the other points that it held are handed out again. A
// point that takes longer than the limit is `failed` at once, as a second try would cost as much.
// When no points are left to hand out, idle workers get points that others have not begun. A row is
// counted once, whoever sends it. When the parent ends, in whatever way, so do its workers.
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
  int jobs = 0;              ///< the number of workers; 0: as many as this process has cores
  double point_limit_s = 0;  ///< the most seconds of one point; 0: no limit
  /// When a signal has set it, no new points are handed out, and those that have begun are
  /// finished.
  const std::atomic<bool>* stop = nullptr;
  /// Returns whether too many rows wait for one that is still to come; no new points are handed out
  /// then.
  std::function<bool()> full = {};
  std::function<void()> tick = {};  ///< is called several times a second
  /// Returns how many points have no row yet, so that the last ones are spread evenly.
  std::function<std::uint64_t()> left = {};
};

/// Returns the row of a point. It is called in a worker, and what it throws makes a row `failed`.
using Evaluate = std::function<Row(const Point&)>;
/// Returns the next point to visit, or none when there are no more.
using NextPoint = std::function<std::optional<Point>()>;
using TakeRow = std::function<void(Row&&)>;

/// Visits all points, and calls `next` and `take` on this thread. Must be called on the main thread
/// (when a thread ends, so do its workers), while the process is small and has no other threads.
/// Throws SystemError when no process can be started, and what `next` and `take` throw.
void visit(const Evaluate& evaluate, const NextPoint& next, const TakeRow& take,
           const WorkerOptions& options);

}  // namespace penstock
