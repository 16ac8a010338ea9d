// SPDX-License-Identifier: Apache-2.0
#include "sim/fluid.hpp"

#include "sim/events.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

void FluidNetwork::open(const std::vector<NetworkLink>& links,
                        const std::vector<const LinkFlow*>& routes, LinkShares& shares) {
  made_of_ = &links;
  shares_ = &shares;
  const auto times = shares.times();
  changes_.assign(times.rbegin(), times.rend());
  for (std::size_t l = 0; l < links.size(); ++l)
    links_.push_back({.units_per_s = links[l].bytes_per_s * kUnitsPerByte * shares.share_of(l)});
  for (const LinkFlow* route : routes) flows_.push_back({.links = &route->links});
}

void FluidNetwork::start(std::size_t flow, std::uint64_t units) {
  Flow& f = flows_[flow];
  f.left = static_cast<double>(units);
  f.since_s = now_s_;
  f.rate = 0;
  f.moving = true;
  for (const int l : *f.links) {
    link(l).users.push_back(static_cast<std::uint32_t>(flow));
    touched_.push_back(l);
  }
  if (f.links->empty()) set_rate(static_cast<std::uint32_t>(flow), kNever);
}

void FluidNetwork::run() {
  for (;;) {
    const double change_s = changes_.empty() ? kNever : changes_.back();
    const double next_s = std::min({next_end_s(), wake_at_s_, change_s});
    if (next_s == kNever) return;
    now_s_ = std::max(now_s_, next_s);
    if (change_s <= now_s_) change_shares();
    end_flows();
    if (wake_at_s_ > now_s_) continue;
    const double due_s = wake_at_s_;
    wake_at_s_ = kNever;
    due(due_s);
  }
}

std::vector<std::size_t> FluidNetwork::stalled() const {
  std::vector<std::size_t> still;
  for (std::size_t f = 0; f < flows_.size(); ++f)
    if (flows_[f].moving) still.push_back(f);
  return still;
}

void FluidNetwork::change_shares() {
  for (const std::size_t l : shares_->change(changes_.back())) {
    links_[l].units_per_s = (*made_of_)[l].bytes_per_s * kUnitsPerByte * shares_->share_of(l);
    touched_.push_back(static_cast<int>(l));
  }
  changes_.pop_back();
}

double FluidNetwork::next_end_s() {
  set_rates();
  while (!ends_.empty()) {
    const auto [time_s, flow, version] = ends_.top();
    if (flows_[flow].moving && flows_[flow].version == version) return time_s;
    ends_.pop();
  }
  return kNever;
}

void FluidNetwork::end_flows() {
  while (!ends_.empty() && std::get<0>(ends_.top()) <= now_s_) {
    const auto [time_s, flow, version] = ends_.top();
    ends_.pop();
    Flow& f = flows_[flow];
    if (!f.moving || f.version != version) continue;
    f.moving = false;
    for (const int l : *f.links) {
      auto& users = link(l).users;
      *std::ranges::find(users, flow) = users.back();
      users.pop_back();
      touched_.push_back(l);
    }
    ended(flow);
  }
}

/// Of all flows that a change may reach: those on the links that were touched, on the links that
/// those cross, and so on.
void FluidNetwork::set_rates() {
  for (const int l : touched_) {
    if (link(l).seen) continue;
    gather_group(l);
    fill_group();
  }
  for (const int l : seen_links_) link(l).seen = false;
  seen_links_.clear();
  touched_.clear();
}

void FluidNetwork::gather_group(int seed) {
  group_.clear();
  group_links_.clear();
  const auto add = [&](int l) {
    if (link(l).seen) return;
    link(l).seen = true;
    group_links_.push_back(l);
  };
  add(seed);
  for (std::size_t i = 0; i < group_links_.size(); ++i) {
    for (const std::uint32_t flow : link(group_links_[i]).users) {
      if (flows_[flow].seen) continue;
      flows_[flow].seen = true;
      group_.push_back(flow);
      for (const int l : *flows_[flow].links) add(l);
    }
  }
  for (const std::uint32_t flow : group_) flows_[flow].seen = false;
  seen_links_.insert(seen_links_.end(), group_links_.begin(), group_links_.end());
}

/// Raises the rates of all flows of the group together; a link that is full stops those that cross
/// it.
void FluidNetwork::fill_group() {
  constexpr double kNothing = 1e-12;
  for (const int l : group_links_) {
    link(l).free = link(l).units_per_s;
    link(l).rising = static_cast<std::uint32_t>(link(l).users.size());
  }
  while (!group_.empty()) {
    double least = kNever;
    for (const int l : group_links_)
      if (link(l).rising > 0) least = std::min(least, link(l).free / link(l).rising);
    const auto rises = [&](std::uint32_t flow) {
      return least < kNever && std::ranges::none_of(*flows_[flow].links, [&](int l) {
               return link(l).free / link(l).rising <= least * (1 + kNothing);
             });
    };
    const auto stopped = std::partition(group_.begin(), group_.end(), rises);
    for (auto f = stopped; f != group_.end(); ++f) {
      set_rate(*f, least);
      for (const int l : *flows_[*f].links) {
        link(l).free -= least;
        --link(l).rising;
      }
    }
    group_.erase(stopped, group_.end());
  }
}

void FluidNetwork::set_rate(std::uint32_t flow, double rate) {
  constexpr double kInstantS = 1e-12;
  Flow& f = flows_[flow];
  if (f.rate == rate) return;
  f.left -= f.rate * (now_s_ - f.since_s);
  if (f.left < f.rate * kInstantS) f.left = 0;
  f.since_s = now_s_;
  f.rate = rate;
  ++f.version;
  if (rate > 0) ends_.emplace(now_s_ + f.left / rate, flow, f.version);
}

Timeline simulate_fluid(const SimulationInput& input) {
  Timeline timeline(input.program.ops.size());
  FluidNetwork network;
  SimgridCounts counts;
  run_events(input, network, {.shortcuts = true}, counts, timeline);
  return timeline;
}

}  // namespace penstock
