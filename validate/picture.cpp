#include "validate/picture.hpp"

#include "base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kLeft = 132, kRight = 16, kWidth = 1340, kTop = 26;
constexpr double kLane = 20, kLaneGap = 3, kDeviceGap = 14, kMessage = 3;
constexpr std::size_t kMostBoxes = 5000;  // more make browsers slow and boxes too thin to see
constexpr int kMostDevices = 24;
constexpr std::string_view kClasses[] = {"F", "B", "I", "W", "R", "S"};

/// Updates to show, and where they are in one timeline.
struct Window {
  std::uint32_t first, end;  // updates
};
struct Stretch {
  double from_s, to_s;
  double length_s() const { return to_s - from_s; }
};

Window window_of(const Program& program, const SteadyUpdates& steady) {
  const std::uint32_t n = program.batches;
  // Without a flush an iteration may be a single microbatch: p of them show the pattern.
  const std::uint32_t m = program.microbatches_per_update;
  const auto depth = static_cast<std::uint32_t>(program.placement.depth());
  const std::uint32_t unit = program.flushes ? 1 : std::max(steady.step, (depth + m - 1) / m);
  if (n <= 3 * unit) return {0, n};
  const std::uint32_t middle = std::min(std::max(steady.first + unit, unit), n - 2 * unit);
  return {middle - unit, middle + 2 * unit};
}

/// Boxes a window has on the devices that are drawn.
std::size_t count_ops(const Program& program, const Window& window) {
  const auto per_update = std::size_t{program.ops.size()} / program.batches;
  const int devices = program.ops.devices();
  const auto shown = static_cast<std::size_t>(std::min(devices, kMostDevices));
  return 2 * per_update * (window.end - window.first) * shown / static_cast<std::size_t>(devices);
}

/// A step of 1, 2 or 5 times a power of ten that makes about ten ticks.
double tick_step(double length_s) {
  const double rough = length_s / 10;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

struct Unit {
  double seconds;
  std::string_view name;
};
Unit unit_of(double length_s) {
  if (length_s >= 2) return {1, "s"};
  if (length_s >= 2e-3) return {1e-3, "ms"};
  return {1e-6, "us"};
}

class Drawing {
 public:
  Drawing(const ValidationInput& input, const Timeline& measured)
      : program_(input.simulation.program),
        table_(input.simulation.table),
        predicted_(input.predicted),
        measured_(measured),
        steady_(steady_updates(program_)),
        window_(window_of(program_, steady_)) {
    choose_devices();
    choose_stretches();
  }

  Picture draw() {
    const double height = top_of(devices_.size()) + 34;
    Picture picture;
    svg_ = fmt::format(
        "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"predicted and measured "
        "timelines\">\n",
        kWidth, height);
    draw_axis();
    for (std::size_t i = 0; i < devices_.size(); ++i) draw_device(i);
    draw_boundaries();
    svg_ += "</svg>\n";
    picture.svg = std::move(svg_);
    picture.caption = caption();
    return picture;
  }

 private:
  void choose_devices() {
    const int all = program_.ops.devices();
    for (int d = 0; d < all; ++d) {
      if (all <= kMostDevices || d < kMostDevices / 2 || d >= all - kMostDevices / 2)
        devices_.push_back(d);
    }
  }

  void choose_stretches() {
    if (count_ops(program_, window_) > kMostBoxes && window_.end - window_.first > 1) {
      const std::uint32_t third = (window_.end - window_.first) / 3;
      if (third > 0) window_ = {window_.first + third, window_.first + 2 * third};
    }
    predicted_at_ = stretch_of(predicted_);
    measured_at_ = stretch_of(measured_);
    length_s_ = std::max(predicted_at_.length_s(), measured_at_.length_s());
    const auto boxes = static_cast<double>(count_ops(program_, window_));
    if (boxes > kMostBoxes) {
      cut_ = true;
      length_s_ *= kMostBoxes / boxes;
    }
    if (length_s_ <= 0) length_s_ = 1;
  }

  Stretch stretch_of(const Timeline& timeline) {
    const auto ends = update_ends(program_, timeline);
    Stretch s{ends[window_.first], ends[window_.end]};
    // A run that was stopped inside the window is shown from its start.
    if (std::isnan(s.from_s) || std::isnan(s.to_s)) s = {ends[0], timeline.makespan_s};
    return s;
  }

  double x(double seconds) const { return kLeft + (kWidth - kLeft - kRight) * seconds / length_s_; }
  static double top_of(std::size_t row) {
    return kTop + static_cast<double>(row) * (2 * kLane + kLaneGap + kDeviceGap);
  }
  double bottom() const { return top_of(devices_.size()) - kDeviceGap; }

  void draw_axis() {
    const double step = tick_step(length_s_);
    const Unit unit = unit_of(length_s_);
    for (int i = 0; i * step <= length_s_ * (1 + 1e-9); ++i) {
      const double at = x(i * step);
      svg_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>"
          "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3:.0f}\">{4:.4g}</text>\n",
          at, kTop - 4, bottom() + 6, bottom() + 19, i * step / unit.seconds);
    }
    svg_ += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.0f}\">time since the window began, {}</text>\n",
        (kLeft + kWidth - kRight) / 2, bottom() + 34, unit.name);
  }

  void draw_device(std::size_t row) {
    const int d = devices_[row];
    const double top = top_of(row);
    svg_ += fmt::format("<text class=\"device\" x=\"4\" y=\"{:.0f}\">device {}</text>\n",
                        top + kLane + 6, d);
    draw_lane(d, top, predicted_, predicted_at_, "predicted");
    draw_lane(d, top + kLane + kLaneGap, measured_, measured_at_, "measured");
  }

  void draw_lane(int d, double top, const Timeline& timeline, const Stretch& at,
                 std::string_view which) {
    svg_ += fmt::format(
        "<g class=\"{0}\"><text class=\"lane\" x=\"{1:.0f}\" y=\"{2:.0f}\">{0}</text>"
        "<rect class=\"idle\" x=\"{3:.1f}\" y=\"{4:.1f}\" width=\"{5:.1f}\" "
        "height=\"{6:.1f}\"/>\n",
        which, kLeft - 6, top + 14, kLeft, top, x(shown(at)) - kLeft, kLane);
    for (std::uint32_t g = program_.ops.begin(d); g < program_.ops.end(d); ++g) {
      if (happened(timeline, g)) draw_op(g, top, timeline, at);
      if (program_.ops[g].has(Op::receives) && timeline.has_message(g))
        draw_message(g, top, timeline, at);
    }
    svg_ += "</g>\n";
  }
  double shown(const Stretch& at) const { return std::min(at.length_s(), length_s_); }

  /// The part of a span inside the stretch, from its start; empty when there is none.
  std::optional<Span> clipped(const Span& span, const Stretch& at) const {
    const Span part{std::max(0.0, span.start_s - at.from_s),
                    std::min(shown(at), span.end_s - at.from_s)};
    if (part.end_s <= part.start_s) return std::nullopt;
    return part;
  }

  void draw_op(std::uint32_t g, double top, const Timeline& timeline, const Stretch& at) {
    const Op& op = program_.ops[g];
    const auto part = clipped(timeline.op(g), at);
    if (!part) return;
    const double left = x(part->start_s), width = x(part->end_s) - left;
    svg_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
        "<title>{}</title></rect>",
        kClasses[static_cast<std::size_t>(op.kind)], left, top, std::max(width, 0.3),
        kLane - kMessage - 1, title(g));
    const std::string label = std::to_string(op.microbatch);
    if (width < 2 + 6.2 * static_cast<double>(label.size())) return;
    svg_ += fmt::format("<text class=\"mb\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>", left + width / 2,
                        top + 12, label);
  }

  std::string title(std::uint32_t g) const {
    std::string text = to_string(program_.ops[g]);
    const auto add = [&](std::string_view which, const Timeline& timeline, const Stretch& at) {
      if (!happened(timeline, g)) return;
      const Span& span = timeline.op(g);
      const Unit unit = unit_of(length_s_);
      text += fmt::format(
          "\n{}: {:.4g} to {:.4g} {} ({})", which, (span.start_s - at.from_s) / unit.seconds,
          (span.end_s - at.from_s) / unit.seconds, unit.name, format_time(span.length_s()));
    };
    add("predicted", predicted_, predicted_at_);
    add("measured", measured_, measured_at_);
    return text;
  }

  void draw_message(std::uint32_t g, double top, const Timeline& timeline, const Stretch& at) {
    const auto part = clipped(timeline.message(g), at);
    if (!part) return;
    svg_ += fmt::format(
        "<rect class=\"M\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
        "<title>message for {}: {}</title></rect>",
        x(part->start_s), top + kLane - kMessage, std::max(0.3, x(part->end_s) - x(part->start_s)),
        kMessage, to_string(program_.ops[g]), format_time(timeline.message(g).length_s()));
  }

  /// Where the window's updates end: predicted dashed, measured solid.
  void draw_boundaries() {
    constexpr std::uint32_t kMost = 8;
    const auto predicted = update_ends(program_, predicted_);
    const auto measured = update_ends(program_, measured_);
    const std::uint32_t step = std::max(1U, (window_.end - window_.first + kMost - 1) / kMost);
    for (std::uint32_t u = window_.first; u < window_.end; u += step) {
      const std::uint32_t last = std::min(u + step, window_.end);
      draw_boundary(predicted, predicted_at_, last, "ends predicted-end", 0);
      draw_boundary(measured, measured_at_, last, "ends", kLane + kLaneGap);
      const double from = std::max(0.0, predicted[u] - predicted_at_.from_s);
      if (from >= length_s_) continue;
      svg_ += fmt::format("<text class=\"update\" x=\"{:.1f}\" y=\"14\">update {}</text>\n",
                          x(from) + 3, u);
    }
  }
  /// On every lane of the timeline.
  void draw_boundary(const std::vector<double>& ends, const Stretch& at, std::uint32_t update,
                     std::string_view css, double lane) {
    const double seconds = ends[update] - at.from_s;
    if (std::isnan(seconds) || seconds < 0 || seconds > length_s_) return;
    for (std::size_t row = 0; row < devices_.size(); ++row) {
      svg_ += fmt::format(
          "<line class=\"{0}\" x1=\"{1:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{3:.1f}\"/>\n",
          css, x(seconds), top_of(row) + lane - 2, top_of(row) + lane + kLane + 2);
    }
  }

  std::string caption() const {
    std::string text = window_.end - window_.first == 1
                           ? fmt::format("Update {} of {}", window_.first, program_.batches)
                           : fmt::format("Updates {} to {} of {}", window_.first, window_.end - 1,
                                         program_.batches);
    text += program_.flushes ? ", from the end of the update before" : ", as device 0 makes them";
    text += ". Both timelines start at the window's beginning. Numbers are microbatches.";
    if (cut_) text += " Cut short: the window has too many ops to draw.";
    if (static_cast<int>(devices_.size()) < program_.ops.devices())
      text += fmt::format(" Devices {} to {} are left out.", kMostDevices / 2,
                          program_.ops.devices() - kMostDevices / 2 - 1);
    return text;
  }

  const Program& program_;
  const DependencyTable& table_;
  const Timeline& predicted_;
  const Timeline& measured_;
  SteadyUpdates steady_;
  Window window_;
  std::vector<int> devices_;
  Stretch predicted_at_{}, measured_at_{};
  double length_s_ = 1;
  bool cut_ = false;
  std::string svg_;
};

}  // namespace

Picture draw_comparison(const ValidationInput& input, std::size_t run) {
  return Drawing(input, input.runs[run].timeline).draw();
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace penstock
