// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

/// Recomputing a layer is running its forward again.
void recompute_all(std::vector<LayerState>& states) {
  for (LayerState& state : states) state.backward_s += state.forward_s;
}

std::vector<int> layers_of(const TransformerSpec& spec) {
  return std::vector<int>(static_cast<std::size_t>(spec.num_layers), 1);
}

/// Cuts behind each layer, from the costs of stages of one layer each.
std::vector<LayerState> chain_of(const std::vector<StageCosts>& costs) {
  std::vector<LayerState> states;
  LayerState sum;
  for (const StageCosts& c : costs) {
    sum.forward_s += c[OpKind::forward].seconds;
    sum.backward_s += c[OpKind::backward].seconds;
    sum.activation_bytes += static_cast<double>(c.activation_bytes);
    sum.parameter_bytes += static_cast<double>(c.reduced_bytes);
    sum.cut_bytes = static_cast<double>(c.output_bytes);
    sum.name = fmt::format("layer {}", states.size());
    sum.layers = {static_cast<int>(states.size())};
    states.push_back(sum);
  }
  make_chain(states);
  return states;
}

}  // namespace

ProfileModel::ProfileModel(PipedreamProfile profile, double batch, ParameterBytes bytes)
    : profile_(std::move(profile)), batch_(batch), bytes_(bytes) {}

std::vector<LayerState> ProfileModel::chain(double microbatch, Recompute recompute) const {
  std::vector<LayerState> states = chain_states(profile_, microbatch / batch_);
  if (recompute != Recompute::none) recompute_all(states);
  return states;
}

std::vector<LayerState> ProfileModel::states(double microbatch, std::size_t most) const {
  return antichain_states(profile_, microbatch / batch_, most);
}

double ProfileModel::state_bytes() const {
  double parameters = 0;
  for (const ProfiledLayer& layer : profile_.layers) parameters += layer.parameter_bytes / 4;
  return parameters * (bytes_.weights + bytes_.gradients + bytes_.optimizer);
}

double ProfileModel::kept_bytes(double microbatch) const {
  double bytes = 0;
  for (const ProfiledLayer& layer : profile_.layers) bytes += layer.kept_bytes();
  return bytes * microbatch / batch_;
}

double ProfileModel::layer_input_bytes(double microbatch) const {
  return std::ranges::max(profiled_cut_bytes(profile_)) * microbatch / batch_;
}

TransformerModel::TransformerModel(TransformerSpec spec, DeviceSpec device)
    : spec_(std::move(spec)), device_(std::move(device)) {}

std::vector<LayerState> TransformerModel::chain(double microbatch, Recompute recompute) const {
  return chain_of(stage_costs(spec_, device_, layers_of(spec_), {microbatch, recompute}));
}

std::vector<LayerState> TransformerModel::states(double microbatch, std::size_t) const {
  return chain(microbatch, Recompute::none);
}

double TransformerModel::state_bytes() const {
  const ParameterBytes& b = spec_.bytes;
  return static_cast<double>(spec_.parameters()) * (b.weights + b.gradients + b.optimizer);
}

double TransformerModel::kept_bytes(double microbatch) const {
  return chain(microbatch, Recompute::none).back().activation_bytes;
}

double TransformerModel::layer_input_bytes(double microbatch) const {
  return spec_.layer_input_bytes(microbatch);
}

ProfiledTransformerModel::ProfiledTransformerModel(TransformerSpec spec, LayerProfile layer_profile,
                                                   int devices)
    : TransformerModel(std::move(spec), {}),
      profile_(std::move(layer_profile)),
      devices_(devices) {}

ProfileUse ProfiledTransformerModel::use(double microbatch, Recompute recompute) const {
  return profile_.use(microbatch, recompute, devices_);
}

ProfileRow ProfiledTransformerModel::row(double microbatch, Recompute recompute) const {
  return profile_.row(use(microbatch, recompute));
}

std::vector<LayerState> ProfiledTransformerModel::chain(double microbatch,
                                                        Recompute recompute) const {
  ProfileRow layers = row(microbatch, recompute);
  const double once_bytes = std::exchange(layers.overhead, {}).activation_bytes;
  std::vector<LayerState> states =
      chain_of(profiled_stage_costs(spec(), layers, ProfileStep{}, layers_of(spec())));
  for (LayerState& state : states) state.activation_bytes += once_bytes;
  return states;
}

std::string ProfiledTransformerModel::refuse(double microbatch, Recompute recompute) const {
  const ProfileUse asked = use(microbatch, recompute);
  for (const auto why :
       {&LayerProfile::refuse_recompute, &LayerProfile::refuse_load, &LayerProfile::refuse_size})
    if (std::string text = (profile_.*why)(asked); !text.empty()) return text;
  return "";
}

}  // namespace penstock
