// SPDX-License-Identifier: Apache-2.0
// Evaluates a candidate: as a bound by the exact engine, or as it is by a valid engine.
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

/// The positions of the pipeline whose fullest replica holds too much.
using Overfull = std::map<int, TooMany>;

struct Judgement {
  bool fits = true;
  double iteration_time_s = 0;
  double memory_bytes = 0;  ///< the memory of the fullest device
  /// the memory of the device that has the least share of its capacity free
  double tightest_bytes = 0;
  double capacity_bytes = 0;  ///< the capacity of that device; 0: unknown
  Overfull overfull{};
  std::string engine;  ///< the engine that gave the answer; empty where this is a bound
  std::string why;     ///< why it does not fit or cannot run
  /// the cause of most of the bubble; empty where unknown or there is none
  std::string main_cause = {};
  double mfu = 0;  ///< 0 where unknown
  /// MFU with causal attention counted by half; 0 where unknown or not causal
  double mfu_causal = 0;
};

/// Returns the bound, and sets `engine` when it is the answer. With `plain`, reductions begin after
/// the last backward unless the scenario says otherwise. `programs` is that of `prepare`. Throws
/// InputError when the schedule cannot run.
Judgement relaxed(const Scenario& scenario, bool plain, ProgramCache* programs = nullptr);

/// Returns the answer of an engine with its MFU, and appends what limits the plan to `reasons`, a
/// line each.
Judgement judge(const Scenario& scenario, EngineChoice engine,
                std::vector<std::string>* reasons = nullptr, ProgramCache* programs = nullptr);

}  // namespace penstock
