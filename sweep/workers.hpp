// Spreads points over workers and hands their rows to one sink, in the order in which they come.
//
// `exact` points are evaluated by threads; what needs simgrid in processes forked from a lean parent
// (one process per simulation: SimGrid's engine cannot be created twice; a fork costs what the
// parent's memory costs). A worker that crashes or takes too long costs its point only.
#pragma once

#include "sweep/evaluate.hpp"

#include <functional>
#include <optional>

namespace penstock {

struct WorkerOptions {
  int jobs = 0;                   ///< 0: as many as there are cores
  double point_limit_s = 0;       ///< of a point in a process of its own; 0: none
  const bool* stop = nullptr;     ///< set by a signal: no new points, what runs is finished
};

/// The next point to visit, or nothing when there are no more.
using NextPoint = std::function<std::optional<Point>()>;
/// Called on one thread at a time.
using TakeRow = std::function<void(Row&&)>;

/// Visits all points. `next` and `take` are never called at the same time by two threads.
/// Throws SystemError when processes cannot be started.
void visit(const Evaluator& evaluator, const NextPoint& next, const TakeRow& take,
           const WorkerOptions& options);

}  // namespace penstock
