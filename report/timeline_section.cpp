// SPDX-License-Identifier: Apache-2.0
#include "report/timeline_section.hpp"

#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// An op of a pair that runs together takes half of the lane's height.
enum class Half : std::uint8_t { whole, upper, lower };

double end_of(const std::vector<TimelineLane>& lanes) {
  double end = 0;
  for (const TimelineLane& lane : lanes) {
    for (const TimelineBar& bar : lane.bars)
      end = std::max({end, bar.span.end_s, bar.message.end_s});
  }
  return end;
}

/// When the bar after the last that fits starts; infinite: all fit.
double cut_at(const std::vector<TimelineLane>& lanes, std::size_t most_bars) {
  std::vector<double> starts;
  for (const TimelineLane& lane : lanes) {
    for (const TimelineBar& bar : lane.bars) starts.push_back(bar.span.start_s);
  }
  if (starts.size() <= most_bars) return INFINITY;
  const auto nth = starts.begin() + static_cast<std::ptrdiff_t>(most_bars);
  std::ranges::nth_element(starts, nth);
  return *nth;
}

/// Arrays of the boxes of one lane.
class Packed {
 public:
  explicit Packed(double tick_end_s) : ticks_(tick_end_s) {}

  void add_bar(const TimelineBar& bar, Half half) {
    start_.push_back(ticks_.tick_of(bar.span.start_s));
    end_.push_back(ticks_.tick_of(bar.span.end_s));
    microbatch_.push_back(bar.op.microbatch);
    stage_.push_back(bar.op.stage);
    kind_.push_back(static_cast<std::uint8_t>(static_cast<unsigned>(bar.op.kind) |
                                              static_cast<unsigned>(half) << 4));
    recompute_.push_back(static_cast<std::uint8_t>(std::round(255 * bar.recompute_share)));
    const bool message = bar.message.end_s >= 0;
    has_messages_ |= message;
    sent_.push_back(message ? ticks_.tick_of(bar.message.start_s) : Ticks::none);
    arrived_.push_back(message ? ticks_.tick_of(bar.message.end_s) : Ticks::none);
  }

  void put(Json& lane) const {
    lane["start"] = packed(std::span(start_));
    lane["end"] = packed(std::span(end_));
    lane["microbatch"] = packed(std::span(microbatch_));
    lane["stage"] = packed(std::span(stage_));
    lane["kind"] = packed(std::span(kind_));
    lane["recompute"] = packed(std::span(recompute_));
    if (!has_messages_) return;
    lane["sent"] = packed(std::span(sent_));
    lane["arrived"] = packed(std::span(arrived_));
  }

 private:
  Ticks ticks_;
  bool has_messages_ = false;
  std::vector<std::uint32_t> start_, end_, microbatch_, sent_, arrived_;
  std::vector<std::uint16_t> stage_;
  std::vector<std::uint8_t> kind_, recompute_;
};

Json lane_json(const TimelineLane& lane, double until_s, double tick_end_s) {
  Packed packed(tick_end_s);
  bool second = false;
  for (const TimelineBar& bar : lane.bars) {
    const bool first = !second && bar.op.has(Op::paired);
    const Half half = second ? Half::lower : first ? Half::upper : Half::whole;
    second = first;
    if (bar.span.start_s < until_s) packed.add_bar(bar, half);
  }
  Json json{{"name", lane.name}, {"clock", lane.clock}};
  packed.put(json);
  return json;
}

Json clock_json(const TimelineClock& clock) {
  Json ends = Json::array();
  for (const double end : clock.update_ends_s) ends.push_back(number_json(end));
  return {{"name", clock.name}, {"ends", ends}};
}

}  // namespace

// Torchgpipe's stored microbatches recompute nothing.
double recompute_share(const Op& op, const StageCosts& costs) {
  if (!is_backward(op.kind) || op.has(Op::stored)) return 0;
  const OpCost& cost = costs[op.kind];
  if (costs.stored && cost.seconds > 0)
    return std::clamp(1 - (*costs.stored)[op.kind].seconds / cost.seconds, 0.0, 1.0);
  if (cost.again_flops <= 0) return 0;
  return cost.again_flops / (cost.again_flops + cost.flops);
}

TimelineLane device_lane(const TimelineView& view, int device,
                         const std::vector<StageCosts>& costs) {
  TimelineLane lane{fmt::format("device {}", device), {}};
  for (std::uint32_t g = view.program.ops.begin(device); g < view.program.ops.end(device); ++g) {
    const Span& span = view.timeline.op(g);
    if (span.start_s < 0 || view.timeline.never_ran(g)) continue;
    const Op& op = view.program.ops[g];
    lane.bars.push_back({span, op, {-1, -1}, recompute_share(op, costs[op.stage])});
    if (view.timeline.has_message(g)) lane.bars.back().message = view.timeline.message(g);
  }
  std::ranges::stable_sort(lane.bars, {}, [](const TimelineBar& b) { return b.span.start_s; });
  return lane;
}

std::string section_text(const TimelineSection& timeline, std::size_t most_bars) {
  Json json = section_json("timeline", timeline.text);
  const double end_s = end_of(timeline.lanes);
  const double until_s = cut_at(timeline.lanes, most_bars);
  if (std::isfinite(until_s)) {
    json["note"] = timeline.text.note + (timeline.text.note.empty() ? "" : " ") +
                   fmt::format(
                       "Only the first {} of {}: the rest has too many ops for a page (a "
                       "trace has them all).",
                       format_time(until_s), format_time(end_s));
  }
  json["tick_s"] = Ticks(end_s).step();
  json["end_s"] = std::min(end_s, until_s);
  json["first_update"] = timeline.first_update;
  json["end_update"] = timeline.end_update;
  json["open_from_s"] = timeline.open_from_s;
  json["open_to_s"] = timeline.open_to_s;
  for (const TimelineClock& clock : timeline.clocks) json["clocks"].push_back(clock_json(clock));
  json["lanes"] = Json::array();
  for (const TimelineLane& lane : timeline.lanes)
    json["lanes"].push_back(lane_json(lane, until_s, end_s));
  return to_text(json);
}

std::vector<std::string> on_one_scale(const std::vector<std::string>& timelines) {
  std::vector<Json> sections;
  double axis_s = 0, window_s = 0;
  for (const std::string& text : timelines) {
    const Json& section = sections.emplace_back(Json::parse(text));
    const auto end_s = section["end_s"].get<double>();
    const auto shown = section["end_update"].get<std::size_t>();
    const Json& ends = section["clocks"][0]["ends"];
    axis_s = std::max(axis_s, end_s);
    const auto open_s = section["open_to_s"].get<double>();
    window_s = std::max(window_s, shown > 0    ? ends[shown].get<double>()
                                  : open_s > 0 ? open_s
                                               : end_s);
  }
  std::vector<std::string> out;
  for (Json& section : sections) {
    section["axis_s"] = axis_s;
    section["window_s"] = window_s;
    section["open_to_s"] = 0;
    out.push_back(to_text(section));
  }
  return out;
}

}  // namespace penstock
