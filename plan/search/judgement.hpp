// SPDX-License-Identifier: Apache-2.0
// What a candidate takes: as a bound by the exact engine, and as it is.
//
// `relaxed` simulates one replica on links that nobody shares, its reduction counted as part of the
// optimizer step, or as nothing where it may run beside the backward. It is a lower bound on what
// any engine says: with the order of ops on every device fixed, every start is a maximum of sums of
// durations, which other replicas and shared links only lengthen; and a reduction waits for its
// slowest member. Its memory is that without messages, which depend on when others take them up: a
// lower bound, too. Where there is one replica and no link is shared it is the answer itself,
// messages included.
#pragma once

#include "results/simulation.hpp"

#include <map>
#include <string>
#include <vector>

namespace penstock {

/// A device that holds more bytes than it can.
struct TooMany {
  double bytes = 0, capacity_bytes = 0;
};

/// By position: of its replicas the fullest.
using Overfull = std::map<int, TooMany>;

struct Judgement {
  bool fits = true;
  double iteration_time_s = 0;
  double memory_bytes = 0;    ///< of the fullest device
  double tightest_bytes = 0;  ///< of the device with least to spare for what it has
  double capacity_bytes = 0;  ///< of that one; 0: unknown
  Overfull overfull{};
  std::string engine;           ///< that gave the answer; empty: a bound
  std::string why;              ///< it does not fit, or cannot run
  std::string main_cause = {};  ///< of most of the bubble; empty: unknown, or there is none
  double mfu = 0;               ///< 0: unknown
  double mfu_causal = 0;  ///< with causal attention counted by half; 0: unknown, or not causal
};

/// The bound; also `engine`, when it is the answer. `plain`: reductions begin after the last
/// backward, where the scenario does not say otherwise. `programs`: as of `prepare`. Throws
/// InputError when the schedule cannot run.
Judgement relaxed(const Scenario& scenario, bool plain, ProgramCache* programs = nullptr);

/// The answer of an engine; also what limits it, a line each, and its MFU.
Judgement judge(const Scenario& scenario, EngineChoice engine,
                std::vector<std::string>* reasons = nullptr, ProgramCache* programs = nullptr);

}  // namespace penstock
