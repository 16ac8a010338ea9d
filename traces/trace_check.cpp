// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_check.hpp"

#include "base/json_depth.hpp"
#include "base/json_fields.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace penstock {
namespace {

using nlohmann::json;
using Lane = std::pair<std::int64_t, std::int64_t>;  // pid, tid

struct Slice {
  std::int64_t start_ns, end_ns;
};

struct FlowEnd {
  Lane lane;
  std::int64_t ts_ns;
};

class Checker {
 public:
  /// One element of traceEvents.
  void event(const json& e) {
    ++report_.events;
    const std::string phase = text(e, "ph");
    const auto pid = integer(e, "pid");
    const auto tid = integer(e, "tid");
    lane_ = {pid.value_or(0), tid.value_or(0)};
    if (!pid || *pid == 0) complain("needs a pid that is not 0");
    if (phase != "C" && (!tid || *tid == 0)) complain("needs a tid that is not 0");
    if (text(e, "name").empty()) complain("has no name");
    if (phase == "M") return metadata(e);
    after_metadata_ = true;
    const auto ts = time_ns(e, "ts");
    if (!ts) return complain("has no ts");
    if (phase == "X") return slice(e, *ts);
    if (phase == "C") return counter(e, *ts);
    if (phase == "s" || phase == "f") return flow(e, phase, *ts);
    if (phase == "i") {
      if (text(e, "s") != "t") complain("an instant needs \"s\": \"t\"");
      return;
    }
    complain(fmt::format("has the phase '{}'; only M, X, C, s, f and i are understood", phase));
  }

  TraceReport finish() {
    for (auto& [lane, slices] : slices_) check_overlap(lane, slices);
    for (const auto& [key, ends] : starts_) {
      const auto finish = finishes_.find(key);
      if (finish == finishes_.end()) complain_about("flow " + key, "starts and never finishes");
      check_inside("flow " + key, ends);
    }
    for (const auto& [key, ends] : finishes_) {
      if (!starts_.contains(key)) complain_about("flow " + key, "finishes and never started");
      check_inside("flow " + key, ends);
    }
    for (const auto& [pid, named] : processes_) {
      if (!named) complain_about(fmt::format("process {}", pid), "has no process_name");
    }
    for (const auto& [lane, slices] : slices_) {
      if (!named_lanes_.contains(lane)) complain_about(describe(lane), "has no thread_name");
    }
    report_.lanes = static_cast<std::int64_t>(slices_.size());
    report_.processes = static_cast<std::int64_t>(processes_.size());
    return std::move(report_);
  }

  void complain_about(const std::string& what, const std::string& why) {
    ++report_.violations;
    if (report_.first.size() < 20) report_.first.push_back(what + " " + why);
  }

 private:
  static std::string text(const json& e, const char* key) {
    const auto it = e.find(key);
    return it != e.end() && it->is_string() ? it->get<std::string>() : "";
  }
  static std::optional<std::int64_t> integer(const json& e, const char* key) {
    const auto it = e.find(key);
    if (it == e.end() || !it->is_number_integer()) return std::nullopt;
    return it->get<std::int64_t>();
  }
  static std::optional<std::int64_t> time_ns(const json& e, const char* key) {
    const auto it = e.find(key);
    if (it == e.end() || !it->is_number()) return std::nullopt;
    return std::llround(it->get<double>() * 1000);
  }

  static std::string describe(const Lane& lane) {
    return fmt::format("lane pid {}, tid {}", lane.first, lane.second);
  }

  void complain(const std::string& why) {
    complain_about(
        fmt::format("event {} (pid {}, tid {})", report_.events, lane_.first, lane_.second), why);
  }

  void metadata(const json& e) {
    const std::string name = text(e, "name");
    if (e.contains("ts")) complain("is metadata and has a ts");
    const auto args = e.find("args");
    if (args == e.end() || !args->is_object() || args->empty())
      complain("is metadata without args");
    if (after_metadata_) complain("is metadata and comes after the first event");
    bool& named = processes_[lane_.first];
    if (name == "process_name") named = true;
    if (name == "thread_name") named_lanes_.insert(lane_);
  }

  void slice(const json& e, std::int64_t ts) {
    ++report_.slices;
    const auto duration = time_ns(e, "dur");
    if (!duration || *duration < 0) return complain("needs a dur that is not negative");
    processes_.try_emplace(lane_.first, false);
    slices_[lane_].push_back({ts, ts + *duration});
  }

  void counter(const json& e, std::int64_t ts) {
    ++report_.counters;
    const auto args = e.find("args");
    if (args == e.end() || !args->is_object() || args->empty())
      return complain("is a counter without series");
    for (const auto& [series, value] : args->items()) {
      if (!value.is_number())
        complain(fmt::format("has the series '{}', which is not a number", series));
    }
    const std::string key = fmt::format("{}/{}", lane_.first, text(e, "name"));
    const auto [it, first] = counter_at_.try_emplace(key, ts);
    if (!first && it->second == ts) complain("is a second sample of its counter at one instant");
    if (!first && it->second > ts) complain("is a counter sample that goes back in time");
    it->second = ts;
  }

  void flow(const json& e, const std::string& phase, std::int64_t ts) {
    ++report_.flows;
    const auto id = e.find("id");
    if (id == e.end()) return complain("is a flow without an id");
    if (phase == "f" && text(e, "bp") != "e") complain("finishes a flow without \"bp\": \"e\"");
    const std::string key = fmt::format("{}/{}/{}", text(e, "cat"), text(e, "name"), id->dump());
    auto& ends = phase == "s" ? starts_ : finishes_;
    if (!ends.try_emplace(key, FlowEnd{lane_, ts}).second) complain("repeats the id of a flow");
  }

  void check_overlap(const Lane& lane, std::vector<Slice>& slices) {
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Slice& a, const Slice& b) { return a.start_ns < b.start_ns; });
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    for (const Slice& s : slices) {
      if (s.start_ns < end) {
        complain_about(describe(lane), fmt::format("has overlapping slices at {} ns", s.start_ns));
      }
      end = std::max(end, s.end_ns);
    }
  }

  void check_inside(const std::string& what, const FlowEnd& end) {
    const auto lane = slices_.find(end.lane);
    bool inside = false;
    if (lane != slices_.end()) {
      const auto& slices = lane->second;
      auto after =
          std::upper_bound(slices.begin(), slices.end(), end.ts_ns,
                           [](std::int64_t ts, const Slice& s) { return ts < s.start_ns; });
      if (after != slices.begin()) {
        const Slice& last = *(after - 1);
        inside = end.ts_ns < last.end_ns || end.ts_ns == last.start_ns;
      }
    }
    if (!inside) {
      complain_about(what, fmt::format("touches pid {}, tid {} at {} ns, where there is no slice",
                                       end.lane.first, end.lane.second, end.ts_ns));
    }
  }

  TraceReport report_;
  Lane lane_;
  bool after_metadata_ = false;
  std::map<Lane, std::vector<Slice>> slices_;
  std::map<std::int64_t, bool> processes_;  // has it a name
  std::set<Lane> named_lanes_;
  std::unordered_map<std::string, std::int64_t> counter_at_;
  std::unordered_map<std::string, FlowEnd> starts_, finishes_;
};

}  // namespace

TraceReport check_trace(const std::string& path) {
  const std::string content = read_file(path);
  Checker checker;
  // Events are checked and dropped one by one while the file is parsed.
  bool in_events = false;
  const auto callback = [&](int depth, json::parse_event_t at, json& value) {
    if (depth == 1 && at == json::parse_event_t::key) in_events = value == "traceEvents";
    const bool is_event = depth == 2 && at == json::parse_event_t::object_end && in_events;
    if (is_event) checker.event(value);
    return !is_event;
  };
  try {
    require_shallow_json(content);
    const json rest = json::parse(content, callback);
    if (!rest.is_object() || !rest.contains("traceEvents") || !rest["traceEvents"].is_array()) {
      checker.complain_about("the file", "has no array \"traceEvents\"");
    } else if (!rest["traceEvents"].empty()) {
      checker.complain_about("the file", "holds something in \"traceEvents\" that is no event");
    }
  } catch (const json::parse_error& error) {
    throw not_json(content, error.byte, path);
  } catch (const JsonError& error) {
    throw not_json(content, error, path);
  } catch (const json::exception&) {  // of what can be read only 1e400 and its like
    throw InputError(path, "holds a number that is too large for a time");
  }
  return checker.finish();
}

}  // namespace penstock
