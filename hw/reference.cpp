#include "hw/reference.hpp"

#include "base/error.hpp"
#include "hw/backward_weights.hpp"
#include "hw/math.hpp"

#include <algorithm>
#include <deque>

namespace penstock {
namespace {

/// Buffers of one microbatch on one stage, kept until its update is done.
struct Activations {
  Block *saved, *saved_for_weight, *kept;
};

/// One stage with its versions as plain copies: the newest, and those still used.
class ReferenceStage {
 public:
  ReferenceStage(const RunPlan& plan, Device& device, std::unique_ptr<Stage> stage,
                 std::uint32_t number)
      : plan_(plan),
        device_(device),
        stage_(std::move(stage)),
        math_(device.math()),
        backward_(plan, number, sizes().parameters, device) {
    const std::int64_t n = sizes().parameters;
    const bool mixed = math_.element_bytes() != 4;
    versions_.push_back(allocate(n * math_.element_bytes()));
    gradients_ = zeros(n * 4);
    if (plan.program.placement.mirrored()) reversed_gradients_ = zeros(n * 4);
    std::vector<float> weights(static_cast<std::size_t>(n));
    stage_->initialize(weights);
    if (mixed) master_ = allocate(n * 4);
    const Tensor first{mixed ? master_ : versions_[0]};
    device.upload(first, weights.data(), n * 4);
    if (mixed) math_.round(n, first, {versions_[0]});
    backward_.start({versions_[0]});
    if (plan.optimizer.kind != OptimizerPlan::Kind::adamw) return;
    for (Block*& moment : moments_) moment = zeros(n * 4);
  }

  const StageSizes& sizes() const { return stage_->sizes(); }
  const Stage& stage() const { return *stage_; }
  Tensor version(std::uint32_t number) const { return {versions_.at(number - oldest_)}; }
  /// For a backward, of the update that is going on.
  Tensor for_backward(std::uint32_t number) {
    const auto newest = oldest_ + static_cast<std::uint32_t>(versions_.size()) - 1;
    return backward_.of(version(number), {versions_.back()}, newest - number);
  }
  /// Where a microbatch adds its gradient: twins add theirs by themselves, and then the two sums.
  Tensor gradients(std::uint32_t microbatch) const {
    return {plan_.program.placement.reversed(microbatch) ? reversed_gradients_ : gradients_};
  }
  Block* allocate(std::int64_t bytes) const {
    return bytes > 0 ? device_.allocate(kComputeQueue, bytes) : nullptr;
  }

  /// Makes the next version; those before `still_used` are dropped.
  void step(std::uint32_t still_used) {
    const bool mixed = math_.element_bytes() != 4;
    add_reversed();
    const Tensor newest{versions_.back()};
    Block* next = allocate(versions_.back()->bytes);
    const StepTensors t{.master_in = mixed ? Tensor{master_} : newest,
                        .master_out = mixed ? Tensor{master_} : Tensor{next},
                        .working_out = mixed ? Tensor{next} : Tensor{},
                        .gradient = {gradients_},
                        .first_moment = {moments_[0]},
                        .second_moment = {moments_[1]}};
    versions_.push_back(next);
    backward_.before_step(newest);
    const OptimizerPlan& o = plan_.optimizer;
    const double mean = 1.0 / plan_.program.microbatches_per_update;
    ++steps_;
    if (o.kind == OptimizerPlan::Kind::sgd) {
      math_.sgd_step(sizes().parameters, t, {o.learning_rate, mean});
    } else {
      math_.adamw_step(sizes().parameters, t,
                       {o.learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, mean},
                       steps_);
    }
    backward_.after_step({next});
    for (; oldest_ < still_used; ++oldest_) {
      device_.release(kComputeQueue, versions_.front());
      versions_.pop_front();
    }
  }

  std::string weights() const {
    std::string bytes(static_cast<std::size_t>(sizes().parameters * 4), '\0');
    const Tensor newest{master_ != nullptr ? master_ : versions_.back()};
    device_.download(bytes.data(), newest, static_cast<std::int64_t>(bytes.size()));
    return bytes;
  }

 private:
  void add_reversed() {
    if (reversed_gradients_ == nullptr) return;
    math_.accumulate(sizes().parameters, {reversed_gradients_}, {gradients_});
    math_.zero(reversed_gradients_->bytes, {reversed_gradients_});
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
  BackwardWeights backward_;
  std::deque<Block*> versions_;
  std::uint32_t oldest_ = 0;
  std::int64_t steps_ = 0;
  Block* reversed_gradients_ = nullptr;
  Block *gradients_ = nullptr, *master_ = nullptr, *moments_[2] = {nullptr, nullptr};
};

/// Per stage, its microbatches of one update in the order in which the Program adds their gradients
/// (of I or B; of W where that is apart).
struct Orders {
  std::vector<std::vector<std::uint32_t>> input, weight;

  bool uniform() const {
    const auto same = [&](const auto& order) { return order == input[0]; };
    return std::ranges::all_of(input, same) && std::ranges::all_of(weight, same);
  }
};

Orders orders_of(const Program& program, std::uint32_t update) {
  const auto stages = static_cast<std::size_t>(program.placement.stages());
  Orders orders{std::vector<std::vector<std::uint32_t>>(stages),
                std::vector<std::vector<std::uint32_t>>(stages)};
  for (std::uint32_t g = 0; g < program.ops.size(); ++g) {
    const Op& op = program.ops[g];
    if (!is_compute(op.kind) || op.microbatch / program.microbatches_per_update != update) continue;
    const std::uint32_t count = program.microbatches_of(op);
    for (std::uint32_t k = op.microbatch + 1 - count; k <= op.microbatch; ++k) {
      if (is_backward(op.kind)) orders.input[op.stage].push_back(k);
      if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight)
        orders.weight[op.stage].push_back(k);
    }
  }
  return orders;
}

class Reference {
 public:
  Reference(const RunPlan& plan, Device& device, const StageFactory& make_stage)
      : plan_(plan), device_(device) {
    const auto count = static_cast<std::uint32_t>(plan.program.placement.stages());
    for (std::uint32_t s = 0; s < count; ++s) {
      stages_.push_back(std::make_unique<ReferenceStage>(
          plan, device, make_stage(plan, s, device.math().element_bytes(), false), s));
    }
    const std::int64_t bytes = std::int64_t{plan.program.microbatches()} * 4;
    losses_ = device.allocate(kComputeQueue, bytes);
  }

  ReferenceResult run() {
    for (std::uint32_t update = 0; update < plan_.program.batches; ++update) run_update(update);
    ReferenceResult result;
    for (const auto& stage : stages_) result.weights.push_back(stage->weights());
    result.losses.resize(plan_.program.microbatches());
    device_.download(result.losses.data(), {losses_}, losses_->bytes);
    return result;
  }

 private:
  using Key = std::pair<std::size_t, std::uint32_t>;  // stage, microbatch

  void run_update(std::uint32_t update) {
    const std::uint32_t m = plan_.program.microbatches_per_update;
    const Orders orders = orders_of(plan_.program, update);
    if (orders.uniform()) {
      for (const std::uint32_t k : orders.input[0]) run_microbatch(k);
    } else {
      run_by_stage(orders, update * m, (update + 1) * m);
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::uint32_t next = std::min((update + 1) * m, plan_.program.microbatches() - 1);
      stages_[s]->step(std::min(version(s, next, true), version(s, next, false)));
    }
  }

  /// Where every stage adds gradients in one order, a microbatch can go through at once.
  void run_microbatch(std::uint32_t k) {
    for (std::size_t s = 0; s < stages_.size(); ++s) forward(s, k);
    for (std::size_t s = stages_.size(); s-- > 0;) {
      backward_input(s, k);
      backward_weight(s, k);
    }
  }

  void run_by_stage(const Orders& orders, std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t k = first; k < end; ++k) {
      for (std::size_t s = 0; s < stages_.size(); ++s) forward(s, k);
    }
    for (std::size_t s = stages_.size(); s-- > 0;) {
      for (const std::uint32_t k : orders.input[s]) backward_input(s, k);
      for (const std::uint32_t k : orders.weight[s]) backward_weight(s, k);
    }
  }

  std::uint32_t version(std::size_t stage, std::uint32_t microbatch, bool forward) const {
    const auto s = static_cast<std::uint32_t>(stage);
    return plan_.program.versions.version(s, microbatch, plan_.program.microbatches_per_update,
                                          forward);
  }

  StageBuffers buffers(std::size_t s, std::uint32_t k, Tensor weights = {}) {
    const Activations& a = activations_.at({s, k});
    StageBuffers b{.weights = weights,
                   .gradients = stages_[s]->gradients(k),
                   .input = {find(inputs_, {s, k})},
                   .output = {find(inputs_, {s + 1, k})},
                   .saved = {a.saved},
                   .saved_for_weight = {a.saved_for_weight},
                   .output_gradient = {find(gradients_, {s, k})},
                   .input_gradient = {s > 0 ? find(gradients_, {s - 1, k}) : nullptr},
                   .kept = {a.kept},
                   .workspace = {workspace_},
                   .loss = {}};
    if (s + 1 == stages_.size()) b.loss = {losses_, std::int64_t{k} * 4};
    return b;
  }

  void forward(std::size_t s, std::uint32_t k) {
    const StageSizes& sizes = stages_[s]->sizes();
    activations_[{s, k}] = {stages_[s]->allocate(sizes.saved_bytes),
                            stages_[s]->allocate(sizes.saved_for_weight_bytes),
                            stages_[s]->allocate(sizes.kept_bytes)};
    if (s + 1 < stages_.size()) inputs_[{s + 1, k}] = stages_[s]->allocate(sizes.output_bytes);
    const Tensor weights = stages_[s]->version(version(s, k, true));
    with_workspace(s, sizes.forward_workspace_bytes,
                   [&] { stages_[s]->stage().forward(device_.math(), buffers(s, k, weights), k); });
  }

  void backward_input(std::size_t s, std::uint32_t k) {
    const StageSizes& sizes = stages_[s]->sizes();
    if (s > 0) gradients_[{s - 1, k}] = stages_[s]->allocate(sizes.input_bytes);
    const Tensor weights = stages_[s]->for_backward(version(s, k, false));
    with_workspace(s, sizes.backward_workspace_bytes, [&] {
      stages_[s]->stage().backward_input(device_.math(), buffers(s, k, weights), k);
    });
    if (s + 1 == stages_.size()) return;
    release(gradients_.at({s, k}));
    gradients_.erase({s, k});
  }

  void backward_weight(std::size_t s, std::uint32_t k) {
    with_workspace(s, stages_[s]->sizes().backward_workspace_bytes,
                   [&] { stages_[s]->stage().backward_weight(device_.math(), buffers(s, k), k); });
    Activations& a = activations_.at({s, k});
    for (Block* block : {a.saved, a.saved_for_weight, a.kept}) release(block);
    activations_.erase({s, k});
    if (s == 0) return;
    release(inputs_.at({s, k}));
    inputs_.erase({s, k});
  }

  template <class Work>
  void with_workspace(std::size_t s, std::int64_t bytes, Work&& work) {
    workspace_ = stages_[s]->allocate(bytes);
    work();
    release(workspace_);
    workspace_ = nullptr;
    // The issuing thread must not run far ahead of the device.
    device_.record(kComputeQueue)->time_s();
  }

  static Block* find(const std::map<Key, Block*>& blocks, const Key& key) {
    const auto found = blocks.find(key);
    return found == blocks.end() ? nullptr : found->second;
  }
  void release(Block* block) {
    if (block != nullptr) device_.release(kComputeQueue, block);
  }

  const RunPlan& plan_;
  Device& device_;
  std::vector<std::unique_ptr<ReferenceStage>> stages_;
  std::map<Key, Activations> activations_;
  std::map<Key, Block*> inputs_;     // of F: what the stage before made
  std::map<Key, Block*> gradients_;  // of a stage's output: what the stage after made
  Block* workspace_ = nullptr;
  Block* losses_ = nullptr;
};

}  // namespace

ReferenceResult run_reference(const RunPlan& plan, Device& device, const StageFactory& make_stage) {
  invariant(!plan.program.placement.replicated(), "the reference knows one replica");
  return Reference(plan, device, make_stage).run();
}

}  // namespace penstock
