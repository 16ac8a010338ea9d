// SPDX-License-Identifier: Apache-2.0
#include "plan/dapple.hpp"

#include "base/units.hpp"
#include "plan/planners.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace penstock {
namespace {

void take_devices(const DappleCluster& cluster, int machine, int count, std::vector<int>& used,
                  std::vector<int>& taken) {
  int& first = used[static_cast<std::size_t>(machine)];
  for (int i = 0; i < count; ++i) taken.push_back(machine * cluster.devices_per_machine + first++);
}

/// From machines that are not used at all, or from those that are used in part, one after the
/// other.
std::vector<int> take_whole(const DappleCluster& cluster, bool fresh, int count,
                            std::vector<int>& used) {
  std::vector<int> taken;
  for (int machine = 0; machine < cluster.machines && count > 0; ++machine) {
    const int there = used[static_cast<std::size_t>(machine)];
    if ((there == 0) != fresh) continue;
    const int some = std::min(count, cluster.devices_per_machine - there);
    take_devices(cluster, machine, some, used, taken);
    count -= some;
  }
  return taken;
}

/// One from each machine that has one left, round after round.
std::vector<int> take_evenly(const DappleCluster& cluster, int count, std::vector<int>& used) {
  std::vector<int> taken;
  for (bool any = true; any && count > 0;) {
    any = false;
    for (int machine = 0; machine < cluster.machines && count > 0; ++machine) {
      if (used[static_cast<std::size_t>(machine)] == cluster.devices_per_machine) continue;
      take_devices(cluster, machine, 1, used, taken);
      --count;
      any = true;
    }
  }
  return taken;
}

}  // namespace

std::optional<std::vector<int>> place(const DappleCluster& cluster, Placing policy, int count,
                                      std::vector<int>& used) {
  std::vector<int> after = used;
  std::vector<int> taken = policy == Placing::scatter_first
                               ? take_evenly(cluster, count, after)
                               : take_whole(cluster, policy == Placing::fresh_first, count, after);
  if (static_cast<int>(taken.size()) < count) return std::nullopt;
  used = std::move(after);
  std::ranges::sort(taken);
  return taken;
}

double stage_memory(const std::vector<LayerState>& states, std::span<const DappleStage> stages,
                    std::size_t s, const DappleOptions& options) {
  static const LayerState kNothing;
  const LayerState& last = states[static_cast<std::size_t>(stages[s].last)];
  const LayerState& before =
      s == 0 ? kNothing : states[static_cast<std::size_t>(stages[s - 1].last)];
  const auto behind = static_cast<std::int64_t>(stages.size() - s);
  const auto kept = static_cast<double>(std::min(behind, options.microbatches));
  return options.state_share * (last.parameter_bytes - before.parameter_bytes) +
         kept * (last.activation_bytes - before.activation_bytes) /
             static_cast<double>(stages[s].devices.size());
}

namespace {

class DappleSearch {
 public:
  DappleSearch(const std::vector<LayerState>& states, const DappleCluster& cluster,
               const DappleOptions& options)
      : states_(states), cluster_(cluster), options_(options), frontier_(states.size()) {}

  std::vector<DapplePlan> plans() {
    const Used none(static_cast<std::size_t>(cluster_.machines));
    stages_ = {the_rest(none)};
    frontier_[0].emplace(none, DapplePlan{{}, complete()});
    for (std::size_t j = 0; j + 1 < states_.size(); ++j) {
      for (const auto* entry : best_of(frontier_[j])) extend(entry->second, entry->first, j);
      frontier_[j].clear();
    }
    shorten();
    return found_;
  }

 private:
  using Used = std::vector<int>;  // devices of each machine

  using Frontier = std::map<Used, DapplePlan>;

  /// All of them where devices and layers are few, else as many of the best as time allows.
  std::vector<const Frontier::value_type*> best_of(const Frontier& frontier) const {
    constexpr double kMostEvaluations = 4e6;
    const auto layers = static_cast<double>(states_.size());
    const double each = 0.75 * layers * layers * cluster_.devices();
    const auto most = static_cast<std::size_t>(std::max(8.0, kMostEvaluations / each));
    std::vector<const Frontier::value_type*> best;
    for (const auto& entry : frontier) best.push_back(&entry);
    std::ranges::stable_sort(best, {}, [](const auto* entry) { return entry->second.latency_s; });
    if (best.size() > most) best.resize(most);
    return best;
  }

  int left(const Used& used) const {
    return cluster_.devices() - std::accumulate(used.begin(), used.end(), 0);
  }

  /// Devices for one more stage.
  struct Placement {
    Used used;  // with them
    std::vector<int> devices;
    DappleStage rest;
  };

  /// By each policy; of those that agree the first.
  std::vector<Placement> placements(const Used& used) const {
    std::vector<Placement> found;
    const int most = std::min(options_.straight ? 1 : left(used), left(used) - 1);
    for (int count = 1; count <= most; ++count) {
      const auto begin = static_cast<std::ptrdiff_t>(found.size());
      for (const Placing policy :
           {Placing::fresh_first, Placing::append_first, Placing::scatter_first}) {
        Used after = used;
        const auto devices = place(cluster_, policy, count, after);
        const auto same = [&](const Placement& p) { return p.devices == devices; };
        if (!devices || std::any_of(found.begin() + begin, found.end(), same)) continue;
        found.push_back({after, *devices, the_rest(after)});
      }
    }
    return found;
  }

  /// The layers that are left on the devices that are left.
  DappleStage the_rest(Used used) const {
    const int count = options_.straight ? 1 : left(used);
    return {static_cast<int>(states_.size()) - 1,
            *place(cluster_, Placing::scatter_first, count, used)};
  }

  /// Goes on from a plan of the layers before `first` with one more stage.
  void extend(const DapplePlan& plan, const Used& used, std::size_t first) {
    stages_ = plan.stages;
    stages_.resize(plan.stages.size() + 2);
    const std::vector<Placement> places = placements(used);
    for (std::size_t last = first; last + 1 < states_.size(); ++last)
      for (const Placement& placement : places) add_stage(static_cast<int>(last), placement);
  }

  void add_stage(int last, const Placement& placement) {
    const std::span<DappleStage> so_far = std::span(stages_).first(stages_.size() - 1);
    so_far.back().last = last;
    so_far.back().devices = placement.devices;
    if (!may_fit(so_far)) return;
    stages_.back() = placement.rest;
    const double latency_s = complete();
    DapplePlan& known = frontier_[static_cast<std::size_t>(last) + 1][placement.used];
    if (!known.stages.empty() && latency_s >= known.latency_s) return;
    known = {{so_far.begin(), so_far.end()}, latency_s};
  }

  /// The latency of the stages, which are kept if they are among the best.
  double complete() {
    const double latency_s =
        pipeline_latency(latency_stages(states_, stages_, cluster_), options_.microbatches)
            .total_s();
    if (may_fit(stages_)) keep(latency_s);
    return latency_s;
  }

  /// More stages make those that are there keep more.
  bool may_fit(std::span<const DappleStage> stages) const {
    for (std::size_t s = 0; s < stages.size(); ++s)
      if (stage_memory(states_, stages, s, options_) > options_.memory_bytes) return false;
    return true;
  }

  /// Keeps more than are wanted: the policies often agree, and then so do plans.
  void keep(double latency_s) {
    if (found_.size() >= options_.most_plans && latency_s >= bound_) return;
    found_.push_back({stages_, latency_s});
    if (found_.size() > 64 * (options_.most_plans + 1)) shorten();
  }

  void shorten() {
    std::ranges::stable_sort(found_, {}, &DapplePlan::latency_s);
    const auto same = [](const DapplePlan& a, const DapplePlan& b) {
      return std::ranges::equal(a.stages, b.stages, [](const DappleStage& x, const DappleStage& y) {
        return x.last == y.last && x.devices == y.devices;
      });
    };
    found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
    if (found_.size() < options_.most_plans) return;
    found_.resize(options_.most_plans);
    bound_ = found_.back().latency_s;
  }

  const std::vector<LayerState>& states_;
  const DappleCluster& cluster_;
  const DappleOptions& options_;
  std::vector<Frontier> frontier_;   // by layers planned, devices used
  std::vector<DappleStage> stages_;  // of the plan that is looked at
  std::vector<DapplePlan> found_;
  double bound_ = std::numeric_limits<double>::infinity();  // of those kept when last shortened
};

}  // namespace

std::vector<DapplePlan> search_dapple(const std::vector<LayerState>& states,
                                      const DappleCluster& cluster, const DappleOptions& options) {
  return DappleSearch(states, cluster, options).plans();
}

namespace {

/// The innermost level is a machine; everything above it one network between machines.
DappleCluster cluster_of(const std::vector<PlanLevel>& levels) {
  DappleCluster cluster;
  cluster.devices_per_machine = levels.front().width;
  cluster.inside_bytes_per_s = levels.front().bytes_per_s;
  cluster.between_bytes_per_s = cluster.collective_bytes_per_s = levels.back().bytes_per_s;
  for (std::size_t l = 1; l < levels.size(); ++l) cluster.machines *= levels[l].width;
  return cluster;
}

/// Neighbouring layers merged into at most `most`, of equal time as far as possible.
std::vector<LayerState> merged(const std::vector<LayerState>& states, std::size_t most) {
  std::vector<LayerState> kept;
  const double total = states.back().time_s();
  for (std::size_t i = 0; i < states.size(); ++i) {
    const double next = total * static_cast<double>(kept.size() + 1) / static_cast<double>(most);
    if (i + 1 == states.size() || states[i + 1].time_s() > next) kept.push_back(states[i]);
  }
  return kept;
}

/// The model as the search sees it.
struct DappleTask {
  std::vector<LayerState> all, states;
  DappleCluster cluster;
  DappleOptions options;

  explicit DappleTask(const PlanRequest& request) : cluster(cluster_of(request.levels)) {
    // Evaluations grow with the square of layers times devices, or faster.
    constexpr std::size_t kMostWork = 3'000;
    all = request.model->chain(static_cast<double>(request.microbatch_size), Recompute::none);
    const std::size_t most =
        std::max<std::size_t>(16, kMostWork / static_cast<std::size_t>(cluster.devices()));
    states = all.size() > most ? merged(all, most) : all;
    options.microbatches = std::max<std::int64_t>(1, request.batch / request.microbatch_size);
    options.straight = request.straight;
    options.memory_bytes = request.memory_or_unlimited();
    options.state_share = request.model->state_bytes() / std::max(1.0, all.back().parameter_bytes);
    options.most_plans = request.most_plans;
  }

  std::vector<PlannedStage> stages(const DapplePlan& plan,
                                   const std::vector<LatencyStage>& times) const {
    std::vector<PlannedStage> stages;
    int first = 0;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const LayerState& last = states[static_cast<std::size_t>(plan.stages[s].last)];
      PlannedStage stage;
      stage.first_layer = first;
      stage.last_layer = last.layers.back();
      stage.first_name = all[static_cast<std::size_t>(first)].name;
      stage.last_name = last.name;
      stage.devices = plan.stages[s].devices;
      stage.replicas = static_cast<int>(stage.devices.size());
      stage.time_s = times[2 * s].forward_s + times[2 * s].backward_s;
      stage.memory_bytes = stage_memory(states, plan.stages, s, options);
      first = stage.last_layer + 1;
      stages.push_back(std::move(stage));
    }
    return stages;
  }

  Plan plan(const DapplePlan& found, std::int64_t microbatch_size) const {
    const auto times = latency_stages(states, found.stages, cluster);
    const std::size_t pivot = pipeline_latency(times, options.microbatches).pivot;
    const auto m = static_cast<double>(options.microbatches);
    Plan plan;
    plan.planner = "dapple";
    plan.schedule = "dapple";
    plan.microbatch_size = microbatch_size;
    plan.microbatches = options.microbatches;
    plan.stages = stages(found, times);
    plan.time_per_stage_s = times[pivot].forward_s + times[pivot].backward_s;
    plan.latency_s = found.latency_s;
    plan.throughput_samples_per_s = m * static_cast<double>(microbatch_size) / found.latency_s;
    plan.speedup = m * all.back().time_s() / found.latency_s;
    plan.limited_by =
        pivot % 2 == 0 ? fmt::format("stage {}: compute", pivot / 2)
                       : fmt::format("messages between stages {} and {}", pivot / 2, pivot / 2 + 1);
    return plan;
  }
};

}  // namespace

PlanResult plan_dapple(const PlanRequest& request) {
  const DappleTask task(request);
  PlanResult result;
  result.single_device_s = task.all.back().time_s();
  if (task.states.size() < task.all.size())
    result.notes.push_back(
        fmt::format("{} layers merged into {} of nearly equal time for the search", task.all.size(),
                    task.states.size()));
  for (const DapplePlan& found : search_dapple(task.states, task.cluster, task.options))
    result.plans.push_back(task.plan(found, request.microbatch_size));
  if (result.plans.empty())
    result.infeasible_because =
        fmt::format("no plan fits {} on every device", format_bytes(request.memory_or_unlimited()));
  return result;
}

}  // namespace penstock
