// SPDX-License-Identifier: Apache-2.0
#include "cli/schedule_table.hpp"

#include "base/table.hpp"
#include "results/schedule_claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace penstock {
namespace {

constexpr std::string_view kFamilies[] = {
    "flush, one stage per device",
    "flush, chunks in a loop: stage s on device s mod p",
    "flush, chunks there and back: a V where there are two",
    "flush, from both ends: two opposite pipelines on the same devices",
    "no flush: F and B of a microbatch may use other weights than the latest",
    "whole model on every device",
};

std::string_view family(const Schedule& s) {
  if (s.whole_model) return kFamilies[5];
  if (!s.flushes()) return kFamilies[4];
  if (s.layout == Layout::mirrored) return kFamilies[3];
  if (s.layout == Layout::snake) return kFamilies[2];
  return kFamilies[s.chunks.most > 1 ? 1 : 0];
}

/// "1", "2", "1 to 2", "2, 4, 6, ...".
std::string admitted(const Chunks& c) {
  if (c.least == c.most) return fmt::format("{}", c.least);
  if (c.most == kAnyNumber)
    return fmt::format("{}, {}, {}, ...", c.least, c.least + c.step, c.least + 2 * c.step);
  return fmt::format("{} to {}", c.least, c.most);
}

Json schedule_json(const Schedule& s) {
  return {{"name", s.name},
          {"aliases", s.aliases},
          {"family", family(s)},
          {"rule", s.summary},
          {"bubble", s.bubble},
          {"bubble_of", bubble_of(s)},
          {"stash", s.stash},
          {"flush", s.flushes()},
          {"paper", s.paper},
          {"when", s.when},
          {"layout", kLayoutNames[static_cast<std::size_t>(s.layout)]},
          {"chunks", admitted(s.chunks)},
          {"usual_chunks", s.chunks.usual},
          {"splits_backward", s.splits_backward},
          {"overlaps_pairs", s.pairs},
          {"whole_backward", s.whole_backward},
          {"looks_at_costs", s.looks_at_costs},
          {"memory_limit", s.usual_limit > 0 ? Json(s.usual_limit) : Json(nullptr)},
          {"building_block", s.block != nullptr}};
}

/// Columns of words that are wrapped, side by side.
class WrappedColumns {
 public:
  static constexpr std::size_t kLeast = 96;  // the formulas' longest words have room

  WrappedColumns(std::string_view longest_name, std::size_t columns)
      : name_(longest_name.size()), room_(std::max<std::size_t>(columns, kLeast) - name_ - 6) {
    const std::size_t bubble = std::min<std::size_t>(room_ * 3 / 10, 34);
    const std::size_t stash = std::min<std::size_t>(room_ * 5 / 16, 24);
    widths_ = {name_, std::min<std::size_t>(room_ - bubble - stash, 60), bubble, stash};
  }

  std::string row(const std::array<std::string_view, 4>& cells) const {
    std::vector<std::vector<std::string>> lines;
    std::size_t height = 0;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      lines.push_back(lines_of_words(cells[c], widths_[c]));
      height = std::max(height, lines.back().size());
    }
    std::string text;
    for (std::size_t i = 0; i < height; ++i) {
      std::string line;
      for (std::size_t c = 0, from = 0; c < lines.size(); from += widths_[c++] + 2) {
        if (i >= lines[c].size()) continue;
        line.resize(std::max(from, line.size()), ' ');
        line += lines[c][i];
      }
      text += line + '\n';
    }
    return text;
  }
  /// Below the row, under its second column.
  std::string below(std::string_view words) const {
    std::string text;
    for (const std::string& line : lines_of_words(words, std::min<std::size_t>(room_ + 4, 120)))
      text += std::string(name_ + 2, ' ') + line + '\n';
    return text;
  }

 private:
  std::size_t name_, room_;
  std::array<std::size_t, 4> widths_{};
};

std::string details(const Schedule& s) {
  std::string text;
  if (s.chunks.most > 1) text += fmt::format("chunks {}; ", admitted(s.chunks));
  if (s.usual_limit > 0) text += fmt::format("memory_limit {}; ", s.usual_limit);
  text += s.paper;
  return text + (s.aliases.empty() ? "" : fmt::format("; also {}", fmt::join(s.aliases, ", ")));
}

/// Where columns have no room side by side.
std::string paragraphs(const Schedule& s, std::size_t columns) {
  std::string text = fmt::format("{}\n", s.name);
  for (const std::string& paragraph :
       {std::string(s.summary), fmt::format("bubble: {}", s.bubble),
        fmt::format("stash at stage s: {}", s.stash), std::string(s.when), details(s)})
    for (const std::string& line : lines_of_words(paragraph, columns - 2))
      text += "  " + line + "\n";
  return text;
}

}  // namespace

Json schedules_json() {
  Json rows = Json::array();
  for (const Schedule& s : schedules()) rows.push_back(schedule_json(s));
  return rows;
}

std::string schedules_text(std::size_t columns) {
  const auto longest =
      std::ranges::max(schedules(), {}, [](const Schedule& s) { return s.name.size(); });
  const bool narrow = columns < WrappedColumns::kLeast;
  const WrappedColumns table(longest.name, columns);
  std::string text =
      narrow ? "" : table.row({"schedule", "rule", "bubble", "stash at stage s"}) + "\n";
  for (const std::string_view name : kFamilies) {
    text += fmt::format("{}\n\n", fmt::join(lines_of_words(name, columns), "\n"));
    for (const Schedule& s : schedules()) {
      if (family(s) != name) continue;
      text += narrow ? paragraphs(s, columns)
                     : table.row({s.name, s.summary, s.bubble, s.stash}) + table.below(s.when) +
                           table.below(details(s));
    }
    text += '\n';
  }
  text.pop_back();
  return text;
}

}  // namespace penstock
