// SPDX-License-Identifier: Apache-2.0
#include "results/contention.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace penstock {
namespace {

/// Of how many devices at once, integrated over time.
class WorkDone {
 public:
  void add_span(double start_s, double end_s) {
    edges_.emplace_back(start_s, 1);
    edges_.emplace_back(end_s, -1);
  }
  void close() {
    std::ranges::sort(edges_);
    double sum_s = 0;
    int devices = 0;
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      if (i > 0) sum_s += devices * (edges_[i].first - edges_[i - 1].first);
      devices += edges_[i].second;
      points_.push_back({edges_[i].first, sum_s, devices});
    }
  }
  double between(double start_s, double end_s) const { return until(end_s) - until(start_s); }

 private:
  struct Point {
    double at_s, sum_s;
    int devices;  ///< from here on
  };
  double until(double at_s) const {
    const auto after = std::ranges::upper_bound(points_, at_s, {}, &Point::at_s);
    if (after == points_.begin()) return 0;
    const Point& p = *(after - 1);
    return p.sum_s + p.devices * (at_s - p.at_s);
  }

  std::vector<std::pair<double, int>> edges_;
  std::vector<Point> points_;
};

struct Met {
  double length_s = 0, products_s = 0, steps_s = 0;  ///< own time; that of all neighbours in it
};

class Neighbours {
 public:
  Neighbours(const OpLists& ops, const Timeline& timeline) : ops_(ops), timeline_(timeline) {
    for (int d = 0; d < ops.devices(); ++d) {
      double free_s = 0;  // ops that run as a pair occupy the device once
      for_ops(d, [&](const Op& op, const Span& span) {
        WorkDone& work = op.kind == OpKind::step ? steps_ : products_;
        if (span.end_s > free_s) work.add_span(std::max(free_s, span.start_s), span.end_s);
        free_s = std::max(free_s, span.end_s);
      });
    }
    products_.close();
    steps_.close();
  }

  /// By stage and kind; a step's by its position.
  std::map<std::pair<std::uint32_t, OpKind>, Met> met(const Placement& placement) const {
    std::map<std::pair<std::uint32_t, OpKind>, Met> all;
    for (int d = 0; d < ops_.devices(); ++d) {
      for_ops(d, [&](const Op& op, const Span& span) {
        const bool step = op.kind == OpKind::step;
        Met& m = all[{step ? placement.positions()[op.stage] : op.stage, op.kind}];
        m.length_s += span.length_s();
        m.products_s += products_.between(span.start_s, span.end_s) - (step ? 0 : span.length_s());
        m.steps_s += steps_.between(span.start_s, span.end_s) - (step ? span.length_s() : 0);
      });
    }
    return all;
  }

 private:
  template <class F>
  void for_ops(int device, const F& f) const {
    for (std::uint32_t g = ops_.begin(device); const Op& op : ops_.of_device(device)) {
      const Span& span = timeline_.op(g++);
      if (op.kind != OpKind::reduce_grad && span.length_s() > 0) f(op, span);
    }
  }

  const OpLists& ops_;
  const Timeline& timeline_;
  WorkDone products_, steps_;
};

/// The seconds that neighbours slow down.
std::vector<double*> times_of(StageCosts& costs) {
  std::vector<double*> times{&costs.step_s};
  for (OpCost& op : costs.ops) times.push_back(&op.seconds);
  if (costs.stored)
    for (OpCost& op : costs.stored->ops) times.push_back(&op.seconds);
  return times;
}

}  // namespace

double approach(std::vector<StageCosts>& costs, std::vector<StageCosts> next, double part) {
  double left = 0;
  for (std::size_t s = 0; s < costs.size(); ++s) {
    const std::vector<double*> now = times_of(costs[s]), targets = times_of(next[s]);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const double target = *targets[i];
      *now[i] = std::lerp(*now[i], target, part);
      if (target > 0) left = std::max(left, std::abs(target - *now[i]) / target);
    }
  }
  return left;
}

std::vector<StageCosts> contended_costs(std::vector<StageCosts> alone, const OpLists& ops,
                                        const Placement& placement, const Timeline& timeline,
                                        const NeighbourSlowdowns& interference) {
  const auto met = Neighbours(ops, timeline).met(placement);
  const int others = ops.devices() - 1;
  const auto slower = [&](std::uint32_t of, OpKind kind) {
    const auto found = met.find({of, kind});
    if (found == met.end() || others == 0) return 1.0;
    const bool step = kind == OpKind::step;
    const NeighbourSlowdowns& i = interference;
    const double all_s = found->second.length_s * others;
    return 1 +
           found->second.products_s / all_s *
               ((step ? i.steps_by_products : i.products_by_products) - 1) +
           found->second.steps_s / all_s * ((step ? i.steps_by_steps : i.products_by_steps) - 1);
  };
  for (std::uint32_t s = 0; s < alone.size(); ++s) {
    StageCosts& c = alone[s];
    for (std::size_t kind = 0; kind < c.ops.size(); ++kind) {
      const double factor = slower(s, static_cast<OpKind>(kind));
      c.ops[kind].seconds *= factor;
      if (c.stored) c.stored->ops[kind].seconds *= factor;
    }
    c.step_s *= slower(placement.positions()[s], OpKind::step);
  }
  return alone;
}

}  // namespace penstock
