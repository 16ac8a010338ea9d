// SPDX-License-Identifier: Apache-2.0
// Jobs made of flows, on a network that shares its links among them.
//
// A lane sends one job after the other: the flows of a job start together, and the next job starts
// when all of them have ended; its latency comes later and is its owner's. On links that serve
// first come, first served, each flow stands in line from when its job is sent. A network's order
// of simultaneous ends is not canonical, so they are collected and handled, sorted, when the owner
// of the clock says so.
#pragma once

#include "sim/flow_network.hpp"
#include "sim/lockstep.hpp"

#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace penstock {

class Flows {
 public:
  /// On links of `lockstep`. `ended`: a flow has ended now, `settle` is due.
  Flows(const SimulationInput& input, const Lockstep& lockstep, FlowNetwork& network,
        SimgridCounts& counts, std::function<void()> ended);
  Flows(const Flows&) = delete;
  Flows& operator=(const Flows&) = delete;

  const LinkShares& link_shares() const { return shares_; }

  /// A lane for these flows (their `bytes` are shares of a job's), which must outlive it; its
  /// number. All lanes are made before `open`.
  std::size_t add_lane(const std::vector<LinkFlow>& flows);
  void open();

  /// Sends a job; `started` and `done` are called at once or later, `tag` is the caller's.
  void send(std::size_t lane, double bytes, std::uint32_t tag);
  /// The first byte of a job is on its way; all of it has been sent.
  std::function<void(std::size_t lane, std::uint32_t tag)> started, done;
  /// A flow is about to start that crosses these links.
  std::function<void(const std::vector<int>& links)> crosses;

  /// Does anything move on the link?
  bool occupied(int link) const { return now_[static_cast<std::size_t>(link)] > 0; }

  /// A flow starts in two steps: whoever sends it says so at once, the network when its own clock
  /// stands there.
  void begin_flows();
  bool flows_to_begin() const { return !to_begin_.empty(); }
  /// Have flows begun that have not ended?
  bool in_flight() const { return in_flight_ > 0; }

  bool any_ended() const { return !ended_.empty(); }
  /// Handles the flows that have ended.
  void settle();

  /// Lanes with a flow that never ends, and the link that is gone for ever.
  std::vector<std::pair<std::size_t, std::string>> stalled() const;
  /// Per link: flows on it at the same time, at most.
  const std::vector<std::uint32_t>& peaks() const { return peaks_; }

 private:
  struct Job {
    double bytes;
    std::uint32_t tag;
  };
  struct Lane {
    std::size_t first_flow, end_flow;  // indices
    std::deque<Job> queue{};           // the first one is on its way if the lane is busy
    bool busy = false, started = false;
    std::size_t left = 0;  // flows of that job that have not ended
  };
  struct Flow {
    std::size_t lane;
    const LinkFlow* route;
    std::vector<int> fifo_links{};  // in whose lines it stands
    bool waits = false;             // its job is on its way, its turn has not come
  };

  static bool moves(const Flow& flow, const Job& job) {
    return flow_units(flow.route->bytes * job.bytes) > 0;
  }
  std::string failed_link(const Lane& lane) const;
  void begin_job(std::size_t lane);
  void start_if_first(std::size_t flow);
  void end_flow(std::size_t flow);
  void end_job(std::size_t lane);

  const std::vector<NetworkLink>& links_;
  SimgridCounts& counts_;
  std::function<void()> ended_callback_;
  FlowNetwork& network_;
  LinkShares shares_;
  std::vector<Lane> lanes_;
  std::vector<Flow> flows_;
  std::vector<std::deque<std::size_t>> lines_;  // FIFO links: flows in line
  struct ToBegin {
    std::size_t flow;
    std::uint64_t units;
  };
  std::vector<ToBegin> to_begin_;
  std::vector<std::size_t> settling_;
  std::vector<std::size_t> ended_;  // flows
  std::size_t in_flight_ = 0;
  std::vector<std::uint32_t> now_, peaks_;  // per link: flows
};

}  // namespace penstock
