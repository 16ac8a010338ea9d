// Spreads points over workers and hands their rows to one sink, in the order in which they come.
//
// Every worker is a process, also for `exact` points, which could share one: a crash in a thread
// would end the sweep, that of a process costs its point only. A worker answers one point after the
// other, several being handed over at a time so that messages cost nothing; it is small, as SimGrid
// forks it for each of its points. The workers are forked by a supervisor, which is forked before
// there are results, and says how they end:
//
//     rank 0: next, take ── supervisor ── worker ── SimGrid
//           ╲                        ╲─── worker …
//            ╲─ (TCP) ── supervisor of rank 1 ── worker …
//
// A worker that crashes: the point it had in hand is tried again in a process of its own, and is a
// row `failed` when that crashes, too; whatever else it held is handed out again. A point
// that takes longer than the limit is `failed` at once (a second try would cost as much). When
// there is nothing left to hand out, who is idle gets what others have not begun. Rows are counted
// once, whoever sends them. When the parent ends, however it does, so do its workers.
//
// Many nodes: `mpirun` and `srun` are used for starting the ranks, and for that alone. Points and
// rows go over TCP, from every worker straight to rank 0, because MPI would make it worse: with it
// the loss of a rank is by default the end of all, messages to a lost rank may wait for ever,
// forking is discouraged, and a program that links it does not start without it. So any Open MPI,
// MPICH, Slurm or torchrun does, and penstock needs none of them. A rank that dies costs what it
// had begun (where the launcher lets the others live: `mpirun --enable-recovery`, `srun --no-kill`;
// else
// `--resume`), one that comes late gets what is left, and rank 0 waits for none. See
// base/meeting.hpp for how they meet.
#pragma once

#include "base/meeting.hpp"
#include "sweep/points.hpp"
#include "sweep/row.hpp"

#include <atomic>
#include <functional>
#include <optional>

namespace penstock {

struct WorkerOptions {
  int jobs = 0;              ///< workers of this rank; 0: as many as there are cores for it
  double point_limit_s = 0;  ///< of one point; 0: none
  /// Set by a signal: no new points, those that have been begun are finished.
  const std::atomic<bool>* stop = nullptr;
  std::optional<GroupSettings> group = {};  ///< of this rank; none: it is alone
  /// True while too many rows wait for one that is still to come: no new points. None: never.
  std::function<bool()> full = {};
  std::function<void()> tick = {};  ///< called on rank 0 several times a second; none: nothing
  std::string told = {};            ///< what rank 0 has to say to all ranks before they begin
};

/// Called in a worker. What it throws makes a row `failed`.
using Evaluate = std::function<Row(const Point&)>;
/// The next point to visit, or nothing when there are no more.
using NextPoint = std::function<std::optional<Point>()>;
using TakeRow = std::function<void(Row&&)>;

/// Visits all points, on rank 0; `next` and `take` are called on this thread. To be called on the
/// main thread (when a thread ends, so do its workers), while the process is small and has no other
/// threads. Throws SystemError when there can be no processes or the ranks do not meet, and what
/// `next` and `take` throw.
void visit(const Evaluate& evaluate, const NextPoint& next, const TakeRow& take,
           const WorkerOptions& options);

/// Is this a rank that works for another?
bool works_for_rank_0(const WorkerOptions& options);
/// On such a rank: until rank 0 has ended. `prepare` makes of what that told what its workers do;
/// where rank 0 cannot be found, `is_done` is asked whether it has ended because all is done.
/// Throws SystemError.
void work_for_rank_0(const std::function<Evaluate(const std::string& told)>& prepare,
                     const std::function<bool()>& is_done, const WorkerOptions& options);

}  // namespace penstock
