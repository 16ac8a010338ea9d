// SPDX-License-Identifier: Apache-2.0
#include "results/advice.hpp"

#include "base/error.hpp"
#include "results/fitting_split.hpp"
#include "results/other_stacks.hpp"
#include "results/played_ops.hpp"
#include "results/sensitivity.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "scenarios/overrides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

namespace penstock {
namespace {

constexpr std::size_t kShown = 2, kMostSimulated = 4;
constexpr double kWorthIt = 0.002;  // share of the iteration; less is noise of a split

struct Outcome {
  double samples_per_s = 0;
  bool fits = false;
};

std::optional<Outcome> outcome_in(const Result& result) {
  if (!(result.samples_per_s > 0)) return std::nullopt;
  return Outcome{result.samples_per_s,
                 result.infeasible_because.empty() && result.stalled_because.empty()};
}

std::optional<Outcome> outcome_in(const Simulation& s) {
  const double samples_per_s = rates(s).samples_per_s;
  if (!(samples_per_s > 0)) return std::nullopt;
  return Outcome{samples_per_s, fits(s)};
}

/// A change of keys; of several values of one key, a kind, the best is looked at further.
struct Candidate {
  std::string change;
  Settings set;
  std::string kind;
  bool combined = false;  ///< of several that are candidates themselves
  double time_ratio = 1;

  Advice advice() const {
    Advice advice{.change = change, .set = {}, .time_ratio = time_ratio};
    for (const Setting& setting : set) advice.set.push_back(setting.text());
    return advice;
  }
};

constexpr std::string_view kPipeline = "pipeline.";

/// "recompute: full, reduction.overlap: backward".
std::string keys_text(const Settings& set) {
  std::string text;
  for (const auto& [key, value] : set) {
    const std::size_t from = key.starts_with(kPipeline) ? kPipeline.size() : 0;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key.substr(from), to_flow(value));
  }
  return text;
}

bool sets(const Settings& set, std::string_view key) {
  return std::ranges::find(set, key, &Setting::key) != set.end();
}

/// What people set for a job that has several replicas, tensor ranks or stages, and this one lacks.
Settings usual_keys(const Scenario& s) {
  Settings keys;
  const bool reduces = s.mesh.sharers() > 1 || s.schedule->layout == Layout::mirrored;
  if (reduces && !s.schedule->asynchronous && !overlaps_reduction(s))
    keys.emplace_back("pipeline.reduction.overlap", "backward");
  if (s.transformer && !s.layer_profile) {
    const bool replicas = s.mesh.width.alike() && s.mesh.width.at(0) > 1;
    if (s.mesh.size(Axis::tensor) > 1 && !s.sequence_parallel)
      keys.emplace_back("pipeline.sequence_parallel", true);
    else if (s.mesh.size(Axis::tensor) > 1 && !s.tensor_overlap)
      keys.emplace_back("pipeline.tensor_overlap", true);
    if (replicas && !s.sharding.sharded() && !s.schedule->asynchronous)
      keys.emplace_back("pipeline.distributed_optimizer", true);
  }
  if (!s.layers.empty() && s.layers.size() > 1) keys.emplace_back("pipeline.split", "balanced");
  return keys;
}

/// Changes of keys, each of which leaves the GPUs and the samples per update as they are.
class Changes {
 public:
  Changes(const Scenario& scenario, bool fits, AdviceBudget& budget)
      : scenario_(scenario), document_(scenario.source.document()), budget_(budget) {
    split(fits);
    sharing();
    recomputation();
    microbatch_sizes();
    chunks();
    steps();
    other_schedules();
    tensor_against_depth();
    tensor_against_width();
    together(fits);
  }
  const std::vector<Candidate>& all() const { return all_; }

 private:
  const Value* of_pipeline(const char* key) const { return value_at(document_, {"pipeline", key}); }
  bool listed(const char* key) const {
    const Value* value = of_pipeline(key);
    return value != nullptr && value->kind == Value::Kind::list;
  }
  /// Does the batch stay when the microbatch size or the width changes?
  bool batch_given() const { return of_pipeline("global_batch_size") != nullptr; }

  /// `also`: keys that have to follow; they are named, so that who sets what is named gets it.
  void add_change(std::string change, Settings set, const Settings& also = {}) {
    for (const Setting& setting : also) {
      change += fmt::format(", {}: {}", setting.key.substr(setting.key.rfind('.') + 1),
                            to_flow(setting.value));
      set.push_back(setting);
    }
    std::string kind = set.front().key;
    all_.push_back({std::move(change), std::move(set), std::move(kind)});
  }

  void add_keys(const Settings& set) { add_change(keys_text(set), set); }

  /// What is used together: what ranks need not hold or compute twice, an even split, gradients
  /// reduced beside the backward; where memory is short, with recomputation.
  void together(bool fits) {
    std::vector<Settings> ways{usual_keys(scenario_)};
    if (!fits)
      for (const Recompute more : {Recompute::selective, Recompute::full})
        if (!(scenario_.recompute == PerStage<Recomputation>(more))) {
          ways.push_back(ways.front());
          ways.back().emplace_back("pipeline.recompute",
                                   kRecomputeNames[static_cast<std::size_t>(more)]);
        }
    for (const Settings& set : ways) {
      if (set.size() < 2) continue;
      add_change(keys_text(set), set);
      all_.back().kind = "together";
      all_.back().combined = true;
    }
  }

  void split(bool fits) {
    if (!scenario_.layers.empty()) add_keys({{"pipeline.split", "balanced"}});
    const auto other = fits ? std::nullopt : fitting_split(scenario_, budget_);
    if (other) add_keys({{"pipeline.split", *other}});
  }

  /// What replicas and tensor ranks need not hold twice, and what they exchange beside the
  /// backward.
  void sharing() {
    for (const Setting& setting : usual_keys(scenario_))
      if (setting.key != "pipeline.split") add_keys({setting});
  }

  void recomputation() {
    for (const std::string_view name : kRecomputeNames) {
      if (scenario_.layer_profile && name == "selective") continue;
      Settings also;
      const bool in_part = std::ranges::any_of(scenario_.recompute.values(),
                                               [](const auto& r) { return !r.plain(); });
      if (in_part && name == "full") {
        also.emplace_back("pipeline.recompute_method", "uniform");
        also.emplace_back("pipeline.recompute_layers", 1);
      }
      add_change(fmt::format("recompute: {}", name), {{"pipeline.recompute", name}}, also);
    }
  }

  void microbatch_sizes() {
    const std::int64_t b = scenario_.microbatch_size;
    const std::int64_t m = scenario_.shape.microbatches_per_update;
    const auto add_size = [&](std::int64_t size, std::int64_t count) {
      Settings also;
      if (!batch_given()) also.emplace_back("pipeline.microbatches", count);
      add_change(fmt::format("microbatches of {} instead of {}", size, b),
                 {{"pipeline.microbatch_size", size}}, also);
    };
    // Times of a profile whose samples are not told are those of any microbatch.
    const Value* model = document_.find("model");
    const bool told = model != nullptr && model->find("profile_batch") != nullptr;
    const bool sized = scenario_.transformer || (scenario_.profile && told);
    if (!sized || scenario_.schedule->update == UpdateRule::stash) return;
    if (m % 2 == 0) add_size(2 * b, m / 2);
    if (b % 2 == 0) add_size(b / 2, 2 * m);
  }

  void chunks() {
    const Chunks& allowed = scenario_.schedule->chunks;
    const std::uint32_t v = scenario_.shape.chunks;
    if (allowed.most <= allowed.least || listed("split")) return;
    for (const std::uint32_t other : {2 * v, v / 2})
      if (other >= allowed.least && other <= allowed.most &&
          (other - allowed.least) % allowed.step == 0)
        add_change(fmt::format("{} chunk{} instead of {}", other, other == 1 ? "" : "s", v),
                   {{"pipeline.chunks", other}});
  }

  void steps() {
    const std::uint32_t today = scenario_.shape.accumulation_steps;
    if (today > 1)
      add_change(fmt::format("all microbatches in one go, not in {} accumulation steps", today),
                 {{"pipeline.accumulation_steps", 1}});
  }

  /// Of those that compute the same updates; ones with twice the parameters are not among them.
  void other_schedules() {
    if (!scenario_.schedule->flushes() || scenario_.shape.depth < 2) return;
    for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "v-half"}) {
      const Schedule* schedule = find_schedule(name);
      if (schedule == scenario_.schedule) continue;
      if (scenario_.stack.name == "megatron" && !megatron_runs(*schedule, scenario_.shape.depth))
        continue;
      Settings set{{"schedule", name}}, also;
      std::string change = fmt::format("schedule: {}", name);
      const std::uint32_t chunks = schedule->chunks.usual;
      if (chunks != scenario_.shape.chunks) {
        set.emplace_back("pipeline.chunks", chunks);
        change += fmt::format(", {} chunk{}", chunks, chunks == 1 ? "" : "s");
        if (!scenario_.layers.empty()) also.emplace_back("pipeline.split", "balanced");
      }
      // Who sends and receives at once without chunks does not with them (they would wait for one
      // another).
      if (chunks > 1 && scenario_.lowering.transfers == Transfers::coupled)
        also.emplace_back("transfers", "overlapped");
      add_change(std::move(change), std::move(set), also);
    }
  }

  void tensor_against_depth() {
    if (!scenario_.transformer || scenario_.layer_profile || listed("split") || listed("width"))
      return;
    const std::uint32_t p = scenario_.shape.depth;
    const auto add_degrees = [&](int tensor, std::uint32_t depth) {
      Settings also;
      if (of_pipeline("split") == nullptr) also.emplace_back("pipeline.split", "balanced");
      if (tensor == 1 && scenario_.sequence_parallel)
        also.emplace_back("pipeline.sequence_parallel", false);
      add_change(fmt::format("tensor {} and {} stages", tensor, depth),
                 {{"pipeline.tensor", tensor}, {"pipeline.stages", depth}}, also);
    };
    const bool in_node =
        2 * scenario_.mesh.size(Axis::tensor) <= scenario_.cluster.devices_per_node;
    if (p % 2 == 0 && in_node) add_degrees(2 * scenario_.mesh.size(Axis::tensor), p / 2);
    if (scenario_.mesh.size(Axis::tensor) % 2 == 0)
      add_degrees(scenario_.mesh.size(Axis::tensor) / 2, 2 * p);
  }

  /// More replicas of fewer GPUs each, or the other way round.
  void tensor_against_width() {
    const Mesh& mesh = scenario_.mesh;
    if (!scenario_.transformer || scenario_.layer_profile || mesh.divided || !mesh.width.alike())
      return;
    if (listed("width")) return;
    const int width = mesh.width.at(0);
    const std::uint32_t m = scenario_.shape.microbatches_per_update;
    const auto add_degrees = [&](int tensor, int replicas) {
      Settings also;
      const auto all = static_cast<std::uint32_t>(width) * m;
      if (!batch_given() && all % static_cast<std::uint32_t>(replicas) != 0) return;
      if (!batch_given())
        also.emplace_back("pipeline.microbatches", all / static_cast<std::uint32_t>(replicas));
      if (tensor == 1 && scenario_.sequence_parallel)
        also.emplace_back("pipeline.sequence_parallel", false);
      add_change(fmt::format("tensor {} and width {}", tensor, replicas),
                 {{"pipeline.tensor", tensor}, {"pipeline.width", replicas}}, also);
    };
    const bool in_node = 2 * mesh.size(Axis::tensor) <= scenario_.cluster.devices_per_node;
    if (width % 2 == 0 && in_node) add_degrees(2 * mesh.size(Axis::tensor), width / 2);
    if (mesh.size(Axis::tensor) % 2 == 0) add_degrees(mesh.size(Axis::tensor) / 2, 2 * width);
  }

  const Scenario& scenario_;
  const Value& document_;
  AdviceBudget& budget_;
  std::vector<Candidate> all_;
};

/// Is it another run at all? Keys may repeat what was so already.
bool differs(const Scenario& a, const Scenario& b) {
  return a.schedule != b.schedule || a.layers != b.layers || !(a.recompute == b.recompute) ||
         a.microbatch_size != b.microbatch_size || a.shape.chunks != b.shape.chunks ||
         a.shape.accumulation_steps != b.shape.accumulation_steps ||
         a.shape.depth != b.shape.depth || a.mesh.inner != b.mesh.inner ||
         !(a.sharding == b.sharding) || a.sequence_parallel != b.sequence_parallel ||
         overlaps_reduction(a) != overlaps_reduction(b);
}

/// The scenario with other values of its keys.
Scenario with_keys(const Scenario& scenario, const Settings& set) {
  Scenario other = scenario.source.with(set);
  keep_free(other.cluster, scenario.cluster.device.headroom);
  return other;
}

/// The same work with a change of keys; none where the scenario does not admit it.
std::optional<Scenario> changed(const Scenario& scenario, const Settings& set) {
  Scenario other = with_keys(scenario, set);
  // Where costs count per chunk, other chunks would be other work.
  const bool same_work = !scenario.costs_per_chunk || other.shape.chunks == scenario.shape.chunks;
  const bool alike = same_work && other.gpu_count() == scenario.gpu_count() &&
                     other.samples_per_update() == scenario.samples_per_update();
  if (!alike || !differs(other, scenario)) return std::nullopt;
  return other;
}

/// Looks at scenarios, as often as the budget allows.
struct Looks {
  AdviceBudget& budget;
  ProgramCache* programs;

  /// As if no link were shared: to choose what to simulate. None where that has no rate, or is more
  /// than the budget affords. Throws where it is refused.
  std::optional<Outcome> outlook_of(const Scenario& scenario) {
    if (!budget.afford(work_of(scenario, EngineChoice::exact))) return std::nullopt;
    return outcome_in(simulate_unshared(scenario, programs));
  }
  /// With its links as they are.
  std::optional<Outcome> outcome_of(const Scenario& scenario, EngineChoice engine) {
    if (!budget.afford(work_of(scenario, engine), engine)) return std::nullopt;
    return outcome_in(simulate(scenario, EngineChoice::automatic, programs));
  }
  /// Orders that are searched for take longer than their simulation.
  static std::uint64_t work_of(const Scenario& s, EngineChoice engine) {
    constexpr std::uint64_t kSearched = 20;
    return played_ops(s, engine) * (s.schedule->looks_at_costs ? kSearched : 1);
  }
};

/// What `look` finds. None where the scenario does not admit it or cannot run, and where it could
/// not be looked at, which is no reason to lose what could: `study` says so.
template <class Look>
auto try_to(ChangesStudy& study, const Look& look) -> decltype(look()) {
  try {
    return look();
  } catch (const InputError&) {
    return std::nullopt;
  } catch (const SystemError& error) {
    study.incomplete_because = error.what();
    return std::nullopt;
  }
}

/// The change, with the nearest split that fits, where it is faster than today but does not fit.
std::optional<Outcome> look_at(const Scenario& scenario, const Outcome& today, Candidate& candidate,
                               Scenario& other, Looks& looks) {
  auto outlook = looks.outlook_of(other);
  if (!outlook || outlook->fits) return outlook;
  const bool better = !today.fits || outlook->samples_per_s * (1 - kWorthIt) > today.samples_per_s;
  const auto split = better ? fitting_split(other, looks.budget) : std::nullopt;
  if (!split) return std::nullopt;
  std::erase_if(candidate.set, [](const Setting& s) { return s.key == "pipeline.split"; });
  candidate.set.emplace_back("pipeline.split", *split);
  const std::string text = keys_text({candidate.set.back()});
  constexpr std::string_view kBalanced = "split: balanced";
  const auto at = candidate.change.find(kBalanced);
  if (at != std::string::npos)
    candidate.change.replace(at, kBalanced.size(), text);
  else
    candidate.change += ", " + text;
  auto fitting = changed(scenario, candidate.set);
  if (!fitting) return std::nullopt;
  other = std::move(*fitting);
  return looks.outlook_of(other);
}

using Looked = std::pair<Candidate, Scenario>;

/// The changes that are allowed, in the order in which they are named; `place` is the order in
/// which they are looked at: what costs least first.
struct Tries {
  std::vector<Looked> all;
  std::vector<std::size_t> place;
};
Tries tries_of(const Scenario& scenario, bool fits,
               const std::function<bool(const Scenario&)>& allowed, Looks& looks,
               ChangesStudy& study) {
  Tries tries;
  const Changes changes(scenario, fits, looks.budget);
  for (const Candidate& candidate : changes.all()) {
    auto other = try_to(study, [&] { return changed(scenario, candidate.set); });
    if (other && (!allowed || allowed(*other))) {
      tries.place.push_back(tries.all.size());
      tries.all.emplace_back(candidate, std::move(*other));
    }
  }
  std::ranges::stable_sort(tries.place, {}, [&](std::size_t i) {
    return Looks::work_of(tries.all[i].second, EngineChoice::exact);
  });
  return tries;
}

/// Changes that could help, by a look at them: of each kind the best, the best first. Values of one
/// key are one kind.
std::vector<Looked> outlooks(const Scenario& scenario, const Outcome& today,
                             const std::function<bool(const Scenario&)>& allowed, Looks& looks,
                             ChangesStudy& study) {
  Tries tries = tries_of(scenario, today.fits, allowed, looks, study);
  std::vector<bool> good(tries.all.size(), false);
  for (const std::size_t i : tries.place) {
    Candidate& candidate = tries.all[i].first;
    Scenario& other = tries.all[i].second;
    const auto outlook =
        try_to(study, [&] { return look_at(scenario, today, candidate, other, looks); });
    if (!outlook || !outlook->fits) continue;
    candidate.time_ratio = today.samples_per_s / outlook->samples_per_s;
    good[i] = true;
  }
  std::vector<Looked> found;
  for (std::size_t i = 0; i < good.size(); ++i)
    if (good[i]) found.push_back(std::move(tries.all[i]));
  // A combination has to gain more than what it consists of.
  std::ranges::stable_sort(found, {}, [](const auto& f) {
    return f.first.time_ratio + (f.first.combined ? kWorthIt : 0);
  });
  std::set<std::string> kinds;
  std::set<std::set<std::string>> keys;  // two ways may come to the same
  std::erase_if(found, [&](const auto& f) {
    std::set<std::string> set;
    for (const Setting& setting : f.first.set) set.insert(setting.text());
    return !keys.insert(std::move(set)).second || !kinds.insert(f.first.kind).second;
  });
  return found;
}

/// Ways to spread the same batch over `times` as many GPUs: keys and their values.
std::vector<Settings> spreads(const Scenario& s, std::uint32_t times, bool batch_given) {
  const auto n = static_cast<int>(times);
  const int width = s.mesh.width.at(0), tensor = s.mesh.size(Axis::tensor);
  const std::uint32_t m = s.shape.microbatches_per_update;
  std::vector<Settings> ways;
  if (m % times == 0) {
    ways.push_back({{"pipeline.width", width * n}});
    if (!batch_given) ways.back().emplace_back("pipeline.microbatches", m / times);
  }
  const auto add_degrees = [&](int more_tensor) {
    const std::uint32_t depth = s.shape.depth * times / static_cast<std::uint32_t>(more_tensor);
    if (static_cast<int>(depth * s.shape.chunks) > s.transformer->num_layers) return;
    ways.emplace_back();
    if (more_tensor > 1) ways.back().emplace_back("pipeline.tensor", tensor * more_tensor);
    if (depth == s.shape.depth) return;
    ways.back().emplace_back("pipeline.stages", depth);
    ways.back().emplace_back("pipeline.split", "balanced");
  };
  for (const int more : {1, 2, 4, 8})
    if (n % more == 0 && tensor * more <= s.cluster.devices_per_node) add_degrees(more);
  return ways;
}

/// The change that makes it fit on as few more GPUs as are found: more replicas that share the
/// optimizer's state, more stages, more tensor ranks, each with what people use together, and with
/// recomputation where that is needed. None: up to 64 times as many do not do, or it would take
/// more than the budget to find out.
std::optional<Advice> on_more_gpus(const Scenario& scenario, const Outcome& today, Looks& looks) {
  constexpr std::uint32_t kTimes[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  if (!scenario.transformer || scenario.layer_profile || !scenario.mesh.width.alike()) return {};
  const bool batch_given =
      value_at(scenario.source.document(), {"pipeline", "global_batch_size"}) != nullptr;
  const int before = looks.budget.not_tried();
  std::optional<Advice> best;
  const auto look_at_keys = [&](const Settings& set) {
    const Scenario other = with_keys(scenario, set);
    if (other.samples_per_update() != scenario.samples_per_update()) return;
    const auto outlook = looks.outlook_of(other);
    if (!outlook || !outlook->fits) return;
    const double ratio = today.samples_per_s / outlook->samples_per_s;
    if (best && best->time_ratio <= ratio) return;
    best = Candidate{.change = fmt::format("{} GPUs instead of {}, {}", other.gpu_count(),
                                           scenario.gpu_count(), keys_text(set)),
                     .set = set,
                     .kind = "",
                     .time_ratio = ratio}
               .advice();
    best->makes_it_fit = true;
    best->gpus = other.gpu_count();
  };
  for (const std::uint32_t times : kTimes) {
    for (Settings& way : spreads(scenario, times, batch_given)) {
      const std::int64_t gpus = scenario.gpu_count() * times;
      if (gpus > scenario.cluster.devices())
        way.emplace_back("cluster.nodes", (gpus + scenario.cluster.devices_per_node - 1) /
                                              scenario.cluster.devices_per_node);
      for (const char* recompute : {"", "selective", "full"}) {
        try {
          Settings set = way;
          for (const Setting& setting : usual_keys(with_keys(scenario, way)))
            if (setting.key != "pipeline.reduction.overlap" && !sets(set, setting.key))
              set.push_back(setting);
          if (*recompute != 0) set.emplace_back("pipeline.recompute", recompute);
          look_at_keys(set);
        } catch (const InputError&) {   // degrees that the model or the schedule does not admit
        } catch (const SystemError&) {  // such as a lack of processes: others may still be found
        }
      }
    }
    if (best || looks.budget.not_tried() > before) break;
  }
  return best;
}

}  // namespace

ChangesStudy study_changes(const Simulation& simulation, const Result& result, AdviceBudget& budget,
                           const std::function<bool(const Scenario&)>& allowed,
                           ProgramCache* programs) {
  const Scenario& scenario = simulation.scenario;
  if (scenario.perturbations.changes_times() || scenario.own_schedule) return {};
  ChangesStudy study;
  Looks looks{budget, programs};
  std::vector<Advice>& found = study.found;
  const auto today = outcome_in(result);
  if (!today) return study;
  const EngineChoice engine = engine_for(simulation, EngineChoice::automatic);
  const int before = budget.not_tried();
  budget.reserve(played_ops(scenario, engine), engine);  // for the best of them
  const auto outlook = try_to(study, [&] { return looks.outlook_of(scenario); });
  if (!outlook) return study;
  std::size_t simulated = 0;
  const std::vector<Looked> looked = outlooks(scenario, *outlook, allowed, looks, study);
  budget.release();
  for (const Looked& one : looked) {
    const Candidate& candidate = one.first;
    const Scenario& other = one.second;
    if (today->fits && candidate.time_ratio > 1 - kWorthIt) break;
    if (found.size() == kShown || simulated++ == kMostSimulated) break;
    const auto outcome = try_to(study, [&] { return looks.outcome_of(other, engine); });
    if (!outcome || !outcome->fits) continue;
    Advice advice = candidate.advice();
    advice.time_ratio = today->samples_per_s / outcome->samples_per_s;
    if (today->fits && advice.time_ratio > 1 - kWorthIt) continue;
    advice.makes_it_fit = !today->fits;
    if (other.optimistic && !scenario.optimistic)
      advice.change += " (optimistic: small microbatches)";
    found.push_back(std::move(advice));
  }
  std::ranges::stable_sort(found, {}, &Advice::time_ratio);
  study.tried = budget.not_tried() == before;
  return study;
}

void add_help(const Simulation& today, Result& result, AdviceEffort effort) {
  if (effort == AdviceEffort::none) return;
  AdviceBudget of_sensitivities(effort, 0.3), budget(effort, 0.7);
  ProgramCache programs;
  if (!today.scenario.own_schedule)
    programs.keep(*today.scenario.schedule, today.scenario.shape, today.scenario.lowering,
                  today.checked);
  Sensitivities help = study_sensitivities(today, of_sensitivities, &programs);
  ChangesStudy advice = study_changes(today, result, budget, {}, &programs);
  result.what_would_help = std::move(help.changes);
  result.what_to_change = std::move(advice.found);
  result.nothing_to_change = advice.tried && result.what_to_change.empty();
  const auto rate = outcome_in(result);
  if (result.nothing_to_change && rate && !rate->fits) {
    Looks looks{budget, &programs};
    if (auto more = on_more_gpus(today.scenario, *rate, looks)) result.what_to_change = {*more};
  }
  if (!help.none_because.empty())
    result.notes.push_back(help.none_because);
  else if (!advice.incomplete_because.empty())
    result.notes.push_back(
        fmt::format("what would help is not complete: {}", advice.incomplete_because));
  note_other_stacks(today, result, budget);
  const int not_tried = budget.not_tried() + of_sensitivities.not_tried();
  if (not_tried > 0)
    result.help_not_tried =
        fmt::format("{} of {} runs with something changed, to save time (--advice full)", not_tried,
                    not_tried + budget.tried() + of_sensitivities.tried());
}

}  // namespace penstock
