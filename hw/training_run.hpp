// SPDX-License-Identifier: Apache-2.0
// Training a plan's model for real, sequentially, under the plan's weight-version rule: what a
// pipelined execution of the same plan would have learned, bit for bit, without its waiting.
#pragma once

#include "hw/run.hpp"
#include "hw/training_curve.hpp"

namespace penstock {

struct TrainingOptions {
  std::string checkpoint;  ///< a file, written now and then and at the end; empty: none
  bool resume = false;     ///< from it, where it is there
  double checkpoint_every_s = 60;
  std::function<bool()> stop;                       ///< asked between two updates
  std::function<void(const CurvePoint&)> progress;  ///< after each
};

/// What tells one training from another: a digest of the plan with all that it computes.
std::string training_identity(const RunPlan& plan);

/// Throws InputError where a file is there that is no checkpoint, or one that nobody asked to
/// continue
/// (`resume`) or to replace (`force`).
void require_free_checkpoint(const std::string& path, bool resume, bool force);

/// Trains on a device of the host. Where the loss is no number any more the run has diverged: it
/// stops and says so. Throws InputError where the plan has no sequential run, or the checkpoint is
/// of another one or damaged.
TrainingCurve train(const RunPlan& plan, const RunOptions& run, const TrainingOptions& options);

}  // namespace penstock
