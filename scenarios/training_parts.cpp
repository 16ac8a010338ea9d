// SPDX-License-Identifier: Apache-2.0
#include "scenarios/resolve.hpp"

#include "base/output_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

constexpr std::int64_t kMostUpdates = 100'000'000;

OptimizerSpec optimizer_of(const Specification& spec) {
  using Kind = OptimizerSpec::Kind;
  const TrainingKeys& keys = spec.training;
  const bool by_shape =
      spec.transformer() != nullptr &&
      keys.problem.value_or(TrainingSpec::Problem::model) == TrainingSpec::Problem::model;
  OptimizerSpec o;
  o.kind = keys.optimizer.value_or(by_shape ? Kind::adamw : Kind::sgd);
  const bool decoupled = o.kind == Kind::adamw || o.kind == Kind::nadamw || o.of_matrices();
  const bool looks_ahead = o.kind == Kind::nesterov || o.kind == Kind::nadamw;
  o.learning_rate = keys.learning_rate.value_or(decoupled || o.kind == Kind::adam ? 1e-3 : 1e-2);
  o.beta1 = keys.momentum.value_or(looks_ahead ? 0.99 : o.kind == Kind::muon ? 0.95 : o.beta1);
  o.weight_decay = keys.weight_decay.value_or(decoupled ? 0.01 : 0);
  if (keys.momentum.there && o.kind == Kind::sgd)
    keys.momentum.refuse("sgd has no momentum; use optimizer: momentum");
  if (o.beta1 >= 1) keys.momentum.refuse("'momentum' must be below 1");
  if (keys.learning_rate.value && !(o.learning_rate > 0 && o.learning_rate <= 1000))
    keys.learning_rate.refuse("'learning_rate' must be more than 0, and at most 1000");
  if (o.weight_decay > 1000) keys.weight_decay.refuse("'weight_decay' must be at most 1000");
  return o;
}

std::uint32_t count_of(const Integer& key, std::uint32_t otherwise) {
  if (key.value && *key.value > kMostUpdates)
    key.refuse(fmt::format("must be at most {}", kMostUpdates));
  return static_cast<std::uint32_t>(std::min(key.value_or(otherwise), kMostUpdates));
}

void read_data(const Specification& spec, TrainingSpec& t) {
  const TrainingKeys& keys = spec.training;
  const std::string name = keys.data.value_or("generated");
  const auto known = std::ranges::find(kDataNames, std::string_view(name));
  if (spec.training_text.empty() && known != std::end(kDataNames)) {
    t.data = static_cast<TrainingSpec::Data>(known - std::begin(kDataNames));
  } else {
    t.data = TrainingSpec::Data::text;
    t.file = spec.training_text;
    note_input(t.file);
  }
  if (keys.held_out.there && t.data != TrainingSpec::Data::text)
    keys.held_out.refuse("'held_out' is of a text; generated data has no end");
  t.held_out = keys.held_out.value_or(t.held_out);
  if (keys.held_out.value && !(t.held_out > 0 && t.held_out < 1))
    keys.held_out.refuse("'held_out' must be more than 0 and less than 100%");
  const bool of_model = t.problem == TrainingSpec::Problem::model && spec.transformer() != nullptr;
  if (keys.data.there && !of_model)
    keys.data.refuse("'data' is for a model by shape (problem: model); others have their own");
}

/// What is done against stale weights needs a schedule that has some.
void check_staleness(const Specification& spec) {
  if (spec.schedule == nullptr) return;
  const TrainingKeys& keys = spec.training;
  const UpdateRule rule = spec.schedule->update;
  const auto refuse = [&](const auto& key, std::string_view name, std::string_view needs) {
    key.refuse(fmt::format("'{}' is for schedules {}, the schedule is {}", name, needs,
                           spec.schedule->name));
  };
  const bool delays = rule == UpdateRule::stash || rule == UpdateRule::double_buffer ||
                      (rule == UpdateRule::latest && spec.schedule->corrects);
  constexpr std::string_view kStale =
      "whose stages have a delay each (pipedream, pipedream-2bw, pipemare)";
  if (keys.rescheduled.there && !delays) refuse(keys.rescheduled, "rescheduled", kStale);
  if (keys.discounted.value_or(false) && !delays) refuse(keys.discounted, "discounted", kStale);
  if (keys.rescheduled.there && keys.discounted.value_or(false))
    keys.discounted.refuse("'discounted' is 'rescheduled' without an end; give one of them");
  if (keys.error_feedback.value_or(false)) {
    if (rule != UpdateRule::double_buffer)
      refuse(keys.error_feedback, "error_feedback", "with a delay of one update (pipedream-2bw)");
    else if (keys.predicted.value_or(false))
      keys.error_feedback.refuse(
          "'error_feedback' and 'predicted' both go on along the last step; "
          "give one of them");
  }
  if (!keys.predicted.value_or(false)) return;
  if (!delays || rule == UpdateRule::latest)
    refuse(keys.predicted, "predicted",
           "whose forward and backward use one version (pipedream, pipedream-2bw)");
  else if (spec.pipeline.stashing.value == Stashing::none)
    keys.predicted.refuse("'predicted' needs stashed weights; leave out stashing: none");
}

}  // namespace

std::pair<OptimizerSpec, TrainingSpec> training_of(const Specification& spec,
                                                   std::uint32_t batches) {
  const TrainingKeys& keys = spec.training;
  TrainingSpec t;
  t.problem = keys.problem.value_or(t.problem);
  read_data(spec, t);
  t.decay = keys.decay.value_or(t.decay);
  t.final_rate = keys.final_rate.value_or(t.final_rate);
  if (keys.final_rate.there && t.decay == TrainingSpec::Decay::none)
    keys.final_rate.refuse("'final_rate' is of a learning rate that decays; give 'decay', too");
  t.clip = keys.clip.value_or(0);
  if (keys.clip.value && !(t.clip > 0)) keys.clip.refuse("'clip' must be more than 0");
  t.warmup = count_of(keys.warmup, 0);
  t.rescheduled = count_of(keys.rescheduled, 0);
  t.discounted = keys.discounted.value_or(false);
  t.predicted = keys.predicted.value_or(false);
  t.error_feedback = keys.error_feedback.value_or(false);
  check_staleness(spec);
  t.updates = count_of(keys.updates, batches);
  t.evaluate_every = count_of(keys.evaluate_every, t.evaluate_every);
  t.evaluation_microbatches = count_of(keys.evaluation_microbatches, t.evaluation_microbatches);
  t.seed = static_cast<std::uint64_t>(keys.seed.value_or(1));
  return {optimizer_of(spec), t};
}

}  // namespace penstock
