// SPDX-License-Identifier: Apache-2.0
// Carries transfers: one that has its links for itself is a timer, another one becomes flows, phase
// after phase. Messages are FIFOs; of a reduction or a collective one is on its way at a time.
#pragma once

#include "sim/events.hpp"
#include "sim/flows.hpp"

#include <functional>

namespace penstock {

class Carrier {
 public:
  /// What its owner's clock does at a time: `continue_at(time, transfer, tag)` has it call
  /// `continue_transfer` then, `wake` says that flows have ended now.
  Carrier(const SimulationInput& input, const Lockstep& lockstep, FlowNetwork& network,
          const EventOptions& options, SimgridCounts& counts,
          std::function<void(double, std::uint32_t, std::uint32_t)> continue_at,
          std::function<void()> wake);

  void open() { flows_.open(); }

  /// Is it made of flows?
  bool flows(std::uint32_t transfer) const { return carried_[transfer].first_lane != kNoLane; }
  /// Sends `bytes`, which occupy the transfer's links for `occupied_s` if it has them for itself;
  /// `tag` is the owner's. Each phase's latency passes as often as there are calls.
  void send(std::uint32_t transfer, double bytes, double occupied_s, std::uint32_t tag, double now,
            double calls = 1);
  /// Sends the rest of a collective that began earlier; all of it has ended at `end_s` if no flow
  /// delays it.
  void resume(std::uint32_t transfer, double bytes, double end_s, std::uint32_t tag, double now,
              double calls);
  /// Of what `continue_at` asked for: true when it has arrived, false when its next phase began.
  bool continue_transfer(std::uint32_t transfer, std::uint32_t tag, double now);
  /// The first byte of a message is on its way.
  std::function<void(std::uint32_t transfer, std::uint32_t tag, double at)> started;

  /// A flow is about to start that crosses these links.
  std::function<void(const std::vector<int>& links, double now)> crosses;
  bool occupied(int link) const { return flows_.occupied(link); }
  /// Of a collective made of flows that has its links for itself: do all of them go at a constant
  /// rate, to the end?
  bool steady(std::uint32_t transfer) const;
  /// The limited links that it crosses.
  std::vector<int> links_of(std::uint32_t transfer) const;

  /// Flows that `send` and the others asked for begin at the network's present time.
  void begin_flows() { flows_.begin_flows(); }
  bool flows_to_begin() const { return flows_.flows_to_begin(); }
  bool flows_in_flight() const { return flows_.in_flight(); }
  bool any_ended() const { return flows_.any_ended(); }
  void settle(double now);
  /// A transfer that never ends, and the link that is gone for ever; kNoOp when there is none.
  std::pair<std::uint32_t, std::string> stalled() const;
  /// Per link: flows on it at the same time, at most.
  const std::vector<std::uint32_t>& peaks() const { return flows_.peaks(); }

 private:
  static constexpr std::size_t kNoLane = static_cast<std::size_t>(-1);
  struct Carried {
    std::size_t first_lane = kNoLane;  // of its phases; none: a timer
    std::size_t phase = 0;             // of the flows on their way; a message has one
    double bytes = 0, calls = 1;
    double after_s = -1;  // from its last flow's end; less than 0: as its phase says
    double free_at = 0;   // of a message on a timer
  };

  bool must_flow(const Transfer& transfer, bool always);

  const SimulationInput& input_;
  const Lockstep& lockstep_;
  SimgridCounts& counts_;
  std::function<void(double, std::uint32_t, std::uint32_t)> continue_at_;
  Flows flows_;
  std::vector<Carried> carried_;        // per transfer
  std::vector<std::uint32_t> of_lane_;  // its transfer
  double now_ = 0;
};

}  // namespace penstock
