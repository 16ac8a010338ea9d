// SPDX-License-Identifier: Apache-2.0
// Plans as they are offered: with all that a user needs to run them, what limits them, and what
// would help.
#pragma once

#include "plan/search/search.hpp"
#include "scenarios/scenario.hpp"

#include <map>
#include <string>
#include <vector>

namespace penstock {

/// A plan, and all that a user needs to run it.
struct Offer {
  FoundPlan plan;
  Scenario scenario;
  std::vector<std::string> reasons;     ///< what limits it
  std::vector<std::string> would_help;  ///< changes outside of the search, where stages differ
  std::vector<std::string> placed;      ///< stages by kind of GPU, where there are several
  std::string megatron, no_megatron;    ///< Megatron-LM's arguments, or why there are none
  int megatron_plan = 0;                ///< where there are none: the fastest that has; 0: none
  std::string torch_csv, no_torch_csv;  ///< the table of torch, or why there is none
  std::vector<std::string> files;       ///< it was written to; the scenario first
};

/// What limits plans that were judged, by the texts of their scenarios.
using Reasons = std::map<std::string, std::vector<std::string>>;

/// The plans, with what would help the first; `axes` and `options`: what was asked for.
std::vector<Offer> offers_of(const Problem& problem, const std::vector<FoundPlan>& plans,
                             const Reasons& reasons, const Axes& axes,
                             const SearchOptions& options);

/// Those that have its schedule: Megatron-LM by its flags, PyTorch's pipelining by a class of its
/// own or from a table.
std::vector<std::string> frameworks_of(const Offer& offer);

}  // namespace penstock
