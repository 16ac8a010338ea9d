// SPDX-License-Identifier: Apache-2.0
// Links shared among flows in this process: progressive filling (Bertsekas and Gallager, Data
// Networks, section 6.5.2) of those flows alone whose rates a start or an end may change.
#pragma once

#include "sim/flow_network.hpp"

#include <limits>
#include <queue>
#include <tuple>

namespace penstock {

class FluidNetwork final : public FlowNetwork {
 public:
  void open(const std::vector<NetworkLink>& links, const std::vector<const LinkFlow*>& routes,
            LinkShares& shares) override;
  void start(std::size_t flow, std::uint64_t units) override;
  void wake_at(double time_s) override { wake_at_s_ = time_s; }
  double now_s() const override { return now_s_; }
  void run() override;
  std::vector<std::size_t> stalled() const override;

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Flow {
    const std::vector<int>* links = nullptr;
    double left = 0, since_s = 0;  // units at that time
    double rate = 0;
    std::uint32_t version = 0;  // of its end in `ends_`
    bool moving = false, seen = false;
  };
  struct Link {
    double units_per_s = 0;  // now
    std::vector<std::uint32_t> users{};
    // While a group of flows is filled:
    double free = 0;
    std::uint32_t rising = 0;
    bool seen = false;
  };
  using End = std::tuple<double, std::uint32_t, std::uint32_t>;  // time, flow, version

  Link& link(int l) { return links_[static_cast<std::size_t>(l)]; }
  void change_shares();
  double next_end_s();
  void end_flows();
  void set_rates();
  void gather_group(int seed);
  void fill_group();
  void set_rate(std::uint32_t flow, double rate);

  double now_s_ = 0, wake_at_s_ = kNever;
  const std::vector<NetworkLink>* made_of_ = nullptr;
  LinkShares* shares_ = nullptr;
  std::vector<double> changes_;  // times of shares that are to come, the next one last
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<int> touched_;          // links whose users are others than when their rates were set
  std::vector<std::uint32_t> group_;  // flows that share links, directly or not
  std::vector<int> group_links_;
  std::vector<int> seen_links_;  // of all groups that were filled
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

}  // namespace penstock
