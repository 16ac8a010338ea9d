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

constexpr double kNever = std::numeric_limits<double>::infinity();

void take(const DappleCluster& cluster, int machine, int count, std::vector<int>& used,
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
    take(cluster, machine, some, used, taken);
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
      take(cluster, machine, 1, used, taken);
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

namespace {

/// Stages so far, of the layers before one; and its latency with the rest as one stage.
struct Label {
  std::vector<DappleStage> stages;
  double latency_s = kNever;
};

class DappleSearch {
 public:
  DappleSearch(const std::vector<LayerState>& states, const DappleCluster& cluster,
               const PlanRequest& request, std::int64_t microbatches)
      : states_(states),
        cluster_(cluster),
        request_(request),
        microbatches_(microbatches),
        state_share_(request.model->state_bytes() / std::max(1.0, states.back().parameter_bytes)),
        frontier_(states.size()) {}

  /// Complete plans that fit, best first.
  std::vector<Label> plans() {
    Label none;
    complete(none, std::vector<int>(static_cast<std::size_t>(cluster_.machines)));
    frontier_[0].emplace(std::vector<int>(static_cast<std::size_t>(cluster_.machines)), none);
    for (std::size_t j = 0; j + 1 < states_.size(); ++j) {
      for (const auto& [used, label] : frontier_[j])
        for (std::size_t last = j; last + 1 < states_.size(); ++last) extend(label, used, last);
      frontier_[j].clear();
    }
    return best();
  }

 private:
  using Used = std::vector<int>;

  void extend(const Label& label, const Used& used, std::size_t last) {
    const int left = cluster_.devices() - std::accumulate(used.begin(), used.end(), 0);
    const int most = request_.straight ? 1 : left - 1;
    for (int count = 1; count <= std::min(most, left - 1); ++count) {
      for (const Placing policy :
           {Placing::fresh_first, Placing::append_first, Placing::scatter_first}) {
        Used after = used;
        auto devices = place(cluster_, policy, count, after);
        if (!devices) continue;
        Label next = label;
        next.stages.push_back({static_cast<int>(last), std::move(*devices)});
        if (!may_fit(next.stages)) continue;
        complete(next, after);
        Label& known = frontier_[last + 1][after];
        if (next.latency_s < known.latency_s) known = std::move(next);
      }
    }
  }

  /// Adds the layers that are left as one stage on the devices that are left.
  void complete(Label& label, const Used& used) {
    std::vector<DappleStage> stages = label.stages;
    Used after = used;
    const int left = cluster_.devices() - std::accumulate(used.begin(), used.end(), 0);
    const int count = request_.straight ? 1 : left;
    stages.push_back({static_cast<int>(states_.size()) - 1,
                      *place(cluster_, Placing::scatter_first, count, after)});
    label.latency_s =
        pipeline_latency(latency_stages(states_, stages, cluster_), microbatches_).total_s();
    if (may_fit(stages)) keep({std::move(stages), label.latency_s});
  }

  /// Early backward keeps as many microbatches of a stage as there are stages from it to the end.
  bool may_fit(const std::vector<DappleStage>& stages) const {
    for (std::size_t s = 0; s < stages.size(); ++s)
      if (stage_memory(stages, s) > request_.memory_or_unlimited()) return false;
    return true;
  }

 public:
  double stage_memory(const std::vector<DappleStage>& stages, std::size_t s) const {
    static const LayerState kNothing;
    const LayerState& last = states_[static_cast<std::size_t>(stages[s].last)];
    const LayerState& before =
        s == 0 ? kNothing : states_[static_cast<std::size_t>(stages[s - 1].last)];
    const auto kept = static_cast<double>(
        std::min<std::int64_t>(static_cast<std::int64_t>(stages.size() - s), microbatches_));
    return state_share_ * (last.parameter_bytes - before.parameter_bytes) +
           kept * (last.activation_bytes - before.activation_bytes) /
               static_cast<double>(stages[s].devices.size());
  }

 private:
  /// Keeps some more than are wanted: several may be the same stages placed alike.
  void keep(Label label) {
    found_.push_back(std::move(label));
    if (found_.size() > 64 * (request_.most_plans + 1)) shorten();
  }

  void shorten() {
    std::ranges::stable_sort(found_, {}, &Label::latency_s);
    const auto same = [](const Label& a, const Label& b) {
      return std::ranges::equal(a.stages, b.stages, [](const DappleStage& x, const DappleStage& y) {
        return x.last == y.last && x.devices == y.devices;
      });
    };
    found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
    if (found_.size() > request_.most_plans) found_.resize(request_.most_plans);
  }

  std::vector<Label> best() {
    shorten();
    return found_;
  }

  const std::vector<LayerState>& states_;
  const DappleCluster& cluster_;
  const PlanRequest& request_;
  std::int64_t microbatches_;
  double state_share_;                           // bytes of state per byte of parameters
  std::vector<std::map<Used, Label>> frontier_;  // by layers planned, devices used
  std::vector<Label> found_;
};

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

}  // namespace

PlanResult plan_dapple(const PlanRequest& request) {
  // Evaluations grow with layers^2 * devices^2 or faster.
  constexpr std::size_t kMostWork = 3'000;
  const auto size = static_cast<double>(request.microbatch_size);
  const std::vector<LayerState> all = request.model->chain(size, Recompute::none);
  const DappleCluster cluster = cluster_of(request.levels);
  const std::size_t most =
      std::max<std::size_t>(16, kMostWork / static_cast<std::size_t>(cluster.devices()));
  const std::vector<LayerState> states = all.size() > most ? merged(all, most) : all;
  const std::int64_t microbatches =
      std::max<std::int64_t>(1, request.batch / request.microbatch_size);
  PlanResult result;
  result.single_device_s = all.back().time_s();
  if (states.size() < all.size())
    result.notes.push_back(fmt::format(
        "{} layers merged into {} of nearly equal time for the search", all.size(), states.size()));
  DappleSearch search(states, cluster, request, microbatches);
  for (const Label& label : search.plans()) {
    Plan plan;
    plan.planner = "dapple";
    plan.schedule = "dapple";
    plan.microbatch_size = request.microbatch_size;
    plan.microbatches = microbatches;
    const auto stages = latency_stages(states, label.stages, cluster);
    const PipelineLatency latency = pipeline_latency(stages, microbatches);
    int first = 0;
    for (std::size_t s = 0; s < label.stages.size(); ++s) {
      PlannedStage stage;
      const LayerState& last = states[static_cast<std::size_t>(label.stages[s].last)];
      stage.first_layer = first;
      stage.last_layer = last.layers.back();
      stage.first_name = all[static_cast<std::size_t>(first)].name;
      stage.last_name = last.name;
      stage.devices = label.stages[s].devices;
      stage.replicas = static_cast<int>(stage.devices.size());
      stage.time_s = stages[2 * s].forward_s + stages[2 * s].backward_s;
      stage.memory_bytes = search.stage_memory(label.stages, s);
      first = stage.last_layer + 1;
      plan.stages.push_back(std::move(stage));
    }
    const LatencyStage& pivot = stages[latency.pivot];
    plan.time_per_stage_s = pivot.forward_s + pivot.backward_s;
    plan.latency_s = latency.total_s();
    plan.throughput_samples_per_s = static_cast<double>(request.batch) / plan.latency_s;
    plan.speedup = result.single_device_s * static_cast<double>(microbatches) / plan.latency_s;
    plan.limited_by = latency.pivot % 2 == 0
                          ? fmt::format("stage {}: compute", latency.pivot / 2)
                          : fmt::format("messages between stages {} and {}", latency.pivot / 2,
                                        latency.pivot / 2 + 1);
    result.plans.push_back(std::move(plan));
  }
  if (result.plans.empty())
    result.infeasible_because =
        fmt::format("no plan fits {} on every device", format_bytes(request.memory_or_unlimited()));
  return result;
}

}  // namespace penstock
