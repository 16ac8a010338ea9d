// SPDX-License-Identifier: Apache-2.0
// The engine of events: queues of our own, and a network that shares the links and, while flows are
// under way on them, owns the clock.
//
// Activities of known duration, compute and messages that share no link, are entries of our own
// event heap, whose head is what the network wakes us at while it has flows; what shares a link
// becomes flows and arrives its latency after its last byte. Completions are collected and handled
// at the same date. Of devices in lockstep those that lead are played (lockstep.hpp), and an op
// that has its links for itself is one event (coasting.hpp).
#include "sim/events.hpp"

#include "base/progress.hpp"
#include "program/gather_queue.hpp"
#include "program/walk.hpp"
#include "sim/bucket_times.hpp"
#include "sim/carrier.hpp"
#include "sim/coasting.hpp"
#include "sim/durations.hpp"
#include "sim/event.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace penstock {
namespace {

class Simulation {
 public:
  Simulation(const SimulationInput& input, FlowNetwork& network, const EventOptions& options,
             SimgridCounts& counts, Timeline& timeline)
      : program_(input.program),
        ops_(input.program.ops),
        input_(input),
        table_(input.table),
        traffic_(input.traffic),
        counts_(counts),
        timeline_(timeline),
        duration_(input),
        barriers_(input.program),
        norms_(input.program),
        buckets_(input),
        gathers_(input.program),
        met_(barriers_.groups() * meetings(), 0),
        reduced_at_(barriers_.groups(), -1),
        devices_(static_cast<std::size_t>(ops_.devices())),
        lockstep_(input, options.shortcuts),
        network_(network),
        carrier_(
            input, lockstep_, network, options, counts,
            [this](double time_s, std::uint32_t transfer, std::uint32_t tag) {
              events_.emplace(time_s, EventKind::transfer_ends, traffic_[transfer].kind, tag,
                              transfer);
            },
            [this] { arm(network_.now_s()); }),
        coasters_(lockstep_.links().size()),
        progress_("simulating", static_cast<std::int64_t>(ops_.size())) {
    for (int d = 0; d < ops_.devices(); ++d) {
      device(d).cursor = ops_.begin(d);
      if (lockstep_.leads(d)) to_run_ += ops_.end(d) - ops_.begin(d);
      device(d).coasts_on = options.shortcuts ? links_to_coast_on(d) : std::nullopt;
    }
    timeline_.peak_flows = traffic_.flows_of_one();
    for (std::uint32_t p = 0; p < traffic_.reductions().size(); ++p) {
      const auto [group, end] = barriers_.reductions(p);
      reducing_.push_back({.group = group, .end = end});
    }
    carrier_.started = [this](std::uint32_t, std::uint32_t to, double at) {
      timeline_.message(to).start_s = at;
    };
    if (!options.shortcuts) return;
    carrier_.crosses = [this](const std::vector<int>& links, double now) {
      for (const int l : links)
        if (coasters_.on(l) != Coasters::kNobody) disturb(coasters_.on(l), now);
    };
  }

  void run() {
    network_.due = [this](double time_s) { drain(time_s); };
    carrier_.open();
    for (int d = 0; d < ops_.devices(); ++d)
      if (lockstep_.leads(d)) gather_first(d, gathers_.first(d), 0);
    for (int d = 0; d < ops_.devices(); ++d) try_start(d, 0);
    carrier_.begin_flows();
    arm_next();
    network_.run();
    timeline_.makespan_s = latest_;
    if (done_ < to_run_) stand_still();
    lockstep_.complete(ops_, carrier_.peaks(), timeline_);
  }

 private:
  static constexpr std::array<std::int8_t, kLanes> nobody() {
    std::array<std::int8_t, kLanes> none{};
    none.fill(Segment::kNone);
    return none;
  }
  struct Device {
    std::uint32_t cursor = 0;
    std::uint32_t met_at = kNoOp;
    bool busy = false;
    int held = 0;                      // blocking: its sends on the way
    bool waits_for_reduction = false;  // at its cursor
    std::uint32_t reduce = kNoOp;      // its last REDUCE_GRAD
    // Op::prefetched: the last one whose weights are there, and the first of the update.
    std::uint32_t gathered = kNoOp, first_gathered = kNoOp;
    // Of the op that is played:
    Recipe recipe{};
    int time = 0;  // that is gone through; -1: what comes before, recipe.times: what comes after
    std::uint32_t begun = 0, ended = 0;                     // its segments, a bit each
    std::array<std::int8_t, kLanes> exchanging = nobody();  // the segment of a lane that exchanges
    // Where it coasts:
    std::optional<std::vector<int>> coasts_on{};  // links; none: it cannot
    bool coasts = false;
    std::uint32_t coasted = 0;  // how often
    double since_s = 0;
    RecipeSpans spans{};
  };
  /// The gradient reduction of one replica group of Barriers: one part at a time.
  struct Reducing {
    bool busy = false;
    std::uint32_t group = 0, end = 0;  // meetings: the one in progress or next, and the end
    std::uint32_t bucket = 0;          // in progress or next
    double started_s = 0;              // of the update's first part
  };
  // The clock -------------------------------------------------------------------------------------

  void arm(double time_s) {
    if (armed_at_ >= 0 && armed_at_ <= time_s) return;
    armed_at_ = time_s;
    network_.wake_at(time_s);
  }
  void arm_next() {
    if (!events_.empty()) arm(events_.top().time_s());
  }

  /// Handles everything that happens now and, as long as nothing shares a link, what comes later:
  /// the network is asked again when flows are under way, or are to begin at a later time than its.
  void drain(double time_s) {
    armed_at_ = -1;
    carrier_.begin_flows();
    double now = std::max(time_s, network_.now_s());
    for (bool ahead = false;; ahead = true) {
      handle_until(now);
      if (carrier_.flows_to_begin()) {
        if (ahead) return arm(now);
        carrier_.begin_flows();
      }
      if (carrier_.flows_in_flight() || events_.empty()) break;
      now = events_.top().time_s();
    }
    network_.forget();
    arm_next();
  }

  /// In an order of our own.
  void handle_until(double now) {
    while (carrier_.any_ended() || (!events_.empty() && events_.top().time_s() <= now)) {
      while (!events_.empty() && events_.top().time_s() <= now) {
        const PendingEvent event = events_.top();
        events_.pop();
        handle(event);
      }
      carrier_.settle(now);
    }
    progress_.update(static_cast<std::int64_t>(done_));
  }

  void handle(const PendingEvent& event) {
    const double now = event.time_s();
    switch (event.what()) {
      case EventKind::op_ends: return op_ended(event.g(), now);
      case EventKind::coasting_ends: return coasting_ended(event.g(), event.number(), now);
      case EventKind::segment_ends: return segment_ended(event.g(), event.number(), now);
      case EventKind::transfer_ends:
        if (carrier_.continue_transfer(event.number(), event.g(), now))
          return transfer_ended(event.kind(), event.number(), event.g(), now);
    }
  }

  void end_segment_at(double time_s, std::uint32_t g, std::uint32_t number = 0) {
    events_.emplace(time_s, EventKind::segment_ends, Transfer::Kind{}, g, number);
  }
  void end_op_at(double time_s, std::uint32_t g) {
    events_.emplace(time_s, EventKind::op_ends, Transfer::Kind{}, g, 0);
  }

  /// Of computing: of the last backward of an update, from when a part of its gradient is there
  /// (the REDUCE_GRAD it is for, the part); or a segment of an op that is played.
  void segment_ended(std::uint32_t g, std::uint32_t number, double now) {
    if (ops_[g].kind == OpKind::reduce_grad) return bucket_ready(g, number, now);
    played(g, number, now);
  }

  void transfer_ended(Transfer::Kind kind, std::uint32_t number, std::uint32_t tag, double now) {
    switch (kind) {
      case Transfer::Kind::message: return message_arrived(tag, now);
      case Transfer::Kind::norm: return norm_arrived(tag, now);
      case Transfer::Kind::reduction: return part_reduced(tag, now);
      case Transfer::Kind::collective: return collective_ended(number, tag, now);
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
    const auto [stalled, link] = carrier_.stalled();
    if (stalled == kNoOp) return "";
    return "the link '" + link + "' fails and never recovers, and " + waiting(traffic_[stalled]) +
           " for it";
  }

  static std::string waiting(const Transfer& transfer) {
    if (transfer.kind == Transfer::Kind::collective) return transfer.describe() + " wait";
    if (transfer.kind != Transfer::Kind::message) return transfer.describe() + " waits";
    return "messages from device " + std::to_string(transfer.source) + " to device " +
           std::to_string(transfer.destination) + " wait";
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
    if (dev.busy || dev.held > 0 || g == ops_.end(d) || !lockstep_.leads(d)) return;
    const Op& op = ops_[g];
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i)
      if (ops_[i].has(Op::receives) && !timeline_.has_message(i)) return;
    if (held_by_send(d, g)) return;
    if (op.kind == OpKind::reduce_grad) return reduce(d, g, now);
    if (op.kind == OpKind::step && !may_step(d, g, now)) return;
    dev.busy = true;
    hand_norm(d, g, now);
    set_span(g, {now, now});
    if (!op.has(Op::prefetched) || has_weights(dev, g)) run(d, g, now);
  }

  /// Weights are gathered in the order of the forwards that wait for them.
  static bool has_weights(const Device& dev, std::uint32_t g) {
    return dev.gathered != kNoOp && dev.gathered >= g;
  }

  /// Runs an op that has all that it waits for.
  void run(int d, std::uint32_t g, double now) {
    const Op& op = ops_[g];
    if (op.has(Op::prefetched) && device(d).first_gathered != g) gather_next(d, g, now);
    if (is_played(g, d)) return play(d, g, now);
    const double end = duration_.end_of(now, op, d, g);
    set_span(g, {timeline_.op(g).start_s, end});
    latest_ = std::max(latest_, end);
    ++counts_.timers;
    end_op_at(end, g);
    announce_buckets(d, g, timeline_.op(g));
  }

  // An op whose ranks' collectives cross links that others use is played by its recipe, segment by
  // segment.

  bool is_played(std::uint32_t g, int d) const {
    const auto flow = [&](const AxisCollective& one) {
      return carrier_.flows(traffic_.collective_of(d, one));
    };
    if (std::ranges::none_of(traffic_.collectives(), flow)) return false;
    bool flows = false;
    recipe_of(g).for_each([&](const Segment& s) {
      flows = flows || (s.exchanges() && flow({s.axis, s.what}));
    });
    return flows;
  }
  /// Of op g and the one that runs together with it.
  Recipe recipe_of(std::uint32_t g) const {
    const auto of = [&](std::uint32_t i) {
      const Op& op = ops_[i];
      return is_compute(op.kind) ? input_.costs[op.stage].pass(op)[op].recipe : Recipe{};
    };
    if (ops_.together(g) == 1) return of(g);
    const int d = table_.device_of(ops_[g]);
    const double a_s = duration_.free_compute_s(ops_[g], d);
    const double both_s = a_s + duration_.free_compute_s(ops_[g + 1], d);
    return joined(of(g), both_s > 0 ? a_s / both_s : 0.5, of(g + 1));
  }

  void set_span(std::uint32_t g, const Span& span) {
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i) timeline_.op(i) = span;
  }

  void play(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    dev.recipe = recipe_of(g);
    for (const auto* part : {&dev.recipe.before, &dev.recipe.segments, &dev.recipe.after})
      invariant(part->size() <= Recipe::kMostSegments,
                "an op that is played has more than 31 segments, which are a bit each");
    dev.time = dev.recipe.before.empty() ? 0 : -1;
    play_once(d, g, now);
  }

  static bool repeats(const Device& dev) { return dev.time >= 0 && dev.time < dev.recipe.times; }
  static const std::vector<Segment>& segments(const Device& dev) {
    if (repeats(dev)) return dev.recipe.segments;
    return dev.time < 0 ? dev.recipe.before : dev.recipe.after;
  }
  /// Into how many parts a segment's work is divided.
  static int times(const Device& dev) { return repeats(dev) ? dev.recipe.times : 1; }

  void play_once(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    if (repeats(dev) && may_coast(d, g)) return coast(d, g, now);
    dev.begun = dev.ended = 0;
    begin_segments(d, g, now);
    if (!repeats(dev)) return;
    const int times = dev.recipe.times;
    const double computed_s = duration_.end_of_part(now, ops_[g], d, g, 1.0 / times) - now;
    const double alone_s = computed_s + duration_.exchange_s(ops_[g], d, g) / times;
    announce_buckets(d, g, {now, now + alone_s}, dev.time, times);
  }

  /// Those that wait for nothing any more: the one before on their lane has ended, and `after`.
  void begin_segments(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    std::array<bool, kLanes> busy{};
    for (std::uint32_t i = 0; i < segments(dev).size(); ++i) {
      const Segment& segment = segments(dev)[i];
      bool& lane_busy = busy[static_cast<std::size_t>(segment.lane)];
      const bool waits = segment.after != Segment::kNone && !has(dev.ended, segment.after);
      if (!lane_busy && !waits && !has(dev.begun, static_cast<int>(i))) begin_segment(d, g, i, now);
      lane_busy = lane_busy || !has(dev.ended, static_cast<int>(i));
    }
  }

  void begin_segment(int d, std::uint32_t g, std::uint32_t i, double now) {
    Device& dev = device(d);
    const Segment& segment = segments(dev)[i];
    dev.begun |= 1U << i;
    if (segment.exchanges()) {
      set_exchanging(dev, static_cast<int>(i));
      const std::uint32_t number = traffic_.collective_of(d, segment);
      carrier_.send(number, static_cast<double>(segment.bytes) / times(dev),
                    exchange_s(d, segment) / times(dev), g, now, calls_at_once(d, segment));
      return;
    }
    ++counts_.timers;
    end_segment_at(duration_.end_of_part(now, ops_[g], d, g, segment.share / dev.recipe.times), g,
                   i);
  }

  /// Over all times, its links for itself.
  double exchange_s(int d, const Segment& segment) const {
    return traffic_[traffic_.collective_of(d, segment)].price().seconds(segment);
  }
  double calls_at_once(int d, const Segment& segment) {
    return static_cast<double>(segment.calls) / times(device(d));
  }

  /// Begins to gather the weights of the first of several stages.
  void gather_first(int d, std::uint32_t first, double now) {
    device(d).first_gathered = first;
    gather(d, first, now);
  }
  void gather_next(int d, std::uint32_t g, double now) { gather(d, gathers_.next(g), now); }
  /// Begins to gather those that forward `next` waits for.
  void gather(int d, std::uint32_t next, double now) {
    if (next == kNoOp) return;
    const Gathered all = gathered_before(input_.costs, ops_[next]);
    if (all.bytes == 0) return weights_gathered(d, next, now);
    const std::uint32_t number = traffic_.collective_of(d, {Axis::data, Collective::all_gather});
    carrier_.send(number, all.bytes, traffic_[number].price().seconds(all.bytes, all.calls), next,
                  now, all.calls);
  }
  void weights_gathered(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    dev.gathered = g;
    if (dev.busy && dev.cursor == g) run(d, g, now);
    if (dev.first_gathered == g) gather_next(d, g, now);
  }

  void collective_ended(std::uint32_t number, std::uint32_t g, double now) {
    const int d = table_.device_of(ops_[g]);
    Device& dev = device(d);
    if (ops_[g].has(Op::prefetched) && !has_weights(dev, g) && traffic_[number].axis == Axis::data)
      return weights_gathered(d, g, now);
    std::int8_t& segment = dev.exchanging[static_cast<std::size_t>(lane_of(traffic_[number].axis))];
    invariant(segment != Segment::kNone, "a collective ends that no segment began");
    played(g, static_cast<std::uint32_t>(std::exchange(segment, Segment::kNone)), now);
  }

  /// The end of a collective does not say of which segment it is.
  static void set_exchanging(Device& dev, int number) {
    std::int8_t& segment = dev.exchanging[static_cast<std::size_t>(
        segments(dev)[static_cast<std::size_t>(number)].lane)];
    invariant(segment == Segment::kNone, "a lane has two exchanges under way");
    segment = static_cast<std::int8_t>(number);
  }

  void played(std::uint32_t g, std::uint32_t segment, double now) {
    const int d = table_.device_of(ops_[g]);
    Device& dev = device(d);
    dev.ended |= 1U << segment;
    if (dev.ended + 1 < 1ULL << segments(dev).size()) return begin_segments(d, g, now);
    play_next(d, g, now);
  }

  void play_next(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    const bool ends = ++dev.time == dev.recipe.times + (dev.recipe.after.empty() ? 0 : 1);
    return ends ? played_out(g, now) : play_once(d, g, now);
  }

  void played_out(std::uint32_t g, double now) {
    set_span(g, {timeline_.op(g).start_s, now});
    latest_ = std::max(latest_, now);
    op_ended(g, now);
  }

  static bool has(std::uint32_t segments, int segment) { return (segments >> segment & 1U) != 0; }

  // Coasting --------------------------------------------------------------------------------------

  std::optional<std::vector<int>> links_to_coast_on(int d) const {
    std::vector<int> links;
    std::map<int, Lane> lane_on;  // lanes that share a link are not alone on it
    if (input_.perturbation != nullptr) return std::nullopt;
    for (const AxisCollective& one : traffic_.collectives()) {
      const std::uint32_t number = traffic_.collective_of(d, one);
      if (!carrier_.flows(number)) continue;
      if (!carrier_.steady(number)) return std::nullopt;
      const std::vector<int> more = carrier_.links_of(number);
      for (const int l : more)
        if (lane_on.try_emplace(l, lane_of(one.axis)).first->second != lane_of(one.axis))
          return std::nullopt;
      links.insert(links.end(), more.begin(), more.end());
    }
    std::ranges::sort(links);
    links.erase(std::ranges::unique(links).begin(), links.end());
    return links;
  }

  bool may_coast(int d, std::uint32_t g) const {
    const Device& dev = devices_[static_cast<std::size_t>(d)];
    return dev.coasts_on && reduced_by(g + ops_.together(g) - 1) == kNoOp &&
           std::ranges::none_of(*dev.coasts_on, [&](int l) {
             return carrier_.occupied(l) || coasters_.on(l) != Coasters::kNobody;
           });
  }

  /// From the next time of the recipe to the end of the op.
  void coast(int d, std::uint32_t g, double now) {
    Device& dev = device(d);
    const int times = dev.recipe.times;
    dev.spans.lay_out(dev.recipe, [&](const Segment& s) {
      if (s.lane == Lane::compute) return duration_.end_of_part(0, ops_[g], d, g, s.share / times);
      return exchange_s(d, s) / times;
    });
    dev.coasts = true;
    dev.since_s = now;
    coasters_.set(*dev.coasts_on, d);
    events_.emplace(now + (times - dev.time) * dev.spans.length_s(), EventKind::coasting_ends,
                    Transfer::Kind{}, g, ++dev.coasted);
  }

  void stop_coasting(int d) {
    device(d).coasts = false;
    coasters_.set(*device(d).coasts_on, Coasters::kNobody);
  }

  void coasting_ended(std::uint32_t g, std::uint32_t number, double now) {
    const int d = table_.device_of(ops_[g]);
    if (!device(d).coasts || device(d).coasted != number) return;  // it was disturbed
    stop_coasting(d);
    device(d).time = device(d).recipe.times - 1;
    play_next(d, g, now);
  }

  /// From now on a device's op is played, from where it is.
  void disturb(int d, double now) {
    Device& dev = device(d);
    const double once_s = dev.spans.length_s();
    const int left = dev.recipe.times - dev.time;
    int gone =
        once_s > 0 ? static_cast<int>(std::min((now - dev.since_s) / once_s, 1.0 * left)) : 0;
    double within_s = std::max(0.0, now - dev.since_s - gone * once_s);
    if (gone < left && within_s >= once_s) within_s = 0, ++gone;
    if (gone == left) return;  // it ends now
    stop_coasting(d);
    dev.time += gone;
    dev.begun = dev.ended = 0;
    for (int i = 0; i < static_cast<int>(dev.recipe.segments.size()); ++i) {
      if (dev.spans.span_of(i).start_s <= within_s) dev.begun |= 1U << i;
      if (dev.spans.span_of(i).end_s <= within_s) dev.ended |= 1U << i;
    }
    const double began_s = dev.since_s + gone * once_s;
    for (int i = 0; i < static_cast<int>(dev.recipe.segments.size()); ++i)
      if (has(dev.begun, i) && !has(dev.ended, i)) resume(d, i, began_s, within_s, now);
  }

  void resume(int d, int i, double began_s, double within_s, double now) {
    Device& dev = device(d);
    const Segment& segment = dev.recipe.segments[static_cast<std::size_t>(i)];
    const Span& span = dev.spans.span_of(i);
    if (segment.lane == Lane::compute)
      return end_segment_at(began_s + span.end_s, dev.cursor, static_cast<std::uint32_t>(i));
    set_exchanging(dev, i);
    const std::uint32_t number = traffic_.collective_of(d, segment);
    const double s_per_byte = traffic_[number].phases[0].s_per_byte;
    const double sent = s_per_byte > 0 ? (within_s - span.start_s) / s_per_byte : 0;
    carrier_.resume(number, static_cast<double>(segment.bytes) / dev.recipe.times - sent,
                    began_s + span.end_s, dev.cursor, now, calls_at_once(d, segment));
  }

  /// A step that starts now hands the partial norm on.
  void hand_norm(int d, std::uint32_t g, double now) {
    norms_.for_each_taker(ops_[g], d, [&](std::uint32_t to, int taker) {
      timeline_.message(to).start_s = now;
      carrier_.send(traffic_.norm_of(taker), 0, 0, to, now);
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
    std::uint32_t& met = met_[group * meetings()];
    if (device(d).met_at != g) {
      device(d).met_at = g;
      if (++met == members(op, d)) {
        barriers_.for_each_member(op, d, [&](int other) {
          if (other != d && device(other).met_at == device(other).cursor) try_start(other, now);
        });
      }
    }
    return met == members(op, d);
  }

  void op_ended(std::uint32_t g, double now) {
    const int d = table_.device_of(ops_[g]);
    Device& dev = device(d);
    dev.busy = false;
    if (ops_[g].kind == OpKind::step) gather_first(d, gathers_.next(g), now);
    const std::uint32_t end = g + ops_.together(g);
    dev.cursor = end;
    done_ += end - g;
    for (std::uint32_t i = g; i < end; ++i)
      if (ops_[i].has(Op::sends) && program_.transfers == Transfers::blocking) ++dev.held;
    for_each_early_bucket(d, g, [&](std::uint32_t reduce, std::uint32_t bucket, double ready) {
      if (ready >= 1) bucket_ready(reduce, bucket, now);
    });
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

  /// Of the meeting of an op, those that are played.
  std::uint32_t members(const Op& op, int d) const {
    return barriers_.members(op, d) / lockstep_.replicas();
  }
  std::uint32_t replica_group_of(int d) const { return barriers_.replica_group_of(d); }
  Reducing& reducing(std::uint32_t replica_group) { return reducing_[replica_group]; }

  /// Counts of a meeting: one for each part, and one of devices that have all of their gradients.
  std::size_t meetings() const { return buckets_.most() + 1; }
  /// The REDUCE_GRAD before which this op completes its stage's gradient, or kNoOp.
  std::uint32_t reduced_by(std::uint32_t g) const { return traffic_.gradient_ends().reduced_by(g); }
  /// Calls `visit(op, its REDUCE_GRAD, part, is it there when the op ends?)` for the parts of a
  /// reduction that op g, or the one that runs together with it, completes before the device has
  /// come to the reduction.
  template <class Visit>
  void for_each_early_bucket(int d, std::uint32_t g, const Visit& visit) const {
    for (std::uint32_t i = g; i < g + ops_.together(g); ++i) {
      if (ops_[i].kind == OpKind::forward) continue;
      const std::uint32_t reduce = reduced_by(i);
      if (reduce == kNoOp) continue;
      const auto& buckets = buckets_.buckets_of(replica_group_of(d));
      const bool last = ops_.previous_compute(d, reduce) == i;
      for (std::uint32_t k = 0; k < buckets.size(); ++k)
        if (buckets[k].stage == ops_[i].stage && (buckets[k].ready < 1 || !last))
          visit(reduce, k, buckets[k].ready);
    }
  }

  /// Part `i` of `n` of an op has started, which takes so long with its links for itself: when will
  /// the early parts of the gradient that it completes be there?
  void announce_buckets(int d, std::uint32_t g, const Span& span, int i = 0, int n = 1) {
    for_each_early_bucket(d, g, [&](std::uint32_t reduce, std::uint32_t bucket, double ready) {
      const double within = ready * n - i;  // of this part
      if (ready < 1 && within >= 0 && within < 1)
        end_segment_at(span.start_s + within * span.length_s(), reduce, bucket);
    });
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
      end_op_at(now, g);
    }
    const std::uint32_t group = barriers_.group(ops_[g], d);
    if (++met_[group * meetings() + buckets_.most()] == members(ops_[g], d)) start_waiting(d, now);
    const auto& buckets = buckets_.buckets_of(replica_group_of(d));
    const std::uint32_t backward = ops_.previous_compute(d, g);
    for (std::uint32_t k = 0; k < buckets.size(); ++k) {
      const std::uint32_t last = traffic_.gradient_ends().last_of(g, buckets[k].stage);
      if (last == kNoOp || (last == backward && buckets[k].ready >= 1)) bucket_ready(g, k, now);
    }
  }

  void bucket_ready(std::uint32_t g, std::uint32_t bucket, double now) {
    const int d = table_.device_of(ops_[g]);
    ++met_[barriers_.group(ops_[g], d) * meetings() + bucket];
    start_bucket(replica_group_of(d), now);
  }

  /// The last member has come: an attached reduction counts from now on.
  void start_waiting(int d, double now) {
    barriers_.for_each_member(ops_[device(d).reduce], d, [&](int member) {
      if (device(member).waits_for_reduction) timeline_.op(device(member).reduce) = {now, now};
    });
  }

  /// Starts the next part of a replica group's reduction when it is free and all members have it.
  void start_bucket(std::uint32_t replica_group, double now) {
    Reducing& r = reducing(replica_group);
    if (r.busy || r.group == r.end) return;
    if (met_[r.group * meetings() + r.bucket] <
        barriers_.replica_group_size(replica_group) / lockstep_.replicas())
      return;
    r.busy = true;
    if (r.bucket == 0) r.started_s = now;
    const BucketTimes::Bucket& part = buckets_.buckets_of(replica_group)[r.bucket];
    carrier_.send(traffic_.reduction_of(replica_group), part.bytes, part.seconds, replica_group,
                  now);
  }

  void part_reduced(std::uint32_t replica_group, double now) {
    Reducing& r = reducing(replica_group);
    r.busy = false;
    if (++r.bucket == buckets_.buckets_of(replica_group).size()) {
      reduced_at_[r.group++] = now;
      r.bucket = 0;
      for (std::uint32_t i = 0; i < barriers_.replica_group_size(replica_group); ++i) {
        const int member = barriers_.replica_group_member(replica_group, i);
        if (lockstep_.leads(member)) reduction_ended(member, now);
      }
    }
    start_bucket(replica_group, now);
  }

  void reduction_ended(int d, double now) {
    Device& dev = device(d);
    timeline_.message(dev.reduce) = {reducing(replica_group_of(d)).started_s, now};
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
    const std::uint32_t message = traffic_.message_of(op);
    const auto bytes = static_cast<double>(message_bytes(input_.costs, op));
    carrier_.send(message, bytes, bytes / traffic_[message].bytes_per_s, to, now);
  }

  void message_arrived(std::uint32_t to, double now) {
    timeline_.message(to).end_s = now;
    const Op& op = ops_[to];
    const int receiver = table_.device_of(op);
    const std::uint32_t at = device(receiver).cursor;
    if (at == to || (at + 1 == to && ops_.second_of_pair(to))) try_start(receiver, now);
    if (!holds_sender(program_.transfers)) return;
    const int sender = table_.device_of(ops_[table_.producer(op)]);
    if (program_.transfers == Transfers::blocking) --device(sender).held;
    try_start(sender, now);
  }

  const Program& program_;
  const OpLists& ops_;
  const SimulationInput& input_;
  const DependencyTable& table_;
  const Traffic& traffic_;
  SimgridCounts& counts_;
  Timeline& timeline_;
  Durations duration_;
  Barriers barriers_;
  NormChain norms_;
  BucketTimes buckets_;
  GatherQueue gathers_;
  std::vector<std::uint32_t> met_;  // [meeting][part or all]: members that have come so far
  std::vector<double> reduced_at_;  // per meeting
  std::vector<Device> devices_;
  std::vector<Reducing> reducing_;  // per replica group
  Lockstep lockstep_;
  FlowNetwork& network_;
  Carrier carrier_;
  Coasters coasters_;
  std::priority_queue<PendingEvent, std::vector<PendingEvent>, std::greater<>> events_;
  double armed_at_ = -1;
  double latest_ = 0;
  std::uint64_t to_run_ = 0, done_ = 0;
  Progress progress_;
};

}  // namespace

void run_events(const SimulationInput& input, FlowNetwork& network, const EventOptions& options,
                SimgridCounts& counts, Timeline& timeline) {
  Simulation(input, network, options, counts, timeline).run();
}

}  // namespace penstock
