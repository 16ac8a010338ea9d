// SPDX-License-Identifier: Apache-2.0
// Devices that run one op after the other: what each has done, holds and waits for, and when it
// decides next. The dispatchers and the rounds drive it; they decide, it keeps the books and writes
// the word.
#pragma once

#include "schedules/search/problem.hpp"

namespace penstock {

class DeviceRun {
 public:
  explicit DeviceRun(const OrderProblem& problem);

  /// Nothing has run.
  void reset();

  /// When the next F or I of this kind can start as far as its input goes; kNever: not known, or
  /// none is left.
  double ready(std::uint32_t d, Pass pass) const {
    const PassLine& line = lines_[at(d, pass)];
    const std::uint32_t k = count(d, pass);
    return k < microbatches_ && k < done_[line.from] ? there_[line.input * microbatches_ + k]
                                                     : kNever;
  }
  std::uint32_t count(std::uint32_t d, Pass pass) const { return done_[at(d, pass)]; }
  double free_at(std::uint32_t d) const { return devices_[d].free_at; }
  double held(std::uint32_t d) const { return devices_[d].held; }
  double held_lower(std::uint32_t d) const { return devices_[d].held_lower; }
  /// How long a device has stood still between ops.
  double idle(std::uint32_t d) const {
    const Device& x = devices_[d];
    return started(d) ? x.free_at - x.begin - x.busy : 0;
  }
  bool started(std::uint32_t d) const { return devices_[d].length > 0; }
  /// I whose W has not run.
  std::uint32_t pending(std::uint32_t d) const { return devices_[d].queued - devices_[d].drawn; }
  /// The oldest of them. Precondition: there is one.
  Pass next_weight(std::uint32_t d) const { return weights_[at_weight(d, devices_[d].drawn)]; }
  double duration(std::uint32_t d, Pass pass) const { return lines_[at(d, pass)].duration; }
  double activation(std::uint32_t d, Pass pass) const { return problem_.time(d, pass).activation; }
  /// Does what it allocates fit under the device's limit now?
  bool fits(std::uint32_t d, Pass pass) const {
    return !is_forward(pass) || held(d) + activation(d, pass) <= problem_.limit(d);
  }

  /// Runs the next op of a kind, or the oldest pending W, from `time` on. Returns the device that
  /// its output goes to and when it arrives there; the device itself, kNever: it goes nowhere.
  struct Arrival {
    std::uint32_t device;
    double time;
  };
  Arrival start(std::uint32_t d, Pass pass, double time);
  void start_weight(std::uint32_t d, double time);

  /// What the order takes; not found() when ops are left over.
  OrderCost cost() const;
  const std::vector<Pass>& word() const { return word_; }

 private:
  struct Device {
    double free_at = 0, begin = 0, busy = 0;
    double held = 0, held_lower = 0;
    std::uint32_t queued = 0, drawn = 0, length = 0;
  };

  static std::size_t at(std::uint32_t d, Pass pass) {
    return std::size_t{kPasses} * d + index(pass);
  }
  std::size_t at_weight(std::uint32_t d, std::uint32_t i) const {
    return std::size_t{d} * problem_.chunks * microbatches_ + i;
  }
  void append(std::uint32_t d, Pass pass, double time);

  const OrderProblem& problem_;
  std::uint32_t microbatches_;
  std::vector<PassLine> lines_;      // [device][pass]
  std::vector<std::uint32_t> done_;  // [device][pass], and what comes from nowhere
  std::vector<double> there_;        // [row][microbatch]: when the message is there
  std::vector<Device> devices_;
  std::vector<Pass> weights_;  // [device]: W in the order of their I
  std::vector<Pass> word_;
};

/// When each of some devices decides next; kNever: something has to wake it.
class WakeTimes {
 public:
  explicit WakeTimes(std::uint32_t devices);

  void set(std::uint32_t d, double time);
  double time_of(std::uint32_t d) const { return time_[d]; }
  /// The device that is the first to decide.
  std::uint32_t first() const { return tree_[1]; }

 private:
  std::vector<double> time_;
  std::vector<std::uint32_t> tree_;  // a tournament of the times; its winner is in [1]
};

}  // namespace penstock
