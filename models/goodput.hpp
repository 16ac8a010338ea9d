// SPDX-License-Identifier: Apache-2.0
// The long run of a job whose devices fail: batches, checkpoints every k of them, failures,
// restarts.
//
// A failure stops the whole job; what was computed since the last complete checkpoint is lost and
// the job stands still for `restart_s`; a failure while it does begins the restart anew. Advice:
// the interval of computation between checkpoints that maximizes the goodput, for an MTBF of M and
// a save of d,
//   Young (CACM 17(9), 1974)   sqrt(2 d M)
//   Daly (FGCS 22(3), 2006)    sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d    for d < 2M,
//   else M
// and the goodput that exponential failures lead to at an interval t (Daly, equation 13):
//   t / (M e^(R/M) (e^((t+d)/M) - 1))
#pragma once

#include "models/perturbation.hpp"

namespace penstock {

struct Goodput {
  double horizon_s = 0;
  double batch_s = 0;
  std::int64_t useful_batches = 0;  ///< whose effect is not lost at the horizon
  std::int64_t lost_batches = 0;    ///< computed, and computed again later; whole ones
  int failures = 0;
  // These five add up to the horizon.
  double useful_s = 0, lost_s = 0, checkpoint_s = 0, restart_s = 0;
  double unfinished_s = 0;  ///< of the batch that the horizon cuts
  double fraction = 0;      ///< useful_s / horizon_s

  // Advice; none without failures.
  std::optional<double> mtbf_s;  ///< given, or the horizon over the failures listed
  std::optional<double> young_s, daly_s;
  std::optional<std::int64_t> best_every;             ///< batches, by Daly
  std::optional<double> expected_now, expected_best;  ///< goodput at this interval, at Daly's
};

/// Precondition: batch_s > 0.
Goodput goodput(const Reliability& reliability, double batch_s);

/// Share of the time that is useful with exponential failures, for `interval_s` of computation
/// between two checkpoints.
double expected_goodput(double interval_s, double save_s, double restart_s, double mtbf_s);

}  // namespace penstock
