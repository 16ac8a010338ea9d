#include "cli/simulation.hpp"

#include "base/clock.hpp"
#include "base/units.hpp"
#include "schedules/check.hpp"
#include "sim/path_contention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {
namespace {

void check_program(const Simulation& s) {
  const auto problems = check(s.program, *s.table);
  if (problems.empty()) return;
  throw InputError(s.scenario.origin,
                   fmt::format("the schedule cannot run: {}", fmt::join(problems, "; ")));
}

Simulation lowered(const Scenario& scenario) {
  Simulation s;
  s.scenario = scenario;
  s.program = lower(*scenario.schedule, scenario.shape, scenario.lowering);
  s.table = std::make_unique<DependencyTable>(s.program.ops, s.program.placement,
                                              s.program.microbatches());
  s.channels = std::make_unique<Channels>(s.program, scenario.cluster, scenario.first_gpus(),
                                          scenario.reduction);
  if (scenario.perturbations.changes_times()) {
    s.perturbation = std::make_unique<Perturbation>(
        perturbation_of(scenario.perturbations, s.program.ops.devices(), *s.channels));
  }
  for (std::uint32_t stage = 0; stage < static_cast<std::uint32_t>(s.program.placement.stages());
       ++stage) {
    s.more_versions.push_back(s.program.versions.held(stage) - 1 + s.program.versions.extra_copies);
  }
  return s;
}

/// What the GPUs of a device exchange inside of an op, part of its time.
double exchange_s(const Scenario& scenario, const Op& op) {
  return scenario.tensor == 1 ? 0 : scenario.tensor_s[op.stage][static_cast<std::size_t>(op.kind)];
}

/// Two devices that exchange something over a link that others use as well.
std::pair<int, int> sharing_devices(const Simulation& s) {
  const auto& channels = s.channels->all();
  const auto channel = std::ranges::find_if(channels, &Channel::contended);
  if (channel != channels.end()) return {channel->source, channel->destination};
  const auto& reductions = s.channels->reductions();
  const auto reduction = std::ranges::find_if(reductions, &Reduction::contended);
  const auto position = static_cast<std::uint32_t>(reduction - reductions.begin());
  // Of its replicas, two in different nodes where there are any.
  const Placement& placement = s.program.placement;
  const auto node = [&](int d) {
    return s.scenario.cluster.node_of(s.scenario.gpus_of(d).front());
  };
  const int first = placement.device_at(0, position);
  int other = first;
  for (int r = 1; r < placement.widths()[position] && node(other) == node(first); ++r)
    other = placement.device_at(static_cast<std::uint32_t>(r), position);
  return {first, other};
}

/// The key of the scenario that makes channels or reductions share a link.
std::string sharing_key(const Simulation& s) {
  const Cluster& cluster = s.scenario.cluster;
  if (cluster.network) return "cluster.network";
  if (cluster.link) return "cluster.link.duplex";
  const auto node = [&](int device) { return cluster.node_of(s.scenario.gpus_of(device).front()); };
  const auto [source, destination] = sharing_devices(s);
  if (node(source) != node(destination))
    return cluster.fabric.topology == Topology::one_switch ? "cluster.inter" : "cluster.fabric";
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

/// With a flush: the mean interval between the ends of batches after the first one.
double flushed_iteration_s(const Simulation& s) {
  std::vector<double> ends(s.program.batches, 0.0);
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    const auto mine = step_ends(s, d);
    for (std::size_t b = 0; b < mine.size(); ++b) ends[b] = std::max(ends[b], mine[b]);
  }
  if (ends.size() == 1) return ends[0];
  return (ends.back() - ends.front()) / static_cast<double>(ends.size() - 1);
}

/// Updates of device 0 made before its last forward: what follows is the drain.
std::size_t updates_before_drain(const Simulation& s) {
  std::size_t updates = 0, before = 0;
  for (const Op& op : s.program.ops.of(0)) {
    if (op.kind == OpKind::step) ++updates;
    if (op.kind == OpKind::forward) before = updates;
  }
  return before;
}

/// Without a flush: the mean interval between updates of device 0 after the first 2p microbatches,
/// over a multiple of p microbatches, before the drain where the run is long enough for that.
std::optional<double> steady_iteration_s(const Simulation& s) {
  const auto ends = step_ends(s, 0);
  const std::size_t m = s.program.per_update(0);
  const auto p = static_cast<std::size_t>(s.program.placement.depth());
  const std::size_t first = (2 * p + m - 1) / m;  // updates of the first 2p microbatches
  for (const std::size_t available : {updates_before_drain(s), ends.size()}) {
    for (std::size_t last = available; last > first; --last) {
      if ((last - first) * m % p != 0) continue;
      return (ends[last - 1] - ends[first - 1]) / static_cast<double>(last - first);
    }
  }
  return std::nullopt;
}

/// Updates without which there is no steady state: see steady_iteration_s.
std::uint32_t updates_for_steady_state(const Simulation& s) {
  const std::uint32_t m = s.program.per_update(0);
  const auto p = static_cast<std::uint32_t>(s.program.placement.depth());
  return (2 * p + m - 1) / m + p / std::gcd(p, m);
}

DeviceResult summarize_device(const Simulation& s, int device) {
  DeviceResult d;
  d.device = device;
  for (const Op& op : s.program.ops.of(device)) {
    if (std::ranges::find(d.stages, int{op.stage}) == d.stages.end()) d.stages.push_back(op.stage);
    if (d.stages.size() * static_cast<std::size_t>(s.program.placement.depth()) >=
        s.scenario.costs.size())
      break;
  }
  d.time = device_metrics(s.view(), device);
  d.gpus = s.scenario.gpus_of(device);
  d.idle_s = s.timeline->makespan_s - d.time.busy_s;
  d.memory = memory_over_time(s.memory(), device);
  d.order = order_facts(s.program, device);
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

const DeviceSpec& device_spec(const Simulation& s, int device) {
  return s.scenario.cluster.device_of(s.scenario.gpus_of(device).front());
}

void judge_memory(const Simulation& s, Result& r) {
  for (DeviceResult& d : r.devices) {
    d.capacity_bytes = device_spec(s, d.device).capacity_bytes();
    const std::int64_t need = d.memory.use.total();
    if (d.capacity_bytes == 0 || need <= d.capacity_bytes) continue;
    const std::string needed = format_bytes(static_cast<double>(need));
    const std::string has = format_bytes(static_cast<double>(d.capacity_bytes));
    // Where rounding hides the difference, it is said.
    const std::string over =
        needed == has
            ? ": " + format_bytes(static_cast<double>(need - d.capacity_bytes)) + " too few"
            : "";
    r.infeasible_because.push_back(fmt::format(
        "{}device {} needs {}, has {}{} ({}{})", s.scenario.tensor > 1 ? "each GPU of " : "",
        d.device, needed, has, over, owners(d.memory.use),
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
  if (total > 0) r.bubble_fraction = 1 - busy / total;
  if (max_stage > 0) r.stage_bubble_fraction = 1 - max_busy / max_stage;
}

void add_rates(const Simulation& s, Result& r) {
  r.stalled_because = s.timeline->stalled_because;
  if (!r.stalled_because.empty()) {
    r.notes.push_back("the run stands still for ever; all times are those until then");
    return;
  }
  r.iteration_time_s = iteration_time_s(s);
  const double batches = s.program.updates(0);
  if (!r.iteration_time_s) {
    r.notes.push_back(
        fmt::format("too few batches for a steady state (at least {} are needed); rates are those "
                    "of the whole run",
                    updates_for_steady_state(s)));
  }
  const double per_update = r.iteration_time_s ? *r.iteration_time_s : r.makespan_s / batches;
  if (per_update <= 0) return;
  const double samples = s.scenario.samples_per_update();
  r.samples_per_s = samples / per_update;
  r.microbatches_per_s = r.samples_per_s / static_cast<double>(s.scenario.microbatch_size);
  if (s.scenario.samples_per_epoch)
    r.epoch_s = static_cast<double>(*s.scenario.samples_per_epoch) / r.samples_per_s;
  if (!s.scenario.transformer) return;
  const TransformerSpec& model = *s.scenario.transformer;
  double model_flops = 0, hardware_flops = 0;  // of one of the GPUs of each stage
  for (const StageCosts& c : s.scenario.costs) {
    model_flops += c.forward_flops + c.backward_flops;
    hardware_flops += c.recompute_flops;
  }
  hardware_flops += model_flops;
  const double rate = r.microbatches_per_s / s.program.ops.devices();
  r.tokens_per_s_per_device = r.samples_per_s * static_cast<double>(model.seq_length) /
                              (s.program.ops.devices() * s.scenario.tensor);
  r.tflops_per_device = model_flops * rate / 1e12;
  double peak = 0;  // of all devices
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    const auto& peaks = device_spec(s, d).peak_flops_per_s;
    const auto own = peaks.find(model.compute_type);
    if (own == peaks.end()) return;  // a measured profile of a device nobody described
    peak += own->second;
  }
  r.mfu = model_flops * r.microbatches_per_s / peak;
  r.hfu = hardware_flops * r.microbatches_per_s / peak;
}

void add_communication(const Simulation& s, Result& r) {
  const SimulationInput input = s.input();
  r.communication = communication(
      {.simulated = input,
       .timeline = *s.timeline,
       .gpus_per_device = s.scenario.tensor,
       .exchange_s = [&](std::uint32_t g) { return exchange_s(s.scenario, s.program.ops[g]); }});
}

void add_links(const Simulation& s, Result& r) {
  r.ops = 0;
  for (const NetworkLink& link : s.channels->links()) r.links.push_back({link.name, 0, 0});
  std::vector<std::int64_t> bytes(s.channels->all().size(), 0);
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g) {
    const Op& op = s.program.ops[g];
    if (is_compute(op.kind) || s.timeline->op(g).length_s() > 0) ++r.ops;
    if (!op.has(Op::sends)) continue;
    ++r.ops;
    bytes[s.channels->of_send(op)] += message_bytes(s.scenario.costs, op);
  }
  for (std::size_t c = 0; c < bytes.size(); ++c) {
    for (const int l : s.channels->all()[c].links)
      r.links[static_cast<std::size_t>(l)].bytes += bytes[c];
  }
  for (std::size_t p = 0; p < s.channels->reductions().size(); ++p) {
    const auto stage = static_cast<std::uint32_t>(p);
    const double reduced =
        static_cast<double>(s.scenario.costs[p].reduced_bytes) * s.program.updates(stage);
    for (const auto& phase : s.channels->reductions()[p].phases) {
      for (const LinkFlow& flow : phase.flows) {
        for (const int l : flow.links)
          r.links[static_cast<std::size_t>(l)].bytes += std::llround(flow.bytes * reduced);
      }
    }
  }
  const bool occupied = r.makespan_s > 0 && s.program.transfers != Transfers::free;
  for (std::size_t l = 0; l < r.links.size() && occupied; ++l) {
    r.links[l].busy_fraction =
        static_cast<double>(r.links[l].bytes) / s.channels->links()[l].bytes_per_s / r.makespan_s;
  }
}

}  // namespace

bool uses_exact(const Simulation& s, EngineChoice choice) {
  if (choice == EngineChoice::simgrid) return false;
  const std::string why = why_not_exact(s.input());
  if (choice == EngineChoice::automatic || why.empty()) return why.empty();
  const bool shared = !s.channels->contention().empty();
  throw InputError(
      "--engine exact",
      shared ? fmt::format("{} (the scenario's {} makes them share)", why, sharing_key(s)) : why);
}

void run_engine(Simulation& s, EngineChoice choice) {
  const bool exact = uses_exact(s, choice);
  s.engine = exact ? "exact" : "simgrid";
  s.timeline =
      std::make_unique<Timeline>(exact ? simulate_exact(s.input()) : simulate_simgrid(s.input()));
}

std::optional<double> iteration_time_s(const Simulation& s) {
  if (!s.timeline->stalled_because.empty()) return std::nullopt;
  if (s.program.flushes) return flushed_iteration_s(s);
  return steady_iteration_s(s);
}

Simulation prepare(const Scenario& scenario) {
  Simulation s = lowered(scenario);
  check_program(s);
  return s;
}

Simulation simulate(const Scenario& scenario, EngineChoice engine) {
  const double started = process_cpu_seconds();
  Simulation s = prepare(scenario);
  run_engine(s, engine);
  s.engine_seconds = process_cpu_seconds() - started;
  return s;
}

Result summarize(const Simulation& s) {
  Result r;
  r.notes = s.scenario.notes;
  r.makespan_s = s.timeline->makespan_s;
  for (int d = 0; d < s.program.ops.devices(); ++d) r.devices.push_back(summarize_device(s, d));
  add_bubble(s, r);
  add_rates(s, r);
  add_links(s, r);
  add_communication(s, r);
  judge_memory(s, r);
  r.critical_path = s.measured ? critical_path(s.view()) : contended_path(s.input(), *s.timeline);
  return r;
}

}  // namespace penstock
