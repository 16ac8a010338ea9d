// SPDX-License-Identifier: Apache-2.0
// The points of a sweep as a report: which is best, the heat map, the Pareto front of throughput
// and memory, every point.
#pragma once

#include "cli/options.hpp"
#include "report/report.hpp"
#include "report/sweep_section.hpp"
#include "sweep/overview.hpp"

namespace penstock {

/// Collects rows. Points beyond `kMost` are counted and left out: a browser has to draw them.
class SweepReport {
 public:
  static constexpr std::size_t kMost = 50'000;

  /// `documents`: what was read of the scenarios.
  SweepReport(const Space& space, const Columns& columns, Documents& documents);
  void add_row(const Cells& row);
  /// `cautions`: what whoever compares the points has to know.
  Report report(const Overview& overview, const std::vector<std::string>& cautions,
                const Arguments& arguments);

 private:
  std::vector<std::string> notes() const;

  const Space& space_;
  std::string scenarios_;           ///< their text, as they were at the start
  std::vector<std::size_t> shown_;  ///< which column of the sweep each of the section shows
  std::size_t status_, why_;
  SweepSection section_;
  std::size_t left_out_ = 0;
};

}  // namespace penstock
