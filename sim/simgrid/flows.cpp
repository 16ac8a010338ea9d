#include "sim/simgrid/flows.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

namespace sg4 = simgrid::s4u;

namespace {

std::size_t index(int link) { return static_cast<std::size_t>(link); }

/// SimGrid counts whole units.
std::uint64_t units(double bytes) {
  return static_cast<std::uint64_t>(std::llround(bytes * kUnitsPerByte));
}

}  // namespace

Flows::Flows(const SimulationInput& input, SimgridCounts& counts, std::function<void()> ended)
    : input_(input),
      counts_(counts),
      ended_callback_(std::move(ended)),
      link_rates_(input),
      lines_(input.traffic.links().size()),
      now_(input.traffic.links().size(), 0),
      peaks_(input.traffic.links().size(), 0) {}

std::size_t Flows::add_lane(const std::vector<LinkFlow>& flows) {
  for (const LinkFlow& way : flows) {
    Flow& flow = flows_.emplace_back(Flow{.lane = lanes_.size(), .way = &way});
    for (const int l : way.links) {
      if (input_.traffic.links()[index(l)].fifo) flow.fifo_links.push_back(l);
    }
  }
  lanes_.push_back({.first_flow = flows_.size() - flows.size(), .end_flow = flows_.size()});
  return lanes_.size() - 1;
}

/// Links as SimGrid links; one host per flow, whose way to the common sink crosses them.
void Flows::open() {
  auto* zone = sg4::create_star_zone("penstock");
  std::vector<sg4::Link*> links;
  for (const NetworkLink& link : input_.traffic.links()) {
    const double rate = std::isinf(link.bytes_per_s) ? 1e30 : link.bytes_per_s * kUnitsPerByte;
    auto* made = zone->create_link(link.name, rate);
    made->set_latency(0);
    link_rates_.attach(links.size(), made);
    links.push_back(made->seal());
  }
  sink_ = zone->create_host("sink", 1e9);
  sink_->seal();
  const auto connect = [&](sg4::Host* host, const std::vector<sg4::LinkInRoute>& way) {
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, way, true);
  };
  connect(sink_, {});
  for (std::size_t f = 0; f < flows_.size(); ++f) {
    flows_[f].source = zone->create_host("flow" + std::to_string(f), 1e9);
    flows_[f].source->seal();
    std::vector<sg4::LinkInRoute> way;
    for (const int l : flows_[f].way->links) way.emplace_back(links[index(l)]);
    connect(flows_[f].source, way);
  }
  zone->seal();
  link_rates_.start();
  sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) {
    const auto tag =
        reinterpret_cast<std::size_t>(const_cast<sg4::Activity&>(activity).get_data<void>());
    if (!LinkRates::in_time(sg4::Engine::get_clock())) {
      stalled_.insert(flows_[tag - 1].lane);
      return;
    }
    ended_.push_back(tag - 1);
    ended_callback_();
  });
}

bool Flows::moves(const Flow& flow, const Job& job) const {
  return units(flow.way->bytes * job.bytes) > 0;
}

void Flows::send(std::size_t lane, double bytes, std::uint32_t tag) {
  const Job& job = lanes_[lane].queue.emplace_back(Job{bytes, tag});
  for (std::size_t f = lanes_[lane].first_flow; f < lanes_[lane].end_flow; ++f) {
    if (!moves(flows_[f], job)) continue;
    for (const int l : flows_[f].fifo_links) lines_[index(l)].push_back(f);
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
    if (lines_[index(l)].front() != f) return;
  }
  flow.waits = false;
  Lane& lane = lanes_[flow.lane];
  const Job& job = lane.queue.front();
  if (!lane.started) started(flow.lane, job.tag);
  lane.started = true;
  for (const int l : flow.way->links)
    peaks_[index(l)] = std::max(peaks_[index(l)], ++now_[index(l)]);
  ++counts_.flows;
  flow.comm = sg4::Comm::sendto_init();
  flow.comm->set_payload_size(units(flow.way->bytes * job.bytes));
  flow.comm->set_data(reinterpret_cast<void*>(f + 1));  // NOLINT(performance-no-int-to-ptr)
  flow.comm->set_source(flow.source)->set_destination(sink_);
  if (flow.comm->get_state() != sg4::Activity::State::STARTED) flow.comm->vetoable_start();
}

void Flows::settle() {
  std::vector<std::size_t> ended;
  ended.swap(ended_);
  std::ranges::sort(ended);
  for (const std::size_t f : ended) end_flow(f);
}

void Flows::end_flow(std::size_t f) {
  Flow& flow = flows_[f];
  for (const int l : flow.way->links) --now_[index(l)];
  graveyard_.push_back(std::move(flow.comm));
  std::vector<std::size_t> next;
  for (const int l : flow.fifo_links) {
    lines_[index(l)].pop_front();
    if (!lines_[index(l)].empty()) next.push_back(lines_[index(l)].front());
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
    const std::string link = link_rates_.failed(flows_[f].way->links);
    if (!link.empty()) return link;
  }
  return "";
}

std::vector<std::pair<std::size_t, std::string>> Flows::stalled() const {
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::size_t lane : stalled_) {
    const std::string link = failed_link(lanes_[lane]);
    if (!link.empty()) found.emplace_back(lane, link);
  }
  return found;
}

}  // namespace penstock
