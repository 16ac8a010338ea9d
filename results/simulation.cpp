// SPDX-License-Identifier: Apache-2.0
#include "results/simulation.hpp"

#include "base/clock.hpp"
#include "base/units.hpp"
#include "program/gather_queue.hpp"
#include "program/iterations.hpp"
#include "program/op_costs.hpp"
#include "sim/path_contention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <thread>
#include <utility>

namespace penstock {
namespace {

/// A schedule of the user's own is made anew for every scenario: nobody asks for it again.
std::shared_ptr<const CheckedProgram> program_of(const Scenario& s, ProgramCache* programs) {
  if (programs != nullptr && !s.own_schedule)
    return programs->get(*s.schedule, s.shape, s.lowering);
  return std::make_shared<const CheckedProgram>(*s.schedule, s.shape, s.lowering);
}

/// With which the schedule could run.
std::string other_transfers(const Scenario& scenario) {
  std::string names;
  for (const Transfers transfers : {Transfers::overlapped, Transfers::blocking}) {
    LoweringOptions lowering = scenario.lowering;
    lowering.transfers = transfers;
    const CheckedProgram other(*scenario.schedule, scenario.shape, lowering);
    if (other.problems.empty() && other.deadlock().empty())
      names += fmt::format("{}{}", names.empty() ? "" : " or ", to_string(transfers));
  }
  return names;
}

void require_none(const Simulation& s, const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  const bool coupled = s.program.transfers == Transfers::coupled;
  const std::string others = coupled ? other_transfers(s.scenario) : "";
  if (!others.empty())
    throw InputError(
        s.scenario.origin,
        fmt::format("'{}' cannot run with transfers: coupled, where a message needs both of its "
                    "ends free: {}; use transfers: {}",
                    s.scenario.schedule->name, problems.front(), others));
  throw InputError(s.scenario.origin, fmt::format("the schedule cannot run{}: {}",
                                                  coupled ? " with transfers: coupled" : "",
                                                  fmt::join(problems, "; ")));
}

void add_traffic(Simulation& s) {
  const Scenario& scenario = s.scenario;
  s.traffic = std::make_unique<Traffic>(s.program, scenario.cluster, scenario.mesh,
                                        scenario.reduction, collectives_of(scenario.costs));
  if (scenario.perturbations.changes_times()) {
    s.perturbation = std::make_unique<Perturbation>(
        perturbation_of(scenario.perturbations, s.program.ops.devices(), *s.traffic));
  }
}

/// The key of the scenario that makes a link shared.
std::string sharing_key(const Cluster& cluster, const std::string& link) {
  if (cluster.network) return "cluster.network";
  if (cluster.link) return cluster.link->full_duplex ? "pipeline.reduction" : "cluster.link.duplex";
  if (link.find(" nic") != std::string::npos) return "cluster.inter";
  if (link.starts_with("node") || link.find(" pcie") != std::string::npos) return "cluster.pcie";
  if (!link.starts_with("gpu")) return "cluster.fabric";
  return cluster.attachment == Attachment::pairs ? "cluster.intra.duplex"
                                                 : "cluster.intra.attachment";
}

/// Ends of the optimizer steps of one device.
std::vector<double> step_ends(const Simulation& s, int device) {
  std::vector<double> ends;
  for (std::uint32_t g = s.program.ops.begin(device); g < s.program.ops.end(device); ++g) {
    if (s.program.ops[g].kind == OpKind::step) ends.push_back(s.timeline->op(g).end_s);
  }
  return ends;
}

/// The mean interval between updates of the steady state.
std::optional<double> steady_iteration_s(const Simulation& s) {
  const bool warms_up = s.program.flushes && s.program.batches > 1;
  const SteadyUpdates steady = steady_updates(s.program, warms_up ? 1 : 0);
  if (steady.whole_run && !s.program.flushes) return std::nullopt;
  const std::vector<double> ends = update_ends_s(s);
  const auto end_of = [&](std::uint32_t updates) { return updates == 0 ? 0 : ends[updates - 1]; };
  return (end_of(steady.last()) - end_of(steady.first)) /
         static_cast<double>(steady.last() - steady.first);
}

/// Of replicas that wait for no other: the time in which they make as many updates as they are, by
/// the mean interval of each after its first two microbatches, as long as all of them are at work.
std::optional<double> asynchronous_iteration_s(const Simulation& s) {
  const std::size_t m = s.program.per_update(0);
  const std::size_t first = (2 + m - 1) / m;
  std::vector<std::vector<double>> ends;
  double all_work_until = std::numeric_limits<double>::infinity();
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    ends.push_back(step_ends(s, d));
    if (ends.back().size() <= first) return std::nullopt;
    all_work_until = std::min(all_work_until, ends.back().back());
  }
  double updates_per_s = 0;
  for (const std::vector<double>& of : ends) {
    std::size_t last = of.size() - 1;
    while (last > first && of[last] > all_work_until) --last;
    updates_per_s += static_cast<double>(last + 1 - first) / (of[last] - of[first - 1]);
  }
  return s.program.ops.devices() / updates_per_s;
}

DeviceResult summarize_device(const Simulation& s, int device) {
  DeviceResult d;
  d.device = device;
  const Placement& placement = s.program.placement;
  for (const std::uint32_t stage : placement.stages_at(placement.position_of(device)))
    d.stages.push_back(static_cast<int>(stage));
  for (const int stage : d.stages) {
    if (s.scenario.layers.empty()) break;
    d.layers.push_back(s.scenario.layers[static_cast<std::size_t>(stage)]);
    if (!s.scenario.transformer) continue;
    d.embedding = d.embedding || stage == 0;
    d.head = d.head || stage + 1 == placement.stages();
  }
  d.time = device_metrics(s.view(), device);
  d.gpus = s.scenario.gpus_of(device);
  d.idle_s = s.timeline->makespan_s - d.time.busy_s;
  d.memory = memory_over_time(s.memory(), device);
  d.order = s.checked->facts[static_cast<std::size_t>(device)];
  if (s.latest) d.order.staleness_max = s.latest->staleness_max(device);
  return d;
}

/// The three largest owners, and what the others take together.
std::string owners(const MemoryUse& use) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::pair<std::int64_t, std::string_view>> parts;
  for (std::size_t i = 0; i < kOwners; ++i) {
    if (use.bytes[i] > 0) parts.emplace_back(use.bytes[i], kOwnerNames[i]);
  }
  std::ranges::sort(parts, std::greater<>());
  std::string text;
  std::int64_t others = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i >= kNamed) {
      others += parts[i].first;
      continue;
    }
    std::string words(parts[i].second);
    std::ranges::replace(words, '_', ' ');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", words,
                        format_bytes(static_cast<double>(parts[i].first)));
  }
  if (others > 0) text += fmt::format(", others {}", format_bytes(static_cast<double>(others)));
  return text;
}

/// Devices whose peaks and capacities are the same: replicas of a stage.
struct AlikePeaks {
  const DeviceResult* first;
  std::vector<int> devices;

  bool include(const DeviceResult& d) const {
    return d.stages == first->stages && d.memory.use.bytes == first->memory.use.bytes &&
           d.capacity_bytes == first->capacity_bytes;
  }
};

/// Those whose peak is above their capacity, the worst first.
std::vector<AlikePeaks> too_full(const Simulation& s, Result& r) {
  std::vector<AlikePeaks> found;
  for (DeviceResult& d : r.devices) {
    d.capacity_bytes = s.scenario.capacity_bytes(d.device);
    if (d.capacity_bytes == 0 || d.memory.use.total() <= d.capacity_bytes) continue;
    const auto known = std::ranges::find_if(found, [&](const auto& f) { return f.include(d); });
    if (known == found.end())
      found.push_back({&d, {d.device}});
    else
      known->devices.push_back(d.device);
  }
  std::ranges::stable_sort(found, std::greater(), [](const AlikePeaks& f) {
    return f.first->memory.use.total() - f.first->capacity_bytes;
  });
  return found;
}

/// Why the `most` stages that lack the most memory do not fit, the worst first.
void judge_memory(const Simulation& s, std::size_t most, Result& r) {
  for (const auto& [full, devices] : too_full(s, r)) {
    const DeviceResult& d = *full;
    const std::int64_t need = d.memory.use.total();
    if (r.infeasible_because.size() == most) break;
    const bool one = devices.size() == 1 || d.gpus.size() > 1;
    const std::string needed = format_bytes(static_cast<double>(need));
    const std::string has = format_bytes(static_cast<double>(d.capacity_bytes));
    // Where rounding hides the difference, it is said.
    const std::string over =
        needed == has
            ? ": " + format_bytes(static_cast<double>(need - d.capacity_bytes)) + " too few"
            : "";
    r.infeasible_because.push_back(fmt::format(
        "{}device{} {} {} {}, {} {}{} ({}{})", d.gpus.size() > 1 ? "each GPU of " : "",
        devices.size() > 1 ? "s" : "", devices_text(devices, true), one ? "needs" : "need", needed,
        one ? "has" : "have", has, over, owners(d.memory.use),
        d.memory.op == kNoOp ? "" : "; at " + to_string(s.program.ops[d.memory.op])));
  }
}

void add_bubble(const Simulation& s, Result& r) {
  const double total = r.makespan_s * s.program.ops.devices();
  double busy = 0, max_busy = 0, max_stage = 0;
  for (const DeviceResult& d : r.devices) {
    busy += d.time.busy_s;
    max_busy = std::max(max_busy, d.time.busy_s);
    max_stage = std::max(max_stage, d.time.stage_time_s);
    for (std::size_t c = 0; c < kCauses && total > 0; ++c) r.bubble[c] += d.time.idle_s[c] / total;
  }
  if (total > 0) r.bubble_fraction = std::max(0.0, 1 - busy / total);
  if (max_stage > 0) r.stage_bubble_fraction = std::max(0.0, 1 - max_busy / max_stage);
}

/// Of transformers: tokens, and arithmetic against what the devices could do.
void add_flops(const Simulation& s, const TransformerSpec& model, Rates& r) {
  double model_flops = 0, hardware_flops = 0;  // of a microbatch, on all GPUs that work on it
  for (std::size_t stage = 0; stage < s.scenario.costs.size(); ++stage) {
    const StageCosts& c = s.scenario.costs[stage];
    const int gpus = s.scenario.mesh.replica_gpus() * s.scenario.mesh.together(stage);
    // Of torchgpipe's microbatches, the last of a batch is not recomputed.
    const double m = s.scenario.shape.microbatches_per_update;
    const bool last_stored = c.stored && s.scenario.schedule->checkpoints;
    const double recomputed = last_stored ? (m - 1) / m : 1;
    model_flops += gpus * (c[OpKind::forward].flops + c[OpKind::backward].flops);
    hardware_flops += gpus * c[OpKind::backward].again_flops * recomputed;
  }
  hardware_flops += model_flops;
  const auto gpus = static_cast<double>(s.scenario.gpu_count());
  r.tokens_per_s = r.samples_per_s * static_cast<double>(model.seq_length);
  r.tokens_per_s_per_gpu = *r.tokens_per_s / gpus;
  r.tflops_per_gpu = model_flops * r.microbatches_per_s / gpus / 1e12;
  double peak = 0;  // of all GPUs
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    for (const int gpu : s.scenario.gpus_of(d)) {
      const auto& peaks = s.scenario.cluster.device_of(gpu).peak_flops_per_s;
      const auto own = peaks.find(model.peak_of(ProductClass::mlp));
      if (own == peaks.end()) return;  // a measured profile of a device nobody described
      peak += own->second;
    }
  }
  r.mfu = model_flops * r.microbatches_per_s / peak;
  r.hfu = hardware_flops * r.microbatches_per_s / peak;
  if (model.family == Family::bert) return;
  const double attention = s.scenario.attended * 3 * (model.num_layers + model.mtp_layers) *
                           model.layer_attention_flops(double(s.scenario.microbatch_size));
  r.mfu_causal = (model_flops - attention / 2) * r.microbatches_per_s / peak;
}

/// Notes how much of a GPU's memory a job can use, where a device is nearly full and the stack says
/// other numbers than the device's file.
void note_capacity(const Simulation& s, Result& r) {
  const StackSpec& stack = s.scenario.stack;
  const DeviceSpec& device = s.scenario.cluster.device;
  if ((!stack.allocator_slack && !stack.reserved_bytes) || device.memory_bytes == 0) return;
  if (std::ranges::none_of(r.devices, [&](const DeviceResult& d) {
        return static_cast<double>(d.memory.use.total()) >
               (1 - kUsualHeadroom) * static_cast<double>(s.scenario.capacity_bytes(d.device));
      }))
    return;
  std::string text =
      fmt::format("jobs can use {} of a GPU's {}: {} are reserved, the allocator loses {} ('{}')",
                  format_bytes(static_cast<double>(device.capacity_bytes())),
                  format_bytes(static_cast<double>(device.memory_bytes)),
                  format_bytes(static_cast<double>(device.reserved_bytes)),
                  format_percent(device.allocator_slack), stack.name);
  if (device.headroom > 0)
    text += fmt::format(", {} are left free", format_percent(device.headroom));
  r.notes.push_back(std::move(text));
}

/// What is to be known of its times.
void add_notes(const Simulation& s, Result& r) {
  r.stalled_because = s.timeline->stalled_because;
  if (!r.stalled_because.empty()) {
    r.notes.push_back("the run stands still for ever; all times are those until then");
  } else if (!r.iteration_time_s) {
    r.notes.push_back(
        fmt::format("too few batches for a steady state (at least {} are needed); rates are those "
                    "of the whole run",
                    updates_for_steady_state(s.program)));
  }
  const StackSpec& stack = s.scenario.stack;
  constexpr double kMuchOfAnUpdate = 0.2;
  if (s.scenario.transformer && r.iteration_time_s &&
      stack.iteration_overhead_s > kMuchOfAnUpdate * *r.iteration_time_s)
    r.notes.push_back(fmt::format(
        "{} of each update are no op's: software '{}' took them in what it was fitted on ({}), "
        "where updates were longer; here it may take less",
        format_time(stack.iteration_overhead_s), stack.name, stack.fitted_on));
}

/// Bytes that these flows take over each link when `bytes` move in all.
void add_flows(const std::vector<LinkFlow>& flows, double bytes, Result& r) {
  for (const LinkFlow& flow : flows) {
    for (const int l : flow.links)
      r.links[static_cast<std::size_t>(l)].bytes += std::llround(flow.bytes * bytes);
  }
}

std::int64_t count_ops(const Simulation& s) {
  std::int64_t ops = 0;
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g) {
    const Op& op = s.program.ops[g];
    if (is_compute(op.kind) || s.timeline->op(g).length_s() > 0) ++ops;
    if (op.has(Op::sends)) ++ops;
  }
  return ops;
}

void add_links(const Simulation& s, Result& r) {
  for (const NetworkLink& link : s.traffic->links()) r.links.push_back({link.name, 0, 0, {}});
  std::vector<std::int64_t> moved(s.traffic->all().size(), 0);
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    for (std::uint32_t g = s.program.ops.begin(d); g < s.program.ops.end(d); ++g) {
      const Op& op = s.program.ops[g];
      if (is_compute(op.kind)) {
        const Recipe& recipe = s.scenario.costs[op.stage].pass(op)[op].recipe;
        for (const AxisCollective& one : s.traffic->collectives())
          moved[s.traffic->collective_of(d, one)] += recipe.bytes(one.axis, one.what);
        if (const Gathered all = gathered_before(s.scenario.costs, op); all.bytes > 0)
          moved[s.traffic->collective_of(d, {Axis::data, Collective::all_gather})] +=
              std::llround(all.bytes);
      }
      if (op.has(Op::sends))
        moved[s.traffic->message_of(op)] += message_bytes(s.scenario.costs, op);
    }
  }
  for (std::uint32_t t = 0; t < s.traffic->all().size(); ++t) {
    const Transfer& transfer = (*s.traffic)[t];
    auto bytes = static_cast<double>(moved[t]);
    if (transfer.kind == Transfer::Kind::reduction) {
      const Placement& placement = s.program.placement;
      const auto position = static_cast<std::uint32_t>(transfer.source);
      bytes = static_cast<double>(
                  at_position(placement, s.scenario.costs, position, &StageCosts::reduced_bytes)) *
              s.program.updates(placement.stages_at(position).front());
    }
    for (const Transfer::Phase& phase : transfer.phases)
      add_flows(phase.flows, bytes / phase.pace, r);
  }
  for (std::size_t l = 0; l < s.timeline->peak_flows.size(); ++l)
    r.links[l].peak_flows = r.links[l].bytes > 0 ? s.timeline->peak_flows[l] : 0;
  const bool occupied = r.makespan_s > 0 && s.program.transfers != Transfers::free;
  for (std::size_t l = 0; l < r.links.size() && occupied; ++l) {
    r.links[l].busy_fraction =
        static_cast<double>(r.links[l].bytes) / s.traffic->links()[l].bytes_per_s / r.makespan_s;
  }
}

}  // namespace

std::vector<double> update_ends_s(const Simulation& s) {
  if (!s.program.flushes) return step_ends(s, 0);
  std::vector<double> ends(s.program.batches, 0.0);
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    const auto mine = step_ends(s, d);
    for (std::size_t b = 0; b < mine.size(); ++b) ends[b] = std::max(ends[b], mine[b]);
  }
  return ends;
}

EngineChoice engine_for(const Simulation& s, EngineChoice choice) {
  if (choice == EngineChoice::simgrid || choice == EngineChoice::fluid) return choice;
  const std::string why = why_not_exact(s.input());
  if (why.empty()) return EngineChoice::exact;
  if (choice == EngineChoice::automatic) return EngineChoice::fluid;
  const auto shared = s.traffic->contention();
  if (!shared || !s.scenario.perturbations.links.empty()) throw InputError("--engine exact", why);
  const std::string& link = s.traffic->links()[static_cast<std::size_t>(shared->link)].name;
  throw InputError("--engine exact", fmt::format("{} (the scenario's {} makes them share)", why,
                                                 sharing_key(s.scenario.cluster, link)));
}

namespace {

Timeline play(const Simulation& s, EngineChoice engine) {
  if (engine == EngineChoice::exact) return simulate_exact(s.input());
  return engine == EngineChoice::fluid ? simulate_fluid(s.input()) : simulate_simgrid(s.input());
}

}  // namespace

void run_engine(Simulation& s, EngineChoice choice) {
  choice = engine_for(s, choice);
  s.engine = kEngineNames[static_cast<std::size_t>(choice)];
  s.timeline = std::make_unique<Timeline>(play(s, choice));
  if (s.program.asynchronous && s.program.placement.replicated())
    s.latest.emplace(s.program.ops, *s.timeline);
}

std::optional<double> iteration_time_s(const Simulation& s) {
  if (!s.timeline->stalled_because.empty()) return std::nullopt;
  if (s.program.asynchronous) return asynchronous_iteration_s(s);
  return steady_iteration_s(s);
}

namespace {

/// `prepare`, but for the proof that there is no deadlock.
Simulation ordered(Scenario scenario, ProgramCache* programs) {
  auto program = program_of(scenario, programs);
  Simulation s(std::move(scenario), std::move(program));
  add_traffic(s);
  for (std::uint32_t stage = 0; stage < static_cast<std::uint32_t>(s.program.placement.stages());
       ++stage) {
    s.more_versions.push_back(s.program.versions.held(stage) - 1 + s.program.versions.extra_copies);
  }
  require_none(s, s.checked->problems);
  return s;
}

/// The exact engine's walk finds the deadlock that `prepare` proves that there is not.
template <class Run>
void refusing_deadlock(const Simulation& s, const Run& run) {
  try {
    run();
  } catch (const Deadlock&) {
    require_none(s, s.checked->deadlock());
    throw;
  }
}

}  // namespace

Simulation prepare(Scenario scenario, ProgramCache* programs) {
  Simulation s = ordered(std::move(scenario), programs);
  require_none(s, s.checked->deadlock());
  return s;
}

Simulation simulate(Scenario scenario, EngineChoice engine, ProgramCache* programs) {
  const double started = process_cpu_seconds();
  Simulation s = ordered(std::move(scenario), programs);
  // The exact engine's walk ends where the checker's would.
  if (!uses_exact(s, engine)) require_none(s, s.checked->deadlock());
  refusing_deadlock(s, [&] { run_engine(s, engine); });
  s.engine_seconds = process_cpu_seconds() - started;
  return s;
}

Simulation simulate_unshared(Scenario scenario, ProgramCache* programs) {
  Simulation s = ordered(std::move(scenario), programs);
  s.engine = kEngineNames[static_cast<std::size_t>(EngineChoice::exact)];
  refusing_deadlock(s, [&] { s.timeline = std::make_unique<Timeline>(simulate_exact(s.input())); });
  return s;
}

bool fits(const Simulation& s) {
  if (!s.timeline->stalled_because.empty()) return false;
  const MemoryInput memory = s.memory();
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    const std::int64_t capacity = s.scenario.capacity_bytes(d);
    if (capacity > 0 && memory_over_time(memory, d).use.total() > capacity) return false;
  }
  return true;
}

Rates rates(const Simulation& s) {
  Rates r;
  r.makespan_s = s.timeline->makespan_s;
  if (!s.timeline->stalled_because.empty()) return r;
  r.iteration_time_s = iteration_time_s(s);
  const double batches = s.program.updates(0);
  const double per_update = r.iteration_time_s ? *r.iteration_time_s : r.makespan_s / batches;
  if (per_update <= 0) return r;
  const double samples = s.scenario.samples_per_update();
  r.samples_per_s = samples / per_update;
  r.microbatches_per_s = r.samples_per_s / static_cast<double>(s.scenario.microbatch_size);
  if (s.scenario.samples_per_epoch)
    r.epoch_s = static_cast<double>(*s.scenario.samples_per_epoch) / r.samples_per_s;
  if (s.scenario.transformer) add_flops(s, *s.scenario.transformer, r);
  return r;
}

namespace {

/// Returns what each device did; on all cores where so many ops make that worth a thread.
std::vector<DeviceResult> summarize_devices(const Simulation& s) {
  constexpr std::uint32_t kOpsOfAThread = 500'000;
  const int devices = s.program.ops.devices();
#ifdef __EMSCRIPTEN__
  const int threads = 1;
#else
  const std::uint32_t most = std::max(1U, s.program.ops.size() / kOpsOfAThread);
  const int threads = static_cast<int>(std::min(most, std::thread::hardware_concurrency()));
#endif
  std::vector<DeviceResult> all(static_cast<std::size_t>(devices));
  const auto summarize_from = [&](int first) {
    for (int d = first; d < devices; d += std::max(1, threads))
      all[static_cast<std::size_t>(d)] = summarize_device(s, d);
  };
  std::vector<std::future<void>> others;
  for (int thread = 1; thread < threads; ++thread)
    others.push_back(std::async(std::launch::async, summarize_from, thread));
  summarize_from(0);
  for (std::future<void>& other : others) other.get();
  return all;
}

/// What both a row and a whole result have.
Result outline(const Simulation& s, std::size_t most_reasons) {
  Result r;
  static_cast<Rates&>(r) = rates(s);
  r.notes = s.scenario.notes;
  r.devices = summarize_devices(s);
  add_bubble(s, r);
  add_notes(s, r);
  note_capacity(s, r);
  r.ops = count_ops(s);
  judge_memory(s, most_reasons, r);
  return r;
}

}  // namespace

Result outline(const Simulation& s) { return outline(s, 1); }

Result summarize(const Simulation& s) {
  Result r = outline(s, static_cast<std::size_t>(s.program.ops.devices()));
  add_links(s, r);
  r.communication = communication(s.input(), *s.timeline);
  if (s.latest) {
    r.notes.push_back(
        fmt::format("an update's weights have missed {:.2f} updates of other replicas on average "
                    "({} where all update equally often)",
                    s.latest->staleness_mean(), s.program.ops.devices() - 1));
  }
  r.critical_path = s.measured ? critical_path(s.view()) : contended_path(s.input(), *s.timeline);
  return r;
}

std::string devices_text(const std::vector<int>& devices, bool whole) {
  std::vector<std::string> runs;
  std::vector<int> firsts;
  for (auto at = devices.begin(); at != devices.end();) {
    auto end = at + 1;
    while (end != devices.end() && *end == *(end - 1) + 1) ++end;
    firsts.push_back(*at);
    runs.push_back(end - at == 1 ? std::to_string(*at) : fmt::format("{}-{}", *at, *(end - 1)));
    at = end;
  }
  constexpr std::size_t kMost = 4, kMostWhole = 16;
  bool elided = runs.size() > kMost && (!whole || runs.size() == devices.size());
  for (std::size_t i = 2; elided && whole && i < firsts.size(); ++i)
    elided = firsts[i] - firsts[i - 1] == firsts[1] - firsts[0];
  if (!elided && whole && runs.size() > kMostWhole)
    return fmt::format("{},{},..,{} ({} in all)", runs[0], runs[1], runs.back(), devices.size());
  if (!elided) return fmt::format("{}", fmt::join(runs, ","));
  return fmt::format("{},{},..,{}", runs[0], runs[1], runs.back());
}

std::string barely_fits(std::int64_t used_bytes, std::int64_t capacity_bytes) {
  const auto free = static_cast<double>(capacity_bytes - used_bytes);
  const double share = free / static_cast<double>(capacity_bytes);
  if (share >= kUsualHeadroom) return "";
  return fmt::format("{}; `plan` leaves {:.0f} %", format_percent(share), 100 * kUsualHeadroom);
}

bool worth_saying(const Result& today, const Sensitivity& change) {
  constexpr double kMatters = 5e-4;
  if (!change.of_stage || !today.iteration_time_s) return true;
  return today.what_to_change.empty() &&
         std::abs(change.iteration_time_s / *today.iteration_time_s - 1) >= kMatters;
}

std::string work_differs(double least_s, double most_s) {
  constexpr double kHardly = 1.01;  // devices may differ in pace
  if (!(least_s > 0) || most_s < least_s * kHardly) return "";
  return fmt::format(
      "the work differs, {} to {} of forward per sample: times given in `model` are those of a "
      "device and of a microbatch, whatever pipeline.stages and pipeline.microbatch_size are (more "
      "samples/s may only be less work: change the times along with them)",
      format_time(least_s), format_time(most_s));
}

}  // namespace penstock
