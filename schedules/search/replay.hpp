// SPDX-License-Identifier: Apache-2.0
// An order, run again: when each of its ops begins, what it takes, and its critical path, the chain
// of ops without a gap that makes a device end when it does. One pass over all ops.
#pragma once

#include "schedules/search/problem.hpp"

namespace penstock {

class Replay {
 public:
  /// When the ops of a word begin.
  struct Times {
    std::vector<double> begin;            ///< [device][position]
    std::vector<std::uint32_t> position;  ///< [row][microbatch]: of the op with this output
    OrderCost cost;
    double ends = 0;                      ///< of all devices, their sum
    std::uint32_t last = 0, longest = 0;  ///< the devices of makespan and stage time
  };
  /// A place of a word; `follows`: it begins when the op before it on the device ends.
  struct Step {
    std::size_t place;
    bool follows;
  };

  explicit Replay(const OrderProblem& problem);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// False: the order can never finish. Precondition: every letter as often as there are
  /// microbatches.
  bool run_word(const std::vector<Pass>& word, Times& times);
  /// The ops that the last op of device d had to wait for, backwards.
  std::vector<Step> critical_path(const std::vector<Pass>& word, const Times& times,
                                  std::uint32_t d) const;

 private:
  /// Where the ops of a letter read and write, microbatch 0 of them.
  struct Row {
    double duration, message;
    const std::uint32_t* given;  // how many have their input
    std::size_t input, output;   // places in there_
  };
  bool advance(const Pass* word, std::uint32_t d, Times& times);

  std::uint32_t devices_, length_, microbatches_;
  std::vector<PassLine> lines_;      // [device][pass]
  std::vector<Row> rows_;            // [device][pass]
  std::vector<std::uint32_t> done_;  // [device][pass], and what comes from nowhere
  std::vector<double> there_;        // [row][microbatch]: when the message is there
  std::vector<std::uint32_t> cursor_;
  std::vector<double> now_;
};

/// What a word takes; not found() when it is no order of the problem, or above a limit.
Order evaluated(const OrderProblem& problem, std::vector<Pass> word);

}  // namespace penstock
