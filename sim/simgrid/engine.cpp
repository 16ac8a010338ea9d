// The SimGrid engine: SimGrid owns the clock and shares the links, we own the queues.
//
// Driven from maestro, without actors and without a static DAG (both are slower by far in SimGrid
// 3.32). Activities of known duration, compute and messages that share no link, are entries of our
// own event heap, whose head arms one SimGrid timer; what shares a link becomes Comms (flows.hpp)
// and arrives its latency after its last byte. Completions are collected and handled by a timer at
// the same date.
#include "sim/simgrid/module.hpp"

#include "program/walk.hpp"
#include "sim/bucket_times.hpp"
#include "sim/durations.hpp"
#include "sim/simgrid/flows.hpp"

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
        barriers_(input.program),
        norms_(input.program),
        buckets_(input),
        met_(barriers_.groups() * buckets_.most(), 0),
        reduced_at_(barriers_.groups(), -1),
        devices_(static_cast<std::size_t>(ops_.devices())),
        free_at_(input.channels.all().size(), 0.0),
        flows_(input, counts, [this] { arm(sg4::Engine::get_clock()); }),
        progress_("simulating", static_cast<std::int64_t>(ops_.size())) {
    for (std::size_t d = 0; d < devices_.size(); ++d)
      devices_[d].cursor = ops_.begin(static_cast<int>(d));
    timeline_.peak_flows = channels_.flows_of_one();
    add_lanes(options.every_message_a_flow);
    flows_.started = [this](std::size_t lane, std::uint32_t tag) { job_started(lane, tag); };
    flows_.done = [this](std::size_t lane, std::uint32_t tag) { job_done(lane, tag); };
  }

  void run() {
    configure();
    flows_.open();
    for (std::size_t d = 0; d < devices_.size(); ++d) try_start(static_cast<int>(d), 0);
    arm_next();
    sg4::Engine::get_instance()->run();
    timeline_.makespan_s = latest_;
    for (std::size_t l = 0; l < timeline_.peak_flows.size(); ++l)
      timeline_.peak_flows[l] = std::max(timeline_.peak_flows[l], flows_.peaks()[l]);
    if (done_ < ops_.size()) stand_still();
  }

 private:
  enum class What : std::uint8_t {
    op_ends,
    message_arrives,
    norm_arrives,
    bucket_ready,
    phase_ends,
    part_ends,
    exchange_ends
  };
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
    int held = 0;                      // blocking: its sends on the way
    bool waits_for_reduction = false;  // at its cursor
    std::uint32_t reduce = kNoOp;      // its last REDUCE_GRAD
    int calls = 0;                     // exchanges of the running op that have ended
  };
  /// The gradient reduction of one party of Barriers: one part at a time, phase by phase.
  struct Reducing {
    std::size_t first_lane = kNoLane;  // of its phases; none: it has its links for itself
    bool busy = false;
    std::uint32_t group = 0, end = 0;  // meetings: the one in progress or next, and the end
    std::uint32_t bucket = 0;          // in progress or next
    std::size_t phase = 0;             // next
    double started_s = 0;              // of the update's first part
  };
  /// Whose lane it is: a channel's, a position's reduction's or a device's exchanges'.
  struct Owner {
    enum class Kind : std::uint8_t { channel, reduction, exchange } kind;
    std::size_t number;
  };
  static constexpr std::size_t kNoLane = static_cast<std::size_t>(-1);

  /// A lane for these flows if they must be simulated as such.
  std::size_t lane_for(const std::vector<LinkFlow>& flows, bool contended, Owner owner) {
    if (flows.empty() || !(contended || flows_.link_rates().concern(crossed_by(flows))))
      return kNoLane;
    owners_.push_back(owner);
    return flows_.add_lane(flows);
  }

  void add_lanes(bool always) {
    const bool timed = program_.transfers != Transfers::free;
    for (const Channel& channel : channels_.all()) {
      const bool limited = timed && !std::isinf(channel.bytes_per_s);
      lane_of_channel_.push_back(limited ? lane_for(channel.flows, channel.contended || always,
                                                    {Owner::Kind::channel, lane_of_channel_.size()})
                                         : kNoLane);
    }
    for (std::uint32_t p = 0; p < channels_.reductions().size(); ++p)
      add_reduction(p, channels_.reductions()[p], always);
    for (const Exchange& exchange : channels_.exchanges()) {
      const bool limited = exchange.s_per_byte > 0;
      lane_of_exchange_.push_back(limited
                                      ? lane_for(exchange.ring.flows, exchange.contended || always,
                                                 {Owner::Kind::exchange, lane_of_exchange_.size()})
                                      : kNoLane);
    }
  }

  /// All phases of a reduction are flows, or none.
  void add_reduction(std::uint32_t party, const Reduction& reduction, bool always) {
    Reducing& reducing = reducing_.emplace_back();
    std::tie(reducing.group, reducing.end) = barriers_.reductions(party);
    const bool changes = std::ranges::any_of(reduction.phases, [&](const FlowGroup& phase) {
      return flows_.link_rates().concern(crossed_by(phase.flows));
    });
    if (reduction.phases.empty() || !(reduction.contended || changes || always)) return;
    reducing.first_lane = owners_.size();
    for (const FlowGroup& phase : reduction.phases) {
      owners_.push_back({Owner::Kind::reduction, party});
      flows_.add_lane(phase.flows);
    }
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
    while (flows_.any_ended() || (!events_.empty() && events_.top().time_s <= now)) {
      while (!events_.empty() && events_.top().time_s <= now) {
        const Event event = events_.top();
        events_.pop();
        now_ = event.time_s;
        handle(event);
      }
      now_ = now;
      flows_.settle();
    }
    armed_at_ = -1;
    flows_.forget();
    arm_next();
    progress_.update(static_cast<std::int64_t>(done_));
  }

  void handle(const Event& event) {
    switch (event.what) {
      case What::op_ends: return op_ended(event.g, event.time_s);
      case What::message_arrives: return message_arrived(event.g, event.time_s);
      case What::norm_arrives: return norm_arrived(event.g, event.time_s);
      case What::bucket_ready: return bucket_ready(event.g, event.bucket, event.time_s);
      case What::phase_ends: return phase_ended(event.g, event.time_s);
      case What::part_ends: return exchange(event.g);
      case What::exchange_ends: return exchanged(event.g, event.time_s);
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
    const auto stalled = flows_.stalled();
    if (stalled.empty()) return "";
    const auto& [lane, link] = stalled.front();
    return "the link '" + link + "' fails and never recovers, and " + describe(owners_[lane]) +
           " for it";
  }

  std::string describe(const Owner& owner) const {
    const std::string number = std::to_string(owner.number);
    switch (owner.kind) {
      case Owner::Kind::reduction:
        return channels_.reductions()[owner.number].describe() + " waits";
      case Owner::Kind::exchange:
        return "the tensor-parallel all-reduces of device " + number + " wait";
      case Owner::Kind::channel: break;
    }
    const Channel& c = channels_.all()[owner.number];
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
    if (dev.busy || dev.held > 0 || g == ops_.end(d)) return;
    const Op& op = ops_[g];
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i)
      if (ops_[i].has(Op::receives) && !timeline_.has_message(i)) return;
    if (held_by_send(d, g)) return;
    if (op.kind == OpKind::reduce_grad) return reduce(d, g, now);
    if (op.kind == OpKind::step && !may_step(d, g, now)) return;
    dev.busy = true;
    hand_norm(d, g, now);
    if (exchanges_as_flows(g, d)) return start_in_parts(d, g, now);
    const double end = duration_.end_of(now, op, d, g);
    set_span(g, {now, end});
    latest_ = std::max(latest_, end);
    ++counts_.timers;
    events_.push({end, What::op_ends, g});
    announce_buckets(d, g + ops_.together(g) - 1, timeline_.op(g));
  }

  // An op whose GPUs exchange by way of links that others use: it computes a part, they exchange
  // that part's share, and so on, as often as they call each other.

  bool exchanges_as_flows(std::uint32_t g, int d) const {
    if (lane_of_exchange_.empty()) return false;
    return lane_of_exchange_[static_cast<std::size_t>(d)] != kNoLane && traffic(g).calls > 0;
  }
  /// Of op g and the one that runs together with it.
  TensorTraffic traffic(std::uint32_t g) const {
    TensorTraffic sum;
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i) {
      const auto& tensor = input_.costs[ops_[i].stage].tensor;
      const auto kind = static_cast<std::size_t>(ops_[i].kind);
      if (kind >= tensor.size()) continue;
      sum.bytes += tensor[kind].bytes;
      sum.calls += tensor[kind].calls;
    }
    return sum;
  }

  void set_span(std::uint32_t g, const Span& span) {
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i) timeline_.op(i) = span;
  }

  void start_in_parts(int d, std::uint32_t g, double now) {
    device(d).calls = 0;
    set_span(g, {now, now});
    compute_part(d, g, now);
  }

  void compute_part(int d, std::uint32_t g, double now) {
    const int parts = traffic(g).calls;
    const double end = duration_.end_of_part(now, ops_[g], d, g, 1.0 / parts);
    ++counts_.timers;
    events_.push({end, What::part_ends, g});
    const double alone_s = (end - now) + duration_.exchange_s(ops_[g], d, g) / parts;
    announce_buckets(d, g + ops_.together(g) - 1, {now, now + alone_s}, device(d).calls, parts);
  }

  void exchange(std::uint32_t g) {
    const int d = table_.device_of(ops_[g]);
    const TensorTraffic all = traffic(g);
    flows_.send(lane_of_exchange_[static_cast<std::size_t>(d)],
                static_cast<double>(all.bytes) / all.calls, g);
  }

  void exchanged(std::uint32_t g, double now) {
    const int d = table_.device_of(ops_[g]);
    if (++device(d).calls < traffic(g).calls) return compute_part(d, g, now);
    set_span(g, {timeline_.op(g).start_s, now});
    latest_ = std::max(latest_, now);
    op_ended(g, now);
  }

  /// A step that starts now hands the partial norm on.
  void hand_norm(int d, std::uint32_t g, double now) {
    norms_.for_each_taker(ops_[g], d, [&](std::uint32_t to, int taker) {
      timeline_.message(to).start_s = now;
      ++counts_.timers;
      events_.push({now + channels_.norm_latency_s(taker), What::norm_arrives, to});
    });
  }

  void norm_arrived(std::uint32_t to, double now) {
    timeline_.message(to).end_s = now;
    const int taker = table_.device_of(ops_[to]);
    if (device(taker).cursor == to) try_start(taker, now);
  }

  /// A step waits for a partial norm, its detached reduction, or for all devices.
  bool may_step(int d, std::uint32_t g, double now) {
    const Op& op = ops_[g];
    if (norms_.takes(op, d) && !timeline_.has_message(g)) return false;
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
    const int d = table_.device_of(ops_[g]);
    Device& dev = device(d);
    dev.busy = false;
    const std::uint32_t end = g + ops_.together(g);
    dev.cursor = end;
    done_ += end - g;
    for (std::uint32_t i = g; i < end; ++i)
      if (ops_[i].has(Op::sends) && program_.transfers == Transfers::blocking) ++dev.held;
    for (std::uint32_t i = g; i < end; ++i)
      if (ops_[i].has(Op::sends)) send(i, now);
    if (program_.transfers == Transfers::coupled && is_compute(ops_[g].kind))
      post_receive(d, g, now);
    try_start(d, now);
  }

  void send(std::uint32_t g, double now) {
    const std::uint32_t to = table_.consumer(ops_[g]);
    const bool posted = program_.transfers != Transfers::coupled || at_post(to);
    if (posted) depart(g, to, now);
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

  /// The REDUCE_GRAD that this op of a device makes the last gradient for, or kNoOp.
  std::uint32_t reduces_next(int d, std::uint32_t g) const {
    if (!is_backward(ops_[g].kind) && ops_[g].kind != OpKind::backward_weight) return kNoOp;
    std::uint32_t reduce = g + 1;  // the step of the update before may stand in between
    while (reduce < ops_.end(d) && ops_[reduce].kind == OpKind::step) ++reduce;
    const bool found = reduce < ops_.end(d) && ops_[reduce].kind == OpKind::reduce_grad;
    return found ? reduce : kNoOp;
  }

  /// Part `i` of `n` of the last backward of an update has started, which takes so long with its
  /// links for itself: when will the early parts of its gradient be there?
  void announce_buckets(int d, std::uint32_t g, const Span& span, int i = 0, int n = 1) {
    const std::uint32_t reduce = reduces_next(d, g);
    if (reduce == kNoOp) return;
    const auto& buckets = buckets_.of(party_of(d));
    for (std::uint32_t k = 0; k < buckets.size(); ++k) {
      const double within = buckets[k].ready * n - i;  // of this part
      if (buckets[k].ready >= 1 || within < 0 || within >= 1) continue;
      events_.push({span.start_s + within * span.length_s(), What::bucket_ready, reduce, k});
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
    if (r.first_lane != kNoLane) return start_phase(party);
    ++counts_.timers;
    events_.push({now + buckets_.of(party)[r.bucket].seconds, What::phase_ends, party});
    r.phase = channels_.reductions()[party].phases.size();
  }

  void start_phase(std::uint32_t party) {
    Reducing& r = reducing(party);
    flows_.send(r.first_lane + r.phase++, buckets_.of(party)[r.bucket].bytes, party);
  }

  void phase_ended(std::uint32_t party, double now) {
    Reducing& r = reducing(party);
    if (r.phase < channels_.reductions()[party].phases.size()) return start_phase(party);
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
    if (lane_of_channel_[c] != kNoLane)
      return flows_.send(lane_of_channel_[c], static_cast<double>(bytes), to);
    double& free_at = free_at_[c];
    const double start = program_.transfers == Transfers::coupled ? now : std::max(now, free_at);
    const double occupied = static_cast<double>(bytes) / channel.bytes_per_s;
    free_at = start + occupied;
    timeline_.message(to).start_s = start;
    ++counts_.timers;
    events_.push({start + occupied + channel.latency_s, What::message_arrives, to});
  }

  // Flows: what a job's tag is depends on whose lane it is on.

  void job_started(std::size_t lane, std::uint32_t tag) {
    if (owners_[lane].kind == Owner::Kind::channel) timeline_.message(tag).start_s = now_;
  }

  void job_done(std::size_t lane, std::uint32_t tag) {
    const Owner& owner = owners_[lane];
    switch (owner.kind) {
      case Owner::Kind::channel:
        events_.push({now_ + channels_.all()[owner.number].latency_s, What::message_arrives, tag});
        return;
      case Owner::Kind::reduction: {
        const std::size_t phase = reducing(tag).phase - 1;
        const double latency = channels_.reductions()[owner.number].phases[phase].latency_s;
        events_.push({now_ + latency, What::phase_ends, tag});
        return;
      }
      case Owner::Kind::exchange:
        events_.push(
            {now_ + channels_.exchanges()[owner.number].ring.latency_s, What::exchange_ends, tag});
    }
  }

  void message_arrived(std::uint32_t to, double now) {
    timeline_.message(to).end_s = now;
    const Op& op = ops_[to];
    const int receiver = table_.device_of(op);
    const std::uint32_t at = device(receiver).cursor;
    if (at == to || (at + 1 == to && ops_.second_of_pair(to))) try_start(receiver, now);
    if (program_.transfers != Transfers::blocking && program_.transfers != Transfers::coupled)
      return;
    const int sender = table_.device_of(ops_[table_.producer(op)]);
    if (program_.transfers == Transfers::blocking) --device(sender).held;
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
  Barriers barriers_;
  NormChain norms_;
  BucketTimes buckets_;
  std::vector<std::uint32_t> met_;  // [meeting][bucket]: members that have come so far
  std::vector<double> reduced_at_;  // per meeting
  std::vector<Device> devices_;
  std::vector<Reducing> reducing_;  // per party
  std::vector<double> free_at_;     // per channel, without a lane
  Flows flows_;
  std::vector<std::size_t> lane_of_channel_, lane_of_exchange_;  // per channel, per device
  std::vector<Owner> owners_;                                    // per lane
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;  // of the events that are handled
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
