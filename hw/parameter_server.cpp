#include "hw/parameter_server.hpp"

#include "base/error.hpp"
#include "hw/optimizer_step.hpp"

namespace penstock {

ParameterServer::ParameterServer(const RunPlan& plan, const Stage& stage, Device& device)
    : plan_(plan),
      parameters_(stage.sizes().parameters),
      device_(device),
      pulled_(static_cast<std::size_t>(plan.program.placement.devices())) {
  invariant(device.math().element_bytes() == 4, "a parameter server has fp32 weights");
  const std::int64_t bytes = parameters_ * 4;
  std::vector<float> weights(static_cast<std::size_t>(parameters_));
  stage.initialize(weights);
  weights_ = device.allocate(kComputeQueue, bytes);
  for (int i = 0; i < plan.optimizer.moments(); ++i) {
    moments_[i] = device.allocate(kComputeQueue, bytes);
    device.math().zero(bytes, {moments_[i]});
  }
  device.upload({weights_}, weights.data(), bytes);
}

void ParameterServer::exchange(std::uint32_t replica, std::int64_t position, WeightStore& own,
                               Device& device) {
  device.record(kComputeQueue)->time_s();  // others need not wait for its backward
  const std::lock_guard turn(mutex_);
  updates_.push_back({replica, pulled_[replica]});
  const auto made = static_cast<std::uint32_t>(updates_.size());
  issue_optimizer_step(device.math(), plan_, 0, parameters_,
                       {.master_in = {weights_},
                        .master_out = {weights_},
                        .working_out = {},
                        .gradient = own.gradients(),
                        .first_moment = {moments_[0]},
                        .second_moment = {moments_[1]}},
                       made, plan_.program.microbatches_per_update);
  own.take(position, {weights_});
  device.record(kComputeQueue)->time_s();
  pulled_[replica] = made;
}

std::vector<LoneUpdate> ParameterServer::updates() const {
  const std::lock_guard turn(mutex_);
  return updates_;
}

std::uint32_t ParameterServer::version(std::uint32_t replica, std::uint32_t number) const {
  const std::lock_guard turn(mutex_);
  for (const LoneUpdate& update : updates_)
    if (update.replica == replica && number-- == 0) return update.version;
  throw InternalBug("an update of a replica is asked for that was not made");
}

std::string ParameterServer::weights() const {
  std::string bytes(static_cast<std::size_t>(parameters_ * 4), '\0');
  device_.download(bytes.data(), {weights_}, parameters_ * 4);
  return bytes;
}

}  // namespace penstock
