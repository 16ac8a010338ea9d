#include "traces/recording.hpp"

#include "base/error.hpp"
#include "traces/byte_sink.hpp"
#include "traces/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>

namespace penstock {
namespace {

constexpr std::string_view kFormat = "penstock recording";

// Writing
// ------------------------------------------------------------------------------------------

template <class T>
Json nullable(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json head_json(const Recording& r) {
  return {{"format", kFormat},
          {"version", kRecordingVersion},
          {"name", r.name},
          {"backend", r.backend},
          {"clock", r.clock},
          {"schedule", r.schedule},
          {"transfers", r.transfers},
          {"depth", r.depth},
          {"microbatches", r.microbatches},
          {"batches", r.batches},
          {"compute", r.compute},
          {"description", r.description},
          {"profile", r.profile},
          {"scenario", r.scenario}};
}

Json op_json(const RecordedOp& r) {
  Json out = {{"device", r.device},
              {"op", to_string(r.op)},
              {"start_s", r.span.start_s},
              {"end_s", r.span.end_s}};
  if (r.message) {
    out["message_start_s"] = r.message->start_s;
    out["message_end_s"] = r.message->end_s;
  }
  if (r.weight_version) out["weight_version"] = *r.weight_version;
  return out;
}

Json device_json(const RecordedDevice& d) {
  Json memory = Json::object();
  for (std::size_t i = 0; i < kOwners; ++i) memory[std::string(kOwnerNames[i])] = d.peak.bytes[i];
  return {{"device", d.device},
          {"memory", memory},
          {"peak_at_s", d.peak_at_s},
          {"peak_op", d.peak_op ? Json(to_string(*d.peak_op)) : Json(nullptr)},
          {"allocator_peak_bytes", nullable(d.allocator_peak_bytes)}};
}

Json loss_json(const RecordedLoss& l) {
  return {{"microbatch", l.microbatch}, {"loss", std::isfinite(l.loss) ? Json(l.loss) : Json()}};
}

/// `"key": [` and an element per line.
template <class Items, class ToJson>
void put_list(std::string& sink, std::string_view key, const Items& items, ToJson&& to_json) {
  sink.append(fmt::format("   \"{}\": [", key));
  bool first = true;
  for (const auto& item : items) {
    sink.append(first ? "\n    " : ",\n    ");
    sink.append(dumped(to_json(item)));
    first = false;
  }
  sink.append("]");
}

void put_run(std::string& sink, const RecordedRun& run) {
  sink.append(fmt::format("  {{\n   \"complete\": {},\n   \"stopped_because\": {},\n", run.complete,
                          dumped(run.stopped_because)));
  sink.append(fmt::format("   \"weights_equal\": {},\n", dumped(nullable(run.weights_equal))));
  if (run.weights_digest)
    sink.append(fmt::format("   \"weights_digest\": {},\n", dumped(*run.weights_digest)));
  put_list(sink, "devices", run.devices, device_json);
  sink.append(",\n");
  put_list(sink, "losses", run.losses, loss_json);
  sink.append(",\n");
  put_list(sink, "ops", run.ops, op_json);
  sink.append("\n  }");
}

// Reading
// ------------------------------------------------------------------------------------------

std::uint32_t count(JsonReader& r, const char* key) {
  return static_cast<std::uint32_t>(r.integer(key, 0, kNoOp - 1));
}

int device(JsonReader& r) { return static_cast<int>(r.integer("device", 0, 1 << 24)); }

/// An op token; `null_ok`: null means none.
std::optional<Op> op(JsonReader& r, const char* key, bool null_ok = false) {
  const Json* value = r.find(key, true);
  if (value == nullptr || (null_ok && value->is_null())) return std::nullopt;
  const auto parsed = value->is_string() ? parse_op(value->get<std::string>()) : std::nullopt;
  if (!parsed) r.wrong(key, "must be an op such as \"2F5\"", *value);
  return parsed;
}

Span read_span(JsonReader& r, const char* start, const char* end) {
  const Span span{r.number(start), r.number(end)};
  if (r.given(start) && r.given(end) && span.end_s < span.start_s)
    r.problem(fmt::format("{} ({}) is before {} ({})", end, span.end_s, start, span.start_s));
  return span;
}

RecordedOp read_op(const Json& json, const std::string& place, JsonProblems& problems) {
  JsonReader r(json, place, problems);
  RecordedOp out;
  out.device = device(r);
  if (const auto parsed = op(r, "op")) out.op = *parsed;
  out.span = read_span(r, "start_s", "end_s");
  if (r.given("message_start_s") || r.given("message_end_s"))
    out.message = read_span(r, "message_start_s", "message_end_s");
  if (r.given("weight_version")) out.weight_version = count(r, "weight_version");
  r.finish();
  return out;
}

RecordedDevice read_device(const Json& json, const std::string& place, JsonProblems& problems) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
  JsonReader r(json, place, problems);
  RecordedDevice out;
  out.device = device(r);
  JsonReader memory = r.inside("memory");
  for (std::size_t i = 0; i < kOwners; ++i)
    out.peak.bytes[i] = memory.integer(std::string(kOwnerNames[i]).c_str(), 0, kMost);
  memory.finish();
  out.peak_at_s = r.number("peak_at_s");
  out.peak_op = op(r, "peak_op", true);
  if (r.given("allocator_peak_bytes"))
    out.allocator_peak_bytes = r.integer("allocator_peak_bytes", 0, kMost);
  r.finish();
  return out;
}

RecordedLoss read_loss(const Json& json, const std::string& place, JsonProblems& problems) {
  JsonReader r(json, place, problems);
  RecordedLoss out;
  out.microbatch = count(r, "microbatch");
  // null: not a finite number
  out.loss = r.given("loss") ? r.number("loss") : std::numeric_limits<double>::quiet_NaN();
  r.finish();
  return out;
}

RecordedRun read_run(const Json& json, const std::string& place, JsonProblems& problems) {
  JsonReader r(json, place, problems);
  RecordedRun out;
  out.complete = r.boolean("complete");
  out.stopped_because = r.text("stopped_because", false);
  if (r.given("weights_equal")) out.weights_equal = r.boolean("weights_equal");
  if (r.given("weights_digest")) out.weights_digest = r.text("weights_digest");
  r.list("devices", [&](const Json& one, const std::string& at) {
    out.devices.push_back(read_device(one, at, problems));
  });
  r.list("losses", [&](const Json& one, const std::string& at) {
    out.losses.push_back(read_loss(one, at, problems));
  });
  r.list("ops", [&](const Json& one, const std::string& at) {
    out.ops.push_back(read_op(one, at, problems));
  });
  r.finish();
  return out;
}

Recording read_head(JsonReader& r) {
  Recording out;
  out.name = r.text("name");
  out.backend = r.text("backend");
  out.clock = r.text("clock");
  out.schedule = r.text("schedule");
  out.transfers = r.text("transfers");
  out.depth = static_cast<int>(r.integer("depth", 1, 1 << 20));
  out.microbatches = count(r, "microbatches");
  out.batches = count(r, "batches");
  out.compute = r.text("compute");
  r.map("description", [&](const std::string& key, const Json& value) {
    if (!value.is_string()) return r.wrong(("description." + key).c_str(), "must be a text", value);
    out.description[key] = value.get<std::string>();
  });
  out.profile = r.text("profile", false);
  out.scenario = r.text("scenario", false);
  return out;
}

/// The Program's op that a recorded one is; kNoOp when it has none on that device.
class Finder {
 public:
  Finder(const OpLists& ops, const DependencyTable& table) : ops_(ops), table_(table) {
    for (int d = 0; d < ops.devices(); ++d) {
      for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g) {
        if (!is_compute(ops[g].kind)) others_.try_emplace(key(d, ops[g]), g);
      }
    }
  }

  std::uint32_t find(const RecordedOp& recorded) const {
    const Op& op = recorded.op;
    if (!is_compute(op.kind)) {
      const auto it = others_.find(key(recorded.device, op));
      return it == others_.end() ? kNoOp : it->second;
    }
    const bool in_range =
        op.stage < table_.placement().stages() && op.microbatch < table_.microbatches();
    if (!in_range || table_.device_of(op) != recorded.device) return kNoOp;
    const std::uint32_t g = op.kind == OpKind::forward ? table_.forward(op.stage, op.microbatch)
                            : is_backward(op.kind)     ? table_.backward(op.stage, op.microbatch)
                                                       : table_.weight(op.stage, op.microbatch);
    return g != kNoOp && ops_[g].kind == op.kind ? g : kNoOp;
  }

 private:
  using Key = std::tuple<int, std::uint16_t, OpKind, std::uint32_t>;
  static Key key(int device, const Op& op) { return {device, op.stage, op.kind, op.microbatch}; }

  const OpLists& ops_;
  const DependencyTable& table_;
  std::map<Key, std::uint32_t> others_;  // reductions and steps
};

}  // namespace

std::string recording_text(const Recording& recording) {
  std::string text = head_json(recording).dump(1);
  text.resize(text.rfind('\n'));  // without the closing brace: the runs follow
  text += ",\n \"runs\": [\n";
  for (std::size_t i = 0; i < recording.runs.size(); ++i) {
    if (i > 0) text += ",\n";
    put_run(text, recording.runs[i]);
  }
  return text + "]\n}\n";
}

void write_recording(const Recording& recording, const std::string& path) {
  ByteSink sink(path);
  sink.put(recording_text(recording));
  sink.close();
}

Recording read_recording(const std::string& path) { return parse_recording(read_file(path), path); }

Recording parse_recording(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || json.value("format", Json()) != Json(kFormat))
    throw InputError(origin, fmt::format("is not a recording: no \"format\": \"{}\"", kFormat));
  if (json.value("version", Json()) != Json(kRecordingVersion)) {
    throw InputError(origin, fmt::format("version must be {}, got {}", kRecordingVersion,
                                         seen(json.value("version", Json()))));
  }
  JsonProblems problems(origin);
  JsonReader r(json, "", problems);
  r.text("format");
  r.integer("version", kRecordingVersion, kRecordingVersion);
  Recording out = read_head(r);
  r.list("runs", [&](const Json& run, const std::string& place) {
    out.runs.push_back(read_run(run, place, problems));
  });
  r.finish();
  if (r.has("runs") && out.runs.empty()) problems.add("runs", "must hold at least one run");
  problems.throw_if_any();
  return out;
}

bool is_recording(std::string_view text) {
  constexpr std::size_t kHead = 200;
  const std::string_view head = text.substr(0, kHead);
  return head.find("\"format\"") != std::string_view::npos &&
         head.find(fmt::format("\"{}\"", kFormat)) != std::string_view::npos;
}

RecordedTimeline to_timeline(const OpLists& ops, const DependencyTable& table,
                             const RecordedRun& run) {
  RecordedTimeline out{Timeline(ops.size()), {}, {}, {}};
  for (std::uint32_t g = 0; g < ops.size(); ++g) out.timeline.op(g) = {-1, -1};
  std::vector<char> recorded(ops.size(), 0);
  const Finder finder(ops, table);
  for (const RecordedOp& r : run.ops) {
    const std::uint32_t g = finder.find(r);
    if (g == kNoOp || recorded[g] != 0) {
      out.unknown.push_back(r);
      continue;
    }
    recorded[g] = 1;
    out.timeline.op(g) = r.span;
    if (r.message) out.timeline.message(g) = *r.message;
    out.timeline.makespan_s = std::max(out.timeline.makespan_s, r.span.end_s);
  }
  out.order.resize(static_cast<std::size_t>(ops.devices()));
  for (int d = 0; d < ops.devices(); ++d) {
    auto& mine = out.order[static_cast<std::size_t>(d)];
    for (std::uint32_t g = ops.begin(d); g < ops.end(d); ++g)
      (recorded[g] != 0 ? mine : out.missing).push_back(g);
    // An op that takes no time ends when the next one starts; the Program's order decides ties.
    std::ranges::stable_sort(mine, [&](std::uint32_t a, std::uint32_t b) {
      const Span& x = out.timeline.op(a);
      const Span& y = out.timeline.op(b);
      return x.start_s != y.start_s ? x.start_s < y.start_s : x.end_s < y.end_s;
    });
  }
  return out;
}

std::optional<Op> parse_op(std::string_view text) {
  const char* const end = text.data() + text.size();
  Op op;
  const auto stage = std::from_chars(text.data(), end, op.stage);
  if (stage.ec != std::errc()) return std::nullopt;
  std::string_view rest(stage.ptr, static_cast<std::size_t>(end - stage.ptr));
  const auto digits = rest.find_first_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  const std::string_view kind = rest.substr(0, digits);
  for (int k = 0; k <= static_cast<int>(OpKind::step); ++k) {
    op.kind = static_cast<OpKind>(k);
    if (token(op.kind) != kind) continue;
    const auto number = std::from_chars(rest.data() + digits, end, op.microbatch);
    if (number.ec != std::errc() || number.ptr != end) return std::nullopt;
    return op;
  }
  return std::nullopt;
}

}  // namespace penstock
