// SPDX-License-Identifier: Apache-2.0
#include "plan/search/judgement.hpp"

#include "base/units.hpp"
#include "results/advice.hpp"
#include "traces/cause_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

namespace penstock {
namespace {

/// A scenario of one replica, whose reduction is part of its step, or of nothing.
Scenario one_replica(Scenario scenario, bool plain) {
  for (StageCosts& c : scenario.costs) {
    if (plain) c.step_s += c.reduce_grad_s;
    c.reduce_grad_s = 0;
  }
  scenario.mesh.width = 1;
  scenario.shape.replicas = 1;
  scenario.mesh.gpus.resize(scenario.shape.depth);
  scenario.reduction = {};
  return scenario;
}

/// Replicas that are copies of each other and exchange nothing within ops.
bool has_copies(const Scenario& s) {
  return s.mesh.replicated() && s.mesh.width.alike() && !s.mesh.divided &&
         s.mesh.replica_sharers() == 1 && s.mesh.expert < 2 && s.cluster.groups.empty() &&
         s.schedule->flushes() && !s.schedule->whole_model &&
         s.schedule->layout != Layout::mirrored;
}

double peak_bytes(const Simulation& s, int device) {
  return static_cast<double>(memory_over_time(s.memory(), device).use.total());
}

/// Without messages, which are held as long as links and other devices let them wait: what the
/// order of the ops alone makes of it, however long they take.
double peak_without_messages(const Simulation& s, int device) {
  double peak = 0;
  memory_over_time(s.memory(), device, [&](double, const MemoryUse& use) {
    peak = std::max(peak, static_cast<double>(use.total() - use[Owner::buffers]));
  });
  return peak;
}

/// Sets the memory of the device that has least to spare.
void judge_memory(const Simulation& s, double (*peak)(const Simulation&, int),
                  Judgement& judgement) {
  double fullest = -1;
  for (int d = 0; d < s.program.ops.devices(); ++d) {
    const double bytes = peak(s, d);
    const auto capacity = static_cast<double>(s.scenario.capacity_bytes(d));
    const double share = capacity > 0 ? bytes / capacity : bytes / 1e30;
    judgement.memory_bytes = std::max(judgement.memory_bytes, bytes);
    if (capacity > 0 && bytes > capacity) {
      TooMany& most = judgement.overfull[static_cast<int>(s.program.placement.position_of(d))];
      if (bytes - capacity > most.bytes - most.capacity_bytes) most = {bytes, capacity};
    }
    if (share <= fullest) continue;
    fullest = share;
    judgement.tightest_bytes = bytes;
    judgement.capacity_bytes = capacity;
    if (capacity == 0 || bytes <= capacity) continue;
    judgement.fits = false;
    judgement.why =
        fmt::format("device {} needs {}, has {}", d, format_bytes(bytes), format_bytes(capacity));
  }
}

Judgement judgement_of(const Simulation& s, double (*peak)(const Simulation&, int) = peak_bytes) {
  Judgement judgement;
  const auto time_s = iteration_time_s(s);
  judgement.iteration_time_s = time_s.value_or(std::numeric_limits<double>::infinity());
  if (!time_s) {
    judgement.fits = false;
    judgement.why = "it has no steady state";
  }
  judge_memory(s, peak, judgement);
  return judgement;
}

std::string share(double part) { return fmt::format("{:.1f} %", part * 100); }

/// Returns how much of a device's memory a plan may use, and how much it has.
std::string usable_text(const Scenario& scenario, double capacity_bytes) {
  double all_bytes = 0;
  for (int gpu = 0; gpu < scenario.cluster.devices(); ++gpu)
    if (const DeviceSpec& device = scenario.cluster.device_of(gpu);
        static_cast<double>(device.capacity_bytes()) == capacity_bytes)
      all_bytes = std::max(all_bytes, static_cast<double>(device.memory_bytes));
  const std::string usable = format_bytes(capacity_bytes), all = format_bytes(all_bytes);
  return all_bytes == 0 || usable == all
             ? usable
             : fmt::format("the {} that plans may use of {}", usable, all);
}

/// What limits a plan: the busiest device, the bubble, the memory; a line each. Sets the main
/// cause.
std::vector<std::string> limits(const Simulation& s, Judgement& judgement) {
  const int devices = s.program.ops.devices();
  const double makespan_s = s.timeline->makespan_s;
  double busy_s = 0, most_s = 0;
  int busiest = 0;
  std::array<double, kCauses> idle_s{};
  for (int d = 0; d < devices; ++d) {
    const DeviceMetrics metrics = device_metrics(s.view(), d);
    busy_s += metrics.busy_s;
    for (std::size_t c = 0; c < kCauses; ++c) idle_s[c] += metrics.idle_s[c];
    if (metrics.busy_s <= most_s) continue;
    most_s = metrics.busy_s;
    busiest = d;
  }
  const auto of_all = [&](double time_s) { return share(time_s / (makespan_s * devices)); };
  std::vector<std::string> out;
  out.push_back(fmt::format("device {} is the busiest, {} of the time; all are {} of it", busiest,
                            share(most_s / makespan_s), of_all(busy_s)));
  const auto main = std::ranges::max_element(idle_s);
  if (*main > 0.001 * makespan_s * devices)
    judgement.main_cause = kCauseNames[static_cast<std::size_t>(main - idle_s.begin())];
  std::vector<std::string> causes;
  for (std::size_t c = 0; c < kCauses; ++c)
    if (idle_s[c] > 0.001 * makespan_s * devices)
      causes.push_back(fmt::format("{} {}", kCauseWords[c], of_all(idle_s[c])));
  if (!causes.empty()) out.push_back(fmt::format("bubble: {}", fmt::join(causes, ", ")));
  if (judgement.capacity_bytes > 0)
    out.push_back(fmt::format("memory: the device with least to spare uses {} of {}",
                              format_bytes(judgement.tightest_bytes),
                              usable_text(s.scenario, judgement.capacity_bytes)));
  return out;
}

}  // namespace

Judgement relaxed(const Scenario& scenario, bool plain, ProgramCache* programs) {
  const bool copies = has_copies(scenario);
  const bool after = plain && !overlaps_reduction(scenario);
  Simulation s = prepare(copies ? one_replica(scenario, after) : scenario, programs);
  const bool answer = !copies && why_not_exact(s.input()).empty();
  s.timeline = std::make_unique<Timeline>(simulate_exact(s.input()));
  if (s.program.asynchronous && s.program.placement.replicated())
    s.latest.emplace(s.program.ops, *s.timeline);
  Judgement judgement = judgement_of(s, answer ? peak_bytes : peak_without_messages);
  if (answer) judgement.engine = "exact";
  return judgement;
}

Judgement judge(const Scenario& scenario, EngineChoice engine, std::vector<std::string>* reasons,
                ProgramCache* programs) {
  const Simulation s = simulate(scenario, engine, programs);
  Judgement judgement = judgement_of(s);
  judgement.engine = s.engine;
  if (reasons == nullptr) return judgement;
  *reasons = limits(s, judgement);
  const Rates achieved = rates(s);
  judgement.mfu = achieved.mfu.value_or(0);
  judgement.mfu_causal = achieved.mfu_causal.value_or(0);
  return judgement;
}

}  // namespace penstock
