// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/replay.hpp"

#include <algorithm>

namespace penstock {

Replay::Replay(const OrderProblem& problem)
    : devices_(problem.devices),
      length_(problem.word_length()),
      microbatches_(problem.microbatches),
      lines_(pass_lines(problem)),
      done_(lines_.size() + 1),
      there_(problem.message_rows() * microbatches_),
      cursor_(devices_),
      now_(devices_) {
  for (const PassLine& line : lines_)
    rows_.push_back({line.duration, line.message, &done_[line.from], line.input * microbatches_,
                     line.output * microbatches_});
}

bool Replay::run_word(const std::vector<Pass>& word, Times& times) {
  times.begin.resize(word.size());
  times.position.resize(there_.size());
  std::ranges::fill(done_, 0);
  done_.back() = microbatches_;
  std::ranges::fill(cursor_, 0);
  std::ranges::fill(now_, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t d = 0; d < devices_; ++d)
      moved = advance(word.data() + std::size_t{d} * length_, d, times) || moved;
  }
  times.cost = {0, 0, 0};
  times.ends = 0;
  for (std::uint32_t d = 0; d < devices_; ++d) {
    if (cursor_[d] != length_) return false;
    const OrderCost before = times.cost;
    times.cost.add_device(times.begin[std::size_t{d} * length_], now_[d], devices_);
    if (times.cost.makespan > before.makespan) times.last = d;
    if (times.cost.stage_time > before.stage_time) times.longest = d;
    times.ends += now_[d];
  }
  return true;
}

/// Runs device d until it has to wait for an op that has not run.
bool Replay::advance(const Pass* word, std::uint32_t d, Times& times) {
  const std::uint32_t first = cursor_[d], length = length_;
  const Row* rows = &rows_[std::size_t{kPasses} * d];
  std::uint32_t* done = &done_[std::size_t{kPasses} * d];
  std::uint32_t* position = times.position.data();
  double *begin = &times.begin[std::size_t{d} * length], *there = there_.data();
  double now = now_[d];
  std::uint32_t n = first;
  for (; n < length; ++n) {
    const std::uint32_t pass = index(word[n]), k = done[pass];
    const Row& row = rows[pass];
    if (k >= *row.given) break;
    now = std::max(now, there[row.input + k]);
    begin[n] = now;
    position[row.output + k] = n;
    now += row.duration;
    there[row.output + k] = now + row.message;
    done[pass] = k + 1;
  }
  cursor_[d] = n;
  now_[d] = now;
  return n != first;
}

std::vector<Replay::Step> Replay::critical_path(const std::vector<Pass>& word, const Times& times,
                                                std::uint32_t d) const {
  const auto line = [&](std::size_t place) {
    return place / length_ * kPasses + index(word[place]);
  };
  std::vector<Step> path;
  for (std::size_t place = std::size_t{d} * length_ + length_ - 1;;) {
    const std::size_t i = place % length_;
    const bool follows =
        i > 0 && times.begin[place - 1] + rows_[line(place - 1)].duration >= times.begin[place];
    path.push_back({place, follows});
    if (follows) {
      --place;
      continue;
    }
    const std::size_t from = lines_[line(place)].from;
    if (from == lines_.size()) return path;
    const Row& row = rows_[line(place)];
    const std::uint32_t* own = &times.position[row.output];
    const auto k = static_cast<std::size_t>(std::lower_bound(own, own + microbatches_, i) - own);
    place = from / kPasses * length_ + times.position[row.input + k];
  }
}

Order evaluated(const OrderProblem& problem, std::vector<Pass> word) {
  if (word.size() != problem.ops() || !admissible(problem, word)) return {};
  Replay::Times times;
  if (!Replay(problem).run_word(word, times)) return {};
  return {times.cost, std::move(word)};
}

}  // namespace penstock
