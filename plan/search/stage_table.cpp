// SPDX-License-Identifier: Apache-2.0
#include "plan/search/stage_table.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

/// No slower than any device of the cluster in anything. One device, so that a run of layers takes
/// no longer than its parts, wherever they are.
DeviceSpec fastest(const Scenario& base) {
  DeviceSpec out = base.cluster.device;
  if (base.cluster.groups.empty() || !base.transformer) return out;
  const auto hidden = static_cast<double>(base.transformer->hidden_size);
  const StackSpec& stack = base.stack;
  std::map<std::string, double> flops_per_s;                // by number type
  std::map<std::string, std::pair<double, double>> shares;  // least and most
  double bytes_per_s = 0;
  bool streams = true;  // a device without a bandwidth streams in no time
  out.launch_s = std::numeric_limits<double>::infinity();
  for (const NodeGroup& group : base.cluster.groups) {
    const DeviceSpec& device = group.node.device;
    // A stack that takes layers apart has shares of the peak itself; others have the curve's.
    const double share = stack.takes_layers_apart() ? 1 : device.efficiency_at(hidden);
    for (const auto& [type, peak] : device.peak_flops_per_s)
      flops_per_s[type] = std::max(flops_per_s[type], peak * share);
    for (const auto& [type, reached] : device.product_share)
      if (auto [known, added] = shares.try_emplace(type, reached, reached); !added)
        known->second = {std::min(known->second.first, reached),
                         std::max(known->second.second, reached)};
    const double matrices =
        device.matrix_efficiency > 0 ? device.matrix_efficiency : stack.matrix_efficiency;
    const double of_stack = stack.attention_efficiency > 0 ? stack.attention_efficiency : matrices;
    out.matrix_efficiency = std::max(out.matrix_efficiency, matrices);
    out.attention_efficiency =
        std::max(out.attention_efficiency,
                 device.attention_efficiency > 0 ? device.attention_efficiency : of_stack);
    bytes_per_s = std::max(bytes_per_s, device.memory_bytes_per_s * device.memory_efficiency);
    streams = streams && device.memory_bytes_per_s > 0;
    out.launch_s = std::min(out.launch_s, device.launch_s);
  }
  out.peak_flops_per_s = flops_per_s;
  out.product_share.clear();
  for (const auto& [type, share] : shares)  // narrow types are as fast as can be beside the base
    out.product_share[type] = type == base.transformer->compute_type ? share.first : share.second;
  out.efficiency = {};
  out.memory_bytes_per_s = streams ? bytes_per_s : 0;
  out.memory_efficiency = 1;
  return out;
}

/// The layers before, of and behind a stage; `at` is its place among those that are not empty.
std::vector<int> around(int first, int count, int layers, std::size_t& at) {
  std::vector<int> out;
  if (first > 0) out.push_back(first);
  at = out.size();
  out.push_back(count);
  if (first + count < layers) out.push_back(layers - first - count);
  return out;
}

/// Returns whether layers that are no ends differ: those of a profile, or dense ones among others
/// with experts.
bool differ_in_the_middle(const Scenario& base) {
  const bool experts = base.transformer && base.transformer->experts;
  return base.profile || (experts && (base.transformer->experts->first_dense > 1 ||
                                      base.transformer->experts->every > 1));
}

}  // namespace

void StagePart::take_less(const StagePart& other) {
  for (double StagePart::*number :
       {&StagePart::forward_s, &StagePart::backward_s, &StagePart::input_s, &StagePart::step_s,
        &StagePart::reduced_bytes, &StagePart::static_bytes, &StagePart::activation_bytes,
        &StagePart::weight_input_bytes, &StagePart::workspace_bytes, &StagePart::output_bytes})
    this->*number = std::min(this->*number, other.*number);
  saving_s = std::max(saving_s, other.saving_s);
}

StageTable::StageTable(const Problem& problem, const Key& key, const CollectivePrice* tokens)
    : problem_(problem),
      key_(key),
      layers_(problem.layers()),
      each_first_(differ_in_the_middle(problem.base())),
      device_(fastest(problem.base())),
      stack_(problem.base().stack),
      tokens_(tokens) {
  const auto n = static_cast<std::size_t>(layers_);
  parts_.resize((each_first_ ? n : std::size_t{3}) * (n + 1));
  if (problem.base().profile) read_profile_use();
  const Cluster& cluster = problem.base().cluster;
  // What tensor and context ranks exchange hides the host, as much as their link takes: by how much
  // is not asked.
  if (key.tensor > 1 || key.context > 1)
    for (double* host : {&stack_.forward_host_s, &stack_.backward_host_s, &stack_.tensor_host_s})
      *host = 0;
  // An all-gather or a reduce-scatter is half of an all-reduce.
  if (!cluster.network && cluster.groups.empty() && key.sharded > Sharded::optimizer)
    shard_s_per_byte_ = least_all_reduce_s_per_byte(cluster, key.shards, key.tensor) / 2;
  // Where nodes differ, those of the fastest would be a bound: none is the simplest one.
  if (key.tensor == 1 || cluster.network || !cluster.groups.empty()) return;
  std::vector<int> ranks(static_cast<std::size_t>(key.tensor));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const Collective what : kOfRanks)
    prices_[static_cast<std::size_t>(what)] = price({what}, {ranks}, cluster);
}

/// As the scenario reader takes a profile for this microbatch size.
void StageTable::read_profile_use() {
  const Candidate whole{{{.microbatch_size = key_.microbatch_size}, find_schedule("1f1b")},
                        {layers_},
                        {key_.recompute}};
  const StageCosts costs = problem_.resolve(whole).costs.front();
  double forward_s = 0, bytes = 0;
  for (const ProfiledLayer& layer : problem_.base().profile->layers) {
    forward_s += layer.forward_s;
    bytes += layer.parameter_bytes;
  }
  use_.scale = forward_s > 0 ? costs[OpKind::forward].seconds / forward_s : 1;
  use_.recompute = key_.recompute.in_full();
  const double parameters = bytes > 0 ? bytes / 4 : 1;
  use_.bytes = {.weights = static_cast<double>(costs.weight_bytes) / parameters,
                .gradients = static_cast<double>(costs.gradient_bytes) / parameters,
                .optimizer = static_cast<double>(costs.optimizer_bytes) / parameters,
                .version = static_cast<double>(costs.version_bytes) / parameters,
                .reduced = static_cast<double>(costs.reduced_bytes) / parameters};
}

const StagePart& StageTable::part(int first, int count) {
  // Where layers are alike only the ends differ.
  int row = first;
  if (!each_first_) {
    if (first > 0 && first + count < layers_) first = 1;
    row = first == 0 ? 0 : first + count == layers_ ? 2 : 1;
  }
  const std::size_t at = static_cast<std::size_t>(row) * static_cast<std::size_t>(layers_ + 1) +
                         static_cast<std::size_t>(count);
  if (!parts_[at]) parts_[at] = std::make_unique<StagePart>(make(first, count));
  return *parts_[at];
}

StagePart StageTable::lightest(int count) {
  if (count <= layers_ - 2 && !each_first_) return part(1, count);
  StagePart out = part(0, count);
  for (int first = each_first_ ? 1 : layers_ - count; first <= layers_ - count; ++first)
    out.take_less(part(first, count));
  return out;
}

StageCosts StageTable::costs(int first, int count) {
  const Scenario& base = problem_.base();
  if (base.profile) {
    std::size_t at = 0;
    const std::vector<int> layers = around(first, count, layers_, at);
    return profiled_stage_costs(*base.profile, problem_.in_model(layers), use_)[at];
  }
  if (!coster_)
    coster_ = std::make_unique<StageCoster>(
        *base.transformer, device_,
        StageCostOptions{.microbatch_size = static_cast<double>(key_.microbatch_size),
                         .recompute = key_.recompute,
                         .tensor = {key_.tensor, key_.sequence_parallel,
                                    key_.tensor > 1 && problem_.transfers_divided(),
                                    key_.sequence_parallel && problem_.tensor_overlap()},
                         .context = key_.context,
                         .context_exchange = base.context_exchange,
                         .sharding = sharding(),
                         // Without GPUs an exchange of pieces of matrices has no price; as it only
                         // adds seconds, bounds without it stay below.
                         .optimizer = base.optimizer_kind,
                         .stack = stack_,
                         .expert = {key_.expert, 1, base.mesh.routing.narrow}});
  return coster_->costs({first, count, first == 0, first + count == layers_});
}

Sharding StageTable::sharding() const {
  return {.what = key_.shards > 1 ? key_.sharded : Sharded::none,
          .group = key_.shards,
          .sharers = key_.shards,
          .gathering = key_.gathering,
          .expert_sharers = key_.expert_sharers};
}

StagePart StageTable::part_of(const StageCosts& c) const {
  const auto exchange = [&](OpKind kind) {
    return exposed_s(c[kind].recipe, c[kind].seconds, [&](const Segment& s) {
      if (s.axis == Axis::data) return static_cast<double>(s.bytes) * shard_s_per_byte_;
      if (s.axis == Axis::expert && tokens_ != nullptr) return tokens_->seconds(s);
      if (s.axis != Axis::tensor) return 0.0;  // no less: what they wait for is not known
      return prices_[static_cast<std::size_t>(s.what)].seconds(s);
    });
  };
  const double whole_s = c[OpKind::backward].seconds + exchange(OpKind::backward);
  const double input_s = c[OpKind::backward_input].seconds + exchange(OpKind::backward_input);
  const double weight_s = c[OpKind::backward_weight].seconds + exchange(OpKind::backward_weight);
  StagePart part;
  part.forward_s = c[OpKind::forward].seconds + exchange(OpKind::forward);
  part.backward_s = std::min(whole_s, input_s + weight_s);
  part.input_s = std::min(whole_s, input_s);
  part.saving_s = c.overlap_saving_s;
  part.step_s = c.step_s;
  part.activation_bytes = static_cast<double>(c.activation_bytes);
  part.weight_input_bytes =
      static_cast<double>(std::min(c.activation_bytes, c.activation_after_input_bytes));
  part.workspace_bytes = static_cast<double>(c.forward_workspace_bytes);
  // Bytes of an all-reduce: a reduce-scatter is half of one, and what each backward reduces, or
  // the next forward gathers, is hidden, at best.
  const Sharding shared = sharding();
  const double exposed = !shared.sharded() || shared.gathers_in_reduction() ? 1
                         : shared.reduces_each_backward()                   ? 0
                                                                            : 0.5;
  // Gradients of experts are reduced among fewer.
  part.reduced_bytes = exposed * static_cast<double>(c.reduced_bytes - c.expert_reduced_bytes);
  part.static_bytes = static_cast<double>(c.weight_bytes + c.gradient_bytes + c.optimizer_bytes);
  part.output_bytes = static_cast<double>(c.output_bytes);
  return part;
}

StagePart StageTable::make(int first, int count) {
  StagePart part = part_of(costs(first, count));
  if (!problem_.base().layer_profile) return part;
  std::size_t at = 0;
  const std::vector<int> layers = around(first, count, layers_, at);
  set_profiled(part, layers, at);
  return part;
}

/// Times and activations, of which the shape says nothing; unknown ones are 0.
void StageTable::set_profiled(StagePart& part, const std::vector<int>& layers,
                              std::size_t at) const {
  const LayerProfile& model = *problem_.base().layer_profile;
  const auto row =
      model.least_row(static_cast<double>(key_.microbatch_size), key_.recompute.granularity);
  StagePart least;
  if (row) {
    const auto costs =
        profiled_stage_costs(*problem_.base().transformer, *row, model.least_step(), layers);
    least = part_of(costs[at]);
  }
  least.reduced_bytes = part.reduced_bytes;
  least.static_bytes = part.static_bytes;
  least.output_bytes = part.output_bytes;
  part = least;
}

}  // namespace penstock
