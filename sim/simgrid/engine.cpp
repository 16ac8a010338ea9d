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
#include "sim/bucket_times.hpp"
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
#include <set>

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

/// One way of flows, served one after the other: a channel's, or one edge of a reduction.
struct Lane {
  struct Job {
    double bytes;
    std::uint32_t to;  // of a message: the op that waits for it
  };
  std::vector<int> links;
  bool is_flow = false;
  double free_at = 0;
  bool in_flight = false;
  std::deque<Job> queue;  // flows only: the first one is in flight or wants to be
  sg4::CommPtr comm;
};

/// Links as SimGrid links; one host per lane, whose way to the common sink crosses them.
class Platform {
 public:
  Platform(const Channels& channels, const std::vector<Lane>& lanes, LinkRates& rates)
      : sources_(lanes.size(), nullptr) {
    auto* zone = sg4::create_star_zone("penstock");
    std::vector<sg4::Link*> links;
    for (const NetworkLink& link : channels.links()) {
      const double rate = std::isinf(link.bytes_per_s) ? 1e30 : link.bytes_per_s * kUnitsPerByte;
      auto* made = zone->create_link(link.name, rate);
      made->set_latency(0);
      rates.attach(links.size(), made);
      links.push_back(made->seal());
    }
    sink_ = zone->create_host("sink", 1e9);
    sink_->seal();
    zone->add_route(sink_->get_netpoint(), nullptr, nullptr, nullptr,
                    std::vector<sg4::LinkInRoute>{}, true);
    for (std::size_t n = 0; n < lanes.size(); ++n) {
      if (!lanes[n].is_flow) continue;
      sources_[n] = zone->create_host("lane" + std::to_string(n), 1e9);
      sources_[n]->seal();
      std::vector<sg4::LinkInRoute> way;
      for (const int l : lanes[n].links) way.emplace_back(links[static_cast<std::size_t>(l)]);
      zone->add_route(sources_[n]->get_netpoint(), nullptr, nullptr, nullptr, way, true);
    }
    zone->seal();
  }

  /// Starts a flow of `bytes` > 0 on a lane; the caller keeps the result until it has completed.
  sg4::CommPtr start(std::size_t lane, double bytes) {
    auto comm = sg4::Comm::sendto_init();
    comm->set_payload_size(static_cast<std::uint64_t>(std::llround(bytes * kUnitsPerByte)));
    comm->set_data(reinterpret_cast<void*>(lane + 1));  // NOLINT(performance-no-int-to-ptr)
    comm->set_source(sources_[lane])->set_destination(sink_);
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
        buckets_(input),
        met_(barriers_.groups() * buckets_.most(), 0),
        reduced_at_(barriers_.groups(), -1),
        devices_(static_cast<std::size_t>(ops_.devices())),
        link_queues_(channels_.links().size()),
        progress_("simulating", static_cast<std::int64_t>(ops_.size())) {
    for (std::size_t d = 0; d < devices_.size(); ++d)
      devices_[d].cursor = ops_.begin(static_cast<int>(d));
    const bool timed = program_.transfers != Transfers::free;
    for (const Channel& channel : channels_.all()) {
      const bool limited = !std::isinf(channel.bytes_per_s);
      const bool flow =
          channel.contended || options.every_message_a_flow || link_rates_.concern(channel.links);
      add_lane(channel.links, timed && limited && flow);
    }
    for (std::uint32_t p = 0; p < channels_.reductions().size(); ++p)
      add_reduction(p, options.every_message_a_flow);
  }

  void run() {
    configure();
    Platform platform(channels_, lanes_, link_rates_);
    platform_ = &platform;
    link_rates_.start();
    sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) {
      const auto tag =
          reinterpret_cast<std::size_t>(const_cast<sg4::Activity&>(activity).get_data<void>());
      if (!LinkRates::in_time(sg4::Engine::get_clock())) {
        stalled_.insert(tag - 1);
        return;
      }
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
  enum class What : std::uint8_t { op_ends, message_arrives, bucket_ready, phase_ends };
  struct Event {
    double time_s;
    What what;
    std::uint32_t g;  // the op that ends, waits for the message or reduces; the party
    std::uint32_t bucket = 0;
    bool operator>(const Event& o) const {
      if (time_s != o.time_s) return time_s > o.time_s;
      if (what != o.what) return what > o.what;
      return g != o.g ? g > o.g : bucket > o.bucket;
    }
  };
  struct Device {
    std::uint32_t cursor = 0;
    std::uint32_t met_at = kNoOp;
    bool busy = false;
    bool held = false;                 // blocking: its send is on the way
    bool waits_for_reduction = false;  // at its cursor
    std::uint32_t reduce = kNoOp;      // its last REDUCE_GRAD
  };
  /// The gradient reduction of one party of Barriers: one part at a time, phase by phase.
  struct Reducing {
    bool flows = false;
    std::size_t first_lane = 0;  // of the flows of all phases, one after the other
    bool busy = false;
    std::uint32_t group = 0, end = 0;  // meetings: the one in progress or next, and the end
    std::uint32_t bucket = 0;          // in progress or next
    std::size_t phase = 0, flows_left = 0;
    double started_s = 0;  // of the update's first part
  };

  void add_lane(const std::vector<int>& links, bool is_flow) {
    lanes_.emplace_back();
    lanes_.back().links = links;
    lanes_.back().is_flow = is_flow;
  }

  void add_reduction(std::uint32_t party, bool always_flows) {
    const Reduction& reduction = channels_.reductions()[party];
    Reducing& reducing = reducing_.emplace_back();
    const auto concerned = [&](const LinkFlow& flow) { return link_rates_.concern(flow.links); };
    const bool changes = std::ranges::any_of(reduction.phases, [&](const Reduction::Phase& phase) {
      return std::ranges::any_of(phase.flows, concerned);
    });
    reducing.flows = !reduction.phases.empty() && (reduction.contended || always_flows || changes);
    reducing.first_lane = lanes_.size();
    std::tie(reducing.group, reducing.end) = barriers_.reductions(party);
    for (std::size_t i = 0; reducing.flows && i < reduction.phases.size(); ++i) {
      for (const LinkFlow& flow : reduction.phases[i].flows) add_lane(flow.links, true);
    }
    party_of_lane_.resize(lanes_.size() - channels_.all().size(), party);
  }

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
        handle(event);
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

  void handle(const Event& event) {
    switch (event.what) {
      case What::op_ends: return op_ended(event.g, event.time_s);
      case What::message_arrives: return message_arrived(event.g, event.time_s);
      case What::bucket_ready: return bucket_ready(event.g, event.bucket, event.time_s);
      case What::phase_ends: return phase_ended(event.g, event.time_s);
    }
  }

  /// A link is gone for ever: what has not happened by now never will.
  void stand_still() {
    timeline_.stalled_because = why_stalled();
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

  std::string why_stalled() const {
    for (const std::size_t lane : stalled_) {
      const std::string link = link_rates_.failed(lanes_[lane].links);
      if (!link.empty())
        return "the link '" + link + "' fails and never recovers, and " + user_of(lane) + " for it";
    }
    return "";
  }

  std::string user_of(std::size_t lane) const {
    const std::size_t channels = channels_.all().size();
    if (lane >= channels) {
      return channels_.reductions()[party_of_lane_[lane - channels]].describe() + " waits";
    }
    const Channel& c = channels_.all()[lane];
    return "messages from device " + std::to_string(c.source) + " to device " +
           std::to_string(c.destination) + " wait";
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
    if (op.kind == OpKind::reduce_grad) return reduce(d, g, now);
    if (op.kind == OpKind::step && !may_step(d, g, now)) return;
    dev.busy = true;
    const double end = duration_.end_of(now, op, d, g);
    timeline_.op(g) = {now, end};
    latest_ = std::max(latest_, end);
    ++counts_.timers;
    events_.push({end, What::op_ends, g});
    if (is_backward(op.kind) || op.kind == OpKind::backward_weight) announce_buckets(d, g);
  }

  /// A step waits for its detached reduction, or for all devices.
  bool may_step(int d, std::uint32_t g, double now) {
    const Op& op = ops_[g];
    if (!barriers_.holds(op, d)) return true;
    const std::uint32_t group = barriers_.group(op, d);
    if (!barriers_.comes(op)) return reduced_at_[group] >= 0;
    std::uint32_t& met = met_[group * buckets_.most()];
    if (device(d).met_at != g) {
      device(d).met_at = g;
      if (++met == barriers_.members(op, d)) {
        barriers_.for_each_member(op, d, [&](int other) {
          if (other != d && device(other).met_at == device(other).cursor) try_start(other, now);
        });
      }
    }
    return met == barriers_.members(op, d);
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

  // Reductions ------------------------------------------------------------------------------------

  std::uint32_t party_of(int d) const { return barriers_.party(d); }
  Reducing& reducing(std::uint32_t party) { return reducing_[party]; }

  /// The last backward of an update has started: when will the early parts of its gradient be
  /// there?
  void announce_buckets(int d, std::uint32_t g) {
    std::uint32_t reduce = g + 1;  // the step of the update before may stand in between
    while (reduce < ops_.end(d) && ops_[reduce].kind == OpKind::step) ++reduce;
    if (reduce == ops_.end(d) || ops_[reduce].kind != OpKind::reduce_grad) return;
    const Span& span = timeline_.op(g);
    const auto& buckets = buckets_.of(party_of(d));
    for (std::uint32_t k = 0; k < buckets.size(); ++k) {
      if (buckets[k].ready >= 1) continue;
      events_.push(
          {span.start_s + buckets[k].ready * span.length_s(), What::bucket_ready, reduce, k});
    }
  }

  /// The device has come to a REDUCE_GRAD: all of its gradient is there.
  void reduce(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    if (dev.met_at == g) return;  // waits already
    dev.met_at = dev.reduce = g;
    const bool detached = ops_[g].has(Op::detached);
    dev.waits_for_reduction = !detached;
    timeline_.op(g) = {now, now};
    if (detached) {
      ++counts_.timers;
      dev.busy = true;
      events_.push({now, What::op_ends, g});
    }
    const auto& buckets = buckets_.of(party_of(d));
    for (std::uint32_t k = 0; k < buckets.size(); ++k)
      if (buckets[k].ready >= 1) bucket_ready(g, k, now);
  }

  void bucket_ready(std::uint32_t g, std::uint32_t bucket, double now) {
    const int d = table_.device_of(ops_[g]);
    const std::uint32_t group = barriers_.group(ops_[g], d);
    ++met_[group * buckets_.most() + bucket];
    if (bucket + 1 == buckets_.of(party_of(d)).size()) start_of_waiting(d, group, now);
    start_bucket(party_of(d), now);
  }

  /// An attached reduction counts from when the last member has come.
  void start_of_waiting(int d, std::uint32_t group, double now) {
    const Op& op = ops_[device(d).reduce];
    if (met_[group * buckets_.most() + buckets_.of(party_of(d)).size() - 1] <
        barriers_.members(op, d))
      return;
    barriers_.for_each_member(op, d, [&](int member) {
      if (device(member).waits_for_reduction) timeline_.op(device(member).reduce) = {now, now};
    });
  }

  /// Starts the next part of a party's reduction when it is free and all members have it.
  void start_bucket(std::uint32_t party, double now) {
    Reducing& r = reducing(party);
    if (r.busy || r.group == r.end) return;
    if (met_[r.group * buckets_.most() + r.bucket] < barriers_.party_size(party)) return;
    r.busy = true;
    if (r.bucket == 0) r.started_s = now;
    r.phase = 0;
    if (r.flows) return start_phase(party, now);
    ++counts_.timers;
    events_.push({now + buckets_.of(party)[r.bucket].seconds, What::phase_ends, party});
    r.phase = channels_.reductions()[party].phases.size();
  }

  void start_phase(std::uint32_t party, double now) {
    Reducing& r = reducing(party);
    const auto& phases = channels_.reductions()[party].phases;
    const double bytes = buckets_.of(party)[r.bucket].bytes;
    std::size_t lane = r.first_lane;
    for (std::size_t i = 0; i < r.phase; ++i) lane += phases[i].flows.size();
    const auto& flows = phases[r.phase].flows;
    r.flows_left = flows.size();
    ++r.phase;
    for (const LinkFlow& flow : flows) send_flow(lane++, flow.bytes * bytes, kNoOp, now);
    if (flows.empty()) end_phase(party, now);
  }

  /// The last byte has left; the phase ends with its latencies.
  void end_phase(std::uint32_t party, double now) {
    const auto& phases = channels_.reductions()[party].phases;
    const double latency = phases[reducing(party).phase - 1].latency_s;
    events_.push({now + latency, What::phase_ends, party});
  }

  void phase_ended(std::uint32_t party, double now) {
    Reducing& r = reducing(party);
    if (r.phase < channels_.reductions()[party].phases.size()) return start_phase(party, now);
    r.busy = false;
    if (++r.bucket == buckets_.of(party).size()) {
      reduced_at_[r.group++] = now;
      r.bucket = 0;
      for (std::uint32_t i = 0; i < barriers_.party_size(party); ++i)
        reduction_ended(barriers_.of_party(party, i), now);
    }
    start_bucket(party, now);
  }

  void reduction_ended(int d, double now) {
    Device& dev = device(d);
    timeline_.message(dev.reduce) = {reducing(party_of(d)).started_s, now};
    latest_ = std::max(latest_, now);
    if (!dev.waits_for_reduction) return try_start(d, now);
    dev.waits_for_reduction = false;
    timeline_.op(dev.reduce).end_s = now;
    op_ended(dev.reduce, now);
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
    if (lanes_[c].is_flow && bytes > 0) {
      send_flow(c, static_cast<double>(bytes), to, now);
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

  /// A flow takes its place at the end of its lane's queue, and of the line of every FIFO link.
  void send_flow(std::size_t n, double bytes, std::uint32_t to, double now) {
    if (bytes * kUnitsPerByte < 0.5) return flow_done(n, to, now);
    lanes_[n].queue.push_back({bytes, to});
    for (const int l : lanes_[n].links) {
      if (channels_.links()[static_cast<std::size_t>(l)].fifo)
        link_queues_[static_cast<std::size_t>(l)].push_back(n);
    }
    start_if_first(n, now);
  }

  void start_if_first(std::size_t n, double now) {
    Lane& lane = lanes_[n];
    if (lane.in_flight || lane.queue.empty()) return;
    for (const int l : lane.links) {
      const auto& queue = link_queues_[static_cast<std::size_t>(l)];
      if (!queue.empty() && queue.front() != n) return;
    }
    lane.in_flight = true;
    const Lane::Job& job = lane.queue.front();
    if (job.to != kNoOp) timeline_.message(job.to).start_s = now;
    ++counts_.flows;
    lane.comm = platform_->start(n, job.bytes);
  }

  void flow_ended(std::size_t n, double now) {
    Lane& lane = lanes_[n];
    const std::uint32_t to = lane.queue.front().to;
    lane.queue.pop_front();
    lane.in_flight = false;
    graveyard_.push_back(std::move(lane.comm));
    flow_done(n, to, now);
    std::vector<std::size_t> next;
    for (const int l : lane.links) {
      auto& queue = link_queues_[static_cast<std::size_t>(l)];
      if (queue.empty()) continue;
      queue.pop_front();
      if (!queue.empty()) next.push_back(queue.front());
    }
    start_if_first(n, now);
    for (const std::size_t other : next) start_if_first(other, now);
  }

  void flow_done(std::size_t n, std::uint32_t to, double now) {
    const std::size_t channels = channels_.all().size();
    if (n < channels) {
      events_.push({now + channels_.all()[n].latency_s, What::message_arrives, to});
      return;
    }
    const std::uint32_t party = party_of_lane_[n - channels];
    if (--reducing(party).flows_left == 0) end_phase(party, now);
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
  BucketTimes buckets_;
  std::vector<std::uint32_t> met_;  // [meeting][bucket]: members that have come so far
  std::vector<double> reduced_at_;  // per meeting
  std::vector<Device> devices_;
  std::vector<Lane> lanes_;                           // of the channels, then of the reductions
  std::vector<Reducing> reducing_;                    // per party
  std::vector<std::uint32_t> party_of_lane_;          // of the reductions' lanes
  std::vector<std::deque<std::size_t>> link_queues_;  // FIFO links: lanes in line
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::size_t> completed_;
  std::set<std::size_t> stalled_;        // lanes whose flow never ends
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
