// SPDX-License-Identifier: Apache-2.0
#include "plan/search/plan_json.hpp"

#include "results/expected_error.hpp"

#include <cmath>

namespace penstock {
namespace {

Json stages_json(const Choice& choice) {
  Json stages = Json::array();
  int first = 0;
  for (std::size_t s = 0; s < choice.layers.size(); ++s) {
    const int n = choice.layers[s];
    stages.push_back(
        {{"first_layer", first},
         {"last_layer", first + n - 1},
         {"replicas", choice.widths.empty() ? choice.family.shape.width : choice.widths[s]}});
    first += n;
  }
  return stages;
}

/// As in a scenario: a value, or a list with one per stage.
template <class T>
Json per_stage_json(const PerStage<T>& values) {
  const Json each = values.values();
  return values.alike() ? each[0] : each;
}

Json recompute_json(const Choice& choice) {
  if (choice.family.schedule->checkpoints)
    return std::string(kCheckpointNames[static_cast<std::size_t>(choice.family.checkpoint)]);
  return per_stage_json(recompute_keys(choice).recompute.map(
      [](Recompute r) { return std::string(kRecomputeNames[static_cast<std::size_t>(r)]); }));
}

Json recompute_layers_json(const Choice& choice) {
  const RecomputeKeys keys = recompute_keys(choice);
  return keys.layers ? per_stage_json(*keys.layers) : Json();
}

Json offer_json(const Offer& offer, const FullPlan& full) {
  const FoundPlan& plan = offer.plan;
  const PlanFamily& family = plan.choice.family;
  const double time_s = plan.judgement.iteration_time_s;
  const double gpu_hour = full.request.terms.gpu_hour, updates = full.updates();
  const double hours = gpu_hours(plan);
  const auto asked = [](bool given, double value) { return given ? Json(value) : Json(); };
  const double tokens = tokens_per_s(full, plan);
  const double samples = offer.scenario.samples_per_update();
  const double tokens_of_update = samples * static_cast<double>(full.tokens_per_sample());
  return {{"iteration_time_s", time_s},
          {"samples_per_update", samples},
          {"tokens_per_s", asked(tokens > 0, tokens)},
          {"tokens_per_s_per_gpu", asked(tokens > 0, tokens / plan.choice.gpus())},
          {"tokens_per_s_per_device", asked(tokens > 0, tokens / plan.choice.gpus())},
          {"mfu", asked(plan.judgement.mfu > 0, plan.judgement.mfu)},
          {"mfu_causal", asked(plan.judgement.mfu_causal > 0, plan.judgement.mfu_causal)},
          {"price_per_1e9_tokens",
           asked(tokens > 0 && gpu_hour > 0, hours * gpu_hour / tokens_of_update * 1e9)},
          {"as_good_as_best", !full.offers.empty() && full.as_good_as_best(plan)},
          {"time_per_stage_s", time_s / static_cast<double>(family.shape.microbatches)},
          {"throughput_samples_per_s", plan.throughput_samples_per_s},
          {"depth", family.shape.depth},
          {"width", family.shape.width},
          {"tensor", family.shape.tensor},
          {"context", family.shape.context},
          {"expert", family.shape.expert},
          {"sequence_parallel", family.shape.sequence_parallel},
          {"distributed_optimizer", family.shape.sharded != Sharded::none},
          {"shard", kShardedNames[static_cast<std::size_t>(family.shape.sharded)]},
          {"chunks", family.chunks},
          {"gpus", plan.choice.gpus()},
          {"microbatch_size", family.shape.microbatch_size},
          {"microbatches", family.shape.microbatches},
          {"recompute", recompute_json(plan.choice)},
          {"recompute_method", recompute_keys(plan.choice).layers ? Json("block") : Json()},
          {"recompute_layers", recompute_layers_json(plan.choice)},
          {"schedule", family.schedule->name},
          {"placement", family.arrangement.placement},
          {"rank_order", family.arrangement.rank_order},
          {"peak_memory_bytes", plan.judgement.memory_bytes},
          {"optimistic", offer.scenario.optimistic},
          {"missing", offer.scenario.missing.empty() ? Json() : Json(offer.scenario.missing)},
          {"missing_saves",
           offer.scenario.missing_saves.empty() ? Json() : Json(offer.scenario.missing_saves)},
          {"engine", plan.judgement.engine},
          {"price_per_update", asked(gpu_hour > 0, hours * gpu_hour)},
          {"training_s", asked(updates > 0, time_s * updates)},
          {"training_price", asked(updates > 0 && gpu_hour > 0, hours * gpu_hour * updates)},
          {"limited_by", offer.reasons},
          {"would_help", offer.would_help},
          {"runs_in", frameworks_of(offer)},
          {"not_in_megatron", offer.no_megatron.empty() ? Json() : Json(offer.no_megatron)},
          {"megatron_arguments", offer.megatron.empty() ? Json() : Json(offer.megatron)},
          {"torchtitan_config", offer.torchtitan.empty() ? Json() : Json(offer.torchtitan)},
          {"megatron_plan", offer.megatron_plan > 0 ? Json(offer.megatron_plan) : Json()},
          {"scenario", offer.scenario.text()},
          {"files", offer.files},
          {"best_at", plan.best_at},
          {"placed", offer.placed},
          {"began_with", plan.from},
          {"also_called", plan.also},
          {"stages", stages_json(plan.choice)}};
}

Json given_json(const FullPlan& full) {
  if (!full.given) return {};
  Json job = full.given->offer ? offer_json(*full.given->offer, full) : Json::object();
  job["why_not"] = full.given->why_not;
  return job;
}

Json tally_json(const Tally& tally) {
  return {{"made", tally.made},   {"refused", tally.refused}, {"too_large", tally.too_large},
          {"worse", tally.worse}, {"opened", tally.opened},   {"left", tally.left}};
}

Json alone_json(const FullPlan& full) {
  Json kinds = Json::array();
  for (const KindAlone& kind : full.alone)
    kinds.push_back({{"device", kind.device},
                     {"gpus", kind.gpus},
                     {"throughput_samples_per_s",
                      kind.plan ? Json(kind.plan->throughput_samples_per_s) : Json()},
                     {"optimistic", kind.optimistic}});
  return kinds;
}

Json headroom_json(const FullPlan& full) {
  if (!full.without_headroom) return {};
  const WithoutHeadroom& without = *full.without_headroom;
  const auto of_plan = [&](auto&& value) {
    return without.plan ? Json(value(*without.plan)) : Json();
  };
  return {
      {"fits", without.plan        ? Json(true)
               : without.none_fits ? Json(false)
                                   : Json()},
      {"saved", full.offers.empty() ? Json() : Json(without.saved)},
      {"iteration_time_s",
       of_plan([](const FoundPlan& p) { return p.judgement.iteration_time_s; })},
      {"throughput_samples_per_s",
       of_plan([](const FoundPlan& p) { return p.throughput_samples_per_s; })},
      {"peak_memory_bytes", of_plan([](const FoundPlan& p) { return p.judgement.memory_bytes; })},
      {"scenario",
       of_plan([&](const FoundPlan& p) { return full.problem.resolve(p.choice).text(); })}};
}

Json planner_json(const ComparedPlanner& p) {
  const auto known = [](bool is, double value) { return is ? Json(value) : Json(); };
  const bool runs = p.throughput_samples_per_s > 0;
  return {
      {"planner", p.name},
      {"plan", p.plan},
      {"several_versions", p.versions},
      {"predicted_samples_per_s", known(p.predicted_samples_per_s > 0, p.predicted_samples_per_s)},
      {"throughput_samples_per_s", known(runs, p.throughput_samples_per_s)},
      {"ours_is_faster_by", known(runs && !p.is_ours(), p.ours_is_faster_by)},
      {"why_not", p.why_not}};
}

Json positive(double value) { return value > 0 ? Json(value) : Json(); }

Json stage_json(const PlannedStage& stage) {
  return {{"first_layer", stage.first_layer}, {"last_layer", stage.last_layer},
          {"replicas", stage.replicas},       {"devices", stage.devices},
          {"time_s", stage.time_s},           {"memory_bytes", positive(stage.memory_bytes)},
          {"first", stage.first_name},        {"last", stage.last_name}};
}

Json plan_json(const Plan& plan) {
  Json stages = Json::array();
  for (const PlannedStage& stage : plan.stages) stages.push_back(stage_json(stage));
  const double dp = plan.data_parallel_speedup;
  return {{"time_per_stage_s", plan.time_per_stage_s},
          {"throughput_samples_per_s", plan.throughput_samples_per_s},
          {"simulated_samples_per_s", positive(simulated_samples_per_s(plan).value_or(0))},
          {"simulated_why_not", plan.simulated ? plan.simulated->why_not : ""},
          {"speedup", plan.speedup},
          {"dp_speedup", positive(dp)},
          {"vs_dp", dp > 0 ? Json(plan.speedup / dp) : Json()},
          {"latency_s", positive(plan.latency_s)},
          {"depth", plan.depth()},
          {"width", plan.width()},
          {"devices", plan.devices_used()},
          {"microbatch_size", plan.microbatch_size},
          {"microbatches", plan.microbatches},
          {"recompute", kRecomputeNames[static_cast<std::size_t>(plan.recompute)]},
          {"schedule", plan.schedule},
          {"limited_by", plan.limited_by},
          {"stages", stages}};
}

Json expected_error_json(const FullPlan& full) {
  if (full.offers.empty()) return {};
  return expected_error(recommended_offer(full).scenario).value_or(Json());
}

}  // namespace

const Offer& recommended_offer(const FullPlan& full) {
  const int number = full.recommended();
  return number == 0 ? *full.given->offer : full.offers[static_cast<std::size_t>(number) - 1];
}

Json to_json(const FullPlan& full) {
  const SearchResult& result = full.result;
  Json plans = Json::array();
  for (const Offer& offer : full.offers) plans.push_back(offer_json(offer, full));
  Json compared = Json::array();
  for (const ComparedPlanner& planner : full.compared) compared.push_back(planner_json(planner));
  return {{"schema_version", 1},
          {"model", full.model_name()},
          {"search", "full"},
          {"objective", kObjectiveNames[static_cast<std::size_t>(full.request.search.objective)]},
          {"devices", full.problem.gpus()},
          {"batch", full.problem.batch()},
          {"tokens_per_update", full.tokens_per_sample() * full.problem.batch()},
          {"cluster", full.problem.base().cluster.name},
          {"device", device_names(full.problem.base().cluster)},
          {"software", full.problem.base().stack.name},
          {"model_error", kModelError},
          {"recommended", full.offers.empty() ? Json() : Json(full.recommended())},
          {"expected_error", expected_error_json(full)},
          {"given", given_json(full)},
          {"headroom", full.problem.headroom()},
          {"without_headroom", headroom_json(full)},
          {"layers", full.problem.layers_in_model()},
          {"searched_layers", full.problem.layers()},
          {"lower_bound", std::isfinite(result.lower_bound) ? Json(result.lower_bound) : Json()},
          {"gap", result.gap ? Json(*result.gap) : Json()},
          {"gap_held_by", result.gap_held_by},
          {"known_orders_gap", result.known_orders_gap ? Json(*result.known_orders_gap) : Json()},
          {"known_orders_gap_held_by", result.known_orders_gap_held_by},
          {"out_of_time", result.out_of_time},
          {"evaluations", result.evaluations},
          {"confirmations", result.confirmations},
          {"failed_simulations", result.unanswered},
          {"moves", result.moves},
          {"shapes", tally_json(result.shapes)},
          {"families", tally_json(result.families)},
          {"cuts", tally_json(result.cuts)},
          {"families_with_cuts_left", result.represented},
          {"infeasible_because", full.infeasible_because()},
          {"not_searched", full.not_searched()},
          {"alone", alone_json(full)},
          {"notes", full.notes()},
          {"planners", compared},
          {"planner_notes", full.compared_notes},
          {"plans", plans}};
}

Json to_json(const PlanTask& task, const PlanResult& result) {
  Json plans = Json::array();
  for (const Plan& plan : result.plans) plans.push_back(plan_json(plan));
  Json levels = Json::array();
  for (const PlanLevel& level : task.request.levels)
    levels.push_back({{"width", level.width}, {"bytes_per_s", level.bytes_per_s}});
  return {{"schema_version", 1},
          {"model", task.name},
          {"search", task.planner->name},
          {"paper", task.planner->paper},
          {"levels", levels},
          {"devices", task.request.devices()},
          {"batch", task.batch_of(result)},
          {"memory_bytes", positive(task.request.memory_bytes.value_or(0))},
          {"single_device_s", result.single_device_s},
          {"infeasible_because", result.infeasible_because},
          {"notes", result.notes},
          {"plans", plans}};
}

std::optional<double> simulated_samples_per_s(const Plan& plan) {
  if (!plan.simulated || plan.simulated->samples_per_s == 0) return std::nullopt;
  return plan.simulated->samples_per_s;
}

}  // namespace penstock
