// SPDX-License-Identifier: Apache-2.0
// Offers plans to the user: with all that is needed to run them, what limits them, and what would
// help.
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
  std::vector<std::string> placed;    ///< the stages by kind of GPU, where there are several kinds
  std::string megatron, no_megatron;  ///< Megatron-LM's arguments, or why there are none
  /// where there are none, the number of the fastest plan that has some; 0: none
  int megatron_plan = 0;
  std::string torchtitan, no_torchtitan;  ///< torchtitan's configuration, or why there is none
  std::string torch_csv, no_torch_csv;    ///< the table for torch, or why there is none
  std::vector<std::string> files;         ///< the files that it was written to, the scenario first
};

/// What limits the plans that were judged, by the texts of their scenarios.
using Reasons = std::map<std::string, std::vector<std::string>>;

/// Returns the plans as offers, the first with what would help it. `axes` and `options` are those
/// of the search.
std::vector<Offer> offers_of(const Problem& problem, const std::vector<FoundPlan>& plans,
                             const Reasons& reasons, const Axes& axes,
                             const SearchOptions& options);

/// Returns the frameworks that have the plan's schedule: Megatron-LM by flags, PyTorch's pipelining
/// by a class of its own or by a table.
std::vector<std::string> frameworks_of(const Offer& offer);

}  // namespace penstock
