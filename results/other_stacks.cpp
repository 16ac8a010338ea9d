// SPDX-License-Identifier: Apache-2.0
#include "results/other_stacks.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "results/played_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace penstock {
namespace {

constexpr std::uint32_t kMostOpsEach = 20'000;  // ops of a run: a few milliseconds each
/// Those with which a new job could be run; the others are of one paper or one year.
constexpr const char* kStacks[] = {"megatron", "torchtitan", "nanotron", "deepspeed"};

struct WithStack {
  std::string name;
  double iteration_s = 0;
  std::int64_t peak_bytes = 0;
  bool fits = false;
};

WithStack seen(const std::string& name, const Simulation& s, const Result& r) {
  WithStack out{.name = name,
                .iteration_s = r.iteration_time_s.value_or(
                    r.makespan_s / std::max(1.0, static_cast<double>(s.program.updates(0)))),
                .fits = r.infeasible_because.empty()};
  for (const DeviceResult& d : r.devices)
    out.peak_bytes = std::max(out.peak_bytes, d.memory.use.total());
  return out;
}

/// None where this stack does not admit the job, or it could not be looked at.
std::optional<WithStack> simulated(const Scenario& scenario, const std::string& name) {
  try {
    const Simulation s = simulate(scenario.source.with({{"stack", name}}), EngineChoice::automatic);
    return seen(name, s, outline(s));
  } catch (const InputError&) {
    return std::nullopt;
  } catch (const SystemError&) {
    return std::nullopt;
  }
}

}  // namespace

void note_other_stacks(const Simulation& today, Result& result, AdviceBudget& budget) {
  const Scenario& scenario = today.scenario;
  if (!scenario.stack.takes_layers_apart() || scenario.capacity_bytes(0) == 0 ||
      today.program.ops.size() > kMostOpsEach)
    return;
  const EngineChoice engine = engine_for(today, EngineChoice::automatic);
  std::vector<WithStack> all{seen(scenario.stack.name, today, result)};
  for (const char* name : kStacks) {
    if (name == scenario.stack.name) continue;
    if (!budget.afford(played_ops(scenario, engine), engine)) return;
    if (const auto other = simulated(scenario, name)) all.push_back(*other);
  }
  const auto [least, most] = std::ranges::minmax_element(all, {}, &WithStack::peak_bytes);
  if (std::ranges::all_of(all, &WithStack::fits) || std::ranges::none_of(all, &WithStack::fits))
    return;
  const auto [fast, slow] = std::ranges::minmax_element(all, {}, &WithStack::iteration_s);
  result.notes.push_back(
      fmt::format("whether it fits depends on the software: {} ({}) to {} ({}), {} to {} an update",
                  format_bytes(static_cast<double>(least->peak_bytes)), least->name,
                  format_bytes(static_cast<double>(most->peak_bytes)), most->name,
                  format_time(fast->iteration_s), format_time(slow->iteration_s)));
}

}  // namespace penstock
