// SPDX-License-Identifier: Apache-2.0
// What is alike and moves in lockstep, and is priced once: replicas that do the same at the same
// time, and ranks of a device that send side by side.
//
// Flows and links fall into classes by colour refinement (an equitable partition: all links of a
// class are crossed by as many flows of each class, all flows of a class cross links of the same
// classes). Flows of a class start together, as their devices run the same ops; then each round of
// progressive filling stops whole classes, so that rates and ends are the same within a class. One
// flow of a class stands for all: it counts on a link of each class that they cross as often as
// they cross such a link.
#pragma once

#include "sim/engine.hpp"

#include <vector>

namespace penstock {

class Lockstep {
 public:
  /// `fold`: false where everything shall be played by itself.
  Lockstep(const SimulationInput& input, bool fold);

  /// How many replicas, the leading one included, move together.
  std::uint32_t replicas() const { return replicas_; }
  bool leads(int device) const { return replicas_ == 1 || placement_.replica_of(device) == 0; }
  /// Is the transfer the one of its class that is played?
  bool leads(std::uint32_t transfer) const { return !folded_ || class_of_[transfer] == transfer; }

  const std::vector<NetworkLink>& links() const { return folded_ ? links_ : traffic_.links(); }
  /// What a phase of a transfer that leads sends over `links`; folded of contended ones alone.
  const std::vector<LinkFlow>& flows(std::uint32_t transfer, std::size_t phase) const {
    return folded_ ? flows_[transfer][phase] : traffic_[transfer].phases[phase].flows;
  }

  /// The spans of those that follow are those of who leads; `peaks` of `links` are those of the
  /// links they stand for.
  void complete(const OpLists& ops, const std::vector<std::uint32_t>& peaks,
                Timeline& timeline) const;

 private:
  bool fold(std::uint32_t replicas);

  const Traffic& traffic_;
  const Placement& placement_;
  std::uint32_t replicas_ = 1;
  bool folded_ = false;
  std::vector<std::uint32_t> class_of_;                    // by transfer: the first of its class
  std::vector<int> link_class_;                            // by link of the traffic; -1: none
  std::vector<NetworkLink> links_;                         // by class
  std::vector<std::vector<std::vector<LinkFlow>>> flows_;  // by transfer and phase
};

}  // namespace penstock
