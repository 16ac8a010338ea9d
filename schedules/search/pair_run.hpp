// Devices with two chunks that run one op after the other: what each has done, holds and waits for.
// The dispatcher and the rounds drive it; they decide, it keeps the books and writes the word.
#pragma once

#include "schedules/search/pair_problem.hpp"

namespace penstock {

class PairRun {
 public:
  explicit PairRun(const PairProblem& problem);

  /// Nothing has run.
  void reset();

  /// When the next F or I of this kind can start as far as its input goes; kNever: not known, or
  /// none is left.
  double ready(std::uint32_t d, Pass pass) const {
    const std::uint32_t k = devices_[d].next[index(pass)];
    return k < microbatches_ ? input(d, pass, k) : kNever;
  }
  std::uint32_t count(std::uint32_t d, Pass pass) const { return devices_[d].next[index(pass)]; }
  double free_at(std::uint32_t d) const { return devices_[d].free_at; }
  double held(std::uint32_t d) const { return devices_[d].held; }
  double held_lower(std::uint32_t d) const { return devices_[d].held_lower; }
  /// How long a device has stood still between ops.
  double idle(std::uint32_t d) const {
    const Device& x = devices_[d];
    return x.begin < kNever ? x.free_at - x.begin - x.busy : 0;
  }
  bool started(std::uint32_t d) const { return devices_[d].begin < kNever; }
  /// I whose W has not run.
  std::uint32_t pending(std::uint32_t d) const { return devices_[d].queued - devices_[d].drawn; }
  /// The oldest of them. Precondition: there is one.
  Pass next_weight(std::uint32_t d) const { return weights_[at_weight(d, devices_[d].drawn)]; }
  double duration(std::uint32_t d, Pass pass) const { return durations_[d][index(pass)]; }
  double activation(std::uint32_t d, Pass pass) const {
    return problem_.times[problem_.stage(d, pass)].activation;
  }
  /// Does what it allocates fit under the device's limit now?
  bool fits(std::uint32_t d, Pass pass) const {
    return !is_forward(pass) || held(d) + activation(d, pass) <= problem_.limits[d];
  }

  /// Runs the next op of a kind, or the oldest pending W, from `time` on. Returns the device that
  /// its output goes to and when it arrives there; for a W the device itself, kNever.
  struct Arrival {
    std::uint32_t device;
    double time;
  };
  Arrival start(std::uint32_t d, Pass pass, double time);
  void start_weight(std::uint32_t d, double time);

  /// What the order takes, without its word; not found() when ops are left over.
  PairOrder outcome() const;
  const std::vector<Pass>& word() const { return word_; }
  const PairProblem& problem() const { return problem_; }

 private:
  struct Device {
    double free_at = 0, begin = kNever, busy = 0;
    double held = 0, held_lower = 0;
    std::array<std::uint32_t, kPasses> next{};
    std::uint32_t queued = 0, drawn = 0, length = 0;
  };

  std::size_t at(std::uint32_t stage, std::uint32_t k) const {
    return std::size_t{stage} * microbatches_ + k;
  }
  std::size_t at_weight(std::uint32_t d, std::uint32_t i) const {
    return std::size_t{d} * 2 * microbatches_ + i;
  }
  double input(std::uint32_t d, Pass pass, std::uint32_t k) const {
    const std::size_t i = at(problem_.stage(d, pass), k);
    return is_forward(pass) ? forward_in_[i] : backward_in_[i];
  }
  void append(std::uint32_t d, Pass pass, double time);
  void hold(std::uint32_t d, Pass pass, double change);

  const PairProblem& problem_;
  std::uint32_t microbatches_;
  std::vector<Device> devices_;
  std::vector<std::array<double, kPasses>> durations_;
  std::vector<double> forward_in_, backward_in_;  // [stage][microbatch]: when the input is there
  std::vector<Pass> weights_;                     // [device]: W in the order of their I
  std::vector<Pass> word_;
};

}  // namespace penstock
