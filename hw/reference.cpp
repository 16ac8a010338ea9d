// SPDX-License-Identifier: Apache-2.0
#include "hw/reference.hpp"

#include "base/error.hpp"
#include "hw/position_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory_resource>
#include <numeric>

namespace penstock {
namespace {

/// Buffers of one microbatch on one stage, kept until its update is done.
struct Activations {
  Block *saved, *saved_for_weight, *kept;
  std::unique_ptr<TokenRoutes> routes = nullptr;
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

/// Of every update.
std::vector<Orders> orders_of(const Program& program) {
  const auto stages = static_cast<std::size_t>(program.placement.stages());
  std::vector<Orders> orders(program.batches,
                             Orders{std::vector<std::vector<std::uint32_t>>(stages),
                                    std::vector<std::vector<std::uint32_t>>(stages)});
  for (std::uint32_t g = 0; g < program.ops.size(); ++g) {
    const Op& op = program.ops[g];
    if (!is_compute(op.kind)) continue;
    Orders& of_update =
        orders[op.microbatch / (program.microbatches_per_update * program.placement.round())];
    const std::uint32_t count = program.microbatches_of(op);
    const auto width = static_cast<std::uint32_t>(program.placement.width_of(op.stage));
    for (std::uint32_t k = op.microbatch - (count - 1) * width; k <= op.microbatch; k += width) {
      if (is_backward(op.kind)) of_update.input[op.stage].push_back(k);
      if (op.kind == OpKind::backward || op.kind == OpKind::backward_weight)
        of_update.weight[op.stage].push_back(k);
    }
  }
  return orders;
}

/// Sorts the microbatches of each stage so that those that its replicas have at once follow one
/// another: the first one of each replica, the second one, and so on.
void take_turns(const Program& program, std::vector<std::vector<std::uint32_t>>& order) {
  for (std::uint32_t s = 0; s < order.size(); ++s) {
    std::map<std::uint32_t, std::uint32_t> had;  // by replica
    std::vector<std::pair<std::uint32_t, std::uint32_t>> turns;
    for (const std::uint32_t k : order[s])
      turns.emplace_back(had[k % program.placement.width_of(s)]++, k);
    std::ranges::stable_sort(turns, {}, &std::pair<std::uint32_t, std::uint32_t>::first);
    for (std::size_t i = 0; i < turns.size(); ++i) order[s][i] = turns[i].second;
  }
}

}  // namespace

struct SequentialRun::State {
  State(const RunPlan& plan, Device& device, const StageFactory& make_stage)
      : plan_(plan),
        device_(device),
        orders_(orders_of(plan.program)),
        number_(numbers(plan.lone_updates)),
        still_used_(still_used(plan.lone_updates)) {
    for (Orders& of_update : orders_) {
      if (!divides_gradients(plan) && !has_experts_apart(plan)) break;
      take_turns(plan.program, of_update.input);
      take_turns(plan.program, of_update.weight);
    }
    const auto count = static_cast<std::uint32_t>(plan.program.placement.stages());
    for (std::uint32_t s = 0; s < count; ++s) {
      first_.push_back(parts_.size());
      const int ranks = ranks_of_device(plan, plan.program.placement.device_of(s, 0));
      for (int place = 0; place < ranks; ++place) {
        auto own = make_stage(plan, s, device.math().element_bytes(), false,
                              undivided_share(plan, device_of(s, 0), place));
        parts_.push_back(std::make_unique<ReferenceStage>(plan, device, std::move(own), s));
      }
    }
    const Placement& placement = plan.program.placement;
    for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(placement.depth()); ++p) {
      PositionSum::Parts held;
      for (const std::uint32_t s : placement.stages_at(p)) {
        auto& of_stage = held.emplace_back();
        for (std::size_t place = 0; place < ranks_of_stage(s); ++place)
          of_stage.push_back(&part(s, place));
      }
      // Of two positions that hold the same stages, the first one sums for both.
      const bool several =
          held[0][0]->devices().size() * held[0].size() > std::size_t(plan.division.tensor);
      for (int t = 0; p <= placement.mirror_of(p) && several && t < plan.division.tensor; ++t)
        sums_.emplace_back(plan, device, p, t, held);
      for (int e = 0;
           p <= placement.mirror_of(p) && has_experts_apart(plan) && e < plan.division.expert; ++e)
        sums_.emplace_back(plan, device, p, 0, held, e);
    }
    const auto replicas = static_cast<std::int64_t>(loss_parts());
    losses_ = device.allocate(kComputeQueue, replicas * plan.program.microbatches() * 4);
    evaluation_ = device.allocate(kComputeQueue, replicas * 4);
  }

  using Key = std::pair<std::size_t, std::uint32_t>;  // number of a part, microbatch
  using Blocks = std::pmr::map<Key, Block*>;

  std::size_t stages() const { return first_.size(); }
  std::size_t ranks_of_stage(std::size_t s) const {
    return (s + 1 < stages() ? first_[s + 1] : parts_.size()) - first_[s];
  }
  /// Replicas that divide the microbatches of the last stage.
  std::size_t loss_parts() const {
    return ranks_of_stage(stages() - 1) / std::size_t(plan_.division.tensor);
  }
  int device_of(std::size_t stage, std::uint32_t k) const {
    return plan_.program.placement.device_of(static_cast<std::uint32_t>(stage),
                                             (k & kHeldOut) != 0 ? 0 : k);
  }
  std::size_t number_of(std::size_t stage, std::size_t place) const {
    return first_[stage] + place;
  }
  ReferenceStage& part(std::size_t stage, std::size_t place) const {
    return *parts_[number_of(stage, place)];
  }

  /// In the order in which replicas make them, each with the weights that it had.
  void run_lone_update(std::uint32_t update) {
    lone_version_ = plan_.lone_updates[update].version;
    each_microbatch(update, [&](std::uint32_t k) { run_microbatch(k); });
    for (const auto& part : parts_) part->step(still_used_[update]);
  }

  /// Visits the microbatches of an update: those of one replica where it updates alone.
  template <class Visit>
  void each_microbatch(std::uint32_t update, Visit visit) const {
    const std::uint32_t m = plan_.program.microbatches_per_update;
    const bool alone = !plan_.lone_updates.empty();
    const std::uint32_t count = alone ? m : m * round();
    for (std::uint32_t i = 0; i < count; ++i)
      visit(alone ? (number_[update] * m + i) * round() + plan_.lone_updates[update].replica
                  : update * count + i);
  }

  /// By update: how many its replica has made before.
  static std::vector<std::uint32_t> numbers(const std::vector<LoneUpdate>& updates) {
    std::map<std::uint32_t, std::uint32_t> made;
    std::vector<std::uint32_t> numbers;
    for (const LoneUpdate& u : updates) numbers.push_back(made[u.replica]++);
    return numbers;
  }

  /// By update: the oldest version that a later one uses.
  static std::vector<std::uint32_t> still_used(const std::vector<LoneUpdate>& updates) {
    std::vector<std::uint32_t> oldest(updates.size());
    auto least = static_cast<std::uint32_t>(updates.size());
    for (std::size_t i = updates.size(); i-- > 0;) {
      oldest[i] = std::min(least, static_cast<std::uint32_t>(i + 1));
      least = std::min(least, updates[i].version);
    }
    return oldest;
  }

  void run_update(std::uint32_t update) {
    if (!plan_.lone_updates.empty()) return run_lone_update(update);
    const std::uint32_t each = plan_.program.microbatches_per_update * round();
    if (plan_.program.versions.kind == VersionRule::Kind::stash)
      return run_one_by_one(update * each, (update + 1) * each);
    const Orders& orders = orders_[update];
    if (orders.uniform()) {
      for (const std::uint32_t k : orders.input[0]) run_microbatch(k);
    } else {
      run_by_stage(orders, update * each, (update + 1) * each);
    }
    for (PositionSum& sum : sums_)
      if (!divides_gradients(plan_)) sum.run();
    for (std::size_t s = 0; s < stages(); ++s) step(s, (update + 1) * each);
  }

  /// PipeDream: a stage makes an update when each of its replicas has had a microbatch, whatever
  /// the other stages do. Each replica then has one gradient, whose place in the order is plain.
  void run_one_by_one(std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t k = first; k < end; ++k) {
      run_microbatch(k);
      const auto updates = [&](std::uint32_t s) {
        return (k + 1) % microbatches_of_update(plan_.program, s) == 0;
      };
      for (PositionSum& sum : sums_)
        if (updates(sum.stage())) sum.run();
      for (std::uint32_t s = 0; s < stages(); ++s)
        if (updates(s)) step(s, k + 1);
    }
  }

  void step(std::size_t s, std::uint32_t next) {
    next = std::min(next, plan_.program.microbatches() - 1);
    sum_partial_gradients(s);
    share_expert_sums(s);
    for (std::size_t place = 0; place < ranks_of_stage(s); ++place)
      part(s, place).step(std::min(version(s, next, true), version(s, next, false)));
  }

  /// Gives the parts of a stage that share a device with others the sums of experts' gradients.
  void share_expert_sums(std::size_t s) {
    const int device_number = part(s, 0).devices().front();
    for (std::size_t place = 0; has_experts_apart(plan_) && place < ranks_of_stage(s); ++place) {
      const int rank = rank_at(plan_, device_number, static_cast<int>(place));
      const int holder = expert_group(plan_, rank).front();
      const auto [from, there] = place_of_rank(plan_, holder);
      if (holder == rank) continue;
      device_.math().copy(part(s, place).sizes().expert_parameters * 4,
                          part(s, static_cast<std::size_t>(there)).gradients_of(from),
                          part(s, place).gradients_of(device_number));
    }
  }

  /// Sums gradients over the ranks that share a stage, each of which has those of its rows alone.
  void sum_partial_gradients(std::size_t s) {
    if (plan_.division.tensor == 1) return;
    const int device_number = part(s, 0).devices().front();
    RanksInTurn(plan_, device_, device_number).run([&](int place, const auto& exchange) {
      const ReferenceStage& own = part(s, static_cast<std::size_t>(place));
      for (const auto& [first, end] : own.stage().partial_pieces())
        exchange({"norms' gradients", Collective::all_reduce,
                  own.gradients_of(device_number).at(first * 4), end - first,
                  StageExchange::Numbers::fp32});
    });
  }

  std::uint32_t round() const {
    return static_cast<std::uint32_t>(plan_.program.placement.round());
  }

  /// Where every stage adds gradients in one order, a microbatch can go through at once.
  void run_microbatch(std::uint32_t k) {
    for (std::size_t s = 0; s < stages(); ++s) forward(s, k);
    for (std::size_t s = stages(); s-- > 0;) {
      backward_input(s, k);
      backward_weight(s, k);
    }
  }

  void run_by_stage(const Orders& orders, std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t k = first; k < end; ++k) {
      for (std::size_t s = 0; s < stages(); ++s) forward(s, k);
    }
    for (std::size_t s = stages(); s-- > 0;) {
      for (const std::uint32_t k : orders.input[s]) backward_input(s, k);
      for (const std::uint32_t k : orders.weight[s]) backward_weight(s, k);
    }
  }

  std::uint32_t version(std::size_t stage, std::uint32_t microbatch, bool forward) const {
    if (!plan_.lone_updates.empty()) return lone_version_;
    const auto kind = forward ? OpKind::forward : OpKind::backward;
    return plan_.program.version(
        {.microbatch = microbatch, .stage = static_cast<std::uint16_t>(stage), .kind = kind});
  }

  StageBuffers buffers(std::size_t s, std::size_t place, std::uint32_t k) {
    const std::size_t own = number_of(s, place);
    const Activations& a = activations_.at({own, k});
    StageBuffers b{.weights = {},
                   .gradients = parts_[own]->gradients(k),
                   .input = {find(inputs_, {own, k})},
                   .output = {find(outputs_, {own, k})},
                   .saved = {a.saved},
                   .saved_for_weight = {a.saved_for_weight},
                   .output_gradient = {find(gradients_, {own, k})},
                   .input_gradient = {find(input_gradients_, {own, k})},
                   .kept = {a.kept},
                   .workspace = {workspaces_[place]},
                   .loss = {}};
    b.routes = a.routes.get();
    if (has_experts_apart(plan_) && (k & kHeldOut) == 0) {
      const int rank = rank_at(plan_, device_of(s, k), static_cast<int>(place));
      const auto [device_number, first] = place_of_rank(plan_, expert_group(plan_, rank).front());
      b.expert_gradients = part(s, static_cast<std::size_t>(first)).gradients_of(device_number);
    }
    if (s + 1 < stages()) return b;
    const auto replica = static_cast<std::int64_t>(place) / plan_.division.tensor;
    b.loss = (k & kHeldOut) != 0
                 ? Tensor{evaluation_, replica * 4}
                 : Tensor{losses_, (replica * plan_.program.microbatches() + k) * 4};
    return b;
  }

  void forward(std::size_t s, std::uint32_t k) {
    const bool held_out = (k & kHeldOut) != 0;
    for (std::size_t place = 0; place < ranks_of_stage(s); ++place) {
      const ReferenceStage& own = part(s, place);
      const StageSizes& sizes = own.sizes();
      Activations& a = activations_[{number_of(s, place), k}];
      a = {own.allocate(sizes.saved_bytes), own.allocate(sizes.saved_for_weight_bytes),
           own.allocate(sizes.kept_bytes)};
      if (plan_.compute == Compute::transformer && plan_.model.experts)
        a.routes =
            std::make_unique<DeviceTokenRoutes>(device_, static_cast<std::size_t>(plan_.layers[s]));
      if (s + 1 < stages()) outputs_[{number_of(s, place), k}] = own.allocate(sizes.output_bytes);
    }
    on_ranks(s, k, &StageSizes::forward_workspace_bytes, [&](ReferenceStage& own, StageBuffers b) {
      b.weights = held_out ? own.newest() : own.version(version(s, k, true));
      own.stage().forward(device_.math(), b, k);
    });
    if (s + 1 < stages()) pass_on(s, outputs_, s + 1, inputs_, k);
  }

  /// Passes what the ranks of a stage made on to those of another, by sequences where these are
  /// not as many.
  void pass_on(std::size_t from, Blocks& made, std::size_t to, Blocks& taken, std::uint32_t k) {
    const bool alike = ranks_of_stage(from) == ranks_of_stage(to);
    const auto replicas = [&](std::size_t stage) {
      return static_cast<std::int64_t>(ranks_of_stage(stage)) / plan_.division.tensor;
    };
    for (std::size_t place = 0; place < ranks_of_stage(to); ++place) {
      Block*& block = taken[{number_of(to, place), k}];
      if (alike) {
        block = made.at({number_of(from, place), k});
        continue;
      }
      const std::int64_t own = plan_.microbatch_size / replicas(to);
      const std::int64_t others = plan_.microbatch_size / replicas(from);
      const std::int64_t bytes = made.at({number_of(from, 0), k})->bytes / others;
      block = device_.allocate(kComputeQueue, own * bytes);
      const int rank = rank_at(plan_, device_of(to, k), static_cast<int>(place));
      for (const auto& [peer, first, count] : message_parts(plan_, rank, device_of(from, k))) {
        const int giver = place_of_rank(plan_, peer).place;
        const std::int64_t begin =
            own * (static_cast<std::int64_t>(place) / plan_.division.tensor) + first -
            others * (giver / plan_.division.tensor);
        const Block* there = made.at({number_of(from, static_cast<std::size_t>(giver)), k});
        device_.math().copy(count * bytes, {there, begin * bytes}, {block, first * bytes});
      }
    }
    for (std::size_t place = 0; place < ranks_of_stage(from); ++place) {
      const auto gone = made.find({number_of(from, place), k});
      if (!alike) release(gone->second);
      made.erase(gone);
    }
  }

  void backward_input(std::size_t s, std::uint32_t k) {
    for (std::size_t place = 0; s > 0 && place < ranks_of_stage(s); ++place)
      input_gradients_[{number_of(s, place), k}] =
          part(s, place).allocate(part(s, place).sizes().input_bytes);
    on_ranks(s, k, &StageSizes::backward_workspace_bytes, [&](ReferenceStage& own, StageBuffers b) {
      b.weights = own.for_backward(version(s, k, false));
      own.stage().backward_input(device_.math(), b, k);
    });
    if (s > 0) pass_on(s, input_gradients_, s - 1, gradients_, k);
    for (std::size_t place = 0; s + 1 < stages() && place < ranks_of_stage(s); ++place) {
      release(gradients_.at({number_of(s, place), k}));
      gradients_.erase({number_of(s, place), k});
    }
  }

  void backward_weight(std::size_t s, std::uint32_t k) {
    on_ranks(s, k, &StageSizes::backward_workspace_bytes,
             [&](ReferenceStage& own, const StageBuffers& b) {
               own.stage().backward_weight(device_.math(), b, k);
             });
    forget(s, k);
    if (divides_gradients(plan_)) reduce_backwards(s);
  }

  /// Sums the gradients of a stage that divides them when each of its replicas has had a backward.
  void reduce_backwards(std::size_t s) {
    const std::uint32_t width = plan_.program.placement.width_of(static_cast<std::uint32_t>(s));
    if (++backwards_[s] % width != 0) return;
    for (PositionSum& sum : sums_)
      if (sum.stage() == s) sum.run();
    part(s, 0).keep_sum();
  }

  /// The mean loss of held-out microbatches under the newest weights.
  double evaluate(std::uint32_t count) {
    double sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t k = kHeldOut | i;
      for (std::size_t s = 0; s < stages(); ++s) forward(s, k);
      for (std::size_t s = 0; s < stages(); ++s) forget(s, k);
      std::vector<float> losses(loss_parts());
      device_.download(losses.data(), {evaluation_}, evaluation_->bytes);
      sum +=
          std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
    }
    return sum / count;
  }

  void forget(std::size_t s, std::uint32_t k) {
    for (std::size_t place = 0; place < ranks_of_stage(s); ++place) {
      const Key key{number_of(s, place), k};
      Activations& a = activations_.at(key);
      for (Block* block : {a.saved, a.saved_for_weight, a.kept}) release(block);
      if (a.routes) a.routes->release_all();
      activations_.erase(key);
      if (s == 0) continue;
      release(inputs_.at(key));
      inputs_.erase(key);
    }
  }

  /// Calls `work(part, buffers)` for the ranks that share a stage, in turns.
  template <class Work>
  void on_ranks(std::size_t s, std::uint32_t k, std::int64_t StageSizes::*workspace_bytes,
                const Work& work) {
    for (std::size_t place = 0; place < ranks_of_stage(s); ++place)
      workspaces_.push_back(part(s, place).allocate(part(s, place).sizes().*workspace_bytes));
    if (plan_.division.tensor == 1) {  // nobody exchanges
      for (std::size_t place = 0; place < ranks_of_stage(s); ++place)
        work(part(s, place), buffers(s, place, k));
    } else {
      RanksInTurn(plan_, device_, device_of(s, k)).run([&](int place, const auto& exchange) {
        StageBuffers b = buffers(s, static_cast<std::size_t>(place), k);
        b.exchange = exchange;
        work(part(s, static_cast<std::size_t>(place)), std::move(b));
      });
    }
    for (Block* block : workspaces_) release(block);
    workspaces_.clear();
    // The issuing thread must not run far ahead of the device.
    device_.wait_for(kComputeQueue);
  }

  static Block* find(const Blocks& blocks, const Key& key) {
    const auto found = blocks.find(key);
    return found == blocks.end() ? nullptr : found->second;
  }
  void release(Block* block) {
    if (block != nullptr) device_.release(kComputeQueue, block);
  }

  const RunPlan& plan_;
  Device& device_;
  std::vector<std::size_t> first_;  // by stage: number of its first part
  std::vector<Orders> orders_;
  // Of lone updates:
  std::vector<std::uint32_t> number_, still_used_;
  std::uint32_t lone_version_ = 0;
  std::vector<std::unique_ptr<ReferenceStage>> parts_;  // [stage][rank that shares it]
  std::vector<PositionSum> sums_;
  std::map<std::size_t, std::uint32_t> backwards_;  // by stage
  // Maps share a pool, so that an update allocates nothing once there has been one like it.
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::map<Key, Activations> activations_{&nodes_};
  Blocks outputs_{&nodes_}, input_gradients_{&nodes_};  // on their way to the next stage
  Blocks inputs_{&nodes_};                              // of F: what the stage before made
  Blocks gradients_{&nodes_};       // of a stage's output: what the stage after made
  std::vector<Block*> workspaces_;  // of the ranks that compute
  Block *losses_ = nullptr, *evaluation_ = nullptr;
};

SequentialRun::SequentialRun(const RunPlan& plan, Device& device, const StageFactory& make_stage)
    : state_(std::make_unique<State>(plan, device, make_stage)) {}
SequentialRun::~SequentialRun() = default;

void SequentialRun::run_update(std::uint32_t update) { state_->run_update(update); }

double SequentialRun::evaluate(std::uint32_t microbatches) {
  return state_->evaluate(microbatches);
}

std::uint32_t SequentialRun::updates() const {
  const auto lone = static_cast<std::uint32_t>(state_->plan_.lone_updates.size());
  return lone > 0 ? lone : state_->plan_.program.batches;
}

namespace {

/// Returns the loss of a microbatch whose parts have a loss each.
template <class LossOf>
float mean_of_parts(std::size_t parts, const LossOf& loss_of) {
  float mean = 0;
  for (std::size_t part = 0; part < parts; ++part)
    mean += loss_of(part) / static_cast<float>(parts);
  return mean;
}

}  // namespace

double SequentialRun::loss(std::uint32_t update) const {
  const std::size_t all = state_->plan_.program.microbatches();
  double sum = 0;
  int count = 0;
  state_->each_microbatch(update, [&](std::uint32_t k) {
    sum += mean_of_parts(state_->loss_parts(), [&](std::size_t part) {
      float own = 0;
      const auto at = static_cast<std::int64_t>(part * all + k) * 4;
      state_->device_.download(&own, {state_->losses_, at}, 4);
      return own;
    });
    ++count;
  });
  return sum / count;
}

std::vector<float> SequentialRun::losses() const {
  const std::size_t count = state_->plan_.program.microbatches(), parts = state_->loss_parts();
  std::vector<float> of_parts(count * parts);
  state_->device_.download(of_parts.data(), {state_->losses_}, state_->losses_->bytes);
  std::vector<float> losses(count);
  for (std::size_t k = 0; k < count; ++k)
    losses[k] = mean_of_parts(parts, [&](std::size_t part) { return of_parts[part * count + k]; });
  return losses;
}

std::vector<std::string> SequentialRun::weights() const {
  const RunPlan& plan = state_->plan_;
  std::vector<std::string> weights;
  for (std::uint32_t s = 0; s < state_->stages(); ++s) {
    const auto ranks = static_cast<int>(state_->ranks_of_stage(s));
    for (const int share : shares_of_stage(plan, s)) {
      const ReferenceStage& part = state_->part(s, static_cast<std::size_t>(share % ranks));
      // A rank has its part of the experts, and all else.
      const auto experts = static_cast<std::size_t>(part.sizes().expert_parameters) * sizeof(float);
      const std::size_t each = experts / static_cast<std::size_t>(plan.division.expert);
      const std::string all = part.weights();
      weights.push_back(all.substr(static_cast<std::size_t>(share / ranks) * each, each) +
                        all.substr(experts));
    }
  }
  return weights;
}

std::string SequentialRun::save() const {
  std::string bytes;
  for (const auto& stage : state_->parts_) stage->save(bytes);
  return bytes;
}

void SequentialRun::load(std::string_view bytes) {
  for (const auto& stage : state_->parts_) stage->load(bytes);
  if (!bytes.empty()) throw InputError("--resume", "is a checkpoint of something else");
}

namespace {

/// Has a weight changed? Those that are next to nothing, such as biases that begin at 0, do so at
/// any rate, and count only where there are no others.
bool has_moved(const std::string& before, const std::string& after) {
  constexpr float kNextToNothing = 1e-3F;
  bool any = false, any_large = false, moved = false, moved_large = false;
  for (std::size_t at = 0; at + sizeof(float) <= before.size(); at += sizeof(float)) {
    float then = 0, now = 0;
    std::memcpy(&then, before.data() + at, sizeof then);
    std::memcpy(&now, after.data() + at, sizeof now);
    const bool large = std::abs(then) > kNextToNothing;
    any = true;
    any_large = any_large || large;
    moved = moved || then != now;
    moved_large = moved_large || (large && then != now);
  }
  return !any || (any_large ? moved_large : moved);
}

}  // namespace

ReferenceResult run_reference(const RunPlan& plan, Device& device, const StageFactory& make_stage) {
  SequentialRun run(plan, device, make_stage);
  const std::vector<std::string> before = run.weights();
  for (std::uint32_t update = 0; update < run.updates(); ++update) run.run_update(update);
  ReferenceResult result{run.weights(), run.losses()};
  for (std::size_t s = 0; s < before.size(); ++s)
    result.moved = result.moved && has_moved(before[s], result.weights[s]);
  return result;
}

}  // namespace penstock
