// SPDX-License-Identifier: Apache-2.0
// The work that advice may take beside the run that it is about. It is counted in ops and not by a
// clock, so that the same changes are tried on every machine. The unit is an op of the exact engine
// with its memory; an op that `fluid` plays counts as kFluid of them (it takes far less where
// replicas move in lockstep).
#pragma once

#include "results/simulation.hpp"

#include <limits>

namespace penstock {

enum class AdviceEffort : std::uint8_t { none, usual, full };
inline constexpr std::string_view kAdviceNames[] = {"none", "usual", "full"};

class AdviceBudget {
 public:
  /// Makes a budget: with `usual`, `share` times the work of about a tenth of a second; with
  /// `full`, one without a limit; with `none`, one that affords nothing.
  explicit AdviceBudget(AdviceEffort effort = AdviceEffort::usual, double share = 1)
      : left_(effort == AdviceEffort::full    ? std::numeric_limits<double>::infinity()
              : effort == AdviceEffort::usual ? share * kUsual
                                              : 0) {}

  /// Takes the work of one more run of so many ops and returns true, if so much is left; otherwise
  /// counts the run as not tried and returns false.
  bool afford(std::uint64_t ops, EngineChoice engine = EngineChoice::exact) {
    const bool affordable = work_of(ops, engine) + reserved_ <= left_;
    if (affordable) left_ -= work_of(ops, engine);
    ++(affordable ? tried_ : not_tried_);
    return affordable;
  }
  /// Sets the work of one such run aside until release(), if so much is left.
  void reserve(std::uint64_t ops, EngineChoice engine) {
    reserved_ = work_of(ops, engine) <= left_ ? work_of(ops, engine) : 0;
  }
  void release() { reserved_ = 0; }
  int tried() const { return tried_; }
  int not_tried() const { return not_tried_; }

 private:
  static constexpr double kUsual = 1'000'000;
  /// the work of reading the scenario anew, whatever its ops
  static constexpr double kEach = 2'000;
  static constexpr double kFluid = 10;

  static double work_of(std::uint64_t ops, EngineChoice engine) {
    return kEach + static_cast<double>(ops) * (engine == EngineChoice::exact ? 1 : kFluid);
  }

  double left_, reserved_ = 0;
  int tried_ = 0, not_tried_ = 0;
};

}  // namespace penstock
