// SPDX-License-Identifier: Apache-2.0
// How long a cycle of passes (pair_cycles.hpp) takes at least: the largest ratio of time to cycles
// over all circles of passes that wait for one another. A period is long enough where starts exist
// that keep every wait: found from the starts that are known, by relaxation, so that a device's
// other order is refused at once where it waits for itself (Tarjan, "Shortest paths", 1981, on
// circles of parents). The period itself by Howard's policy iteration (Cochet-Terrasson, Cohen,
// Gaubert, McGettrick and Quadrat, "Numerical computation of spectral elements in max-plus
// algebra", IFAC 1998; Dasdan, "Experimental analysis of the fastest optimum cycle ratio and mean
// algorithms", TODAES 9, 2004).
#pragma once

#include "schedules/search/problem.hpp"

namespace penstock {

using DevicePasses = std::array<Pass, kPasses>;          ///< in their order
using DeviceCycles = std::array<std::int32_t, kPasses>;  ///< of microbatch 0; [pass]

struct PairCycle {
  std::vector<DevicePasses> order;  ///< by device
  std::vector<DeviceCycles> first;
};

class CyclePeriod {
 public:
  struct PassOfDevice {
    std::uint32_t device = 0;
    Pass pass = kF0;
  };

  explicit CyclePeriod(const OrderProblem& problem);

  /// False: its passes wait for themselves.
  bool take(const PairCycle& cycle);
  /// Another order of a device, if the period is at most that long then, which is finite; else
  /// nothing changes.
  bool take(std::uint32_t device, const DevicePasses& order, const DeviceCycles& first,
            double at_most);

  double period() const { return period_; }
  /// The most work of a device, below which no period is.
  double least() const { return least_; }
  /// A pass of a circle that takes as long as the period; `draw`: any number.
  PassOfDevice critical(std::uint64_t draw) const;

 private:
  /// For whom, and how long: time from its start, and cycles that it may be later.
  struct Wait {
    std::uint32_t from = 0;
    double time = 0, cycles = 0;
  };
  /// A pass, in the order in which a microbatch comes by, and what it waits for: the pass before it
  /// on its device, and the output of its input, of which the very first has none.
  struct Node {
    Wait pass_before, input;
    std::uint32_t after = 0, output_count = 0;
    std::array<std::uint32_t, 2> outputs{};
    PassOfDevice of;
    double duration = 0;
    std::int32_t first = 0;  ///< the cycle of microbatch 0
  };

  std::uint32_t node(std::uint32_t d, Pass pass) const { return at_[d * kPasses + index(pass)]; }
  const Wait& longest_wait(std::uint32_t n) const {
    return for_input_[n] ? nodes_[n].input : nodes_[n].pass_before;
  }
  double start_after(const Wait& wait, double period) const {
    return start_[wait.from] + wait.time - period * wait.cycles;
  }
  bool start_later(std::uint32_t n, double period);
  void make_due(std::uint32_t n) { due_[n / 64] |= std::uint64_t{1} << n % 64; }
  void put(std::uint32_t d, const DevicePasses& order, const DeviceCycles& first);
  void make_due_after(std::uint32_t d, double period);
  bool keeps_waits(std::uint32_t d, double period);
  bool waits_for_itself(std::uint32_t n) const;
  bool find_period();
  bool lengthen();
  void start_by_circle();

  std::uint32_t devices_, busiest_ = 0;
  double least_ = 0, period_ = 0, rounding_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> at_;  ///< nodes; [device][pass]
  std::vector<double> start_, start_before_;
  std::vector<char> for_input_, for_input_before_;  ///< is its input what it waits for the longest?
  std::vector<std::uint64_t> due_;          ///< a bit for each node that may have to start later
  std::vector<std::uint32_t> seen_, path_;  ///< marks
  std::vector<std::uint32_t> circle_, circle_before_, found_circle_;
};

}  // namespace penstock
