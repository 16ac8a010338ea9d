// Training a plan's model for real, sequentially, under the plan's weight-version rule: what a
// pipelined execution of the same plan would have learned, bit for bit, without its waiting.
#pragma once

#include "hw/run.hpp"

namespace penstock {

/// After one update.
struct CurvePoint {
  std::uint32_t update = 0;  ///< updates made, from 1 on
  double loss = 0;           ///< mean over the microbatches of the update, before it
  std::optional<double> evaluation_loss = {};  ///< of held-out data, after it
};

struct TrainingCurve {
  std::vector<CurvePoint> points;
  std::string weights_digest;        ///< as RecordedRun's; of the last point
  std::optional<double> loss_floor;  ///< that no mean loss can be below, where it is known
  std::int64_t parameters = 0;
  double seconds = 0;           ///< of this process, on the wall, in all its parts
  std::string stopped_because;  ///< empty: all updates were made
};

struct TrainingOptions {
  std::string checkpoint;  ///< a file, written now and then and at the end; empty: none
  bool resume = false;     ///< from it, where it is there
  double checkpoint_every_s = 60;
  std::function<bool()> stop;                       ///< asked between two updates
  std::function<void(const CurvePoint&)> progress;  ///< after each
};

/// Trains on a device of the host. Where the loss is no number any more the run has diverged: it
/// stops and says so. Throws InputError where the plan has no sequential run, or the checkpoint is
/// of another one.
TrainingCurve train(const RunPlan& plan, const RunOptions& run, const TrainingOptions& options);

/// As the file that `penstock-run --train` writes.
std::string to_text(const TrainingCurve& curve);

}  // namespace penstock
