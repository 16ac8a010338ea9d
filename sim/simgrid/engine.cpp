// The SimGrid engine: SimGrid owns the clock and shares the links, we own the queues.
//
// Driven from maestro, without actors and without a static DAG (both are slower by far in SimGrid
// 3.32). Activities of known duration, compute and messages that share no link, are entries of our
// own event heap, whose head arms one SimGrid timer; a message that shares a link becomes a Comm
// when it departs. Latency is ours: every Comm has zero latency, because SimGrid weighs the shares
// of a link by the latency of the routes; a message arrives its latency after its last byte.
// SimGrid's order of simultaneous completions is not canonical, so completions are collected and
// handled, sorted, by a timer at the same date.
#include "sim/simgrid/module.hpp"

#include "schedules/walk.hpp"
#include "sim/durations.hpp"
#include "sim/simgrid/link_rates.hpp"

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>

#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <queue>

namespace penstock {
namespace {

namespace sg4 = simgrid::s4u;
using simgrid::kernel::timer::Timer;

/// SimGrid catches SIGINT and SIGSEGV for itself; here they keep the meaning they had.
class KeepSignals {
 public:
  KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeepSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;

 private:
  static constexpr std::array<int, 4> kSignals{SIGINT, SIGSEGV, SIGABRT, SIGPIPE};
  std::array<struct sigaction, 4> before_{};
};

void configure() {
  const KeepSignals signals;
  static char program[] = "penstock";
  static char quiet[] = "--log=root.thres:critical";
  static char* arguments[] = {program, quiet, nullptr};
  int count = 2;
  // A singleton of the process, never destroyed: SimGrid cannot be started twice.
  new sg4::Engine(&count, arguments);  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
  for (const char* setting :
       {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:1e30",
        "surf/precision:1e-12", "maxmin/precision:1e-9", "network/loopback-lat:0"}) {
    sg4::Engine::set_config(setting);
  }
}

/// Links as SimGrid links; one host per channel, whose way to the common sink crosses them.
class Platform {
 public:
  Platform(const Channels& channels, const std::vector<char>& is_flow, LinkRates& rates)
      : sources_(is_flow.size(), nullptr) {
    auto* zone = sg4::create_star_zone("penstock");
    std::vector<sg4::Link*> links;
    for (const NetworkLink& link : channels.links()) {
      const double rate = std::isinf(link.bytes_per_s) ? 1e30 : link.bytes_per_s;
      auto* made = zone->create_link(link.name, rate);
      made->set_latency(0);
      rates.attach(links.size(), made);
      links.push_back(made->seal());
    }
    sink_ = zone->create_host("sink", 1e9);
    sink_->seal();
    zone->add_route(sink_->get_netpoint(), nullptr, nullptr, nullptr,
                    std::vector<sg4::LinkInRoute>{}, true);
    for (std::size_t c = 0; c < sources_.size(); ++c) {
      if (is_flow[c] == 0) continue;
      sources_[c] = zone->create_host("channel" + std::to_string(c), 1e9);
      sources_[c]->seal();
      std::vector<sg4::LinkInRoute> way;
      for (const int l : channels.all()[c].links)
        way.emplace_back(links[static_cast<std::size_t>(l)]);
      zone->add_route(sources_[c]->get_netpoint(), nullptr, nullptr, nullptr, way, true);
    }
    zone->seal();
  }

  /// Starts a flow of `bytes` > 0 on a channel; the caller keeps the result until it has completed.
  sg4::CommPtr start(std::size_t channel, std::uint64_t bytes) {
    auto comm = sg4::Comm::sendto_init();
    comm->set_payload_size(bytes);
    comm->set_data(reinterpret_cast<void*>(channel + 1));  // NOLINT(performance-no-int-to-ptr)
    comm->set_source(sources_[channel])->set_destination(sink_);
    if (comm->get_state() != sg4::Activity::State::STARTED) comm->vetoable_start();
    return comm;
  }

 private:
  sg4::Host* sink_ = nullptr;
  std::vector<sg4::Host*> sources_;
};

class Simulation {
 public:
  Simulation(const SimulationInput& input, const SimgridOptions& options, SimgridCounts& counts,
             Timeline& timeline)
      : program_(input.program),
        ops_(input.program.ops),
        input_(input),
        table_(input.table),
        channels_(input.channels),
        counts_(counts),
        timeline_(timeline),
        duration_(input),
        link_rates_(input),
        barriers_(input.program),
        met_(barriers_.groups(), 0),
        devices_(static_cast<std::size_t>(ops_.devices())),
        lanes_(channels_.all().size()),
        link_queues_(channels_.links().size()),
        is_flow_(channels_.all().size(), 0),
        progress_("simulating", static_cast<std::int64_t>(ops_.size())) {
    for (std::size_t d = 0; d < devices_.size(); ++d)
      devices_[d].cursor = ops_.begin(static_cast<int>(d));
    const bool timed = program_.transfers != Transfers::free;
    for (std::size_t c = 0; c < lanes_.size(); ++c) {
      const Channel& channel = channels_.all()[c];
      const bool limited = !std::isinf(channel.bytes_per_s);
      const bool flow =
          channel.contended || options.every_message_a_flow || link_rates_.concern(channel);
      is_flow_[c] = timed && limited && flow ? 1 : 0;
    }
  }

  void run() {
    configure();
    Platform platform(channels_, is_flow_, link_rates_);
    platform_ = &platform;
    link_rates_.start();
    sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) {
      const auto tag =
          reinterpret_cast<std::size_t>(const_cast<sg4::Activity&>(activity).get_data<void>());
      if (!link_rates_.in_time(tag - 1, sg4::Engine::get_clock())) return;
      completed_.push_back(tag - 1);
      arm(sg4::Engine::get_clock());
    });
    for (std::size_t d = 0; d < devices_.size(); ++d) try_start(static_cast<int>(d), 0);
    arm_next();
    sg4::Engine::get_instance()->run();
    timeline_.makespan_s = latest_;
    if (done_ < ops_.size()) stand_still();
  }

 private:
  enum class What : std::uint8_t { op_ends, message_arrives };
  struct Event {
    double time_s;
    What what;
    std::uint32_t g;  // the op that ends, or the op whose message arrives
    bool operator>(const Event& o) const {
      if (time_s != o.time_s) return time_s > o.time_s;
      if (what != o.what) return what > o.what;
      return g > o.g;
    }
  };
  struct Device {
    std::uint32_t cursor = 0;
    std::uint32_t met_at = kNoOp;
    bool busy = false;
    bool held = false;  // blocking: its send is on the way
  };
  struct Message {
    std::uint32_t from, to;
  };
  struct Lane {  // a channel
    double free_at = 0;
    bool in_flight = false;
    std::deque<Message> queue;  // flows only: the first one is in flight or wants to be
    sg4::CommPtr comm;
  };

  // The clock -------------------------------------------------------------------------------------

  void arm(double time_s) {
    if (armed_at_ >= 0 && armed_at_ <= time_s) return;
    armed_at_ = time_s;
    Timer::set(time_s, [this, time_s] { drain(time_s); });
  }
  void arm_next() {
    if (!events_.empty()) arm(events_.top().time_s);
  }

  /// Handles everything that happens now, in an order of our own.
  void drain(double time_s) {
    if (time_s != armed_at_) return;  // superseded by an earlier timer
    const double now = std::max(time_s, sg4::Engine::get_clock());
    while (!completed_.empty() || (!events_.empty() && events_.top().time_s <= now)) {
      while (!events_.empty() && events_.top().time_s <= now) {
        const Event event = events_.top();
        events_.pop();
        if (event.what == What::op_ends) {
          op_ended(event.g, event.time_s);
        } else {
          message_arrived(event.g, event.time_s);
        }
      }
      std::vector<std::size_t> finished;
      finished.swap(completed_);
      std::sort(finished.begin(), finished.end());
      for (const std::size_t c : finished) flow_ended(c, now);
    }
    armed_at_ = -1;
    graveyard_.clear();
    arm_next();
    progress_.update(static_cast<std::int64_t>(done_));
  }

  /// A link is gone for ever: what has not happened by now never will.
  void stand_still() {
    timeline_.stalled_because = link_rates_.stalled();
    invariant(!timeline_.stalled_because.empty(),
              "simgrid: the simulation stopped before every op had run");
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      for (std::uint32_t g = devices_[d].cursor; g < ops_.end(static_cast<int>(d)); ++g)
        timeline_.op(g) = {latest_, latest_};
    }
    for (std::uint32_t g = 0; g < ops_.size(); ++g) {
      Span& message = timeline_.message(g);
      if (!ops_[g].has(Op::receives) || message.end_s >= 0) continue;
      message.start_s = message.start_s < 0 ? latest_ : std::min(message.start_s, latest_);
      message.end_s = latest_;
    }
  }

  // Devices ---------------------------------------------------------------------------------------

  Device& device(int d) { return devices_[static_cast<std::size_t>(d)]; }

  bool held_by_send(int d, std::uint32_t g) const {
    if (program_.transfers != Transfers::coupled) return false;
    const std::uint32_t sent = ops_.previous_compute(d, g);
    return sent != kNoOp && ops_[sent].has(Op::sends) &&
           !timeline_.has_message(table_.consumer(ops_[sent]));
  }

  void try_start(int d, double now) {
    Device& dev = device(d);
    const std::uint32_t g = dev.cursor;
    if (dev.busy || dev.held || g == ops_.end(d)) return;
    const Op& op = ops_[g];
    if (op.has(Op::receives) && !timeline_.has_message(g)) return;
    if (held_by_send(d, g)) return;
    if (barriers_.is_barrier(op) && !all_met(d, g, now)) return;
    dev.busy = true;
    const double end = duration_.end_of(now, op, d, g);
    timeline_.op(g) = {now, end};
    latest_ = std::max(latest_, end);
    ++counts_.timers;
    events_.push({end, What::op_ends, g});
  }

  bool all_met(int d, std::uint32_t g, double now) {
    const Op& op = ops_[g];
    const std::uint32_t group = barriers_.group(op, d);
    if (device(d).met_at != g) {
      device(d).met_at = g;
      if (++met_[group] == barriers_.members(op)) {
        const int stride = barriers_.stride(op);
        for (int other = d % stride; other < ops_.devices(); other += stride) {
          if (other != d && device(other).met_at == device(other).cursor) try_start(other, now);
        }
      }
    }
    return met_[group] == barriers_.members(op);
  }

  void op_ended(std::uint32_t g, double now) {
    const Op& op = ops_[g];
    const int d = table_.device_of(op);
    Device& dev = device(d);
    dev.busy = false;
    ++dev.cursor;
    ++done_;
    if (op.has(Op::sends)) {
      const std::uint32_t to = table_.consumer(op);
      const bool posted = program_.transfers != Transfers::coupled || at_post(to);
      if (program_.transfers == Transfers::blocking) dev.held = true;
      if (posted) depart(g, to, now);
    }
    if (program_.transfers == Transfers::coupled && is_compute(op.kind)) post_receive(d, g, now);
    try_start(d, now);
  }

  /// Has the receiver run its compute op before `to`?
  bool at_post(std::uint32_t to) {
    const int receiver = table_.device_of(ops_[to]);
    const std::uint32_t before = ops_.previous_compute(receiver, to);
    return before == kNoOp || device(receiver).cursor > before;
  }

  void post_receive(int d, std::uint32_t done, double now) {
    const std::uint32_t next = ops_.next_compute(d, done);
    if (next == kNoOp || !ops_[next].has(Op::receives)) return;
    const std::uint32_t from = table_.producer(ops_[next]);
    if (device(table_.device_of(ops_[from])).cursor > from) depart(from, next, now);
  }

  // Messages --------------------------------------------------------------------------------------

  void depart(std::uint32_t from, std::uint32_t to, double now) {
    if (program_.transfers == Transfers::free) {
      timeline_.message(to).start_s = now;
      message_arrived(to, now);
      return;
    }
    const Op& op = ops_[from];
    const std::uint32_t c = channels_.of_send(op);
    const Channel& channel = channels_.all()[c];
    const std::int64_t bytes = message_bytes(input_.costs, op);
    if (is_flow_[c] != 0 && bytes > 0) {
      lanes_[c].queue.push_back({from, to});
      stand_in_line(c);
      start_if_first(c, now);
      return;
    }
    Lane& lane = lanes_[c];
    const double start =
        program_.transfers == Transfers::coupled ? now : std::max(now, lane.free_at);
    const double occupied = static_cast<double>(bytes) / channel.bytes_per_s;
    lane.free_at = start + occupied;
    timeline_.message(to).start_s = start;
    ++counts_.timers;
    events_.push({start + occupied + channel.latency_s, What::message_arrives, to});
  }

  /// A message of the channel takes its place at the end of the line of every FIFO link.
  void stand_in_line(std::uint32_t c) {
    for (const int l : channels_.all()[c].links) {
      if (channels_.links()[static_cast<std::size_t>(l)].fifo)
        link_queues_[static_cast<std::size_t>(l)].push_back(c);
    }
  }

  void start_if_first(std::uint32_t c, double now) {
    Lane& lane = lanes_[c];
    if (lane.in_flight || lane.queue.empty()) return;
    for (const int l : channels_.all()[c].links) {
      const auto& queue = link_queues_[static_cast<std::size_t>(l)];
      if (!queue.empty() && queue.front() != c) return;
    }
    lane.in_flight = true;
    timeline_.message(lane.queue.front().to).start_s = now;
    ++counts_.flows;
    const auto bytes =
        static_cast<std::uint64_t>(message_bytes(input_.costs, ops_[lane.queue.front().from]));
    lane.comm = platform_->start(c, bytes);
  }

  void flow_ended(std::size_t index, double now) {
    const auto c = static_cast<std::uint32_t>(index);
    Lane& lane = lanes_[c];
    const std::uint32_t to = lane.queue.front().to;
    lane.queue.pop_front();
    lane.in_flight = false;
    graveyard_.push_back(std::move(lane.comm));
    events_.push({now + channels_.all()[c].latency_s, What::message_arrives, to});
    std::vector<std::uint32_t> next;
    for (const int l : channels_.all()[c].links) {
      auto& queue = link_queues_[static_cast<std::size_t>(l)];
      if (queue.empty()) continue;
      queue.pop_front();
      if (!queue.empty()) next.push_back(queue.front());
    }
    start_if_first(c, now);
    for (const std::uint32_t other : next) start_if_first(other, now);
  }

  void message_arrived(std::uint32_t to, double now) {
    timeline_.message(to).end_s = now;
    const Op& op = ops_[to];
    const int receiver = table_.device_of(op);
    if (device(receiver).cursor == to) try_start(receiver, now);
    if (program_.transfers != Transfers::blocking && program_.transfers != Transfers::coupled)
      return;
    const int sender = table_.device_of(ops_[table_.producer(op)]);
    device(sender).held = false;
    try_start(sender, now);
  }

  const Program& program_;
  const OpLists& ops_;
  const SimulationInput& input_;
  const DependencyTable& table_;
  const Channels& channels_;
  SimgridCounts& counts_;
  Timeline& timeline_;
  Durations duration_;
  LinkRates link_rates_;
  Barriers barriers_;
  std::vector<std::uint32_t> met_;
  std::vector<Device> devices_;
  std::vector<Lane> lanes_;
  std::vector<std::deque<std::uint32_t>> link_queues_;  // FIFO links: channels in line
  std::vector<char> is_flow_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::size_t> completed_;
  std::vector<sg4::CommPtr> graveyard_;  // SimGrid may still look at a Comm after its callback
  Platform* platform_ = nullptr;
  double armed_at_ = -1;
  double latest_ = 0;
  std::uint64_t done_ = 0;
  Progress progress_;
};

}  // namespace

extern "C" void penstock_simgrid_run(const SimulationInput& input, const SimgridOptions& options,
                                     SimgridCounts& counts, Timeline& timeline) {
  Simulation(input, options, counts, timeline).run();
}

}  // namespace penstock
