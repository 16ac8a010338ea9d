// SPDX-License-Identifier: Apache-2.0
#include "results/advice.hpp"

#include "base/error.hpp"
#include "results/fitting_split.hpp"
#include "results/other_stacks.hpp"
#include "results/sensitivity.hpp"
#include "scenarios/document.hpp"
#include "scenarios/megatron_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

namespace penstock {
namespace {

constexpr std::uint32_t kMostOpsExact = 300'000;  // ops of a run, as what would help allows
constexpr std::uint32_t kMostOpsFluid = 100'000;  // a tenth of a second each
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

bool too_large(const Simulation& s) {
  return s.program.ops.size() >
         (uses_exact(s, EngineChoice::automatic) ? kMostOpsExact : kMostOpsFluid);
}

/// None where the run is too large, is refused or has no rate.
std::optional<Outcome> outcome_of(const Scenario& scenario) {
  Simulation simulation = prepare(scenario);
  if (too_large(simulation)) return std::nullopt;
  run_engine(simulation, EngineChoice::automatic);
  return outcome_in(summarize(simulation));
}

/// As if no link were shared, which takes a hundredth of the time: to choose what to simulate.
std::optional<Outcome> outlook_of(const Scenario& scenario) {
  Simulation simulation = prepare(scenario);
  if (simulation.program.ops.size() > kMostOpsExact) return std::nullopt;
  simulation.timeline = std::make_unique<Timeline>(simulate_exact(simulation.input()));
  simulation.engine = "exact";
  return outcome_in(summarize(simulation));
}

/// Advice of a kind: of several values of one key, the best is looked at further.
struct Candidate {
  Advice advice;
  std::string kind;
  bool combined = false;  ///< of several that are candidates themselves
};

/// "recompute: full, split: balanced" of "pipeline.recompute=full" and so on.
std::string keys_text(const std::vector<std::string>& set) {
  std::string text;
  for (const std::string& key : set) {
    const auto equals = key.find('=');
    std::string name = key.substr(0, equals);
    name.erase(0, name.starts_with("pipeline.") ? std::string_view("pipeline.").size() : 0);
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, key.substr(equals + 1));
  }
  return text;
}

/// What people set for a job that has several replicas, tensor ranks or stages, and this one lacks.
std::vector<std::string> usual_keys(const Scenario& s) {
  std::vector<std::string> keys;
  if (s.mesh.sharers() > 1 && !s.schedule->asynchronous && !overlaps_reduction(s))
    keys.emplace_back("pipeline.reduction.overlap=backward");
  if (s.transformer && !s.layer_profile) {
    const bool replicas = s.mesh.width.alike() && s.mesh.width.at(0) > 1;
    if (s.mesh.size(Axis::tensor) > 1 && !s.sequence_parallel)
      keys.emplace_back("pipeline.sequence_parallel=true");
    if (replicas && !s.distributed_optimizer && !s.schedule->asynchronous)
      keys.emplace_back("pipeline.distributed_optimizer=true");
  }
  if (!s.layers.empty() && s.layers.size() > 1) keys.emplace_back("pipeline.split=balanced");
  return keys;
}

/// Changes of keys, each of which leaves the GPUs and the samples per update as they are.
class Changes {
 public:
  Changes(const Scenario& scenario, bool fits)
      : scenario_(scenario), document_(parse_document(scenario.text, scenario.origin)) {
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
  const Value* of_pipeline(const char* key) const {
    const Value* pipeline = document_.find("pipeline");
    return pipeline == nullptr ? nullptr : pipeline->find(key);
  }
  bool listed(const char* key) const {
    const Value* value = of_pipeline(key);
    return value != nullptr && value->kind == Value::Kind::list;
  }
  /// Does the batch stay when the microbatch size or the width changes?
  bool batch_given() const { return of_pipeline("global_batch_size") != nullptr; }

  /// `also`: keys that have to follow; they are named, so that who sets what is named gets it.
  void add_change(std::string change, std::vector<std::string> set,
                  const std::vector<std::string>& also = {}) {
    for (const std::string& key : also) {
      const auto equals = key.find('=');
      const auto dot = key.rfind('.', equals);
      const std::size_t name = dot == std::string::npos ? 0 : dot + 1;
      change += fmt::format(", {}: {}", key.substr(name, equals - name), key.substr(equals + 1));
      set.push_back(key);
    }
    std::string kind = set.front().substr(0, set.front().find('='));
    all_.push_back({{std::move(change), std::move(set)}, std::move(kind)});
  }

  /// What is used together: what ranks need not hold or compute twice, an even split, gradients
  /// reduced beside the backward; where memory is short, with recomputation.
  void together(bool fits) {
    const std::vector<std::string> keys = usual_keys(scenario_);
    std::vector<std::string> recomputations{""};
    if (!fits)
      for (const Recompute more : {Recompute::selective, Recompute::full})
        if (!(scenario_.recompute == PerStage<Recomputation>(more)))
          recomputations.push_back(fmt::format("pipeline.recompute={}",
                                               kRecomputeNames[static_cast<std::size_t>(more)]));
    for (const std::string& recompute : recomputations) {
      std::vector<std::string> set = keys;
      if (!recompute.empty()) set.push_back(recompute);
      if (set.size() < 2) continue;
      add_change(keys_text(set), set);
      all_.back().kind = "together";
      all_.back().combined = true;
    }
  }

  void split(bool fits) {
    if (!scenario_.layers.empty()) add_change("split: balanced", {"pipeline.split=balanced"});
    const auto other = fits ? std::nullopt : fitting_split(scenario_);
    if (other)
      add_change(fmt::format("split: {}", *other), {fmt::format("pipeline.split={}", *other)});
  }

  /// What replicas and tensor ranks need not hold twice, and what they exchange beside the
  /// backward.
  void sharing() {
    for (const std::string& key : usual_keys(scenario_))
      if (!key.starts_with("pipeline.split=")) add_change(keys_text({key}), {key});
  }

  void recomputation() {
    for (const std::string_view name : kRecomputeNames) {
      if (scenario_.layer_profile && name == "selective") continue;
      std::vector<std::string> also;
      const bool in_part = std::ranges::any_of(scenario_.recompute.values(),
                                               [](const auto& r) { return !r.plain(); });
      if (in_part && name == "full") {
        also.emplace_back("pipeline.recompute_method=uniform");
        also.emplace_back("pipeline.recompute_layers=1");
      }
      add_change(fmt::format("recompute: {}", name), {fmt::format("pipeline.recompute={}", name)},
                 also);
    }
  }

  void microbatch_sizes() {
    const std::int64_t b = scenario_.microbatch_size;
    const std::int64_t m = scenario_.shape.microbatches_per_update;
    const auto add_size = [&](std::int64_t size, std::int64_t count) {
      std::vector<std::string> also;
      if (!batch_given()) also.push_back(fmt::format("pipeline.microbatches={}", count));
      add_change(fmt::format("microbatches of {} instead of {}", size, b),
                 {fmt::format("pipeline.microbatch_size={}", size)}, also);
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
                   {fmt::format("pipeline.chunks={}", other)});
  }

  void steps() {
    const std::uint32_t today = scenario_.shape.accumulation_steps;
    if (today > 1)
      add_change(fmt::format("all microbatches in one go, not in {} accumulation steps", today),
                 {"pipeline.accumulation_steps=1"});
  }

  /// Of those that compute the same updates; ones with twice the parameters are not among them.
  void other_schedules() {
    if (!scenario_.schedule->flushes() || scenario_.shape.depth < 2) return;
    for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "v-half"}) {
      const Schedule* schedule = find_schedule(name);
      if (schedule == scenario_.schedule) continue;
      if (scenario_.stack.name == "megatron" && !megatron_runs(*schedule, scenario_.shape.depth))
        continue;
      std::vector<std::string> set{fmt::format("schedule={}", name)}, also;
      std::string change = fmt::format("schedule: {}", name);
      const std::uint32_t chunks = schedule->chunks.usual;
      if (chunks != scenario_.shape.chunks) {
        set.push_back(fmt::format("pipeline.chunks={}", chunks));
        change += fmt::format(", {} chunk{}", chunks, chunks == 1 ? "" : "s");
        if (!scenario_.layers.empty()) also.emplace_back("pipeline.split=balanced");
      }
      // Who sends and receives at once without chunks does not with them (they would wait for one
      // another).
      if (chunks > 1 && scenario_.lowering.transfers == Transfers::coupled)
        also.emplace_back("transfers=overlapped");
      add_change(std::move(change), std::move(set), also);
    }
  }

  void tensor_against_depth() {
    if (!scenario_.transformer || scenario_.layer_profile || listed("split") || listed("width"))
      return;
    const std::uint32_t p = scenario_.shape.depth;
    const auto add_degrees = [&](int tensor, std::uint32_t depth) {
      std::vector<std::string> also;
      if (of_pipeline("split") == nullptr) also.emplace_back("pipeline.split=balanced");
      if (tensor == 1 && scenario_.sequence_parallel)
        also.emplace_back("pipeline.sequence_parallel=false");
      add_change(
          fmt::format("tensor {} and {} stages", tensor, depth),
          {fmt::format("pipeline.tensor={}", tensor), fmt::format("pipeline.stages={}", depth)},
          also);
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
      std::vector<std::string> also;
      const auto all = static_cast<std::uint32_t>(width) * m;
      if (!batch_given() && all % static_cast<std::uint32_t>(replicas) != 0) return;
      if (!batch_given())
        also.push_back(
            fmt::format("pipeline.microbatches={}", all / static_cast<std::uint32_t>(replicas)));
      if (tensor == 1 && scenario_.sequence_parallel)
        also.emplace_back("pipeline.sequence_parallel=false");
      add_change(
          fmt::format("tensor {} and width {}", tensor, replicas),
          {fmt::format("pipeline.tensor={}", tensor), fmt::format("pipeline.width={}", replicas)},
          also);
    };
    const bool in_node = 2 * mesh.size(Axis::tensor) <= scenario_.cluster.devices_per_node;
    if (width % 2 == 0 && in_node) add_degrees(2 * mesh.size(Axis::tensor), width / 2);
    if (mesh.size(Axis::tensor) % 2 == 0) add_degrees(mesh.size(Axis::tensor) / 2, 2 * width);
  }

  const Scenario& scenario_;
  const Value document_;
  std::vector<Candidate> all_;
};

/// Is it another run at all? Keys may repeat what was so already.
bool differs(const Scenario& a, const Scenario& b) {
  return a.schedule != b.schedule || a.layers != b.layers || !(a.recompute == b.recompute) ||
         a.microbatch_size != b.microbatch_size || a.shape.chunks != b.shape.chunks ||
         a.shape.accumulation_steps != b.shape.accumulation_steps ||
         a.shape.depth != b.shape.depth || a.mesh.inner != b.mesh.inner ||
         a.distributed_optimizer != b.distributed_optimizer ||
         a.sequence_parallel != b.sequence_parallel ||
         overlaps_reduction(a) != overlaps_reduction(b);
}

/// The scenario with other values of its keys.
Scenario with_keys(const Scenario& scenario, const std::vector<std::string>& set) {
  std::vector<Override> changes;
  for (const std::string& text : set) changes.push_back(parse_override(text));
  Scenario other = parse_scenario(scenario.text, scenario.origin, changes);
  keep_free(other.cluster, scenario.cluster.device.headroom);
  return other;
}

/// The same work with a change of keys; none where the scenario does not admit it.
std::optional<Scenario> changed(const Scenario& scenario, const Advice& advice) {
  Scenario other = with_keys(scenario, advice.set);
  // Where costs count per chunk, other chunks would be other work.
  const bool same_work = !scenario.costs_per_chunk || other.shape.chunks == scenario.shape.chunks;
  const bool alike = same_work && other.gpu_count() == scenario.gpu_count() &&
                     other.samples_per_update() == scenario.samples_per_update();
  if (!alike || !differs(other, scenario)) return std::nullopt;
  return other;
}

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
std::optional<Outcome> look_at(const Scenario& scenario, const Outcome& today, Advice& advice,
                               Scenario& other) {
  auto outlook = outlook_of(other);
  if (!outlook || outlook->fits) return outlook;
  const bool better = !today.fits || outlook->samples_per_s * (1 - kWorthIt) > today.samples_per_s;
  const auto split = better ? fitting_split(other) : std::nullopt;
  if (!split) return std::nullopt;
  std::erase_if(advice.set, [](const std::string& s) { return s.starts_with("pipeline.split="); });
  advice.set.push_back(fmt::format("pipeline.split={}", *split));
  const std::string text = fmt::format("split: {}", *split);
  const auto at = advice.change.find("split: balanced");
  if (at != std::string::npos)
    advice.change.replace(at, std::string_view("split: balanced").size(), text);
  else
    advice.change += ", " + text;
  auto fitting = changed(scenario, advice);
  if (!fitting) return std::nullopt;
  other = std::move(*fitting);
  return outlook_of(other);
}

/// Changes that could help, by a look at them: of each kind the best, the best first. Values of one
/// key are one kind.
std::vector<std::pair<Advice, Scenario>> outlooks(
    const Scenario& scenario, const Outcome& today,
    const std::function<bool(const Scenario&)>& allowed, ChangesStudy& study) {
  std::vector<std::pair<Candidate, Scenario>> found;
  const Changes changes(scenario, today.fits);
  for (Candidate candidate : changes.all()) {
    Advice& advice = candidate.advice;
    auto other = try_to(study, [&] { return changed(scenario, advice); });
    if (!other || (allowed && !allowed(*other))) continue;
    const auto outlook = try_to(study, [&] { return look_at(scenario, today, advice, *other); });
    if (!outlook || !outlook->fits) continue;
    advice.time_ratio = today.samples_per_s / outlook->samples_per_s;
    found.emplace_back(std::move(candidate), std::move(*other));
  }
  // A combination has to gain more than what it consists of.
  std::ranges::stable_sort(found, {}, [](const auto& f) {
    return f.first.advice.time_ratio + (f.first.combined ? kWorthIt : 0);
  });
  std::vector<std::pair<Advice, Scenario>> best;
  std::set<std::string> kinds;
  std::set<std::set<std::string>> keys;  // two ways may come to the same
  for (auto& [candidate, other] : found) {
    const std::vector<std::string>& set = candidate.advice.set;
    if (keys.emplace(set.begin(), set.end()).second && kinds.insert(candidate.kind).second)
      best.emplace_back(std::move(candidate.advice), std::move(other));
  }
  return best;
}

/// Ways to spread the same batch over `times` as many GPUs: keys and their values.
std::vector<std::vector<std::string>> spreads(const Scenario& s, std::uint32_t times,
                                              bool batch_given) {
  const auto n = static_cast<int>(times);
  const int width = s.mesh.width.at(0), tensor = s.mesh.size(Axis::tensor);
  const std::uint32_t m = s.shape.microbatches_per_update;
  std::vector<std::vector<std::string>> ways;
  if (m % times == 0) {
    ways.push_back({fmt::format("pipeline.width={}", width * n)});
    if (!batch_given) ways.back().push_back(fmt::format("pipeline.microbatches={}", m / times));
  }
  const auto add_degrees = [&](int more_tensor) {
    const std::uint32_t depth = s.shape.depth * times / static_cast<std::uint32_t>(more_tensor);
    if (static_cast<int>(depth * s.shape.chunks) > s.transformer->num_layers) return;
    ways.emplace_back();
    if (more_tensor > 1)
      ways.back().push_back(fmt::format("pipeline.tensor={}", tensor * more_tensor));
    if (depth == s.shape.depth) return;
    ways.back().push_back(fmt::format("pipeline.stages={}", depth));
    ways.back().emplace_back("pipeline.split=balanced");
  };
  for (const int more : {1, 2, 4, 8})
    if (n % more == 0 && tensor * more <= s.cluster.devices_per_node) add_degrees(more);
  return ways;
}

/// The change that makes it fit on as few more GPUs as are found: more replicas that share the
/// optimizer's state, more stages, more tensor ranks, each with what people use together, and with
/// recomputation where that is needed. None: up to 64 times as many do not do, or it would take
/// too long to find out.
std::optional<Advice> on_more_gpus(const Scenario& scenario, const Outcome& today) {
  constexpr std::uint32_t kTimes[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  constexpr std::int64_t kMostOpsInAll = 600'000;
  if (!scenario.transformer || scenario.layer_profile || !scenario.mesh.width.alike()) return {};
  const Value document = parse_document(scenario.text, scenario.origin);
  const Value* const pipeline = document.find("pipeline");
  const bool batch_given = pipeline != nullptr && pipeline->find("global_batch_size") != nullptr;
  std::int64_t ops = 0;
  std::optional<Advice> best;
  const auto look_at_keys = [&](const std::vector<std::string>& set) {
    const Scenario other = with_keys(scenario, set);
    if (other.samples_per_update() != scenario.samples_per_update()) return;
    ops += static_cast<std::int64_t>(prepare(other).program.ops.size());
    const auto outlook = ops > kMostOpsInAll ? std::nullopt : outlook_of(other);
    if (!outlook || !outlook->fits) return;
    const double ratio = today.samples_per_s / outlook->samples_per_s;
    if (best && best->time_ratio <= ratio) return;
    best = Advice{.change = fmt::format("{} GPUs instead of {}, {}", other.gpu_count(),
                                        scenario.gpu_count(), keys_text(set)),
                  .set = set,
                  .time_ratio = ratio,
                  .makes_it_fit = true,
                  .gpus = other.gpu_count()};
  };
  for (const std::uint32_t times : kTimes) {
    for (std::vector<std::string>& way : spreads(scenario, times, batch_given)) {
      const std::int64_t gpus = scenario.gpu_count() * times;
      if (gpus > scenario.cluster.devices())
        way.push_back(fmt::format(
            "cluster.nodes={}",
            (gpus + scenario.cluster.devices_per_node - 1) / scenario.cluster.devices_per_node));
      for (const char* recompute : {"", "selective", "full"}) {
        try {
          std::vector<std::string> set = way;
          for (std::string& key : usual_keys(with_keys(scenario, way)))
            if (!key.starts_with("pipeline.reduction") && std::ranges::find(set, key) == set.end())
              set.push_back(std::move(key));
          if (*recompute != 0) set.push_back(fmt::format("pipeline.recompute={}", recompute));
          look_at_keys(set);
        } catch (const InputError&) {   // degrees that the model or the schedule does not admit
        } catch (const SystemError&) {  // such as a lack of processes: others may still be found
        }
      }
    }
    if (best || ops > kMostOpsInAll) break;
  }
  return best;
}

}  // namespace

bool overlaps_reduction(const Scenario& scenario) {
  const auto early = [](const GradientBucket& bucket) { return bucket.ready < 1; };
  return std::ranges::any_of(scenario.reduction.buckets, [&](const auto& buckets) {
    return std::ranges::any_of(buckets, early);
  });
}

ChangesStudy study_changes(const Simulation& simulation, const Result& result,
                           const std::function<bool(const Scenario&)>& allowed) {
  const Scenario& scenario = simulation.scenario;
  if (scenario.perturbations.changes_times() || scenario.own_schedule) return {};
  ChangesStudy study;
  std::vector<Advice>& found = study.found;
  const auto today = outcome_in(result);
  if (!today || too_large(simulation)) return study;
  const auto outlook = try_to(study, [&] { return outlook_of(scenario); });
  if (!outlook) return study;
  study.tried = true;
  std::size_t simulated = 0;
  for (auto& looked_into : outlooks(scenario, *outlook, allowed, study)) {
    Advice& advice = looked_into.first;
    const Scenario& other = looked_into.second;
    if (today->fits && advice.time_ratio > 1 - kWorthIt) break;
    if (found.size() == kShown || simulated++ == kMostSimulated) break;
    const auto outcome = try_to(study, [&] { return outcome_of(other); });
    if (!outcome || !outcome->fits) continue;
    advice.time_ratio = today->samples_per_s / outcome->samples_per_s;
    if (today->fits && advice.time_ratio > 1 - kWorthIt) continue;
    advice.makes_it_fit = !today->fits;
    if (other.optimistic && !scenario.optimistic)
      advice.change += " (optimistic: small microbatches)";
    found.push_back(std::move(advice));
  }
  std::ranges::stable_sort(found, {}, &Advice::time_ratio);
  return study;
}

void add_help(const Simulation& today, Result& result) {
  Sensitivities help = study_sensitivities(today);
  ChangesStudy advice = study_changes(today, result);
  result.what_would_help = std::move(help.changes);
  result.what_to_change = std::move(advice.found);
  result.nothing_to_change = advice.tried && result.what_to_change.empty();
  const auto rate = outcome_in(result);
  if (result.nothing_to_change && rate && !rate->fits) {
    if (auto more = on_more_gpus(today.scenario, *rate)) result.what_to_change = {*more};
  }
  if (help.none_because.empty() && !advice.incomplete_because.empty())
    help.none_because =
        fmt::format("what would help is not complete: {}", advice.incomplete_because);
  // What can be changed is simulated for larger runs than what the time depends on.
  if (!help.too_large.empty() && advice.tried)
    help.none_because =
        fmt::format("what faster links and stages and longer updates would change is left out: {}",
                    help.too_large);
  if (!help.none_because.empty()) result.notes.push_back(help.none_because);
  note_other_stacks(today, result);
}

}  // namespace penstock
