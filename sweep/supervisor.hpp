// Keeps a number of worker processes alive, and tells rank 0 how each of them ended.
//
// A worker notes the point that it has in hand in memory it shares with its supervisor, so that
// after a crash the guilty point is known, though many had been handed over.
#pragma once

#include "sweep/messages.hpp"
#include "sweep/workers.hpp"

namespace penstock {

struct Team {
  const Evaluate& evaluate;
  int rank = 0;
  int jobs = 1;
  double point_limit_s = 0;
  int first_number = 0;  ///< of its workers
};

/// Returns when rank 0 has ended or wants no more; no worker is left then. Throws SystemError when
/// no worker can be started.
void supervise(const Team& team, const Door& door);

/// Forked from here, in a process that ends with this one.
pid_t start_supervisor(const Team& team, const Door& door);

}  // namespace penstock
