// SPDX-License-Identifier: Apache-2.0
#include "results/fields.hpp"

#include "results/comparison.hpp"
#include "results/expected_error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

template <class Of>
void put_field(const Field<Of>& field, const Of& of, Json& out) {
  std::optional<Json> value = field.value(of);
  if (!value) return;
  const std::size_t dot = field.name.find('.');
  Json& member = out[field.name.substr(0, dot)];
  (dot == field.name.npos ? member : member[field.name.substr(dot + 1)]) = std::move(*value);
}

template <class Of>
Json object_of(const std::vector<Field<Of>>& fields, const Of& of) {
  Json out = Json::object();
  for (const Field<Of>& field : fields) put_field(field, of, out);
  return out;
}

template <class Of>
auto objects_by(const std::vector<Field<Of>>& fields) {
  return [&fields](const Of& of) { return object_of(fields, of); };
}

std::vector<std::string> infeasible_because(const Result& r) {
  std::vector<std::string> reasons = r.infeasible_because;
  if (!r.stalled_because.empty()) reasons.push_back(r.stalled_because);
  return reasons;
}

std::optional<bool> feasible(const Scenario& scenario, const Result& r) {
  if (!r.stalled_because.empty()) return false;
  const auto has_memory = [](const DeviceResult& d) { return d.capacity_bytes > 0; };
  if (r.infeasible_because.empty() && !std::ranges::all_of(r.devices, has_memory))
    return std::nullopt;
  return scenario.fits_in_truth(r.infeasible_because.empty());
}

template <Cause cause>
struct BubbleShare {
  double operator()(const Result& r) const { return r.bubble[static_cast<std::size_t>(cause)]; }
};

template <Owner owner>
struct OwnedBytes {
  std::int64_t operator()(const DeviceResult& d) const {
    return d.memory.use.bytes[static_cast<std::size_t>(owner)];
  }
};

const std::vector<Field<DimensionShare>>& dimension_fields() {
  using S = DimensionShare;
  static const std::vector<Field<S>> kFields = {
      {"total_s", Unit::seconds, [](const S& s) { return s.communication.total_s; },
       "device-seconds of all of it"},
      {"exposed_s", Unit::seconds, [](const S& s) { return s.communication.exposed_s; },
       "device-seconds that nothing hides; what is not exposed is behind compute: 0 ≤ `exposed_s` "
       "≤ `total_s`"},
      {"exposed_fraction", Unit::fraction,
       [](const S& s) { return s.device_s > 0 ? s.communication.exposed_s / s.device_s : 0; },
       "`exposed_s` / (D · `makespan_s`)"},
      {"bytes", Unit::bytes, [](const S& s) { return std::llround(s.communication.bytes); },
       "those that all GPUs send"},
  };
  return kFields;
}

Json communication_json(const Simulation& s, const Result& r) {
  const double device_s = r.makespan_s * s.program.ops.devices();
  const auto share = [&](const Communication& c) {
    return object_of(dimension_fields(), {c, device_s});
  };
  Json out = {{"pp", share(r.communication.pipeline)}, {"dp", share(r.communication.data)}};
  for (const Axis axis : r.communication.axes())
    out[traits(axis).degree] = share(r.communication.inner[static_cast<std::size_t>(axis)]);
  return out;
}

const std::vector<Field<PathPart>>& path_fields() {
  using P = PathPart;
  static const std::vector<Field<P>> kFields = {
      {"kind", Unit::none,
       [](const P& p) { return kPathKindNames[static_cast<std::size_t>(p.segment.kind)]; },
       "`compute` (a run of ops of one device), `transfer`, `reduction` (a gradient all-reduce, "
       "from the bucket on after which there was no pause) or, in measured timelines, `wait`"},
      {"device", Unit::none, [](const P& p) { return p.segment.device; },
       "of the ops; of the receiver of a message"},
      {"first_op", Unit::none,
       [](const P& p) { return to_string(p.simulation.program.ops[p.segment.first]); },
       "as token, like `2F5`"},
      {"last_op", Unit::none,
       [](const P& p) { return to_string(p.simulation.program.ops[p.segment.last]); }, "the same"},
      {"start_s", Unit::seconds, [](const P& p) { return p.segment.start_s; },
       "where the one before ends"},
      {"end_s", Unit::seconds, [](const P& p) { return p.segment.end_s; },
       "where the next one starts"},
      {"contended_s", Unit::seconds, [](const P& p) { return p.segment.contended_s; },
       "what shared links cost the segment: of a message (arrival − departure) − (bytes / "
       "bandwidth + latency), and its time in line behind others at `fifo` links; of a reduction "
       "what it takes beyond its time alone (with `perturbations.links`, what the degraded links "
       "cost it as well)"},
      {"link", Unit::none,
       [](const P& p) {
         return p.segment.link < 0 ? Json(nullptr) : Json(link_name(p.simulation, p.segment.link));
       },
       "the one of its route that others used most meanwhile; `null` when nothing was lost, or "
       "others were not the cause"},
  };
  return kFields;
}

const std::vector<Field<Sensitivity>>& help_fields() {
  using S = Sensitivity;
  static const std::vector<Field<S>> kFields = {
      {"change", Unit::none, [](const S& s) { return s.change; },
       "the stage with the most work computes 10 % faster (what its GPUs exchange stays); links of "
       "twice the bandwidth, all of them and, where the run uses both, only those within nodes and "
       "only those between nodes; twice the microbatches per update, where the schedule's own "
       "bubble shrinks with them (time of as many samples as today)"},
      {"iteration_time_s", Unit::seconds, [](const S& s) { return s.iteration_time_s; },
       "after it"},
  };
  return kFields;
}

const std::vector<Field<Advice>>& advice_fields() {
  using A = Advice;
  static const std::vector<Field<A>> kFields = {
      {"change", Unit::none, [](const A& a) { return a.change; },
       "tried: `split: balanced`, recomputation, half and twice the microbatch size and chunks, "
       "schedules that flush, tensor degree against depth and against replicas, sequence "
       "parallelism, a distributed optimizer, a reduction beside the backward, and these together; "
       "where nothing fits, more GPUs"},
      {"set", Unit::none, [](const A& a) { return a.set; }, "for `--set`"},
      {"iteration_time_ratio", Unit::none, [](const A& a) { return a.time_ratio; },
       "to the scenario as it is"},
      {"makes_it_fit", Unit::none, [](const A& a) { return a.makes_it_fit; },
       "where that does not"},
      {"gpus", Unit::count,
       [](const Advice& a) { return a.gpus > 0 ? std::optional(a.gpus) : std::nullopt; },
       "that it takes, where nothing that was tried fits on as many as there are; else `null`"},
  };
  return kFields;
}

const std::vector<Field<LinkResult>>& link_fields() {
  using L = LinkResult;
  static const std::vector<Field<L>> kFields = {
      {"name", Unit::none, [](const L& l) { return l.name; }, "of the cluster's link"},
      {"bytes", Unit::bytes, [](const L& l) { return l.bytes; }, "over the run"},
      {"busy_fraction", Unit::fraction, [](const L& l) { return l.busy_fraction; },
       "`bytes` / (bandwidth · `makespan_s`), 0 for an unlimited link"},
      {"peak_flows", Unit::count, [](const L& l) { return l.peak_flows; },
       "flows on the link at the same time, at most; `null` of a measured run"},
  };
  return kFields;
}

// --- what disturbs a run ------------------------------------------------------------------------

using MaybeTimes = std::optional<PerturbationStudy::Times>;

Json times_json(const MaybeTimes& times) {
  return {{"iteration_time_s", times ? nullable(times->iteration_time_s) : Json(nullptr)},
          {"makespan_s", times ? Json(times->makespan_s) : Json(nullptr)}};
}

Json percentiles_json(const std::optional<Percentiles>& p) {
  if (!p) return nullptr;
  return {{"mean", p->mean}, {"min", p->min}, {"p5", p->p5},
          {"p50", p->p50},   {"p95", p->p95}, {"max", p->max}};
}

std::optional<Json> perturbations_json(const Result& r) {
  if (!r.perturbed || !r.perturbed->changes_times) return std::nullopt;
  const auto cost = [](const PerturbationStudy::KeyCost& cost) {
    Json json = {{"key", cost.key}};
    json.update(times_json(cost.more));
    return json;
  };
  return Json{{"undisturbed", times_json(r.perturbed->undisturbed)},
              {"disturbed", times_json(r.perturbed->disturbed)},
              {"costs", list(r.perturbed->costs, cost)}};
}

std::optional<Json> runs_json(const Result& r) {
  if (!r.perturbed || !r.perturbed->runs) return std::nullopt;
  const PerturbationStudy::Runs& runs = *r.perturbed->runs;
  return Json{{"n", runs.n},
              {"iteration_time_s", percentiles_json(runs.iteration_time_s)},
              {"makespan_s", percentiles_json(runs.makespan_s)},
              {"errors", list(runs.errors, [](const auto& error) {
                 return Json{{"run", error.run}, {"error", error.why}};
               })}};
}

Json quantiles_json(const Quantiles& q) {
  return {{"p5", q.p5}, {"p50", q.p50}, {"p95", q.p95}, {"worst", q.worst}};
}

std::optional<Json> samples_json(const Result& r) {
  if (!r.samples) return std::nullopt;
  const SampleStudy& s = *r.samples;
  return Json{{"n", s.n},
              {"differ", s.differ},
              {"infeasible", s.infeasible},
              {"iteration_time_s", quantiles_json(s.iteration_time_s)},
              {"tokens_per_s", s.tokens_per_s ? quantiles_json(*s.tokens_per_s) : Json(nullptr)},
              {"bubble_fraction", quantiles_json(s.bubble_fraction)},
              {"peak_memory_bytes", quantiles_json(s.peak_memory_bytes)}};
}

const std::vector<Field<Goodput>>& goodput_fields() {
  using G = Goodput;
  static const std::vector<Field<G>> kFields = {
      {"fraction", Unit::fraction, [](const G& g) { return g.fraction; },
       "`useful_s` / `horizon_s`: the share of a long job's time spent on batches that count"},
      {"horizon_s", Unit::seconds, [](const G& g) { return g.horizon_s; }, "of the job"},
      {"batch_s", Unit::seconds, [](const G& g) { return g.batch_s; },
       "`iteration_time_s`; the whole run over its batches where that is `null`"},
      {"useful_batches", Unit::count, [](const G& g) { return g.useful_batches; },
       "whole batches kept at the horizon"},
      {"lost_batches", Unit::count, [](const G& g) { return g.lost_batches; },
       "whole batches that were computed, but lost to a failure"},
      {"failures", Unit::count, [](const G& g) { return g.failures; }, "until the horizon"},
      {"useful_s", Unit::seconds, [](const G& g) { return g.useful_s; },
       "of batches kept; the five add up to `horizon_s`"},
      {"lost_s", Unit::seconds, [](const G& g) { return g.lost_s; },
       "batches since the last complete checkpoint, and what was computed of the one that failed"},
      {"checkpoint_s", Unit::seconds, [](const G& g) { return g.checkpoint_s; },
       "saving checkpoints"},
      {"restart_s", Unit::seconds, [](const G& g) { return g.restart_s; }, "restarting"},
      {"unfinished_s", Unit::seconds, [](const G& g) { return g.unfinished_s; },
       "the batch the horizon cuts"},
      {"mtbf_s", Unit::seconds, [](const G& g) { return g.mtbf_s; },
       "the `mtbf` given, or the horizon over the failures listed"},
      {"young_interval_s", Unit::seconds, [](const G& g) { return g.young_s; },
       "√(2·d·M): computation between two checkpoints that is best, with d = `save`, M = `mtbf_s` "
       "(Young, CACM 17(9), 1974)"},
      {"daly_interval_s", Unit::seconds, [](const G& g) { return g.daly_s; },
       "√(2·d·M)·(1 + √(d/2M)/3 + (d/2M)/9) − d, for d < 2M, else M (Daly, FGCS 22(3), 2006)"},
      {"best_every", Unit::count, [](const G& g) { return g.best_every; }, "the same in batches"},
      {"expected_fraction", Unit::fraction, [](const G& g) { return g.expected_now; },
       "t / (M·e^(R/M)·(e^((t+d)/M) − 1)) at the interval t of the scenario: what exponential "
       "failures lead to on average, R = `restart`"},
      {"expected_best_fraction", Unit::fraction, [](const G& g) { return g.expected_best; },
       "the same at Daly's interval"},
  };
  return kFields;
}

std::optional<Json> goodput_json(const Result& r) {
  if (!r.perturbed || !r.perturbed->goodput) return std::nullopt;
  return object_of(goodput_fields(), *r.perturbed->goodput);
}

/// What only sweeps have, where JSON lists the devices.
const std::vector<Field<Summary>>& sweep_fields() {
  static const std::vector<Field<Summary>> kFields = {
      {"devices",
       Unit::count,
       [](const Scenario& s) { return static_cast<std::int64_t>(s.devices()); },
       "D, of the schedule",
       {.place = 28, .setting = true}},
      {"gpus",
       Unit::count,
       [](const Scenario& s) { return static_cast<std::int64_t>(s.gpu_count()); },
       "all of them",
       {.place = 29, .usual = 2, .header = "GPUs", .setting = true}},
      {"optimistic",
       Unit::count,
       [](const Scenario& s) { return s.optimistic ? 1 : 0; },
       "1 where microbatches are smaller than the device's efficiency curve was measured with",
       {.place = 30, .setting = true}},
  };
  return kFields;
}

// --- docs ---------------------------------------------------------------------------------------

template <class Of>
std::string markdown_of(const char* heading, const std::vector<Field<Of>>& fields) {
  std::string text =
      fmt::format("\n### {}\n\n| field | unit | meaning |\n|---|---|---|\n", heading);
  for (const Field<Of>& f : fields)
    text += fmt::format("| `{}` | {} | {} |\n", f.name,
                        kUnitNames[static_cast<std::size_t>(f.unit)], f.meaning);
  return text;
}

// --- sweeps -------------------------------------------------------------------------------------

std::string column_of(std::string_view name) {
  std::string column(name);
  std::ranges::replace(column, '.', '_');
  return column;
}

std::string_view communication_meaning() {
  static const std::string kMeaning = [] {
    std::string text = "by dimension: `pp` pipeline, `dp` data";
    for (const AxisTraits& axis : kAxisTraits)
      text += fmt::format(", `{}` {}", axis.degree,
                          axis.name == axis.degree ? axis.adjective : axis.name);
    return text + " ([communication](#communication))";
  }();
  return kMeaning;
}

template <Axis axis>
struct Ranks {
  int operator()(const Scenario& s) const { return s.mesh.size(axis); }
};

template <std::size_t... i>
std::vector<Field<Summary>> axis_fields(std::index_sequence<i...>) {
  const auto shown = [](Axis axis) {
    return axis == Axis::tensor ? ShownInSweeps{.place = 1, .setting = true} : ShownInSweeps{};
  };
  return {{kAxisTraits[i].name, Unit::count, Ranks<kInnerAxes[i]>{}, kAxisTraits[i].shares,
           shown(kInnerAxes[i])}...};
}

/// And, behind what is said of replicas, the size of each inner axis.
std::vector<Field<Summary>> with_axes(std::vector<Field<Summary>> fields) {
  const auto replication = std::ranges::find(fields, "replication", &Field<Summary>::name);
  const auto axes = axis_fields(std::make_index_sequence<kInnerAxes.size()>());
  fields.insert(replication + 1, axes.begin(), axes.end());
  return fields;
}

std::vector<Measure> all_measures() {
  std::vector<Measure> all;
  for (const auto* fields : {&result_fields(), &sweep_fields()})
    for (const Field<Summary>& f : *fields)
      if (f.column.place >= 0) all.push_back({column_of(f.name), f.unit, f.column, &f, nullptr});
  for (const Field<DeviceResult>& f : device_fields())
    if (f.column.place >= 0) all.push_back({column_of(f.name), f.unit, f.column, nullptr, &f});
  std::ranges::sort(all, {}, [](const Measure& m) { return m.column.place; });
  return all;
}

}  // namespace

const std::vector<Field<Summary>>& result_fields() {
  static const std::vector<Field<Summary>> kFields = with_axes({
      {"schema_version", Unit::none, [](const Scenario&) { return kSchemaVersion; },
       "of these fields"},
      {"scenario", Unit::none, [](const Scenario& s) { return s.name; }, "its name"},
      {"overrides", Unit::none, [](const Scenario& s) { return Json(s.overrides); },
       "what `--set` changed"},
      {"engine", Unit::none, [](const Simulation& s, const Result&) { return s.engine; },
       "that predicted it, or executed it"},
      {"model", Unit::none,
       [](const Scenario& s) { return s.transformer ? Json(s.transformer->name) : Json(nullptr); },
       "its name; `null` where times are given"},
      {"parameters",
       Unit::count,
       [](const Scenario& s) {
         return s.transformer ? std::optional(s.transformer->parameters()) : std::nullopt;
       },
       "of the whole model, a tied projection once; `null` where times are given",
       {.place = 36, .setting = true}},
      {"seq_length",
       Unit::count,
       [](const Scenario& s) {
         return s.transformer ? std::optional(s.transformer->seq_length) : std::nullopt;
       },
       "s: tokens of a sample; `null` where times are given",
       {.place = 35, .setting = true}},
      {"schedule", Unit::none, [](const Scenario& s) { return Json(s.schedule->name); },
       "as `penstock list schedules` calls it"},
      {"transfers", Unit::none, [](const Scenario& s) { return to_string(s.lowering.transfers); },
       "what a message does to its two ends ([transfers](#transfers))"},
      {"software", Unit::none,
       [](const Scenario& s) {
         return s.stack.name.empty() ? std::nullopt : std::optional<Json>(s.stack.name);
       },
       "the stack that trains (`stack`), `none` for the neutral one; only of models by shape, and "
       "where the scenario names one"},
      {"stages",
       Unit::count,
       [](const Scenario& s) { return s.shape.depth; },
       "p: devices of a pipeline",
       {.place = 0, .setting = true}},
      {"width", Unit::none, [](const Scenario& s) { return width_json(s.widths()); },
       "w: replicas; a list by stage where they differ"},
      {"replication", Unit::none,
       [](const Scenario& s) { return s.mesh.divided ? "split" : "round-robin"; },
       "do replicas split microbatches, or take turns?"},
      {"chunks",
       Unit::count,
       [](const Scenario& s) { return s.shape.chunks; },
       "v: stages of a device",
       {.place = 31, .setting = true}},
      {"microbatches",
       Unit::count,
       [](const Scenario& s) { return s.shape.microbatches_per_update; },
       "m: of a replica, per update",
       {.place = 2, .setting = true}},
      {"samples_per_update",
       Unit::none,
       [](const Scenario& s) { return s.samples_per_update(); },
       "w·m·b; with uneven widths those of a round, lcm(widths)·m·b (PipeDream: as many "
       "microbatches as stage 0 has replicas), with `replication: split` m·b",
       {.place = 3, .usual = 1, .header = "batch", .setting = true}},
      {"given_forward_s_per_sample", Unit::seconds,
       [](const Scenario& s) {
         const auto given = s.given_forward_s_per_sample();
         return given ? Json(*given) : Json(nullptr);
       },
       "of all stages, where `model` gives times; null where they follow from a model's shape. "
       "Rows in which it differs do not do the same work"},
      {"microbatch_size",
       Unit::count,
       [](const Scenario& s) { return s.microbatch_size; },
       "b: samples",
       {.place = 4, .setting = true}},
      {"batches",
       Unit::count,
       [](const Scenario& s) { return s.shape.batches; },
       "updates that were simulated",
       {.place = 5, .setting = true}},
      {"feasible", Unit::none,
       [](const Simulation& s, const Result& r) { return feasible(s.scenario, r); },
       "does it fit, and does the run end? `null`: not known, as something is `missing` or the "
       "cluster gives no memory"},
      {"missing", Unit::none,
       [](const Scenario& s) {
         return s.missing.empty() ? std::nullopt : std::optional<Json>(s.missing);
       },
       "what of the real model is left out (`model.missing`); only of such"},
      {"missing_saves", Unit::none,
       [](const Scenario& s) {
         return s.missing_saves.empty() ? std::nullopt : std::optional<Json>(s.missing_saves);
       },
       "the same of what would save memory (`model.missing_saves`): the peak is at most that here"},
      {"infeasible_because", Unit::none,
       [](const Result& r) { return Json(infeasible_because(r)); },
       "which devices, how much, of what, at which op, once for devices that are alike (replicas "
       "of "
       "a stage); what stands still. In CSV the first"},
      {"makespan_s",
       Unit::seconds,
       [](const Rates& r) { return r.makespan_s; },
       "end of the last op of the run",
       {.place = 6}},
      {"iteration_time_s",
       Unit::seconds,
       [](const Rates& r) { return r.iteration_time_s; },
       "with a flush: mean interval between the ends of batches after the first (one batch: its "
       "end). Without: mean interval between updates on device 0 after the first 2p microbatches, "
       "over a multiple of p microbatches, before the drain where the run is long enough; `null`, "
       "with a note, when it is too short. For PipeDream that is one microbatch",
       {.place = 7, .usual = 6, .header = "iteration"}},
      {"throughput_samples_per_s",
       Unit::samples_per_s,
       [](const Rates& r) { return r.samples_per_s; },
       "w·m·b / `iteration_time_s` (of the whole run where that is `null`)",
       {.place = 8,
        .usual = 3,
        .header = "samples/s",
        .label = "throughput",
        .higher_is_better = true}},
      {"throughput_microbatches_per_s",
       Unit::microbatches_per_s,
       [](const Rates& r) { return r.microbatches_per_s; },
       "`throughput_samples_per_s` / b",
       {.place = 9, .label = "throughput in microbatches", .higher_is_better = true}},
      {"tokens_per_s",
       Unit::tokens_per_s,
       [](const Rates& r) { return r.tokens_per_s; },
       "`throughput_samples_per_s` · `seq_length`, of all GPUs together",
       {.place = 32,
        .usual = 4,
        .header = "tokens/s",
        .label = "tokens",
        .higher_is_better = true}},
      {"tokens_per_s_per_gpu",
       Unit::tokens_per_s,
       [](const Rates& r) { return r.tokens_per_s_per_gpu; },
       "`tokens_per_s` / G, with G = D · t · c GPUs (with `replication: split` p · w · t · c)",
       {.place = 33,
        .usual = 5,
        .header = "tokens/s/GPU",
        .label = "tokens per GPU",
        .higher_is_better = true}},
      {"tokens_per_s_per_device",
       Unit::tokens_per_s,
       [](const Rates& r) { return r.tokens_per_s_per_gpu; },
       "the same, by its older name",
       {.place = 10, .label = "tokens per device", .higher_is_better = true}},
      {"tflops_per_gpu",
       Unit::tflops_per_s,
       [](const Rates& r) { return r.tflops_per_gpu; },
       "model FLOPs per microbatch · microbatches/s / G / 10¹²",
       {.place = 34, .label = "arithmetic per GPU", .higher_is_better = true}},
      {"tflops_per_device",
       Unit::tflops_per_s,
       [](const Rates& r) { return r.tflops_per_gpu; },
       "the same, by its older name",
       {.place = 11, .label = "arithmetic per device", .higher_is_better = true}},
      {"mfu",
       Unit::fraction,
       [](const Rates& r) { return r.mfu; },
       "model FLOPs per second and GPU / dense peak of the model's number type. Model FLOPs: "
       "forward 2·b·s·P + 4·b·s²·h per layer (attention counted in full, as Megatron does) and "
       "2·b·s·h·V for the LM head, backward twice that; no recomputation",
       {.place = 12, .usual = 8, .header = "mfu", .higher_is_better = true}},
      {"mfu_causal", Unit::fraction, [](const Rates& r) { return r.mfu_causal; },
       "`mfu` with attention counted by half, as a causal mask leaves it; `null` where every token "
       "attends to all (`family: bert`)"},
      {"hfu",
       Unit::fraction,
       [](const Rates& r) { return r.hfu; },
       "the same with recomputation counted",
       {.place = 13, .higher_is_better = true}},
      {"epoch_s",
       Unit::seconds,
       [](const Rates& r) { return r.epoch_s; },
       "`samples_per_epoch` / `throughput_samples_per_s`",
       {.place = 14}},
      {"expected_error", Unit::none,
       [](const Simulation& s, const Result&) {
         return s.measured ? std::nullopt : expected_error(s.scenario);
       },
       "how far off the time may be: as far as predictions of the nearest measured runs of the "
       "[scoreboard](scoreboard.md) were ([expected error](#expected-error)). Not of models given "
       "by "
       "times"},
      {"bubble_fraction",
       Unit::fraction,
       [](const Result& r) { return r.bubble_fraction; },
       "1 − Σ `busy_s` / (D · `makespan_s`)",
       {.place = 15, .usual = 7, .header = "bubble"}},
      {"stage_bubble_fraction",
       Unit::fraction,
       [](const Result& r) { return r.stage_bubble_fraction; },
       "1 − max `busy_s` / max `stage_time_s` (Qi et al., ICLR'24)",
       {.place = 16}},
      {"bubble.warmup",
       Unit::fraction,
       BubbleShare<Cause::warmup>(),
       "share of D · `makespan_s` before a device's first op; every idle instant has one cause, "
       "and the five add up to `bubble_fraction`",
       {.place = 17}},
      {"bubble.imbalance",
       Unit::fraction,
       BubbleShare<Cause::imbalance>(),
       "the peer has not finished the op, as where stages have unequal work; a schedule makes "
       "equal "
       "stages wait so, too",
       {.place = 18}},
      {"bubble.transfer_wait",
       Unit::fraction,
       BubbleShare<Cause::transfer_wait>(),
       "its message is in flight, or its own send holds it",
       {.place = 19}},
      {"bubble.drain",
       Unit::fraction,
       BubbleShare<Cause::drain>(),
       "after its last op",
       {.place = 20}},
      {"bubble.gradient_reduction",
       Unit::fraction,
       BubbleShare<Cause::gradient_reduction>(),
       "the all-reduce itself, and waiting for it, for a global step or for a partial norm",
       {.place = 21}},
      {"communication", Unit::none,
       [](const Simulation& s, const Result& r) { return communication_json(s, r); },
       communication_meaning()},
      {"critical_path", Unit::none,
       [](const Simulation& s, const Result& r) {
         return list(r.critical_path, [&](const auto& p) {
           return object_of(path_fields(), {s, p});
         });
       },
       "the chain of ops, messages and reductions, each starting when the one before ends, that "
       "ends with the last op"},
      {"ops",
       Unit::count,
       [](const Result& r) { return r.ops; },
       "compute ops and messages (steps and reductions that take time, too)",
       {.place = 22, .setting = true}},
      {"engine_seconds", Unit::seconds,
       [](const Summary& s) {
         return s.reproducible ? std::nullopt : std::optional<Json>(s.simulation->engine_seconds);
       },
       "CPU time from schedule generation to the finished timeline; left out by `--reproducible`"},
      {"what_would_help", Unit::none,
       [](const Result& r) { return list(r.what_would_help, objects_by(help_fields())); },
       "one change at a time, with `exact` where that is valid, else with `fluid`"},
      {"what_to_change", Unit::none,
       [](const Result& r) { return list(r.what_to_change, objects_by(advice_fields())); },
       "the two changes of keys that make an iteration shortest, on as many GPUs (or, where none "
       "fits "
       "there, the one on the fewest more `gpus` that were tried) and with as many samples per "
       "update, each simulated"},
      {"help_not_tried", Unit::none, [](const Result& r) { return Json(r.help_not_tried); },
       "how many of the changes of the two before were not tried, as `--advice usual` spends about "
       "a tenth of a second; empty: all were"},
      {"devices", Unit::none,
       [](const Result& r) { return list(r.devices, objects_by(device_fields())); },
       "in their order; in CSV, the most of any"},
      {"links", Unit::none,
       [](const Result& r) { return list(r.links, objects_by(link_fields())); },
       "that the cluster has ([links](#links))"},
      {"perturbations", Unit::none, [](const Result& r) { return perturbations_json(r); },
       "only of a scenario with such, as the next two ([perturbations](#perturbations))"},
      {"runs", Unit::none, [](const Result& r) { return runs_json(r); }, "of a jitter"},
      {"goodput", Unit::none, [](const Result& r) { return goodput_json(r); },
       "of a long job whose devices fail"},
      {"samples", Unit::none, [](const Result& r) { return samples_json(r); },
       "only with `--samples N` ([samples](#samples))"},
      {"notes", Unit::none, [](const Result& r) { return Json(r.notes); },
       "what a reader should know"},
  });
  return kFields;
}

const std::vector<Field<DeviceResult>>& device_fields() {
  using D = DeviceResult;
  static const std::vector<Field<D>> kFields = {
      {"device", Unit::none, [](const D& d) { return d.device; }, "from 0"},
      {"stages", Unit::none, [](const D& d) { return Json(d.stages); }, "that it holds"},
      {"layers", Unit::none, [](const D& d) { return Json(d.layers); },
       "transformer layers of each of its `stages` (empty for a model by costs); the column "
       "`layers` of tables writes `embed+4+5`"},
      {"embedding", Unit::none, [](const D& d) { return d.embedding; }, "is it there?"},
      {"head", Unit::none, [](const D& d) { return d.head; }, "is the LM head there?"},
      {"gpus", Unit::none, [](const D& d) { return Json(d.gpus); },
       "that are this device; its memory is that of each"},
      {"busy_s", Unit::seconds, [](const D& d) { return d.time.busy_s; },
       "compute, recomputation and optimizer steps, with what its t GPUs exchange inside of an "
       "op; never transfers or reductions"},
      {"idle_s", Unit::seconds, [](const D& d) { return d.idle_s; }, "`makespan_s` − `busy_s`"},
      {"stage_time_s", Unit::seconds, [](const D& d) { return d.time.stage_time_s; },
       "last end − first start of its ops"},
      {"peak_memory_bytes",
       Unit::bytes,
       [](const D& d) { return d.memory.use.total(); },
       "the sum of `memory`, at its peak",
       {.place = 23, .usual = 9, .header = "peak"}},
      {"capacity_bytes",
       Unit::bytes,
       [](const D& d) {
         return d.capacity_bytes == 0 ? std::nullopt : std::optional(d.capacity_bytes);
       },
       "(memory − reserved) · (1 − allocator slack), `null` when unknown; a peak above it makes "
       "`feasible` false",
       {.place = 24, .setting = true}},
      {"memory.weights", Unit::bytes, OwnedBytes<Owner::weights>(), "live weights; always there"},
      {"memory.weight_versions", Unit::bytes, OwnedBytes<Owner::weight_versions>(),
       "versions beyond the live one: PipeDream w_s (or as many as `weight_copies: code` keeps), "
       "2BW 1; always there, as the codes allocate them"},
      {"memory.gradients", Unit::bytes, OwnedBytes<Owner::gradients>(),
       "per parameter as the model's `bytes_per_parameter` says; always there"},
      {"memory.optimizer", Unit::bytes, OwnedBytes<Owner::optimizer>(), "the same"},
      {"memory.activations", Unit::bytes, OwnedBytes<Owner::activations>(),
       "what F keeps, from its start to the end of B; with I and W, a part until the end of W: a "
       "GPT layer s·b·h·(34 + 5·a·s/h) bytes at 16 bits, its input alone (2·s·b·h) when "
       "recomputed; on the first stage the embedding's mask of dropout, on the last one "
       "the inputs of the final norm and of the head and the fp32 softmax 4·b·s·V"},
      {"memory.buffers", Unit::bytes, OwnedBytes<Owner::buffers>(),
       "messages. Received: from departure to the start of F, or the end of B; sent: from the end "
       "of the op to arrival"},
      {"memory.workspace", Unit::bytes, OwnedBytes<Owner::workspace>(),
       "while an op runs: one layer's activations when they are made again; logits"},
      {"stash_peak",
       Unit::count,
       [](const D& d) { return d.order.stash_peak; },
       "microbatches in flight, +1 at F, −1 at W or B, of each of its `chunks`; tables divide by "
       "their number, so that `stash` compares across schedules",
       {.place = 25}},
      {"weight_versions_peak",
       Unit::count,
       [](const D& d) { return d.order.weight_versions_peak; },
       "the live version and those the rule still holds",
       {.place = 26}},
      {"staleness_max",
       Unit::count,
       [](const D& d) { return d.order.staleness_max; },
       "updates made minus version used, at the update (`asp`: by all replicas); where forward "
       "and backward use different versions, the oldest that an F or B of the update used",
       {.place = 27}},
  };
  return kFields;
}

Json to_json(const Summary& summary) { return object_of(result_fields(), summary); }

std::string fields_as_markdown() {
  return markdown_of("A result", result_fields()) + markdown_of("`devices[]`", device_fields()) +
         markdown_of("`critical_path[]`", path_fields()) +
         markdown_of("`what_would_help[]`", help_fields()) +
         markdown_of("`what_to_change[]`", advice_fields()) +
         markdown_of("`communication{}`, each dimension", dimension_fields()) +
         markdown_of("`links[]`", link_fields()) + markdown_of("`goodput{}`", goodput_fields()) +
         markdown_of("Columns that only sweeps have", sweep_fields()) + "\n";
}

double Measure::value(const Summary& summary) const {
  if (of_device == nullptr) return of_result->number(summary);
  double most = std::numeric_limits<double>::quiet_NaN();
  for (const DeviceResult& d : summary.result->devices) {
    const double value = of_device->number(d);
    if (!std::isnan(value) && !(most >= value)) most = value;
  }
  return most;
}

const std::vector<Measure>& measures() {
  static const std::vector<Measure> kAll = all_measures();
  return kAll;
}

const Measure* find_measure(std::string_view name) {
  const auto found = std::ranges::find(measures(), name, &Measure::name);
  return found == measures().end() ? nullptr : &*found;
}

Json width_json(const std::vector<int>& widths) {
  const bool alike = std::ranges::adjacent_find(widths, std::not_equal_to()) == widths.end();
  return alike ? Json(widths.front()) : Json(widths);
}

const std::string& link_name(const Simulation& s, int link) {
  return s.traffic->links()[static_cast<std::size_t>(link)].name;
}

}  // namespace penstock
