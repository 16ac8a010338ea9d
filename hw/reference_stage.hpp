// SPDX-License-Identifier: Apache-2.0
// One rank's part of a stage as a sequential run holds it (hw/reference.hpp): versions of the
// weights as plain copies, a sum of gradients for each replica, and the optimizer's state.
#pragma once

#include "base/error.hpp"
#include "hw/backward_weights.hpp"
#include "hw/optimizer_step.hpp"
#include "hw/shards.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// One rank's part of a stage, with its newest version and those that are still used.
class ReferenceStage {
 public:
  ReferenceStage(const RunPlan& plan, Device& device, std::unique_ptr<Stage> stage,
                 std::uint32_t number)
      : plan_(plan),
        device_(device),
        stage_(std::move(stage)),
        math_(device.math()),
        number_(number),
        optimizer_(plan, number, stage_->sizes(), device),
        backward_(plan, number, sizes().parameters, device),
        devices_(adders_of(plan, plan.program.placement.device_of(number, 0))) {
    const std::int64_t n = sizes().parameters;
    versions_.push_back(allocate(n * math_.element_bytes()));
    for (const int device_number : devices_) gradients_[device_number] = zeros(n * 4);
    std::vector<float> weights(static_cast<std::size_t>(n));
    stage_->initialize(weights);
    if (optimizer_.apart()) master_ = allocate(n * 4);
    const Tensor first{master_ != nullptr ? master_ : versions_[0]};
    device.upload(first, weights.data(), n * 4);
    if (master_ != nullptr) math_.round(n, first, {versions_[0]});
    backward_.start({versions_[0]});
  }

  const StageSizes& sizes() const { return stage_->sizes(); }
  const Stage& stage() const { return *stage_; }
  std::uint32_t number() const { return number_; }
  Tensor version(std::uint32_t number) const { return {versions_.at(number - oldest_)}; }
  /// Returns the weights to evaluate: those that are trained, where ops use predicted ones.
  Tensor newest() const {
    const bool predicted = master_ != nullptr && math_.element_bytes() == 4;
    return {predicted ? master_ : versions_.back()};
  }
  /// For a backward, of the update that is going on.
  Tensor for_backward(std::uint32_t number) {
    const auto newest = oldest_ + static_cast<std::uint32_t>(versions_.size()) - 1;
    return backward_.weights_for(version(number), {versions_.back()}, newest - number);
  }
  /// Returns where a microbatch adds its gradient: each replica and mirrored device has its own
  /// sum.
  Tensor gradients(std::uint32_t microbatch) const {
    if (devices_.size() == 1) return {gradients_.begin()->second};
    return gradients_of(plan_.program.placement.device_of(number_, microbatch));
  }
  Tensor gradients_of(int device_number) const { return {gradients_.at(device_number)}; }
  /// Those that hold the stage.
  const std::vector<int>& devices() const { return devices_; }
  Block* allocate(std::int64_t bytes) const {
    return bytes > 0 ? device_.allocate(kComputeQueue, bytes) : nullptr;
  }

  /// Adds the sum, which each device has, to that of earlier backwards of the update.
  void keep_sum() {
    const std::int64_t n = sizes().parameters;
    if (kept_sum_ == nullptr) kept_sum_ = zeros(n * 4);
    math_.accumulate(n, {gradients_.begin()->second}, {kept_sum_});
    for (const auto& [device_number, own] : gradients_) math_.zero(n * 4, {own});
  }

  /// Makes the next version of the sum, which each device has; those before `still_used` are
  /// dropped.
  void step(std::uint32_t still_used) {
    const bool apart = master_ != nullptr;
    Block* sum = kept_sum_ != nullptr ? kept_sum_ : gradients_.begin()->second;
    for (const auto& [device_number, other] : gradients_)
      if (other != sum) math_.zero(other->bytes, {other});
    const Tensor newest{versions_.back()};
    Block* next = allocate(versions_.back()->bytes);
    const StepTensors t{.master_in = apart ? Tensor{master_} : newest,
                        .master_out = apart ? Tensor{master_} : Tensor{next},
                        .working_out = apart ? Tensor{next} : Tensor{},
                        .gradient = {sum}};
    versions_.push_back(next);
    backward_.before_step(newest);
    optimizer_.issue(math_, t, ++steps_,
                     plan_.lone_updates.empty() ? means_of_update(plan_, number_)
                                                : plan_.program.microbatches_per_update);
    backward_.after_step({next});
    for (; oldest_ < still_used; ++oldest_) {
      device_.release(kComputeQueue, versions_.front());
      versions_.erase(versions_.begin());
    }
  }

  std::string weights() const { return bytes_of(master_ != nullptr ? master_ : versions_.back()); }

  /// All that the next update needs; between updates gradients are zero.
  void save(std::string& to) const {
    append(to, oldest_);
    append(to, steps_);
    append(to, versions_.size());
    for (const Block* version : versions_) to += bytes_of(version);
    for (const Block* block : state()) to += bytes_of(block);
  }
  void load(std::string_view& from) {
    std::size_t count = 0;
    take_number(from, oldest_);
    take_number(from, steps_);
    take_number(from, count);
    if (count == 0 || count > from.size()) throw InputError("--resume", "is no whole checkpoint");
    while (versions_.size() < count) versions_.push_back(allocate(versions_[0]->bytes));
    for (Block* version : versions_) take_block(from, version);
    for (Block* block : state()) take_block(from, block);
  }

 private:
  template <class T>
  static void append(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  static void take_number(std::string_view& from, T& value) {
    if (from.size() < sizeof value) throw InputError("--resume", "is no whole checkpoint");
    std::memcpy(&value, from.data(), sizeof value);
    from.remove_prefix(sizeof value);
  }
  std::vector<Block*> state() const {
    std::vector<Block*> blocks = optimizer_.blocks();
    for (Block* block : {master_, backward_.buffer()})
      if (block != nullptr) blocks.push_back(block);
    return blocks;
  }
  std::string bytes_of(const Block* block) const {
    std::string bytes(static_cast<std::size_t>(block->bytes), '\0');
    device_.download(bytes.data(), {block}, block->bytes);
    return bytes;
  }
  void take_block(std::string_view& from, Block* block) {
    const auto bytes = static_cast<std::size_t>(block->bytes);
    if (from.size() < bytes) throw InputError("--resume", "is no whole checkpoint");
    device_.upload({block}, from.data(), block->bytes);
    from.remove_prefix(bytes);
  }

  Block* zeros(std::int64_t bytes) {
    Block* block = allocate(bytes);
    math_.zero(bytes, {block});
    return block;
  }

  const RunPlan& plan_;
  Device& device_;
  std::unique_ptr<Stage> stage_;
  Math& math_;
  std::uint32_t number_;
  OptimizerState optimizer_;
  BackwardWeights backward_;
  std::vector<Block*> versions_;
  std::uint32_t oldest_ = 0;
  std::int64_t steps_ = 0;
  std::vector<int> devices_;
  std::map<int, Block*> gradients_;  // by device
  Block* kept_sum_ = nullptr;        // of backwards that have been reduced
  Block* master_ = nullptr;
};

}  // namespace penstock
