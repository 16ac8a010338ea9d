// SPDX-License-Identifier: Apache-2.0
// One interface for every engine that predicts: Program + costs + cluster in, Timeline out.
#pragma once

#include "base/error.hpp"
#include "models/perturbation.hpp"
#include "program/dependencies.hpp"
#include "program/timeline.hpp"
#include "sim/traffic.hpp"

#include <string>
#include <vector>

namespace penstock {

/// Times of ops where not all devices are alike: `costs[kind[d]][stage]` are those on device d.
struct UnlikeDevices {
  std::vector<std::size_t> kind;
  std::vector<std::vector<StageCosts>> costs;
};

struct SimulationInput {
  const Program& program;
  const DependencyTable& table;
  const std::vector<StageCosts>& costs;  ///< per virtual stage
  const Traffic& traffic;
  const Perturbation* perturbation = nullptr;  ///< none: undisturbed
  const UnlikeDevices* unlike = nullptr;       ///< none: op times as in `costs`
};

/// What disturbs a run with this traffic. Throws InputError for links that there are not, or whose
/// bandwidth is unlimited; names what there is.
Perturbation perturbation_of(const PerturbationSpec& spec, int devices, const Traffic& traffic);

struct Deadlock : InternalBug {
  Deadlock() : InternalBug("exact: the program deadlocks; it was not checked") {}
};

/// Fixed order per device and FIFO per channel as a (max,+) recurrence in one pass. Thread-safe.
/// Precondition: `why_not_exact` and the Program's `check_order` are empty. Throws Deadlock where
/// its `check_deadlock` is not.
Timeline simulate_exact(const SimulationInput& input);

/// Why `exact` cannot represent this: which links are shared, by whom, and that `simgrid` can; ""
/// when it can.
std::string why_not_exact(const SimulationInput& input);

/// Links shared among flows in this process, max-min fair as SimGrid does; what is alike and moves
/// in lockstep is priced once. Represents all that `simgrid` does, to 1e-9. Thread-safe.
Timeline simulate_fluid(const SimulationInput& input);

struct SimgridOptions {
  bool every_message_a_flow = false;  ///< also those that share no link (else: a timer each)
};

struct SimgridCounts {
  std::uint64_t timers = 0;  ///< activities of known duration, on a timer
  std::uint64_t flows = 0;   ///< messages simulated as SimGrid communications
};

/// SimGrid drives the clock and shares the links. Its engine cannot be created twice in a process,
/// so each call forks one, which writes its spans into memory that both share. Throws SystemError
/// when the module cannot be loaded or that process ends without a result.
Timeline simulate_simgrid(const SimulationInput& input, const SimgridOptions& options = {},
                          SimgridCounts* counts = nullptr);

/// Why the SimGrid module cannot be loaded; "" when it can.
std::string why_no_simgrid();

}  // namespace penstock
