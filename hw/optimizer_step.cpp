// SPDX-License-Identifier: Apache-2.0
#include "hw/optimizer_step.hpp"

#include "schedules/pipemare.hpp"

namespace penstock {
namespace {

double learning_rate(const RunPlan& plan, std::uint32_t stage, std::uint32_t update) {
  const double rate = plan.optimizer.learning_rate * rate_factor(plan.training, update);
  const VersionRule& rule = plan.program.versions;
  if (plan.training.rescheduled == 0 || rule.kind != VersionRule::Kind::latest ||
      rule.delay.empty())
    return rate;
  const double delay =
      static_cast<double>(rule.delay[stage]) / plan.program.microbatches_per_update;
  // A delay below one would make the rate larger than it was asked to be.
  return delay <= 1
             ? rate
             : rate * delayed::learning_rate_factor(delay, update, plan.training.rescheduled);
}

}  // namespace

void issue_optimizer_step(Math& math, const RunPlan& plan, std::uint32_t stage,
                          std::int64_t parameters, const StepTensors& t, std::int64_t step,
                          std::uint32_t microbatches) {
  using Kind = OptimizerSpec::Kind;
  const OptimizerSpec& o = plan.optimizer;
  const double mean = 1.0 / microbatches;
  const double rate = learning_rate(plan, stage, static_cast<std::uint32_t>(step - 1));
  if (plan.training.clip > 0)
    math.clip(parameters, static_cast<float>(plan.training.clip / mean), t.gradient);
  if (o.kind == Kind::sgd || o.kind == Kind::momentum)
    return math.sgd_step(parameters, t, {rate, mean, o.beta1, o.weight_decay});
  math.adamw_step(parameters, t,
                  {rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, mean, o.kind == Kind::adamw},
                  step);
}

}  // namespace penstock
