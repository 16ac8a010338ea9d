// SPDX-License-Identifier: Apache-2.0
#include "traces/recording.hpp"

#include "base/json_fields.hpp"
#include "program/iterations.hpp"
#include "traces/byte_sink.hpp"
#include "traces/megatron_spans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>

namespace penstock {
namespace {

constexpr std::string_view kFormat = "penstock recording";

}  // namespace

// Fields

Json field_json(const Op& op) { return to_string(op); }
void take_field(const Place& at, const Json& json, Op& op) {
  const auto parsed = json.is_string() ? parse_op(json.get<std::string>()) : std::nullopt;
  if (!parsed) return at.wrong("an op such as \"2F5\"", json);
  op = *parsed;
}

constexpr FieldRange kAnyTime{-kLongestField_s};
constexpr FieldRange kAnyDevice{0, 1 << 24}, kAnyCount{0, kNoOp - 1.0};

void take_span(FieldReader& read, const Place& at, const char* start, const char* end, Span& span) {
  const std::size_t before = at.problems();
  read(start, span.start_s, kAnyTime);
  read(end, span.end_s, kAnyTime);
  if (at.problems() == before && span.end_s < span.start_s)
    at.problem(fmt::format("{} ({}) is before {} ({})", end, span.end_s, start, span.start_s));
}

constexpr const auto& names_of(Collective) { return kCollectiveNames; }

Json field_json(const RecordedExchange& x) {
  return {{"name", x.name},
          {"what", to_field(x.what)},
          {"bytes", x.bytes},
          {"start_s", x.span.start_s},
          {"end_s", x.span.end_s}};
}
void take_field(const Place& at, const Json& json, RecordedExchange& x) {
  FieldReader read(at, json);
  read("name", x.name);
  read("what", x.what);
  read("bytes", x.bytes);
  take_span(read, at, "start_s", "end_s", x.span);
  read.finish();
}

/// The message's times stand beside the op's, and only where there is one.
Json field_json(const RecordedOp& r) {
  Json out = {{"device", r.device},
              {"op", to_string(r.op)},
              {"start_s", r.span.start_s},
              {"end_s", r.span.end_s}};
  if (r.message) {
    out["message_start_s"] = r.message->start_s;
    out["message_end_s"] = r.message->end_s;
  }
  if (r.weight_version) out["weight_version"] = *r.weight_version;
  if (!r.exchanges.empty()) out["exchanges"] = to_field(r.exchanges);
  return out;
}
void take_field(const Place& at, const Json& json, RecordedOp& r) {
  FieldReader read(at, json);
  read("device", r.device, kAnyDevice);
  read("op", r.op);
  take_span(read, at, "start_s", "end_s", r.span);
  const auto given = [&](const char* key) {
    const Json* value = read.find(key, false);
    return value != nullptr && !value->is_null();
  };
  if (given("message_start_s") || given("message_end_s"))
    take_span(read, at, "message_start_s", "message_end_s", r.message.emplace());
  read("weight_version", r.weight_version, kAnyCount);
  if (given("exchanges")) read("exchanges", r.exchanges);
  read.finish();
}

void each_field(Like<MemoryUse> auto& use, auto&& visit) {
  for (std::size_t i = 0; i < kOwners; ++i) visit(kOwnerNames[i].data(), use.bytes[i]);
}

void each_field(Like<RecordedDevice> auto& d, auto&& visit) {
  visit("device", d.device, kAnyDevice);
  visit("memory", d.peak);
  visit("peak_at_s", d.peak_at_s, kAnyTime);
  VISIT_FIELDS(visit, d, peak_op, allocator_peak_bytes);
}

/// null: not a finite number.
Json field_json(const RecordedLoss& l) {
  return {{"microbatch", l.microbatch}, {"loss", std::isfinite(l.loss) ? Json(l.loss) : Json()}};
}
void take_field(const Place& at, const Json& json, RecordedLoss& l) {
  FieldReader read(at, json);
  std::optional<double> loss;
  read("microbatch", l.microbatch, kAnyCount);
  read("loss", loss, FieldRange{-1e300, 1e300});
  read.finish();
  l.loss = loss.value_or(std::numeric_limits<double>::quiet_NaN());
}

void take_field(const Place& at, const Json& json, RecordedRun& run) {
  FieldReader read(at, json);
  std::optional<std::string> stopped_because;
  read("complete", run.complete);
  read("stopped_because", stopped_because);
  read("weights_equal", run.weights_equal);
  read("weights_moved", run.weights_moved);
  read("weights_digest", run.weights_digest);
  read("devices", run.devices);
  read("losses", run.losses);
  read("ops", run.ops);
  read.finish();
  run.stopped_because = stopped_because.value_or("");
}

/// All but the runs.
void each_field(Like<Recording> auto& r, auto&& visit) {
  VISIT_FIELDS(visit, r, name, backend, clock, schedule, transfers);
  visit("depth", r.depth, {1, 1 << 20});
  visit("microbatches", r.microbatches, kAnyCount);
  visit("batches", r.batches, kAnyCount);
  VISIT_FIELDS(visit, r, compute, description);
}

namespace {

/// `"key": [` and an element per line.
template <class Items>
void put_list(std::string& sink, std::string_view key, const Items& items) {
  sink.append(fmt::format("   \"{}\": [", key));
  bool first = true;
  for (const auto& item : items) {
    sink.append(first ? "\n    " : ",\n    ");
    sink.append(to_field(item).dump());
    first = false;
  }
  sink.append("]");
}

void put_run(std::string& sink, const RecordedRun& run) {
  sink.append(fmt::format("  {{\n   \"complete\": {},\n   \"stopped_because\": {},\n", run.complete,
                          to_field(run.stopped_because).dump()));
  sink.append(fmt::format("   \"weights_equal\": {},\n", to_field(run.weights_equal).dump()));
  if (run.weights_moved == false)
    sink.append(fmt::format("   \"weights_moved\": {},\n", *run.weights_moved));
  if (run.weights_digest)
    sink.append(fmt::format("   \"weights_digest\": {},\n", to_field(run.weights_digest).dump()));
  put_list(sink, "devices", run.devices);
  sink.append(",\n");
  put_list(sink, "losses", run.losses);
  sink.append(",\n");
  put_list(sink, "ops", run.ops);
  sink.append("\n  }");
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
  Json head = {{"format", kFormat}, {"version", kRecordingVersion}};
  each_field(recording, FieldWriter(head));
  head["profile"] = recording.profile;
  head["scenario"] = recording.scenario;
  std::string text = head.dump(1);
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

Recording read_recording(const std::string& path) {
  const std::string text = read_file(path);
  return is_spans(text) ? recording_of_spans(text, path) : parse_recording(text, path);
}

Recording parse_recording(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || json.value("format", Json()) != Json(kFormat))
    throw InputError(origin, fmt::format("is not a recording: no \"format\": \"{}\"", kFormat));
  JsonProblems problems(origin);
  const Place whole(problems);
  const Json version = json.value("version", Json());
  if (version != Json(kRecordingVersion))
    whole.in("version").wrong(std::to_string(kRecordingVersion), version);
  problems.throw_if_any();
  FieldReader read(whole, json);
  Recording out;
  std::optional<std::string> profile, scenario;
  for (const char* known : {"format", "version"}) read.find(known, true);
  each_field(out, read);
  read("profile", profile);
  read("scenario", scenario);
  read("runs", out.runs);
  read.finish();
  if (problems.count() == 0 && out.runs.empty())
    whole.in("runs").problem("must hold at least one run");
  problems.throw_if_any();
  out.profile = profile.value_or("");
  out.scenario = scenario.value_or("");
  return out;
}

bool is_recording(std::string_view text) {
  if (is_spans(text)) return true;
  constexpr std::size_t kHead = 200;
  const std::string_view head = text.substr(0, kHead);
  return head.find("\"format\"") != std::string_view::npos &&
         head.find(fmt::format("\"{}\"", kFormat)) != std::string_view::npos;
}

RecordedTimeline to_timeline(const OpLists& ops, const DependencyTable& table,
                             const RecordedRun& run) {
  RecordedTimeline out{Timeline(ops.size()), {}, {}, {}, std::vector<double>(ops.size())};
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
    for (const RecordedExchange& x : r.exchanges) out.exchange_s[g] += x.span.length_s();
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

WhatRan::WhatRan(const Program& program, const DependencyTable& table, const RecordedTimeline& run)
    : program_(program) {
  constexpr std::uint8_t kNoReceive = 0xff ^ Op::receives, kNoSend = 0xff ^ Op::sends;
  program_.ops = {};
  const auto known = [&](std::uint32_t g) { return g != kNoOp && happened(run.timeline, g); };
  std::vector<std::uint32_t> from;
  for (const auto& order : run.order) {
    for (const std::uint32_t g : order) {
      Op op = program.ops[g];
      if (op.has(Op::receives) && !known(table.producer(op))) op.flags &= kNoReceive;
      if (op.has(Op::sends) && !known(table.consumer(op))) op.flags &= kNoSend;
      program_.ops.add_op(op);
      from.push_back(g);
    }
    program_.ops.end_device();
  }
  table_ =
      std::make_unique<DependencyTable>(program_.ops, program_.placement, program_.microbatches());
  timeline_ = std::make_unique<Timeline>(program_.ops.size());
  timeline_->makespan_s = run.timeline.makespan_s;
  for (std::uint32_t i = 0; i < program_.ops.size(); ++i) {
    timeline_->op(i) = run.timeline.op(from[i]);
    timeline_->message(i) = run.timeline.message(from[i]);
  }
}

}  // namespace penstock
