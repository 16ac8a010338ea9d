// SPDX-License-Identifier: Apache-2.0
// How DAPPLE's released planner counts a plan (github.com/AlibabaPAI/DAPPLE,
// src/parallelism/sync_pipeline.rs), two ways. Its stages are printed as first state and the state
// behind the last one, except at the end; its times count the state behind, too, in both stages.
#pragma once

#include "plan/dapple.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock {

struct ReleasedStage {
  int first = 0, end = 0, replicas = 1;  ///< of each of the pipelines side by side
  std::vector<int> devices;              ///< of all of them
};

struct ReleasedDapple {
  const std::vector<LayerState>& states;  ///< of a global batch
  DappleCluster cluster;
  int global_batch = 1, microbatch = 1, pipelines = 1;

  double sum(double LayerState::*what, int first, int last) const {
    const auto at = [&](int i) { return states[static_cast<std::size_t>(i)].*what; };
    return at(last) - (first == 0 ? 0 : at(first - 1));
  }
  double compute(int first, int last) const {
    return sum(&LayerState::forward_s, first, last) + sum(&LayerState::backward_s, first, last);
  }
  double cut(const ReleasedStage& stage) const {
    return states[static_cast<std::size_t>(stage.end) - 1].cut_bytes;
  }
  int microbatches() const { return global_batch / pipelines / microbatch; }

  /// The slowest stage or transfer of the whole batch; without the state counted twice. Its search
  /// of two stages on all devices counts messages one way, the search of more both ways.
  double block(const std::vector<ReleasedStage>& plan) const {
    const double ways = plan.size() == 2 && pipelines == 1 ? 1 : 2;
    double slowest = 0;
    for (std::size_t s = 0; s < plan.size(); ++s) {
      const int last = s + 1 < plan.size() ? plan[s].end - 1 : static_cast<int>(states.size()) - 1;
      slowest = std::max(slowest, compute(plan[s].first, last) / plan[s].replicas / pipelines);
      if (s > 0)
        slowest = std::max(slowest, cluster.transfer_s(plan[s - 1].devices, plan[s].devices,
                                                       ways * cut(plan[s - 1])));
    }
    return slowest;
  }

  double analytical_speedup(const std::vector<ReleasedStage>& plan) const {
    const double m = microbatches(), total = states.back().time_s();
    const double one = block(plan) / m;
    double length = one * (m - 1) + total / pipelines / m;
    for (std::size_t s = 1; s < plan.size(); ++s)
      length += cluster.transfer_s(plan[s - 1].devices, plan[s].devices,
                                   cut(plan[s - 1]) / pipelines / m);
    double delta = 0;
    for (std::size_t s = 0; s < plan.size(); ++s) {
      const double reduce = cluster.all_reduce_s(
          plan[s].devices, sum(&LayerState::parameter_bytes, plan[s].first, plan[s].end));
      delta = std::max(delta, reduce - static_cast<double>(s) * one);
    }
    return total / (length + delta);
  }

  /// Stage and message times, forward and backward alike, of one microbatch.
  std::vector<double> slots(const std::vector<ReleasedStage>& plan) const {
    std::vector<double> times;
    for (std::size_t s = 0; s < plan.size(); ++s) {
      times.push_back(compute(plan[s].first, plan[s].end) / plan[s].replicas / pipelines /
                      microbatches() / 2);
      if (s + 1 < plan.size())
        times.push_back(cluster.transfer_s(plan[s].devices, plan[s + 1].devices,
                                           cut(plan[s]) / microbatches()));
    }
    return times;
  }

  double recursive_speedup(const std::vector<ReleasedStage>& plan) const;
};

/// f(i, x) and b(i, x): ends of the forward and backward of microbatch i in slot x; a slot admits
/// as many microbatches as there are slots from it to the end.
class ReleasedTimeline {
 public:
  ReleasedTimeline(std::vector<double> times, int microbatches)
      : times_(std::move(times)), microbatches_(microbatches) {}

  double backward(int i, int x) {
    if (outside(i, x)) return 0;
    return remembered(backward_, i, x, [&] {
      return std::max(backward(i, x + 1), forward(i + slots() - x - 1, x));
    });
  }

 private:
  double forward(int i, int x) {
    if (outside(i, x)) return 0;
    return remembered(forward_, i, x, [&] {
      const double before = i == 0 ? 0 : std::max(backward(i - slots() + x, x), forward(i - 1, x));
      return std::max(before, forward(i, x - 1));
    });
  }

  template <typename Start>
  double remembered(std::map<std::pair<int, int>, double>& known, int i, int x, Start start) {
    const auto found = known.find({i, x});
    if (found != known.end()) return found->second;
    const double end = start() + times_[static_cast<std::size_t>(x)];
    known[{i, x}] = end;
    return end;
  }
  int slots() const { return static_cast<int>(times_.size()); }
  bool outside(int i, int x) const { return i < 0 || i >= microbatches_ || x < 0 || x >= slots(); }

  std::vector<double> times_;
  int microbatches_;
  std::map<std::pair<int, int>, double> forward_, backward_;
};

inline double ReleasedDapple::recursive_speedup(const std::vector<ReleasedStage>& plan) const {
  ReleasedTimeline timeline(slots(plan), microbatches());
  double longest = 0;
  for (std::size_t s = 0; s < 2 * plan.size() - 1; ++s) {
    double end = timeline.backward(microbatches() - 1, static_cast<int>(s));
    if (s % 2 == 0)
      end += cluster.all_reduce_s(plan[s / 2].devices, sum(&LayerState::parameter_bytes,
                                                           plan[s / 2].first, plan[s / 2].end));
    longest = std::max(longest, end);
  }
  return states.back().time_s() / longest;
}

}  // namespace penstock
