// SPDX-License-Identifier: Apache-2.0
// Models as planners see them: a profile of layers, or a transformer by its shape, its times those
// of a device or measured.
#pragma once

#include "models/layer_profile.hpp"
#include "models/stage_costs.hpp"
#include "plan/plan.hpp"

namespace penstock {

/// Measured layers. Times and activations go with the microbatch.
class ProfileModel : public PlanModel {
 public:
  /// `batch`: samples in a minibatch of the profile.
  ProfileModel(PipedreamProfile profile, double batch, ParameterBytes bytes = kSinglePrecision);

  std::vector<LayerState> chain(double microbatch, Recompute recompute) const override;
  std::vector<LayerState> states(double microbatch, std::size_t most) const override;
  double state_bytes() const override;
  double kept_bytes(double microbatch) const override;
  double layer_input_bytes(double microbatch) const override;
  bool alike() const override { return false; }

  /// fp32 weights and gradients, two moments (Adam).
  static constexpr ParameterBytes kSinglePrecision{4, 4, 8, 4, 4};

 private:
  PipedreamProfile profile_;
  double batch_;
  ParameterBytes bytes_;
};

/// Transformer layers on one kind of device; the first one has the embedding, the last one the LM
/// head.
class TransformerModel : public PlanModel {
 public:
  TransformerModel(TransformerSpec spec, DeviceSpec device);

  std::vector<LayerState> chain(double microbatch, Recompute recompute) const override;
  std::vector<LayerState> states(double microbatch, std::size_t most) const override;
  double state_bytes() const override;
  double kept_bytes(double microbatch) const override;
  double layer_input_bytes(double microbatch) const override;
  bool alike() const override { return true; }
  const TransformerSpec& spec() const { return spec_; }

 private:
  TransformerSpec spec_;
  DeviceSpec device_;
};

/// Transformer layers as `penstock calibrate` measured them. What every stage takes once, whatever
/// its layers, belongs to no layer: its time is left out, its bytes are counted once for the model.
class ProfiledTransformerModel final : public TransformerModel {
 public:
  /// `devices`: of the plan; they say under which load rows must have been measured.
  ProfiledTransformerModel(TransformerSpec spec, LayerProfile layer_profile, int devices);

  std::vector<LayerState> chain(double microbatch, Recompute recompute) const override;
  std::string refuse(double microbatch, Recompute recompute) const override;
  /// The row that such microbatches take their times from. Precondition: they are not refused.
  ProfileRow row(double microbatch, Recompute recompute) const;

 private:
  ProfileUse use(double microbatch, Recompute recompute) const;

  LayerProfile profile_;
  int devices_;
};

}  // namespace penstock
