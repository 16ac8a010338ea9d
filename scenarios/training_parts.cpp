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
  const bool adaptive = o.kind == Kind::adam || o.kind == Kind::adamw;
  o.learning_rate = keys.learning_rate.value_or(adaptive ? 1e-3 : 1e-2);
  o.beta1 = keys.momentum.value_or(o.beta1);
  o.weight_decay = keys.weight_decay.value_or(o.kind == Kind::adamw ? 0.01 : 0);
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
  if (keys.rescheduled.there && spec.schedule != nullptr && !spec.schedule->corrects)
    keys.rescheduled.refuse(
        fmt::format("'rescheduled' is PipeMare's T1, the schedule is {}", spec.schedule->name));
  t.updates = count_of(keys.updates, batches);
  t.evaluate_every = count_of(keys.evaluate_every, t.evaluate_every);
  t.evaluation_microbatches = count_of(keys.evaluation_microbatches, t.evaluation_microbatches);
  t.seed = static_cast<std::uint64_t>(keys.seed.value_or(1));
  return {optimizer_of(spec), t};
}

}  // namespace penstock
