// SPDX-License-Identifier: Apache-2.0
#include "traces/chrome_writer.hpp"

#include "base/json.hpp"
#include "program/op_costs.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace penstock {
namespace {

std::int64_t to_ns(double seconds) { return std::llround(seconds * 1e9); }

// Catapult's reserved colour names; Perfetto ignores them. F and what carries its output are blue,
// B and what carries its gradient green; a wait is orange or red, grey where nothing can be done.
constexpr std::string_view kOpColours[] = {
    "thread_state_runnable", "thread_state_running",         "rail_load",
    "cq_build_passed",       "thread_state_uninterruptible", "thread_state_unknown"};
constexpr std::string_view kCauseColours[kCauses] = {
    "cq_build_abandoned", "rail_idle", "rail_animation", "cq_build_abandoned", "yellow"};
constexpr std::string_view kActivationColour = "rail_response";
constexpr std::string_view kGradientColour = "cq_build_attempt_passed";

/// Lanes of one channel: a message goes to the first lane that is free.
class Lanes {
 public:
  /// Precondition: calls come in order of `start_ns`.
  std::size_t place(std::int64_t start_ns, std::int64_t end_ns) {
    for (std::size_t i = 0; i < free_at_.size(); ++i) {
      if (free_at_[i] <= start_ns) {
        free_at_[i] = end_ns;
        return i;
      }
    }
    free_at_.push_back(end_ns);
    return free_at_.size() - 1;
  }
  std::size_t count() const { return free_at_.size(); }

 private:
  std::vector<std::int64_t> free_at_;
};

/// A message that takes time. `to` is the op that waits for it.
struct Message {
  std::int64_t start_ns, end_ns;
  std::uint32_t to;
  int sender, receiver;
  bool gradient;
  std::uint32_t channel = 0, lane = 0;
};

/// The thread ids of a channel's lanes at its two ends.
struct Channel {
  int sender, receiver;
  bool gradient;
  Lanes lanes{};
  int first_send_tid = 0, first_receive_tid = 0;
};

/// All messages of a run, each with a lane on which it overlaps no other.
class Messages {
 public:
  explicit Messages(const TimelineView& view) {
    for (std::uint32_t g = 0; g < view.program.ops.size(); ++g) {
      const Op& op = view.program.ops[g];
      if (!op.has(Op::receives)) continue;
      const std::int64_t start = to_ns(view.timeline.message(g).start_s);
      const std::int64_t end = to_ns(view.timeline.message(g).end_s);
      if (end <= start) continue;
      const int sender = view.table.device_of(view.program.ops[view.table.producer(op)]);
      all_.push_back({start, end, g, sender, view.table.device_of(op), op.kind != OpKind::forward});
    }
    // A receiver's messages stand together; on a channel they may overtake the receiver's order.
    std::sort(all_.begin(), all_.end(), [](const Message& a, const Message& b) {
      if (a.receiver != b.receiver) return a.receiver < b.receiver;
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.to < b.to;
    });
    for (Message& m : all_) place(m);
  }

  const std::vector<Message>& all() const { return all_; }
  std::vector<Channel>& channels() { return channels_; }

 private:
  void place(Message& m) {
    const auto [it, added] = known_.try_emplace({m.sender, m.receiver, m.gradient},
                                                static_cast<std::uint32_t>(channels_.size()));
    if (added) channels_.push_back({m.sender, m.receiver, m.gradient});
    m.channel = it->second;
    m.lane = static_cast<std::uint32_t>(channels_[m.channel].lanes.place(m.start_ns, m.end_ns));
  }

  std::vector<Message> all_;
  std::vector<Channel> channels_;
  std::map<std::tuple<int, int, bool>, std::uint32_t> known_;
};

/// Gradient reductions beside the compute of their device.
class BesideCompute {
 public:
  struct Slice {
    std::int64_t start_ns, end_ns;
    std::uint32_t g;  ///< its REDUCE_GRAD
    std::size_t lane;
  };
  /// Those of a device that run while it does other things: detached ones, and those whose first
  /// parts start before the device waits for the rest.
  BesideCompute(const TimelineView& view, int device) {
    for (std::uint32_t g = view.program.ops.begin(device); g < view.program.ops.end(device); ++g) {
      if (view.program.ops[g].kind != OpKind::reduce_grad || !view.timeline.has_message(g))
        continue;
      const std::int64_t start = to_ns(view.timeline.message(g).start_s);
      const std::int64_t end = to_ns(view.timeline.message(g).end_s);
      const bool alone =
          view.program.ops[g].has(Op::detached) || start < to_ns(view.timeline.op(g).start_s);
      if (alone && end > start) slices_.push_back({start, end, g, 0});
    }
    std::ranges::sort(slices_, {}, &Slice::start_ns);
    for (Slice& slice : slices_) slice.lane = lanes_.place(slice.start_ns, slice.end_ns);
  }
  const std::vector<Slice>& slices() const { return slices_; }
  std::size_t lanes() const { return lanes_.count(); }
  int first_tid = 0;

 private:
  std::vector<Slice> slices_;
  Lanes lanes_;
};

/// The file that the timelines share.
struct Output {
  explicit Output(const std::string& path) : sink(path) {}
  ByteSink sink;
  bool any = false;
  std::int64_t next_flow = 1;
};

/// One timeline: its processes begin at `first_pid`.
class Writer {
 public:
  /// Device d is sorted as number d * `timelines` + `timeline`.
  Writer(const ChromeTrace& trace, Output& output, int first_pid, int timeline, int timelines)
      : trace_(trace),
        ops_(trace.view.program.ops),
        timeline_(trace.view.timeline),
        messages_(trace.view),
        lanes_made_(static_cast<std::size_t>(trace.view.program.ops.devices()), 0),
        first_pid_(first_pid),
        sort_first_(timeline),
        sort_step_(timelines),
        output_(output),
        sink_(output.sink) {
    for (int d = 0; d < ops_.devices(); ++d) reductions_.emplace_back(trace.view, d);
  }

  /// Names of processes and lanes: before every event of any timeline.
  void write_names() {
    for (int d = 0; d < ops_.devices(); ++d) put_process(d);
    for (Channel& channel : messages_.channels()) put_lanes(channel);
    for (int d = 0; d < ops_.devices(); ++d) {
      BesideCompute& own = reductions_[static_cast<std::size_t>(d)];
      own.first_tid = new_lanes(d, own.lanes(), "reduction", 60);
    }
  }
  void write_events() {
    for (int d = 0; d < ops_.devices(); ++d) {
      put_compute(d);
      put_bubbles(d);
      put_reductions(d);
      if (trace_.memory_counters) put_memory(d);
    }
    for (const Message& message : messages_.all())
      if (shows(message.start_ns, message.end_ns)) put_message(message);
  }

 private:
  bool shows(std::int64_t start_ns, std::int64_t end_ns) const {
    constexpr double kNanosecond = 1e-9;
    return trace_.window.shows(static_cast<double>(start_ns) * kNanosecond,
                               static_cast<double>(end_ns) * kNanosecond);
  }
  int pid(int device) const { return first_pid_ + device; }
  std::int64_t bubble_tid(int device) const { return std::int64_t{pid(device)} * 1000 + 1; }

  void begin_event() {
    if (output_.any) sink_.put(",\n");
    output_.any = true;
  }

  void put_metadata(std::string_view what, int device, std::int64_t tid, std::string_view key,
                    const std::string& value) {
    begin_event();
    sink_.put(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":{}}}}})", what,
                          pid(device), tid, key, value));
  }
  void put_thread(int device, std::int64_t tid, const std::string& name, int sort) {
    put_metadata("thread_name", device, tid, "name", "\"" + name + "\"");
    put_metadata("thread_sort_index", device, tid, "sort_index", std::to_string(sort));
  }

  void put_process(int d) {
    std::string stages;
    std::vector<char> seen(trace_.memory.costs.size(), 0);
    for (const Op& op : ops_.of_device(d)) {
      if (seen[op.stage] != 0) continue;
      seen[op.stage] = 1;
      stages += (stages.empty() ? "stage " : ", ") + std::to_string(op.stage);
    }
    put_metadata("process_name", d, pid(d), "name",
                 fmt::format("\"{}device {}\"", trace_.prefix, d));
    put_metadata("process_labels", d, pid(d), "labels", "\"" + stages + "\"");
    put_metadata("process_sort_index", d, pid(d), "sort_index",
                 std::to_string(sort_first_ + d * sort_step_));
    put_thread(d, pid(d), "compute", 0);
    put_thread(d, bubble_tid(d), "bubble", 1);
  }

  void put_lanes(Channel& c) {
    const std::string_view what = c.gradient ? "grad" : "act";
    const int sort = c.gradient ? 40 : 20;
    c.first_send_tid =
        new_lanes(c.sender, c.lanes.count(), fmt::format("send {} to {}", what, c.receiver), sort);
    c.first_receive_tid = new_lanes(c.receiver, c.lanes.count(),
                                    fmt::format("recv {} from {}", what, c.sender), sort + 10);
  }

  /// `send act to 1`, `send act to 1 (2)` ... with consecutive thread ids; returns the first.
  int new_lanes(int device, std::size_t count, const std::string& name, int sort) {
    int& made = lanes_made_[static_cast<std::size_t>(device)];
    const int first = pid(device) * 1000 + 2 + made;
    for (std::size_t i = 0; i < count; ++i) {
      put_thread(device, first + static_cast<int>(i),
                 i == 0 ? name : fmt::format("{} ({})", name, i + 1), sort);
    }
    made += static_cast<int>(count);
    return first;
  }

  /// `{"ph":"X","name":"F 3","cat":"compute","pid":1,"tid":1,"ts":0.000,"dur":1.000,` and a colour.
  void open_slice(std::string_view name, std::int64_t number, std::string_view category, int device,
                  std::int64_t tid, std::int64_t start_ns, std::int64_t end_ns,
                  std::string_view colour) {
    begin_event();
    sink_.put("{\"ph\":\"X\",\"name\":\"");
    sink_.put(name);
    if (number >= 0) {
      sink_.put(' ');
      sink_.put_integer(number);
    }
    sink_.put("\",\"cat\":\"");
    sink_.put(category);
    put_place(device, tid, start_ns);
    sink_.put(",\"dur\":");
    sink_.put_us(end_ns - start_ns);
    sink_.put(",\"cname\":\"");
    sink_.put(colour);
    sink_.put("\",\"args\":{");
  }
  /// Closes the category's quote, then pid, tid and ts.
  void put_place(int device, std::int64_t tid, std::int64_t ts_ns) {
    sink_.put("\",\"pid\":");
    sink_.put_integer(pid(device));
    sink_.put(",\"tid\":");
    sink_.put_integer(tid);
    sink_.put(",\"ts\":");
    sink_.put_us(ts_ns);
  }
  void put_argument(std::string_view key, std::int64_t value, bool first = false) {
    sink_.put(first ? "\"" : ",\"");
    sink_.put(key);
    sink_.put("\":");
    sink_.put_integer(value);
  }

  void put_compute(int d) {
    for (std::uint32_t g = ops_.begin(d); g < ops_.end(d); ++g) {
      const Op& op = ops_[g];
      const Span& span = timeline_.op(g);
      if (!is_compute(op.kind) && span.length_s() == 0) continue;
      if (!trace_.window.shows(span.start_s, span.end_s)) continue;
      if (ops_.second_of_pair(g)) continue;  // in the slice of the first
      const auto kind = static_cast<std::size_t>(op.kind);
      const bool paired = op.has(Op::paired);
      const std::string both =
          paired ? fmt::format("{} {} & {}", token(op.kind), op.microbatch, name_of(ops_[g + 1]))
                 : "";
      open_slice(paired ? both : token(op.kind), paired ? -1 : std::int64_t{op.microbatch},
                 "compute", d, pid(d), to_ns(span.start_s), to_ns(span.end_s), kOpColours[kind]);
      put_argument("stage", op.stage, true);
      if (paired) {
        put_argument("backward_stage", ops_[g + 1].stage);
        put_argument("backward_microbatch", ops_[g + 1].microbatch);
      }
      if (is_compute(op.kind)) {
        put_argument("microbatch", op.microbatch);
        put_argument("weight_version", trace_.weight_version(op));
      }
      sink_.put("}}");
    }
  }

  void put_bubbles(int d) {
    for_each_gap(trace_.view, d, [&](const Gap& gap) {
      const std::int64_t start = to_ns(gap.span.start_s);
      const std::int64_t end = to_ns(gap.span.end_s);
      if (end <= start || !trace_.window.shows(gap.span.start_s, gap.span.end_s)) return;
      const auto cause = static_cast<std::size_t>(gap.cause);
      open_slice(kCauseNames[cause], -1, "bubble", d, bubble_tid(d), start, end,
                 kCauseColours[cause]);
      sink_.put("\"reason\":\"");
      sink_.put(reason(gap));
      sink_.put("\"}}");
    });
  }

  void put_reductions(int d) {
    const BesideCompute& own = reductions_[static_cast<std::size_t>(d)];
    for (const auto& slice : own.slices()) {
      if (!shows(slice.start_ns, slice.end_ns)) continue;
      const Op& op = ops_[slice.g];
      open_slice("reduction", op.microbatch, "reduction", d,
                 own.first_tid + static_cast<std::int64_t>(slice.lane), slice.start_ns,
                 slice.end_ns, kOpColours[static_cast<std::size_t>(op.kind)]);
      put_argument("stage", op.stage, true);
      put_argument("bytes", at_position(trace_.memory.table.placement(), trace_.memory.costs,
                                        trace_.memory.table.placement().positions()[op.stage],
                                        &StageCosts::reduced_bytes));
      sink_.put("}}");
    }
  }

  /// Does the op wait for a reduction that runs beside the compute?
  bool waits_for_reduction(const Gap& gap) const {
    const BesideCompute& own =
        reductions_[static_cast<std::size_t>(trace_.view.table.device_of(ops_[gap.op]))];
    return ops_[gap.op].kind == OpKind::step &&
           std::ranges::any_of(own.slices(), [&](const BesideCompute::Slice& slice) {
             return ops_[slice.g].has(Op::detached) &&
                    ops_[slice.g].microbatch == ops_[gap.op].microbatch &&
                    slice.end_ns == to_ns(gap.span.end_s);
           });
  }

  std::string reason(const Gap& gap) const {
    if (gap.cause == Cause::drain) return "nothing left to do";
    const Op& op = ops_[gap.op];
    const std::string next = name_of(op);
    if (gap.cause == Cause::gradient_reduction) {
      if (waits_for_reduction(gap)) return next + " waits for the reduction of its gradient";
      if (op.kind == OpKind::step && timeline_.has_message(gap.op)) {
        const Placement& placement = trace_.view.table.placement();
        return fmt::format("{} waits for the partial norm of device {}", next,
                           placement.norm_from(trace_.view.table.device_of(op)));
      }
      const bool in_flight = gap.span.start_s >= timeline_.op(gap.op).start_s;
      return next + (in_flight ? " is under way" : " waits for the other devices");
    }
    const DependencyTable& table = trace_.view.table;
    const std::uint32_t from = table.producer(op);
    if (gap.message == gap.op) {
      return fmt::format("{} waits for the output of {}, which is in flight", next, place_of(from));
    }
    if (gap.message != kNoOp) {
      return fmt::format("{} waits until the output of {} has been sent", next,
                         name_of(ops_[gap.op - 1]));
    }
    if (from != kNoOp && timeline_.op(from).end_s > gap.span.start_s)
      return fmt::format("{} waits for {}", next, place_of(from));
    if (gap.op == ops_.begin(table.device_of(op))) return next + " has not begun";
    return fmt::format("{} waits until the output of {} can be sent", next,
                       name_of(ops_[gap.op - 1]));
  }
  static std::string name_of(const Op& op) {
    return fmt::format("{} {}", token(op.kind), op.microbatch);
  }
  std::string place_of(std::uint32_t g) const {
    return fmt::format("{} of stage {}", name_of(ops_[g]), ops_[g].stage);
  }

  void put_message(const Message& m) {
    const Channel& channel = messages_.channels()[m.channel];
    const int send_tid = channel.first_send_tid + static_cast<int>(m.lane);
    const int receive_tid = channel.first_receive_tid + static_cast<int>(m.lane);
    const std::int64_t id = output_.next_flow++;
    put_end(m, m.gradient ? "send grad" : "send act", m.sender, send_tid);
    put_end(m, m.gradient ? "recv grad" : "recv act", m.receiver, receive_tid);
    put_flow('s', id, m.gradient, m.sender, send_tid, m.start_ns);
    put_flow('f', id, m.gradient, m.receiver, receive_tid, m.end_ns - 1);
  }

  void put_end(const Message& m, std::string_view name, int device, int tid) {
    const Op& op = ops_[m.to];
    open_slice(name, op.microbatch, "transfer", device, tid, m.start_ns, m.end_ns,
               m.gradient ? kGradientColour : kActivationColour);
    put_argument("microbatch", op.microbatch, true);
    put_argument("stage", op.stage);
    put_argument("bytes", message_bytes(trace_.memory.costs, ops_[trace_.view.table.producer(op)]));
    put_argument("src", m.sender);
    put_argument("dst", m.receiver);
    sink_.put("}}");
  }

  void put_flow(char phase, std::int64_t id, bool gradient, int device, int tid, std::int64_t ts) {
    begin_event();
    sink_.put("{\"ph\":\"");
    sink_.put(phase);
    sink_.put(phase == 'f' ? "\",\"bp\":\"e\",\"id\":" : "\",\"id\":");
    sink_.put_integer(id);
    sink_.put(gradient ? ",\"name\":\"gradient\",\"cat\":\"gradient"
                       : ",\"name\":\"activation\",\"cat\":\"activation");
    put_place(device, tid, ts);
    sink_.put('}');
  }

  struct Sample {
    std::int64_t at_ns;
    MemoryUse use;
  };

  void put_memory(int d) {
    const std::vector<Sample> samples = memory_samples(d);
    std::array<bool, kOwners> used{};
    for (const Sample& sample : samples) {
      for (std::size_t owner = 0; owner < kOwners; ++owner)
        used[owner] = used[owner] || sample.use.bytes[owner] != 0;
    }
    if (std::find(used.begin(), used.end(), true) == used.end()) return;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      // The last before the window holds into it.
      const std::int64_t until = i + 1 < samples.size() ? samples[i + 1].at_ns : samples[i].at_ns;
      if (shows(samples[i].at_ns, until)) put_counter(d, samples[i], used);
    }
  }

  /// One sample per nanosecond, the last of it, and only where something changed.
  std::vector<Sample> memory_samples(int d) const {
    std::vector<Sample> samples;
    const auto drop_unchanged = [&] {
      const std::size_t n = samples.size();
      if (n >= 2 && samples[n - 1].use.bytes == samples[n - 2].use.bytes) samples.pop_back();
    };
    memory_over_time(trace_.memory, d, [&](double at_s, const MemoryUse& use) {
      const std::int64_t at = to_ns(at_s);
      if (!samples.empty() && samples.back().at_ns == at) {
        samples.back().use = use;
        return;
      }
      drop_unchanged();
      samples.push_back({at, use});
    });
    drop_unchanged();
    return samples;
  }

  void put_counter(int d, const Sample& sample, const std::array<bool, kOwners>& used) {
    begin_event();
    sink_.put("{\"ph\":\"C\",\"name\":\"memory\",\"cat\":\"memory");
    put_place(d, pid(d), sample.at_ns);
    sink_.put(",\"args\":{");
    bool first = true;
    for (std::size_t owner = 0; owner < kOwners; ++owner) {
      if (!used[owner]) continue;
      put_argument(kOwnerNames[owner], sample.use.bytes[owner], first);
      first = false;
    }
    sink_.put("}}");
  }

  const ChromeTrace& trace_;
  const OpLists& ops_;
  const Timeline& timeline_;
  Messages messages_;
  std::vector<BesideCompute> reductions_;  // per device
  std::vector<int> lanes_made_;            // per device
  int first_pid_, sort_first_, sort_step_;
  Output& output_;
  ByteSink& sink_;
};

void put_head(const ChromeTrace& trace, ByteSink& sink) {
  sink.put("{\"displayTimeUnit\":\"ms\",\"otherData\":{");
  bool first = true;
  for (const auto& [key, value] : trace.other_data) {
    if (!first) sink.put(',');
    first = false;
    sink.put(Json(key).dump());
    sink.put(':');
    sink.put(Json(value).dump());
  }
  sink.put("},\"traceEvents\":[\n");
}

}  // namespace

void write_chrome_trace(const ChromeTrace& trace, const std::string& path) {
  write_chrome_traces({&trace, 1}, path);
}

void write_chrome_traces(std::span<const ChromeTrace> traces, const std::string& path) {
  Output output(path);
  put_head(traces[0], output.sink);
  std::vector<std::unique_ptr<Writer>> writers;
  int pid = 1;
  for (const ChromeTrace& trace : traces) {
    writers.push_back(std::make_unique<Writer>(trace, output, pid, static_cast<int>(writers.size()),
                                               static_cast<int>(traces.size())));
    pid += trace.view.program.ops.devices();
  }
  for (const auto& writer : writers) writer->write_names();
  for (const auto& writer : writers) writer->write_events();
  output.sink.put("\n]}\n");
  output.sink.close();
}

}  // namespace penstock
