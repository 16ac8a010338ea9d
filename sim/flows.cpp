// SPDX-License-Identifier: Apache-2.0
#include "sim/flows.hpp"

#include <algorithm>

namespace penstock {

namespace {

std::size_t link_index(int link) { return static_cast<std::size_t>(link); }

}  // namespace

Flows::Flows(const SimulationInput& input, const Lockstep& lockstep, FlowNetwork& network,
             SimgridCounts& counts, std::function<void()> ended)
    : links_(lockstep.links()),
      counts_(counts),
      ended_callback_(std::move(ended)),
      network_(network),
      shares_(input),
      lines_(links_.size()),
      now_(links_.size(), 0),
      peaks_(links_.size(), 0) {}

std::size_t Flows::add_lane(const std::vector<LinkFlow>& flows) {
  for (const LinkFlow& route : flows) {
    Flow& flow = flows_.emplace_back(Flow{.lane = lanes_.size(), .route = &route});
    for (const int l : route.links) {
      if (links_[link_index(l)].fifo) flow.fifo_links.push_back(l);
    }
  }
  lanes_.push_back({.first_flow = flows_.size() - flows.size(), .end_flow = flows_.size()});
  return lanes_.size() - 1;
}

void Flows::open() {
  std::vector<const LinkFlow*> routes;
  for (const Flow& flow : flows_) routes.push_back(flow.route);
  network_.ended = [this](std::size_t flow) {
    ended_.push_back(flow);
    ended_callback_();
  };
  network_.open(links_, routes, shares_);
}

void Flows::send(std::size_t lane, double bytes, std::uint32_t tag) {
  const Job& job = lanes_[lane].queue.emplace_back(Job{bytes, tag});
  for (std::size_t f = lanes_[lane].first_flow; f < lanes_[lane].end_flow; ++f) {
    if (!moves(flows_[f], job)) continue;
    for (const int l : flows_[f].fifo_links) lines_[link_index(l)].push_back(f);
  }
  if (!lanes_[lane].busy) begin_job(lane);
}

void Flows::begin_job(std::size_t n) {
  Lane& lane = lanes_[n];
  lane.busy = true;
  lane.started = false;
  for (std::size_t f = lane.first_flow; f < lane.end_flow; ++f) {
    flows_[f].waits = moves(flows_[f], lane.queue.front());
    lane.left += flows_[f].waits ? 1 : 0;
  }
  if (lane.left == 0) {
    started(n, lane.queue.front().tag);
    return end_job(n);
  }
  for (std::size_t f = lane.first_flow; f < lane.end_flow; ++f) start_if_first(f);
}

void Flows::start_if_first(std::size_t f) {
  Flow& flow = flows_[f];
  if (!flow.waits) return;
  for (const int l : flow.fifo_links) {
    if (lines_[link_index(l)].front() != f) return;
  }
  flow.waits = false;
  Lane& lane = lanes_[flow.lane];
  const Job& job = lane.queue.front();
  if (crosses) crosses(flow.route->links);
  if (!lane.started) started(flow.lane, job.tag);
  lane.started = true;
  for (const int l : flow.route->links)
    peaks_[link_index(l)] = std::max(peaks_[link_index(l)], ++now_[link_index(l)]);
  ++counts_.flows;
  to_begin_.push_back({f, flow_units(flow.route->bytes * job.bytes)});
}

void Flows::begin_flows() {
  in_flight_ += to_begin_.size();
  for (const ToBegin& begin : to_begin_) network_.start(begin.flow, begin.units);
  to_begin_.clear();
}

void Flows::settle() {
  settling_.swap(ended_);  // neither gives its memory back
  std::ranges::sort(settling_);
  in_flight_ -= settling_.size();
  for (const std::size_t f : settling_) end_flow(f);
  settling_.clear();
}

void Flows::end_flow(std::size_t f) {
  Flow& flow = flows_[f];
  for (const int l : flow.route->links) --now_[link_index(l)];
  std::vector<std::size_t> next;
  for (const int l : flow.fifo_links) {
    lines_[link_index(l)].pop_front();
    if (!lines_[link_index(l)].empty()) next.push_back(lines_[link_index(l)].front());
  }
  if (--lanes_[flow.lane].left == 0) end_job(flow.lane);
  for (const std::size_t other : next) start_if_first(other);
}

void Flows::end_job(std::size_t n) {
  Lane& lane = lanes_[n];
  const std::uint32_t tag = lane.queue.front().tag;
  lane.queue.pop_front();
  lane.busy = false;
  done(n, tag);
  if (!lane.busy && !lane.queue.empty()) begin_job(n);
}

std::string Flows::failed_link(const Lane& lane) const {
  for (std::size_t f = lane.first_flow; f < lane.end_flow; ++f) {
    const std::string link = shares_.failed(flows_[f].route->links);
    if (!link.empty()) return link;
  }
  return "";
}

std::vector<std::pair<std::size_t, std::string>> Flows::stalled() const {
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::size_t flow : network_.stalled()) {
    const std::size_t lane = flows_[flow].lane;
    const std::string link = failed_link(lanes_[lane]);
    if (!link.empty()) found.emplace_back(lane, link);
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace penstock
