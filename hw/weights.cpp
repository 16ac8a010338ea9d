// SPDX-License-Identifier: Apache-2.0
#include "hw/weights.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Returns what the optimizer of a rank knows of a stage that is divided.
StageSizes stepped(StageSizes sizes, const StageShards& shards) {
  if (!shards) return sizes;
  sizes.parameters = shards.owned;
  sizes.matrices.clear();
  return sizes;
}

}  // namespace

WeightStore::WeightStore(const RunPlan& plan, const Stage& stage, const StageHoldings& bytes,
                         Device& device, Ledger& ledger, std::vector<std::int64_t> last_use,
                         std::uint32_t number, StageShards shards)
    : plan_(plan),
      stage_(stage),
      bytes_(bytes),
      device_(device),
      ledger_(ledger),
      last_use_(std::move(last_use)),
      number_(number),
      shards_(std::move(shards)),
      optimizer_(plan, number, stepped(stage.sizes(), shards_), device),
      backward_(plan, number, stage.sizes().parameters, device) {
  const auto elements = [&](bool divided) {
    return shards_ && divided ? shards_.owned : stage.sizes().parameters;
  };
  const std::int64_t fp32 = elements(divides_gradients(plan)) * 4;
  versions_.push_back(
      {0, allocate(elements(divides_weights(plan)) * device.math().element_bytes())});
  gradients_ = allocate(fp32);
  if (reduces_beside(plan, number)) set_aside_ = allocate(fp32);
  if (optimizer_.apart()) master_ = allocate(fp32);
  for_each_constant_holding(bytes, backward_.plain() ? 0 : 1, [&](Owner owner, std::int64_t held) {
    ledger.add_bytes(owner, held, nullptr);
  });
  load();
}

Block* WeightStore::allocate(std::int64_t bytes) { return device_.allocate(kComputeQueue, bytes); }

void WeightStore::load() {
  const std::int64_t n = stage_.sizes().parameters;
  Math& math = device_.math();
  std::vector<float> weights(static_cast<std::size_t>(n));
  stage_.initialize(weights);
  const Tensor working{versions_[0].block};
  if (shards_ && divides_weights(plan_)) {
    for (const ShardUnit& unit : shards_.units)
      for (const auto& [first, end, at] : unit.owned)
        device_.upload(working.at(at * 4), weights.data() + first, (end - first) * 4);
  } else {
    device_.upload(master_ != nullptr ? Tensor{master_} : working, weights.data(), n * 4);
  }
  if (master_ != nullptr) math.round(n, {master_}, working);
  backward_.start(working);
  math.zero(gradients_->bytes, {gradients_});
  if (set_aside_ != nullptr) math.zero(n * 4, {set_aside_});
}

Tensor WeightStore::version(std::uint32_t version) const {
  const auto held = std::ranges::find(versions_, version, &Version::number);
  invariant(held != versions_.end(), "an op needs a weight version that is not held");
  return {held->block};
}

Tensor WeightStore::for_backward(std::uint32_t number) {
  return backward_.weights_for(version(number), {newest_version().block}, made_ - number);
}

WeightStore::Version& WeightStore::newest_version() {
  return *std::ranges::find(versions_, made_, &Version::number);
}

/// The buffer the next version goes to.
WeightStore::Version& WeightStore::target(std::int64_t position) {
  const auto retired = [&](const Version& v) { return last_use_[v.number] < position; };
  Version& newest = newest_version();
  if (retired(newest)) return newest;
  const auto free = std::ranges::find_if(versions_, retired);
  if (free != versions_.end()) return *free;
  ledger_.add_bytes(Owner::weight_versions, bytes_.version, nullptr);
  const std::int64_t bytes = newest.block->bytes;
  return versions_.emplace_back(made_, allocate(bytes));
}

void WeightStore::step(std::int64_t position) {
  const Tensor newest{newest_version().block};
  Version& next = target(position);
  const bool apart = master_ != nullptr;
  next.number = ++made_;
  backward_.before_step(newest);
  issue_step({.master_in = apart ? Tensor{master_} : newest,
              .master_out = apart ? Tensor{master_} : Tensor{next.block},
              .working_out = apart ? Tensor{next.block} : Tensor{},
              .gradient = summed()});
  backward_.after_step({next.block});
}

/// Steps the weights; a stage that is divided steps its shard alone, and drops the other sums.
void WeightStore::issue_step(const StepTensors& t) {
  Math& math = device_.math();
  const std::uint32_t means = means_of_update(plan_, number_);
  if (!shards_) return optimizer_.issue(math, t, made_, means);
  const bool weights_divided = divides_weights(plan_), sums_divided = divides_gradients(plan_);
  for (const ShardUnit& unit : shards_.units) {
    for (const auto& [first, end, at] : unit.owned) {
      StepTensors part = t;
      part.master_in = t.master_in.at((weights_divided ? at : first) * 4);
      part.master_out = t.master_out.at((weights_divided ? at : first) * 4);
      part.gradient = t.gradient.at((sums_divided ? at : first) * 4);
      optimizer_.issue_part(math, part, at, end - first, made_, means);
    }
  }
  math.zero(t.gradient.block->bytes, t.gradient);
}

Tensor WeightStore::newest_tensor() const {
  return {std::ranges::find(versions_, made_, &Version::number)->block};
}

Tensor WeightStore::assemble() {
  if (!divides_weights(plan_)) return newest_tensor();
  assembled_ = allocate(stage_.sizes().parameters * 4);
  return {assembled_};
}

void WeightStore::take_weights(std::int64_t position, Tensor weights) {
  Version& next = target(position);
  next.number = ++made_;
  const std::int64_t n = stage_.sizes().parameters;
  device_.math().round(n, weights, {next.block});
}

void WeightStore::warm_up() {
  for (const std::int64_t elements : {64, 63}) warm_up(elements);  // by pieces, and one by one
}

void WeightStore::warm_up(std::int64_t elements) {
  Math& math = device_.math();
  const bool mixed = math.element_bytes() != 4;
  StageSizes sizes;
  sizes.parameters = 3 * elements;
  sizes.matrices = {{elements, 1, elements}};
  OptimizerState optimizer(plan_, number_, sizes, device_);
  std::vector<Block*> scratch;
  const auto zeros = [&] {
    scratch.push_back(allocate(sizes.parameters * 4));
    math.zero(sizes.parameters * 4, {scratch.back()});
    return Tensor{scratch.back()};
  };
  const Tensor master = zeros(), working = zeros();
  const StepTensors t{.master_in = master,
                      .master_out = master,
                      .working_out = optimizer.apart() ? working : Tensor{},
                      .gradient = zeros()};
  optimizer.issue(math, t, 1, 1);
  for (Block* block : optimizer.blocks()) scratch.push_back(block);
  if (optimizer.scratch() != nullptr) scratch.push_back(optimizer.scratch());
  math.blend(elements, 1, working, 1, working, working);
  math.accumulate(elements, master, t.gradient);
  if (mixed) math.round(elements, master, working);
  for (Block* block : scratch) device_.release(kComputeQueue, block);
  math.zero(gradients_->bytes, {gradients_});
}

std::string WeightStore::newest() const {
  const Tensor weights = assembled_ != nullptr ? Tensor{assembled_}
                         : master_ != nullptr  ? Tensor{master_}
                                               : newest_tensor();
  std::string bytes(static_cast<std::size_t>(stage_.sizes().parameters * 4), '\0');
  device_.download(bytes.data(), weights, static_cast<std::int64_t>(bytes.size()));
  return bytes;
}

}  // namespace penstock
