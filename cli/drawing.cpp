// SPDX-License-Identifier: Apache-2.0
#include "cli/drawing.hpp"

#include "base/table.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr int kLabel = 9;  // "device 0 "

/// Stages of a device are told apart by upper and lower case: its first, third ... chunk and the
/// others; or, where microbatches enter at both ends, the two ways.
bool is_lower(const Simulation& s, const Op& op) {
  const Placement& where = s.program.placement;
  if (where.mirrored()) return where.reversed(op.microbatch);
  if (where.stages() == where.depth()) return false;
  const auto& positions = where.positions();
  const auto before = positions.begin() + op.stage;
  return std::count(positions.begin(), before, positions[op.stage]) % 2 == 1;
}

std::string kind_letter(const Simulation& s, const Op& op) {
  if (op.kind == OpKind::step) return "S";
  if (op.kind == OpKind::reduce_grad) return "R";
  const auto letter = static_cast<char>(token(op.kind)[0] + (is_lower(s, op) ? 'a' - 'A' : 0));
  return {letter};
}

std::string label(const Simulation& s, const Op& op, int width, DrawingStyle style) {
  const std::string kind = kind_letter(s, op);
  const std::string number =
      std::to_string(style.versions && is_compute(op.kind) ? s.weight_version(op) : op.microbatch);
  const bool numbered = is_compute(op.kind);
  if (numbered && static_cast<int>(kind.size() + number.size()) <= width) return kind + number;
  return width >= 1 ? kind : "";
}

const char* colour_of(OpKind kind, bool lower) {
  switch (kind) {
    case OpKind::forward: return lower ? "\x1b[30;106m" : "\x1b[30;46m";
    case OpKind::backward:
    case OpKind::backward_input: return lower ? "\x1b[30;102m" : "\x1b[30;42m";
    case OpKind::backward_weight: return lower ? "\x1b[30;103m" : "\x1b[30;43m";
    default: return "\x1b[30;47m";
  }
}

/// How the time of a run is laid out: cells per second, and cells in all and in one drawing. What
/// is too long for one drawing that can be read is cut into several, one below the other.
struct Scale {
  double cells_per_s = 0;
  int width = 0;
  int part = 0;
};

constexpr int kMostParts = 4;

Scale scale_of(const Simulation& s, int room) {
  double shortest = HUGE_VAL;
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g) {
    const double length = s.timeline->op(g).length_s() / s.program.ops.together(g);
    if (length > 0) shortest = std::min(shortest, length);
  }
  const double makespan = std::max(s.timeline->makespan_s, 1e-300);
  const double fitting = room / makespan;
  const auto in = [&](double cells_per_s, int part) {
    const int width = static_cast<int>(std::ceil(makespan * cells_per_s - 1e-9));
    return Scale{cells_per_s, width, std::min(part, width)};
  };
  const double cells = fitting * shortest;
  if (!std::isfinite(cells)) return in(fitting, room);
  const int readable =  // a letter and a number
      1 + static_cast<int>(std::to_string(s.program.microbatches() - 1).size());
  const double wanted = std::ceil(makespan / shortest - 1e-9) * readable;
  const double parts = std::ceil(wanted / (room / readable * readable));
  if (cells < readable && parts <= kMostParts)
    return in(readable / shortest,
              static_cast<int>(std::ceil(wanted / parts / readable)) * readable);
  return in(cells < 1 ? fitting : std::min(4.0, std::floor(cells)) / shortest, room);
}

class DeviceLine {
 public:
  DeviceLine(int width, bool colour) : cells_(static_cast<std::size_t>(width)), colour_(colour) {}

  void put(int from, int to, const std::string& text, char fill, const char* paint) {
    to = std::min(to, static_cast<int>(cells_.size()));
    for (int i = from; i < to; ++i) {
      const auto c = static_cast<std::size_t>(i - from);
      cells_[static_cast<std::size_t>(i)] = {c < text.size() ? text[c]
                                             : colour_       ? ' '
                                                             : fill,
                                             paint};
    }
  }
  std::string text(int from, int to) const {
    std::string out;
    const char* paint = nullptr;
    const auto change = [&](const char* next) {
      if (colour_ && paint != next) out += next == nullptr ? "\x1b[0m" : next;
      paint = next;
    };
    for (int i = from; i < std::min(to, static_cast<int>(cells_.size())); ++i) {
      const Cell& cell = cells_[static_cast<std::size_t>(i)];
      change(cell.paint);
      out += cell.paint == nullptr ? "·" : std::string(1, cell.letter);
    }
    change(nullptr);
    return out;
  }

 private:
  struct Cell {
    char letter = ' ';
    const char* paint = nullptr;  // null: idle
  };
  std::vector<Cell> cells_;
  bool colour_;
};

void put_op(const Simulation& s, const Op& op, int from, int to, DrawingStyle style,
            DeviceLine& row) {
  row.put(from, to, label(s, op, to - from, style), is_backward(op.kind) ? '=' : '-',
          colour_of(op.kind, is_lower(s, op)));
}

/// An F and a B that run together share their box, half and half.
void put_pair(const Simulation& s, std::uint32_t g, int from, int to, DrawingStyle style,
              DeviceLine& row) {
  const int middle = from + (to - from) / 2;
  put_op(s, s.program.ops[g], from, middle, style, row);
  put_op(s, s.program.ops[g + 1], middle, to, style, row);
  if (to - from > 5) row.put(middle - 1, middle, "&", '&', colour_of(OpKind::step, false));
}

DeviceLine row_of(const Simulation& s, int device, const Scale& scale, DrawingStyle style) {
  DeviceLine row(scale.width, style.colour);
  const OpLists& ops = s.program.ops;
  for (std::uint32_t g = ops.begin(device); g < ops.end(device); g += ops.together(g)) {
    const Span& span = s.timeline->op(g);
    const int from = static_cast<int>(std::lround(span.start_s * scale.cells_per_s));
    const int to = static_cast<int>(std::lround(span.end_s * scale.cells_per_s));
    if (ops[g].has(Op::paired))
      put_pair(s, g, from, to, style, row);
    else
      put_op(s, ops[g], from, to, style, row);
  }
  return row;
}

std::string draw_rows(const Simulation& s, const Scale& scale, DrawingStyle style) {
  constexpr int kDevices = 64;
  const int devices = std::min(kDevices, s.program.ops.devices());
  const int digits = s.program.ops.devices() > 10 ? 2 : 1;
  std::vector<DeviceLine> rows;
  for (int d = 0; d < devices; ++d) rows.push_back(row_of(s, d, scale, style));
  std::string out;
  for (int from = 0; from < scale.width; from += scale.part) {
    const int to = std::min(from + scale.part, scale.width);
    if (scale.part < scale.width)
      out += fmt::format("{}time {:.4g} to {:.4g}\n", from == 0 ? "" : "\n",
                         from / scale.cells_per_s, to / scale.cells_per_s);
    for (std::size_t d = 0; d < rows.size(); ++d)
      out += fmt::format("device {:<{}} {}\n", d, digits, rows[d].text(from, to));
  }
  if (s.program.ops.devices() > kDevices)
    out += fmt::format("... {} more devices\n", s.program.ops.devices() - kDevices);
  return out;
}

std::vector<std::uint32_t> every_second(const std::vector<std::uint32_t>& stages) {
  std::vector<std::uint32_t> second;
  for (std::size_t i = 1; i < stages.size(); i += 2) second.push_back(stages[i]);
  return second;
}

std::string explain_cases(const Simulation& s) {
  const Placement& where = s.program.placement;
  if (where.mirrored()) return "lower case: microbatches from the last device to the first\n";
  if (where.stages() == where.depth()) return "";
  return fmt::format("lower case: every second stage of a device ({} on device 0)\n",
                     fmt::join(every_second(where.stages_at(0)), ", "));
}

}  // namespace

std::string draw_schedule(const Simulation& s, const Result& r, int columns, DrawingStyle style) {
  const Scale scale = scale_of(s, std::max(20, columns - kLabel));
  const std::uint32_t chunks = s.scenario.shape.chunks;
  std::string out =
      fmt::format("{}: {}{}, {} per update, {}; transfers {}\n\n", s.program.schedule,
                  counted(s.scenario.shape.depth, chunks > 1 ? "device" : "stage"),
                  chunks > 1 ? fmt::format(" of {} chunks", chunks) : "",
                  counted(s.scenario.shape.microbatches_per_update, "microbatch"),
                  counted(s.scenario.shape.batches, "update"), to_string(s.program.transfers));
  out += draw_rows(s, scale, style) + explain_cases(s);
  if (style.versions)
    out += "numbers: the version of the weights that an op uses; S makes the next one\n";
  out += fmt::format("\ntime {:.6g}, bubble {}", r.makespan_s, format_percent(r.bubble_fraction));
  if (r.iteration_time_s)
    out += fmt::format(", {:.6g} per {}", *r.iteration_time_s,
                       s.program.microbatches_per_update == 1 ? "microbatch" : "update");
  std::vector<std::string> held, versions, staleness;
  bool several = false;
  for (const DeviceResult& d : r.devices) {
    held.push_back(std::to_string(d.order.stash_peak));
    versions.push_back(std::to_string(d.order.weight_versions_peak));
    staleness.push_back(std::to_string(d.order.staleness_max));
    several |= d.order.weight_versions_peak > 1 || d.order.staleness_max > 0;
  }
  out += fmt::format("\nper device: stash {}", compressed(held, " "));
  if (several)
    out += fmt::format("; weight versions {}; staleness {}", compressed(versions, " "),
                       compressed(staleness, " "));
  return out + "\n";
}

}  // namespace penstock
