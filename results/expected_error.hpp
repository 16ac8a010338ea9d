// SPDX-License-Identifier: Apache-2.0
// How far a prediction may be off: as far as predictions of measured runs of its kind were.
//
// docs/scoreboard.md predicts published runs again and says for each kind how far off the times
// were. A job's kind is its software (stack), its chip, its number type, how its layers are
// divided, how many GPUs it takes and how fast their links are. Where a measured kind agrees in all
// of these, its median error is expected. Where none agrees, no error is promised: the nearest kind
// is named with what is different. Where that is the chip or the software, two errors more are
// named: of stacks that were carried to another chip, and of predictions on the job's chip. Models
// that are given by their times have no expected error, as theirs is the error of the times.
#pragma once

#include "base/json.hpp"
#include "scenarios/scenario.hpp"

namespace penstock {

/// Published runs of one kind, and how far off their predicted times and peaks were.
struct MeasuredRuns {
  const char* called;
  const char *stack, *chip;  ///< no stack: the device's curve of whole layers alone
  int least_gpus, most_gpus, least_tensor, most_tensor;
  bool pipelined;                                  ///< all of them have several stages
  bool context;                                    ///< sequences are divided among GPUs
  bool profiled;                                   ///< times of layers were measured
  bool fitted;                                     ///< the stack's numbers have seen these runs
  bool carried;                                    ///< the stack was fitted on another chip alone
  bool experts;                                    ///< of mixtures of experts
  bool narrow;                                     ///< some of them in types of 8 or 4 bits
  double within_bytes_per_s, between_bytes_per_s;  ///< of a GPU's links; 0: not compared
  int runs;
  double median, p90;                        ///< shares by which times were off; p90 0: unknown
  double memory_median = 0, memory_p90 = 0;  ///< the same of the peak; 0: not measured
};

/// Returns all kinds; where several are equally near, the first is preferred.
const std::vector<MeasuredRuns>& measured_runs();

/// Returns the expected error of a job's time: `fraction` (median), `nine_of_ten`,
/// `memory_fraction` (null where not known or not near), `runs`, `basis`, `fitted`, `near`,
/// `differs` (by what, where not near), `nearest[]` (where not near: the same fields of the nearest
/// runs and of those that tell how much more to expect). None of a model that is given by its
/// times.
std::optional<Json> expected_error(const Scenario& scenario);

/// Returns an expected error as the lines of "How sure?", of at most 120 columns.
std::string how_sure_text(const Json& error);

/// Returns an expected error as a sentence without a full stop: "± 2.8 % ..." or "unknown: no
/// measured runs
/// ...".
std::string expected_error_text(const Json& error);

}  // namespace penstock
