// SPDX-License-Identifier: Apache-2.0
#include "results/learning.hpp"

#include "results/fields.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

std::vector<std::string> not_told_from(const LearnedScenario& best,
                                       const std::vector<LearnedScenario>& all) {
  const double most = judged_by(best).back().most;
  std::vector<std::string> names;
  for (const LearnedScenario& s : all) {
    const std::vector<Band> of_s = judged_by(s);
    if (&s != &best && !of_s.empty() && (of_s.back().least <= most || s.runs.size() == 1))
      names.push_back(s.name);
  }
  return names;
}

}  // namespace

LearnedScenario learned_scenario(const Scenario& s) {
  LearnedScenario learned;
  learned.name = s.name;
  learned.schedule = s.schedule->name;
  learned.stages = static_cast<int>(s.shape.depth);
  learned.replicas = s.widths().front();
  learned.samples_per_update =
      s.samples_per_update() / (s.schedule->asynchronous ? learned.replicas : 1);
  learned.optimizer = kOptimizerNames[static_cast<int>(s.optimizer.kind)];
  learned.learning_rate = s.optimizer.learning_rate;
  return learned;
}

std::vector<double> all_update_ends_s(const Simulation& s) {
  if (!s.latest || !s.program.placement.replicated()) return update_ends_s(s);
  std::vector<double> ends;
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g)
    if (s.program.ops[g].kind == OpKind::step) ends.push_back(s.timeline->op(g).end_s);
  std::ranges::sort(ends);
  return ends;
}

std::vector<Band> bands(const LearnedScenario& scenario, bool evaluated) {
  std::vector<Band> out;
  const auto value = [&](const LearningPoint& p) { return evaluated ? p.evaluation_loss : p.loss; };
  std::size_t longest = 0;
  for (const Learning& run : scenario.runs) longest = std::max(longest, run.curve.size());
  for (std::size_t i = 0; i < longest; ++i) {
    Band band{.least = std::numeric_limits<double>::infinity(),
              .most = -std::numeric_limits<double>::infinity()};
    double sum = 0, count = 0;
    for (const Learning& run : scenario.runs) {
      if (i >= run.curve.size() || !value(run.curve[i])) continue;
      const double x = *value(run.curve[i]);
      if (!std::isfinite(x)) continue;
      band.update = run.curve[i].update;
      band.samples = run.curve[i].samples;
      band.simulated_s = run.curve[i].simulated_s;
      band.least = std::min(band.least, x);
      band.most = std::max(band.most, x);
      sum += x;
      ++count;
    }
    if (count == 0) continue;
    band.mean = sum / count;
    out.push_back(band);
  }
  return out;
}

std::vector<Band> judged_by(const LearnedScenario& s) {
  std::vector<Band> held_out = bands(s, true);
  return held_out.empty() ? bands(s, false) : held_out;
}

LearnedMost learned_most(const std::vector<LearnedScenario>& all) {
  LearnedMost most;
  for (const LearnedScenario& s : all) {
    const std::vector<Band> of_s = judged_by(s);
    if (of_s.empty() || !std::isfinite(of_s.back().mean)) continue;
    if (most.best == nullptr || of_s.back().mean < judged_by(*most.best).back().mean)
      most.best = &s;
  }
  if (most.best != nullptr) most.rivals = not_told_from(*most.best, all);
  return most;
}

Json to_json(const LearnedScenario& scenario, bool reproducible) {
  Json json;
  json["name"] = scenario.name;
  json["schedule"] = scenario.schedule;
  json["stages"] = scenario.stages;
  json["replicas"] = scenario.replicas;
  json["parameters"] = scenario.parameters;
  json["samples_per_update"] = scenario.samples_per_update;
  json["optimizer"] = scenario.optimizer;
  json["learning_rate"] = scenario.learning_rate;
  json["loss_floor"] = nullable(scenario.loss_floor);
  json["runs"] = Json::array();
  for (const Learning& run : scenario.runs) {
    Json one;
    one["seed"] = run.seed;
    one["weights_digest"] = run.weights_digest;
    one["complete"] = run.stopped_because.empty();
    one["stopped_because"] = run.stopped_because;
    if (!reproducible) one["seconds"] = run.seconds;
    one["curve"] = Json::array();
    for (const LearningPoint& p : run.curve) {
      Json point;
      point["update"] = p.update;
      point["samples"] = p.samples;
      point["simulated_s"] = p.simulated_s;
      point["loss"] = p.loss;
      if (p.evaluation_loss) point["evaluation_loss"] = *p.evaluation_loss;
      one["curve"].push_back(point);
    }
    json["runs"].push_back(one);
  }
  return json;
}

}  // namespace penstock
