#include "cli/drawing.hpp"

#include "base/units.hpp"
#include "cli/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr int kLabel = 9;  // "device 0 "

/// Cells per second: a whole number of cells per shortest op where that fits.
double scale_of(const Simulation& s, int width) {
  double shortest = HUGE_VAL;
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g) {
    const double length = s.timeline->op(g).length_s();
    if (length > 0) shortest = std::min(shortest, length);
  }
  const double makespan = std::max(s.timeline->makespan_s, 1e-300);
  const double fitting = width / makespan;
  const double cells = fitting * shortest;
  if (!std::isfinite(cells) || cells < 1) return fitting;
  return std::min(4.0, std::floor(cells)) / shortest;
}

std::string label(const Op& op, int width) {
  const std::string kind(op.kind == OpKind::step          ? "S"
                         : op.kind == OpKind::reduce_grad ? "R"
                                                          : token(op.kind));
  const std::string number = std::to_string(op.microbatch);
  const bool numbered = is_compute(op.kind);
  if (numbered && static_cast<int>(kind.size() + number.size()) <= width) return kind + number;
  return width >= 1 ? kind : "";
}

const char* colour_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return "\x1b[30;46m";
    case OpKind::backward:
    case OpKind::backward_input: return "\x1b[30;42m";
    case OpKind::backward_weight: return "\x1b[30;43m";
    default: return "\x1b[30;47m";
  }
}

class Row {
 public:
  Row(int width, bool colour) : cells_(static_cast<std::size_t>(width), "·"), colour_(colour) {}

  void put(int from, int to, const std::string& text, OpKind kind) {
    to = std::min(to, static_cast<int>(cells_.size()));
    if (from >= to) return;
    for (int i = from; i < to; ++i) {
      const auto c = static_cast<std::size_t>(i - from);
      std::string cell = c < text.size()     ? std::string(1, text[c])
                         : colour_           ? " "
                         : is_backward(kind) ? "="
                                             : "-";
      if (colour_) cell = (c == 0 ? colour_of(kind) : "") + cell + (i + 1 == to ? "\x1b[0m" : "");
      cells_[static_cast<std::size_t>(i)] = cell;
    }
  }
  std::string text() const {
    std::string out;
    for (const std::string& cell : cells_) out += cell;
    return out;
  }

 private:
  std::vector<std::string> cells_;
  bool colour_;
};

}  // namespace

std::string draw_schedule(const Simulation& s, const Result& r, int columns, bool colour) {
  const int room = std::max(20, columns - kLabel);
  const double scale = scale_of(s, room);
  const int width =
      std::min(room, static_cast<int>(std::ceil(s.timeline->makespan_s * scale - 1e-9)));
  std::string out =
      fmt::format("{}: {}, {} per update, {}; transfers {}\n\n", s.program.schedule,
                  counted(s.scenario.shape.depth, "stage"),
                  counted(s.scenario.shape.microbatches_per_update, "microbatch"),
                  counted(s.scenario.shape.batches, "update"), to_string(s.program.transfers));
  constexpr int kDevices = 64;
  const int digits = s.program.ops.devices() > 10 ? 2 : 1;
  for (int d = 0; d < std::min(kDevices, s.program.ops.devices()); ++d) {
    Row row(width, colour);
    for (std::uint32_t g = s.program.ops.begin(d); g < s.program.ops.end(d); ++g) {
      const Span& span = s.timeline->op(g);
      const int from = static_cast<int>(std::lround(span.start_s * scale));
      const int to = static_cast<int>(std::lround(span.end_s * scale));
      row.put(from, to, label(s.program.ops[g], to - from), s.program.ops[g].kind);
    }
    out += fmt::format("device {:<{}} {}\n", d, digits, row.text());
  }
  if (s.program.ops.devices() > kDevices)
    out += fmt::format("... {} more devices\n", s.program.ops.devices() - kDevices);
  out += fmt::format("\ntime {:.6g}, bubble {}", r.makespan_s, format_percent(r.bubble_fraction));
  if (r.iteration_time_s)
    out += fmt::format(", {:.6g} per {}", *r.iteration_time_s,
                       s.program.microbatches_per_update == 1 ? "microbatch" : "iteration");
  std::string stash, versions, staleness;
  const std::size_t shown = std::min<std::size_t>(16, r.devices.size());
  for (std::size_t d = 0; d < shown; ++d) {
    stash += fmt::format(" {}", r.devices[d].order.stash_peak);
    versions += fmt::format(" {}", r.devices[d].order.weight_versions_peak);
    staleness += fmt::format(" {}", r.devices[d].order.staleness_max);
  }
  const char* more = shown < r.devices.size() ? " ..." : "";
  return out + fmt::format("\nper device: stash{}{}; weight versions{}{}; staleness{}{}\n", stash,
                           more, versions, more, staleness, more);
}

}  // namespace penstock
