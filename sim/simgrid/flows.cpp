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
      lines_(input.channels.links().size()),
      now_(input.channels.links().size(), 0),
      peaks_(input.channels.links().size(), 0) {}

std::size_t Flows::add_lane(const std::vector<LinkFlow>& flows) {
  lanes_.push_back({.flows = &flows, .first_source = lane_of_source_.size()});
  for (const int l : crossed_by(flows)) {
    if (input_.channels.links()[index(l)].fifo) lanes_.back().fifo_links.push_back(l);
  }
  lane_of_source_.resize(lane_of_source_.size() + flows.size(), lanes_.size() - 1);
  return lanes_.size() - 1;
}

/// Links as SimGrid links; one host per flow of a lane, whose way to the common sink crosses them.
void Flows::open() {
  auto* zone = sg4::create_star_zone("penstock");
  std::vector<sg4::Link*> links;
  for (const NetworkLink& link : input_.channels.links()) {
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
  for (const Lane& lane : lanes_) {
    for (const LinkFlow& flow : *lane.flows) {
      sources_.push_back(zone->create_host("flow" + std::to_string(sources_.size()), 1e9));
      sources_.back()->seal();
      std::vector<sg4::LinkInRoute> way;
      for (const int l : flow.links) way.emplace_back(links[index(l)]);
      connect(sources_.back(), way);
    }
  }
  comms_.resize(sources_.size());
  zone->seal();
  link_rates_.start();
  sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) {
    const auto tag =
        reinterpret_cast<std::size_t>(const_cast<sg4::Activity&>(activity).get_data<void>());
    if (!LinkRates::in_time(sg4::Engine::get_clock())) {
      stalled_.insert(lane_of_source_[tag - 1]);
      return;
    }
    ended_.push_back(tag - 1);
    ended_callback_();
  });
}

void Flows::send(std::size_t lane, double bytes, std::uint32_t tag) {
  lanes_[lane].queue.push_back({bytes, tag});
  for (const int l : lanes_[lane].fifo_links) lines_[index(l)].push_back(lane);
  start_if_first(lane);
}

void Flows::start_if_first(std::size_t n) {
  Lane& lane = lanes_[n];
  if (lane.moving > 0 || lane.queue.empty()) return;
  for (const int l : lane.fifo_links) {
    if (lines_[index(l)].front() != n) return;
  }
  const Job job = lane.queue.front();
  started(n, job.tag);
  for (std::size_t i = 0; i < lane.flows->size(); ++i) {
    const LinkFlow& flow = (*lane.flows)[i];
    if (units(flow.bytes * job.bytes) == 0) continue;
    ++lane.moving;
    for (const int l : flow.links) peaks_[index(l)] = std::max(peaks_[index(l)], ++now_[index(l)]);
    start_flow(lane.first_source + i, flow.bytes * job.bytes);
  }
  if (lane.moving == 0) end_job(n);
}

void Flows::start_flow(std::size_t source, double bytes) {
  ++counts_.flows;
  sg4::CommPtr& comm = comms_[source];
  comm = sg4::Comm::sendto_init();
  comm->set_payload_size(units(bytes));
  comm->set_data(reinterpret_cast<void*>(source + 1));  // NOLINT(performance-no-int-to-ptr)
  comm->set_source(sources_[source])->set_destination(sink_);
  if (comm->get_state() != sg4::Activity::State::STARTED) comm->vetoable_start();
}

void Flows::settle() {
  std::vector<std::size_t> ended;
  ended.swap(ended_);
  std::ranges::sort(ended);
  for (const std::size_t source : ended) {
    const std::size_t n = lane_of_source_[source];
    for (const int l : (*lanes_[n].flows)[source - lanes_[n].first_source].links) --now_[index(l)];
    graveyard_.push_back(std::move(comms_[source]));
    if (--lanes_[n].moving == 0) end_job(n);
  }
}

void Flows::end_job(std::size_t n) {
  Lane& lane = lanes_[n];
  const std::uint32_t tag = lane.queue.front().tag;
  lane.queue.pop_front();
  std::vector<std::size_t> next;
  for (const int l : lane.fifo_links) {
    lines_[index(l)].pop_front();
    if (!lines_[index(l)].empty()) next.push_back(lines_[index(l)].front());
  }
  done(n, tag);
  start_if_first(n);
  for (const std::size_t other : next) start_if_first(other);
}

std::vector<std::pair<std::size_t, std::string>> Flows::stalled() const {
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::size_t lane : stalled_) {
    const std::string link = link_rates_.failed(crossed_by(*lanes_[lane].flows));
    if (!link.empty()) found.emplace_back(lane, link);
  }
  return found;
}

}  // namespace penstock
