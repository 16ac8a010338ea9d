#include "traces/chrome_writer.hpp"

#include "traces/byte_sink.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

std::int64_t to_ns(double seconds) { return std::llround(seconds * 1e9); }

// Catapult's reserved colour names; Perfetto ignores them.
constexpr std::string_view kOpColours[] = {
    "thread_state_runnable", "thread_state_running", "rail_load", "rail_animation", "rail_idle",
    "generic_work"};
constexpr std::string_view kCauseColours[kCauses] = {"grey", "bad", "terrible", "grey", "yellow"};

/// Lanes of one channel at one end: a slice goes to the first lane that is free.
class Lanes {
 public:
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

class Writer {
 public:
  Writer(const ChromeTrace& trace, const std::string& path)
      : trace_(trace), ops_(trace.view.ops), timeline_(trace.view.timeline), sink_(path) {}

  void write() {
    put_head();
    for (int d = 0; d < ops_.devices(); ++d) put_process(d);
    for (int d = 0; d < ops_.devices(); ++d) {
      put_compute(d);
      put_bubbles(d);
      put_messages(d);
      put_memory(d);
    }
    sink_.put("\n]}\n");
    sink_.close();
  }

 private:
  // A message's lanes: what is seen at the sender, what at the receiver.
  struct Ends {
    int sends_tid, receives_tid;
  };
  struct ChannelLanes {
    Lanes lanes;
    std::vector<Ends> tids;
  };

  static int pid(int device) { return device + 1; }
  static std::int64_t bubble_tid(int device) { return std::int64_t{pid(device)} * 1000 + 1; }

  void put_head() {
    sink_.put("{\"displayTimeUnit\":\"ms\",\"otherData\":{");
    bool first = true;
    for (const auto& [key, value] : trace_.other_data) {
      if (!first) sink_.put(',');
      first = false;
      sink_.put(nlohmann::json(key).dump());
      sink_.put(':');
      sink_.put(
          nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    sink_.put("},\"traceEvents\":[\n");
  }

  void begin_event() {
    if (any_) sink_.put(",\n");
    any_ = true;
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
    for (const Op& op : ops_.of(d)) {
      if (seen[op.stage] != 0) continue;
      seen[op.stage] = 1;
      stages += (stages.empty() ? "stage " : ", ") + std::to_string(op.stage);
    }
    put_metadata("process_name", d, pid(d), "name", fmt::format("\"device {}\"", d));
    put_metadata("process_labels", d, pid(d), "labels", "\"" + stages + "\"");
    put_metadata("process_sort_index", d, pid(d), "sort_index", std::to_string(d));
    put_thread(d, pid(d), "compute", 0);
    put_thread(d, bubble_tid(d), "bubble", 1);
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
      const auto kind = static_cast<std::size_t>(op.kind);
      open_slice(token(op.kind), op.microbatch, "compute", d, pid(d), to_ns(span.start_s),
                 to_ns(span.end_s), kOpColours[kind]);
      put_argument("stage", op.stage, true);
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
      if (end <= start) return;
      const auto cause = static_cast<std::size_t>(gap.cause);
      open_slice(kCauseNames[cause], -1, "bubble", d, bubble_tid(d), start, end,
                 kCauseColours[cause]);
      sink_.put("\"reason\":\"");
      sink_.put(reason(gap));
      sink_.put("\"}}");
    });
  }

  std::string reason(const Gap& gap) const {
    if (gap.cause == Cause::drain) return "nothing left to do";
    const Op& op = ops_[gap.op];
    const std::uint32_t from = trace_.view.table.producer(op);
    const std::string next = fmt::format("{} {}", token(op.kind), op.microbatch);
    if (gap.cause == Cause::gradient_reduction) return next + " waits for the other replicas";
    if (from == kNoOp) return next + " waits for its own send";
    const Op& producer = ops_[from];
    return fmt::format("{} waits for {} {} of stage {}{}", next, token(producer.kind),
                       producer.microbatch, producer.stage,
                       gap.cause == Cause::transfer_wait ? ": its message is in flight" : "");
  }

  void put_messages(int d) {
    for (std::uint32_t g = ops_.begin(d); g < ops_.end(d); ++g) {
      const Op& op = ops_[g];
      if (!op.has(Op::receives)) continue;
      const Span& message = timeline_.message(g);
      const std::int64_t start = to_ns(message.start_s);
      const std::int64_t end = to_ns(message.end_s);
      if (end > start) put_message(op, d, start, end);
    }
  }

  void put_message(const Op& op, int receiver, std::int64_t start, std::int64_t end) {
    const Op& from = ops_[trace_.view.table.producer(op)];
    const int sender = trace_.view.table.device_of(from);
    const bool gradient = op.kind != OpKind::forward;
    const Ends ends = lanes_of(sender, receiver, gradient, start, end);
    const std::int64_t bytes = trace_.memory.costs[gradient ? op.stage : from.stage].output_bytes;
    const std::int64_t id = next_flow_++;
    put_end("send", gradient, op, sender, ends.sends_tid, start, end, bytes, sender, receiver);
    put_end("recv", gradient, op, receiver, ends.receives_tid, start, end, bytes, sender, receiver);
    put_flow('s', id, gradient, sender, ends.sends_tid, start);
    put_flow('f', id, gradient, receiver, ends.receives_tid, end - 1);
  }

  void put_end(std::string_view what, bool gradient, const Op& op, int device, int tid,
               std::int64_t start, std::int64_t end, std::int64_t bytes, int sender, int receiver) {
    const bool send = what == "send";
    const std::string_view name =
        gradient ? (send ? "send grad" : "recv grad") : (send ? "send act" : "recv act");
    open_slice(name, op.microbatch, "transfer", device, tid, start, end,
               send ? "olive" : "startup");
    put_argument("microbatch", op.microbatch, true);
    put_argument("stage", op.stage);
    put_argument("bytes", bytes);
    put_argument("src", sender);
    put_argument("dst", receiver);
    sink_.put("}}");
  }

  void put_flow(char phase, std::int64_t id, bool gradient, int device, int tid, std::int64_t ts) {
    begin_event();
    sink_.put("{\"ph\":\"");
    sink_.put(phase);
    sink_.put(phase == 'f' ? "\",\"bp\":\"e\",\"id\":" : "\",\"id\":");
    sink_.put_integer(id);
    sink_.put(gradient ? ",\"name\":\"gradient\",\"cat\":\"transfer"
                       : ",\"name\":\"activation\",\"cat\":\"transfer");
    put_place(device, tid, ts);
    sink_.put('}');
  }

  Ends lanes_of(int sender, int receiver, bool gradient, std::int64_t start, std::int64_t end) {
    ChannelLanes& channel = channels_[{sender, receiver, gradient}];
    const std::size_t lane = channel.lanes.place(start, end);
    if (lane == channel.tids.size()) {
      channel.tids.push_back(
          {new_lane(sender, fmt::format("send {} to {}", gradient ? "grad" : "act", receiver),
                    gradient ? 40 : 20),
           new_lane(receiver, fmt::format("recv {} from {}", gradient ? "grad" : "act", sender),
                    gradient ? 50 : 30)});
    }
    return channel.tids[lane];
  }

  int new_lane(int device, const std::string& name, int sort) {
    const int tid = pid(device) * 1000 + 2 + lanes_made_[device]++;
    put_thread(device, tid, name, sort);
    return tid;
  }

  void put_memory(int d) {
    // Samples of one nanosecond are merged: only the last of them is written.
    std::int64_t pending_at = -1;
    MemoryUse pending, written;
    bool any = false;
    const auto put = [&] {
      if (pending_at < 0 || (any && pending.bytes == written.bytes)) return;
      put_counter(d, pending_at, pending);
      written = pending;
      any = true;
    };
    memory_over_time(trace_.memory, d, [&](double at_s, const MemoryUse& use) {
      const std::int64_t at = to_ns(at_s);
      if (at != pending_at) put();
      pending_at = at;
      pending = use;
    });
    if (pending.total() != 0 || any) put();
  }

  void put_counter(int d, std::int64_t at, const MemoryUse& use) {
    begin_event();
    sink_.put("{\"ph\":\"C\",\"name\":\"memory\",\"cat\":\"memory");
    put_place(d, pid(d), at);
    sink_.put(",\"args\":{");
    for (std::size_t owner = 0; owner < kOwners; ++owner) {
      put_argument(kOwnerNames[owner], use.bytes[owner], owner == 0);
    }
    sink_.put("}}");
  }

  const ChromeTrace& trace_;
  const OpLists& ops_;
  const Timeline& timeline_;
  ByteSink sink_;
  bool any_ = false;
  std::int64_t next_flow_ = 1;
  std::map<std::tuple<int, int, bool>, ChannelLanes> channels_;
  std::map<int, int> lanes_made_;
};

}  // namespace

void write_chrome_trace(const ChromeTrace& trace, const std::string& path) {
  Writer(trace, path).write();
}

}  // namespace penstock
