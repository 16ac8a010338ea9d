// SPDX-License-Identifier: Apache-2.0
// Models as planners see them: a profile of layers, or a transformer by its shape, whose times are
// computed for a device or were measured.
#pragma once

#include "models/layer_profile.hpp"
#include "models/stage_costs.hpp"
#include "plan/plan.hpp"

namespace penstock {

/// A profile of measured layers, whose times and activations are proportional to the microbatch.
class ProfileModel : public PlanModel {
 public:
  /// Makes a model of a profile with `batch` samples in a minibatch.
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

/// The layers of a transformer on one kind of device. The first one has the embedding, the last one
/// the LM head.
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

/// The layers of a transformer as `penstock calibrate` measured them. What every stage has once,
/// whatever its layers, belongs to no layer: its time is left out, and its bytes are counted once
/// for the model.
class ProfiledTransformerModel final : public TransformerModel {
 public:
  /// Makes a model for a plan of so many devices, which say under which load its rows must have
  /// been measured.
  ProfiledTransformerModel(TransformerSpec spec, LayerProfile layer_profile, int devices);

  std::vector<LayerState> chain(double microbatch, Recompute recompute) const override;
  std::string refuse(double microbatch, Recompute recompute) const override;
  /// Returns the row of the profile that such microbatches take their times from. Requires that
  /// refuse() is "".
  ProfileRow row(double microbatch, Recompute recompute) const;

 private:
  ProfileUse use(double microbatch, Recompute recompute) const;

  LayerProfile profile_;
  int devices_;
};

}  // namespace penstock
