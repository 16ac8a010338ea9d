// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/goal.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace penstock {
namespace {

constexpr std::uint64_t kFirstRingTag = 1U << 30;  // those of messages count from 0

/// Writes one rank. Labels are numbers: an activity ends with those in `ends_`.
class Rank {
 public:
  Rank(std::string& text, int device) : text_(text), device_(device) {}

  void write(const std::vector<Activity>& activities) {
    fmt::format_to(std::back_inserter(text_), "rank {} {{\n", device_);
    for (const Activity& a : activities) {
      std::vector<std::uint32_t> needs;
      for (const std::uint32_t n : a.needs)
        needs.insert(needs.end(), ends_[n].begin(), ends_[n].end());
      ends_.push_back(a.kind == Activity::Kind::reduce ? ring(a, needs) : one(a, needs));
    }
    text_ += "}\n";
  }

 private:
  using Labels = std::vector<std::uint32_t>;

  template <class... Args>
  std::uint32_t line(const Labels& needs, fmt::format_string<Args...> format, Args&&... args) {
    const std::uint32_t label = ++last_;
    fmt::format_to(std::back_inserter(text_), "l{}: ", label);
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
    for (const std::uint32_t n : needs)
      fmt::format_to(std::back_inserter(text_), "l{} requires l{}\n", label, n);
    return label;
  }

  Labels one(const Activity& a, const Labels& needs) {
    switch (a.kind) {
      case Activity::Kind::send:
        return {line(needs, "send {}b to {} tag {}", a.bytes, a.peer, a.tag)};
      case Activity::Kind::receive:
        return {line(needs, "recv {}b from {} tag {}", a.bytes, a.peer, a.tag)};
      default: return {line(needs, "calc {}", std::llround(a.seconds * 1e9))};
    }
  }

  Labels ring(const Activity& a, Labels needs) {
    const auto w = a.members.size();
    const auto i =
        static_cast<std::size_t>(std::ranges::find(a.members, device_) - a.members.begin());
    const int next = a.members[(i + 1) % w], previous = a.members[(i + w - 1) % w];
    const std::int64_t bytes =
        (a.bytes + static_cast<std::int64_t>(w) - 1) / static_cast<std::int64_t>(w);
    const std::uint64_t first = kFirstRingTag + std::uint64_t{a.meeting} * 2 * (w - 1);
    if (first + 2 * w > 0xFFFFFFFF)
      throw InputError("pipeline",
                       "the run has too many reductions for GOAL's tags; simulate fewer batches");
    for (std::uint64_t tag = first; tag < first + 2 * (w - 1); ++tag) {
      const std::uint32_t sent = line(needs, "send {}b to {} tag {}", bytes, next, tag);
      const std::uint32_t got = line(needs, "recv {}b from {} tag {}", bytes, previous, tag);
      needs = {sent, got};
    }
    return needs;
  }

  std::string& text_;
  int device_;
  std::uint32_t last_ = 0;
  std::vector<Labels> ends_;  // per activity
};

}  // namespace

std::string to_goal(const ActivityGraph& graph) {
  std::string text = fmt::format("num_ranks {}\n", graph.devices());
  for (int d = 0; d < graph.devices(); ++d) Rank(text, d).write(graph.activities_of(d));
  return text;
}

}  // namespace penstock
