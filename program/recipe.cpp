// SPDX-License-Identifier: Apache-2.0
#include "program/recipe.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace penstock {

std::int64_t Recipe::bytes(Axis axis, Collective what) const {
  std::int64_t sum = 0;
  for_each([&](const Segment& s) {
    if (s.exchanges() && s.axis == axis && s.what == what) sum += s.bytes;
  });
  return sum;
}

bool Recipe::exchanges(Axis axis) const {
  bool found = false;
  for_each([&](const Segment& s) { found = found || (s.exchanges() && s.axis == axis); });
  return found;
}

bool Recipe::serial() const {
  for (std::size_t i = 1; i < segments.size(); ++i) {
    const bool waits = segments[i].lane == segments[i - 1].lane ||
                       segments[i].after == static_cast<std::int8_t>(i - 1);
    if (!waits) return false;
  }
  return true;
}

Recipe all_reduces(std::int64_t bytes, int calls) {
  if (calls == 0) return {};
  return {{{.share = 1}, {.lane = Lane::exchange, .after = 0, .calls = calls, .bytes = bytes}},
          calls};
}

bool Recipe::in_turns() const {
  return segments.empty() ||
         *this == all_reduces(bytes(Axis::tensor, Collective::all_reduce), times);
}

namespace {

const std::vector<Segment> kComputes{{.share = 1}};

void check_length(const Recipe& both) {
  invariant(both.segments.size() <= Recipe::kMostSegments,
            "two recipes that are joined have more than 31 segments");
}

/// Appends what is exchanged before the first time and after the last one.
void add_ends(const Recipe& from, Recipe& to) {
  to.before.insert(to.before.end(), from.before.begin(), from.before.end());
  to.after.insert(to.after.end(), from.after.begin(), from.after.end());
}

/// Returns whether an op that computes waits for this exchange: ranks of an inner axis exchange in
/// the stream that computes, unless the op's own computing goes on beside it.
bool holds_computing(const std::vector<Segment>& segments, std::size_t i) {
  const Segment& s = segments[i];
  if (s.lane != Lane::exchange || s.axis > Axis::context) return false;
  for (std::size_t j = 0; j < i; ++j)
    if (segments[j].lane == Lane::compute && static_cast<int>(j) > s.after) return false;
  return true;
}

/// Returns both with their segments in turns: while one exchanges tokens, the other one computes.
/// An exchange that holds one op's computing holds the other op's, too: both compute in one stream.
Recipe interleaved(const Recipe& a, double share, const Recipe& b) {
  struct Source {
    const std::vector<Segment>& segments;
    double share;
    std::size_t next = 0;
    std::vector<std::int8_t> placed{};
  };
  Source sources[] = {{a.segments.empty() ? kComputes : a.segments, share},
                      {b.segments.empty() ? kComputes : b.segments, 1 - share}};
  Recipe both{{}, std::max(a.times, b.times)};
  const std::size_t most = std::max(sources[0].segments.size(), sources[1].segments.size());
  for (std::size_t step = 1; step <= most; ++step) {
    for (Source& source : sources) {
      // The shorter one is spread over the longer one.
      for (; source.next * most < step * source.segments.size(); ++source.next) {
        Segment s = source.segments[source.next];
        s.share *= source.share;
        if (s.after != Segment::kNone) s.after = source.placed[static_cast<std::size_t>(s.after)];
        if (holds_computing(source.segments, source.next)) {
          source.placed.push_back(std::exchange(s.after, Segment::kNone));
          both.before.push_back(s);
          continue;
        }
        source.placed.push_back(static_cast<std::int8_t>(both.segments.size()));
        both.segments.push_back(s);
      }
    }
  }
  return both;
}

}  // namespace

Recipe joined(const Recipe& a, double share, const Recipe& b) {
  if (a.exchanges(Axis::expert) || b.exchanges(Axis::expert)) {
    Recipe both = interleaved(a, share, b);
    check_length(both);
    for (const Recipe* one : {&a, &b}) add_ends(*one, both);
    return both;
  }
  static_assert(kLanes == 4,
                "computing and exchanges wait for one another, the others for neither");
  if (a.in_turns() && b.in_turns())
    return all_reduces(a.bytes(Axis::tensor, Collective::all_reduce) +
                           b.bytes(Axis::tensor, Collective::all_reduce),
                       a.times + b.times);
  Recipe both{{}, std::max(a.times, b.times)};
  std::array<std::int8_t, kLanes> last;
  last.fill(Segment::kNone);
  const auto append = [&](const std::vector<Segment>& segments, double of_all) {
    const auto first = static_cast<std::int8_t>(both.segments.size());
    const auto before = last;
    for (Segment s : segments) {
      const auto lane = static_cast<std::size_t>(s.lane);
      s.share *= of_all;
      if (s.after != Segment::kNone)
        s.after = static_cast<std::int8_t>(s.after + first);
      else if (lane < 2 && last[lane] == before[lane])
        s.after = before[1 - lane];  // those before it on its own lane it waits for anyway
      last[lane] = static_cast<std::int8_t>(both.segments.size());
      both.segments.push_back(s);
    }
  };
  append(a.segments.empty() ? kComputes : a.segments, share);
  append(b.segments.empty() ? kComputes : b.segments, 1 - share);
  check_length(both);
  for (const Recipe* one : {&a, &b}) add_ends(*one, both);
  return both;
}

double beside_exchanges_s(const Recipe& recipe, double compute_s, const ExchangeTime& exchange_s) {
  const std::vector<Segment>& segments = recipe.segments;
  const bool occupied =
      std::ranges::any_of(segments, [](const Segment& s) { return s.occupies > 0; });
  if (!occupied || compute_s <= 0 || recipe.serial()) return compute_s;
  std::vector<double> left_s;  // of each segment, at full speed
  for (const Segment& s : segments)
    left_s.push_back(s.exchanges() ? exchange_s(s) : s.share * compute_s);
  std::vector<bool> ended(segments.size(), false);
  double busy_s = 0;
  for (;;) {
    std::array<int, kLanes> first;  // segment of each lane that has not ended
    first.fill(Segment::kNone);
    for (std::size_t i = segments.size(); i-- > 0;)
      if (!ended[i]) first[static_cast<std::size_t>(segments[i].lane)] = static_cast<int>(i);
    std::vector<std::size_t> running;
    bool computes = false;
    double free = 1;  // multiprocessors
    for (const int i : first) {
      if (i == Segment::kNone) continue;
      const auto at = static_cast<std::size_t>(i);
      const std::int8_t after = segments[at].after;
      if (after != Segment::kNone && !ended[static_cast<std::size_t>(after)]) continue;
      running.push_back(at);
      computes = computes || !segments[at].exchanges();
      free -= segments[at].occupies;
    }
    if (running.empty()) return busy_s;
    const auto rate = [&](std::size_t i) { return segments[i].exchanges() ? 1 : free; };
    const auto end_s = [&](std::size_t i) { return left_s[i] / rate(i); };
    const std::size_t next =
        *std::min_element(running.begin(), running.end(),
                          [&](std::size_t a, std::size_t b) { return end_s(a) < end_s(b); });
    const double step_s = end_s(next);
    for (const std::size_t i : running) left_s[i] -= step_s * rate(i);
    ended[next] = true;
    if (computes) busy_s += step_s;
  }
}

double exposed_s(const Recipe& recipe, double compute_s, const ExchangeTime& exchange_s) {
  const auto length_s = [&](const Segment& s) {
    return s.lane == Lane::compute ? s.share * compute_s : exchange_s(s);
  };
  double seconds = 0;
  for (const auto* part : {&recipe.before, &recipe.after})
    for (const Segment& s : *part) seconds += exchange_s(s);
  if (recipe.serial()) {
    for (const Segment& s : recipe.segments)
      if (s.exchanges()) seconds += length_s(s);
    return seconds;
  }
  // The longest path, of all times at once: they are alike.
  std::array<double, kLanes> free_s{};
  std::vector<double> ends_s;
  for (const Segment& s : recipe.segments) {
    double& free = free_s[static_cast<std::size_t>(s.lane)];
    if (s.after != Segment::kNone) free = std::max(free, ends_s[static_cast<std::size_t>(s.after)]);
    ends_s.push_back(free += length_s(s));
  }
  return seconds + std::max(0.0, *std::ranges::max_element(free_s) - compute_s);
}

}  // namespace penstock
