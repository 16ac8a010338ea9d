// SPDX-License-Identifier: Apache-2.0
#include "hw/parameter_server.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace penstock {
namespace {

constexpr std::chrono::microseconds kNap{20};

std::vector<Op> steps_of(const RunPlan& plan, int device) {
  std::vector<Op> steps;
  std::ranges::copy_if(plan.program.ops.of_device(device), std::back_inserter(steps),
                       [](const Op& op) { return op.kind == OpKind::step; });
  return steps;
}

}  // namespace

/// A replica of another process, whose next gradient has a place to go to.
struct ParameterServer::Remote {
  std::uint32_t replica;
  ReceivingEnd& gradients;
  SendingEnd& weights;
  std::vector<Op> steps;
  std::size_t made = 0;
  Block* gradient = nullptr;
  Event arrived = nullptr;

  bool done() const { return made == steps.size(); }
};

ParameterServer::ParameterServer(const RunPlan& plan, const Stage& stage, Device& device,
                                 Device& own)
    : plan_(plan),
      parameters_(stage.sizes().parameters),
      device_(device),
      own_(own),
      optimizer_(plan, 0, stage.sizes(), device),
      pulled_(static_cast<std::size_t>(plan.program.placement.devices())) {
  const std::int64_t bytes = parameters_ * 4;
  std::vector<float> weights(static_cast<std::size_t>(parameters_));
  stage.initialize(weights);
  weights_ = device.allocate(kComputeQueue, bytes);
  device.upload({weights_}, weights.data(), bytes);
}

void ParameterServer::exchange(std::uint32_t replica, std::int64_t position, WeightStore& own,
                               Device& device) {
  device.record(kComputeQueue)->time_s();  // others need not wait for its backward
  const std::lock_guard turn(mutex_);
  update(replica, own.gradients(), device);
  own.take_weights(position, {weights_});
  device.record(kComputeQueue)->time_s();
}

/// Issues it on a device whose turn it is; the replica then has what comes of it.
void ParameterServer::update(std::uint32_t replica, Tensor gradient, Device& device) {
  updates_.push_back({replica, pulled_[replica]});
  pulled_[replica] = static_cast<std::uint32_t>(updates_.size());
  optimizer_.issue(
      device.math(),
      {.master_in = {weights_}, .master_out = {weights_}, .working_out = {}, .gradient = gradient},
      pulled_[replica], plan_.program.microbatches_per_update);
}

void ParameterServer::serve(const std::vector<int>& devices, Backend& backend,
                            const RunControl& control) {
  constexpr auto kKind = Transfer::Kind::reduction;
  std::vector<Remote> remotes;
  for (const int d : devices) {
    remotes.push_back({.replica = plan_.program.placement.replica_of(d),
                       .gradients = backend.receiving(channel_between(plan_, d, 0, false, kKind)),
                       .weights = backend.sending(channel_between(plan_, 0, d, false, kKind)),
                       .steps = steps_of(plan_, d)});
    post(remotes.back());
  }
  while (!std::ranges::all_of(remotes, &Remote::done)) {
    bool idle = true;
    for (Remote& remote : remotes) {  // in turn, so that none is passed over
      if (remote.done() || !remote.arrived->fired()) continue;
      answer(remote);
      idle = false;
    }
    control.throw_if_stopped();
    if (idle) std::this_thread::sleep_for(kNap);
  }
}

void ParameterServer::post(Remote& remote) {
  const std::int64_t bytes = parameters_ * 4;
  remote.gradient = device_.allocate(remote.gradients.queue(), bytes);
  remote.arrived =
      remote.gradients.receive(nullptr, remote.gradient, bytes, remote.steps[remote.made]).arrived;
}

void ParameterServer::answer(Remote& remote) {
  const std::int64_t bytes = parameters_ * 4;
  const Op& step = remote.steps[remote.made++];
  Block* copy = device_.allocate(remote.weights.queue(), bytes);
  own_.wait(kComputeQueue, device_.record(remote.weights.queue()));
  own_.wait(kComputeQueue, remote.arrived);
  const Event done = [&] {
    const std::lock_guard turn(mutex_);
    update(remote.replica, {remote.gradient}, own_);
    own_.math().copy(bytes, {weights_}, {copy});
    Event end = own_.record(kComputeQueue);
    end->time_s();
    return end;
  }();
  remote.weights.send(done, copy, bytes, step);
  device_.release(remote.weights.queue(), copy);
  device_.release(remote.gradients.queue(), remote.gradient);
  if (!remote.done()) post(remote);
}

std::vector<LoneUpdate> ParameterServer::updates() const {
  const std::lock_guard turn(mutex_);
  return updates_;
}

std::string ParameterServer::weights() const {
  std::string bytes(static_cast<std::size_t>(parameters_ * 4), '\0');
  device_.download(bytes.data(), {weights_}, parameters_ * 4);
  return bytes;
}

}  // namespace penstock
