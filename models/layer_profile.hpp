// SPDX-License-Identifier: Apache-2.0
// Measured costs of a transformer's stages: what `penstock calibrate` writes instead of formulas.
//
// A row holds, for one microbatch size, recomputation and load, what a layer, the embedding and the
// LM head take, and what every stage takes once, whatever its layers:
//   time of an op    overhead + layers * layer + embedding (first stage) + head (last stage)
//   activations      the same sum of bytes, the stage's input included
//   STEP             overhead + parameters * time per parameter
// Between two measured microbatch sizes everything is linear in the size; outside of them nothing
// is known and a microbatch is refused. *Load* is the number of devices that ran the same op at the
// same time: devices that share memory bandwidth, caches or power slow each other down (PipeDream,
// SOSP'19, section 3.1, profiles a device alone).
#pragma once

#include "models/gradient_buckets.hpp"
#include "models/transformer.hpp"
#include "program/per_stage.hpp"
#include "program/vocabulary.hpp"

#include <optional>
#include <vector>

namespace penstock {

struct ProfilePart {
  double forward_s = 0;
  double backward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  double activation_bytes = 0;              ///< kept from F until B, or until I
  double activation_after_input_bytes = 0;  ///< kept from I until W
  double forward_workspace_bytes = 0;
  double backward_workspace_bytes = 0;

  friend bool operator==(const ProfilePart&, const ProfilePart&) = default;
};

struct ProfileRow {
  double microbatch_size = 1;
  Recompute recompute = Recompute::none;
  int load = 1;       ///< devices at work at the same time; 1: alone
  double spread = 0;  ///< (p95 - p5) / median of the noisiest op; for information
  ProfilePart layer, embedding, head, overhead;

  friend bool operator==(const ProfileRow&, const ProfileRow&) = default;
};

/// STEP does not depend on the microbatch.
struct ProfileStep {
  int load = 1;
  double overhead_s = 0;
  double s_per_parameter = 0;

  friend bool operator==(const ProfileStep&, const ProfileStep&) = default;
};

/// Which of the rows a stage of a run uses.
struct ProfileUse {
  double microbatch_size = 1;
  Recompute recompute = Recompute::none;
  bool loaded =
      false;  ///< the rows under load: the smallest that covers `devices`, else the largest
  int devices = 1;
};

class LayerProfile {
 public:
  /// `loaded`: the rows to use for every run; none: those under load where there are several
  /// devices and that was measured.
  LayerProfile(std::vector<ProfileRow> rows, std::vector<ProfileStep> steps,
               std::optional<bool> loaded = {});

  const std::vector<ProfileRow>& rows() const { return rows_; }
  const std::vector<ProfileStep>& steps() const { return steps_; }
  bool has_load(Recompute recompute) const;
  /// Of a run on so many devices.
  ProfileUse use(double microbatch_size, Recompute recompute, int devices) const;

  /// Why there are no costs for this use: "" when there are; else what was measured.
  std::string refuse_recompute(const ProfileUse& use) const;
  std::string refuse_load(const ProfileUse& use) const;
  std::string refuse_size(const ProfileUse& use) const;

  /// The row of a use, interpolated between microbatch sizes. Precondition: nothing refuses it.
  ProfileRow row(const ProfileUse& use) const;
  /// Zero when no step was measured.
  ProfileStep step(const ProfileUse& use) const;

  /// Each number the least of all uses, whatever the devices: times also of those that recompute
  /// more, which noise must not make faster. None where nothing was measured of the recomputation.
  std::optional<ProfileRow> least_row(double microbatch_size, Recompute recompute) const;
  ProfileStep least_step() const;

 private:
  std::vector<ProfileRow> rows_of(Recompute recompute) const;
  std::vector<ProfileRow> rows_of(const ProfileUse& use) const;

  std::vector<ProfileRow> rows_;  // ascending microbatch size
  std::vector<ProfileStep> steps_;
  std::optional<bool> loaded_;
};

/// Costs of the stages when stage i holds `layers[i]` layers: times and activations measured,
/// parameters and FLOPs from the shape. Precondition: all rows are of one microbatch size.
std::vector<StageCosts> profiled_stage_costs(const TransformerSpec& model,
                                             const PerStage<ProfileRow>& rows,
                                             const PerStage<ProfileStep>& steps,
                                             const std::vector<int>& layers);

/// As stage_gradients of stage_costs.hpp, by measured times. What a stage takes once is spread over
/// its parts in proportion.
std::vector<std::vector<LayerGradient>> profiled_stage_gradients(const TransformerSpec& model,
                                                                 const PerStage<ProfileRow>& rows,
                                                                 const std::vector<int>& layers);

/// As balanced_split of stage_costs.hpp, by measured times.
std::vector<int> profiled_balanced_split(const TransformerSpec& model,
                                         const PerStage<ProfileRow>& rows,
                                         const std::vector<std::uint32_t>& positions);

}  // namespace penstock
