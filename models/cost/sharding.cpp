// SPDX-License-Identifier: Apache-2.0
#include "models/cost/sharding.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// What is gathered or reduced of a stage, unit by unit.
struct Units {
  double bytes;  ///< of all of them
  int units;

  Segment segment(Collective what, int of) const {
    return {.lane = Lane::weights,
            .axis = Axis::data,
            .what = what,
            .calls = of,
            .bytes = std::llround(bytes * of / units)};
  }
};

/// Makes a recipe of one that only computes, to which exchanges can be added.
void give_times(Recipe& recipe, int units) {
  if (!recipe.segments.empty()) return;
  recipe.segments = {{.share = 1}};
  recipe.times = units;
}

void append_beside(Recipe& recipe, const Segment& exchange) {
  if (exchange.calls > 0) recipe.segments.push_back(exchange);
}

/// Adds the gathering of so many units: `waited` of them before anything is computed, each further
/// one beside the one before (prefetching).
void gather(Recipe& recipe, const Units& weights, int units, int waited) {
  give_times(recipe, weights.units);
  if (waited > 0) recipe.before.push_back(weights.segment(Collective::all_gather, waited));
  append_beside(recipe, weights.segment(Collective::all_gather, units - waited));
}

/// Adds the reduction of a backward: each unit beside the next one's backward, the last one after
/// it.
void reduce_backward(Recipe& recipe, const Units& gradients) {
  give_times(recipe, gradients.units);
  append_beside(recipe, gradients.segment(Collective::reduce_scatter, gradients.units - 1));
  recipe.after.push_back(gradients.segment(Collective::reduce_scatter, 1));
}

}  // namespace

void set_sharding(const StageJob& job, const Sharding& sharding,
                  const ShardedParameters& parameters, StageCosts& c) {
  if (sharding.group == 1 || sharding.what == Sharded::none) return;
  const ParameterBytes& bytes = job.model.bytes;
  const auto all = static_cast<double>(parameters.all);
  const auto unit = static_cast<double>(parameters.largest_unit);
  const auto whole = [](double n) { return std::llround(n); };
  const Units weights{all * bytes.weights, parameters.units};
  const Units gradients{all * bytes.reduced, parameters.units};
  const int units = weights.units;
  const auto gather_forward = [&](Recipe& recipe) {
    gather(recipe, weights, units, sharding.lookahead > 0 ? 1 : units);
  };
  // The last unit of the forward is still there.
  const auto gather_backward = [&](Recipe& recipe) {
    gather(recipe, weights, units - 1, sharding.lookahead > 0 ? 0 : units - 1);
  };
  if (sharding.gathers_in_first_forward()) {
    c.gathering = c[OpKind::forward];
    if (sharding.gathering == Gathering::first_forward)
      gather_forward(c.gathering->recipe);
    else
      gather(c.gathering->recipe, weights, units, units);
  }
  if (sharding.gathering >= Gathering::forward) gather_forward(c[OpKind::forward].recipe);
  if (sharding.gathering == Gathering::each_pass) {
    gather_backward(c[OpKind::backward].recipe);
    gather_backward(c[OpKind::backward_input].recipe);
    // One unit is used while those ahead of it arrive.
    const double there = std::min(all, (1 + sharding.lookahead) * unit) * bytes.weights;
    c.weight_bytes = whole(weights.bytes / sharding.group);
    c.forward_workspace_bytes += whole(there);
    c.backward_workspace_bytes += whole(there);
    c.again_workspace_bytes += whole(there);
  }
  if (!sharding.reduces_each_backward()) return;
  reduce_backward(c[OpKind::backward].recipe, gradients);
  reduce_backward(c[OpKind::backward_weight].recipe, gradients);
  c.gradient_bytes = whole(all * bytes.gradients / sharding.group);
  c.backward_workspace_bytes += whole(std::min(all, 2 * unit) * bytes.reduced);
  // Between groups that each hold all of it, parts are reduced when the update ends.
  c.reduced_bytes = whole(gradients.bytes / sharding.group);
}

}  // namespace penstock
