// Models as planners see them: a profile of layers, or a transformer by its shape.
#pragma once

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

 private:
  TransformerSpec spec_;
  DeviceSpec device_;
};

}  // namespace penstock
