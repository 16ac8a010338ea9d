#include "schedules/search/pair_moves.hpp"

#include <algorithm>

namespace penstock {

PairMoves::PairMoves(const PairProblem& problem, const PairAim& aim)
    : problem_(problem),
      aim_(aim),
      least_(least_times(problem)),
      length_(problem.word_length()),
      microbatch_(problem.ops()),
      position_(problem.ops()),
      forward_in_(std::size_t{problem.stage_count()} * problem.microbatches),
      backward_in_(forward_in_.size()),
      durations_(problem.devices),
      next_(problem.devices),
      cursor_(problem.devices) {
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    for (std::uint32_t i = 0; i < kPasses; ++i)
      durations_[d][i] = problem.duration(d, static_cast<Pass>(i));
  }
  for (Times* times : {&now_, &trial_}) {
    times->start.resize(problem.ops());
    times->end.resize(problem.ops());
  }
}

/// Runs device d as far as its inputs go; returns by how many ops.
std::uint32_t PairMoves::advance(Times& times, std::uint32_t d) {
  const std::uint32_t before = cursor_[d], last_stage = problem_.stage_count() - 1;
  std::uint32_t& i = cursor_[d];
  double free_at = i == 0 ? 0 : times.end[at(d, i - 1)];
  for (; i < length_; ++i) {
    const Pass pass = word_[at(d, i)];
    const std::uint32_t s = problem_.stage(d, pass), k = next_[d][index(pass)];
    double start = free_at;
    if (!is_weight(pass)) {
      const double there = (is_forward(pass) ? forward_in_ : backward_in_)[input(s, k)];
      if (there == kNever) break;
      start = std::max(start, there);
    }
    ++next_[d][index(pass)];
    free_at = start + durations_[d][index(pass)];
    times.start[at(d, i)] = start;
    times.end[at(d, i)] = free_at;
    if (is_weight(pass)) continue;
    if (is_forward(pass) && s == last_stage) {
      backward_in_[input(s, k)] = free_at;
    } else if (is_forward(pass)) {
      forward_in_[input(s + 1, k)] = free_at + problem_.message(d, problem_.device[s + 1]);
    } else if (s > 0) {
      backward_in_[input(s - 1, k)] = free_at + problem_.message(d, problem_.device[s - 1]);
    }
  }
  return i - before;
}

/// Returns false when the devices wait for one another.
bool PairMoves::evaluate(Times& times) {
  std::fill(forward_in_.begin(), forward_in_.end(), kNever);
  std::fill(backward_in_.begin(), backward_in_.end(), kNever);
  std::fill_n(forward_in_.begin(), problem_.microbatches, 0.0);
  for (auto& next : next_) next.fill(0);
  std::fill(cursor_.begin(), cursor_.end(), 0);
  std::size_t done = 0;
  for (std::size_t before = 1; done != before;) {
    before = done;
    for (std::uint32_t d = 0; d < problem_.devices; ++d) done += advance(times, d);
  }
  if (done != problem_.ops()) return false;
  times.makespan = times.stage_time = times.ends = 0;
  for (std::uint32_t d = 0; d < problem_.devices; ++d) {
    const double end = times.end[at(d, length_ - 1)], taken = end - times.start[at(d, 0)];
    if (end > times.makespan) times.last = d;
    if (taken > times.stage_time) times.longest = d;
    times.makespan = std::max(times.makespan, end);
    times.stage_time = std::max(times.stage_time, taken);
    times.ends += end;
  }
  return true;
}

PairOrder PairMoves::evaluated(std::vector<Pass> word) {
  if (word.size() != problem_.ops() || !admissible(problem_, word)) return {};
  word_ = std::move(word);
  if (!evaluate(now_)) return {};
  return {now_.makespan, now_.stage_time, word_};
}

/// Of two orders as good, the one whose devices end earlier is nearer to a better one.
double PairMoves::cost(const Times& times) const {
  constexpr double kOfEnds = 1e-4;
  return aim_.cost(times.stage_time, times.makespan) + kOfEnds * times.ends / problem_.devices;
}

/// Which microbatch each op of the word is of, and where it stands.
void PairMoves::number() {
  for (std::uint32_t d = 0; d < problem_.devices; ++d) {
    std::array<std::uint32_t, kPasses> next{};
    for (std::uint32_t i = 0; i < length_; ++i) {
      const std::uint32_t pass = index(word_[at(d, i)]), k = next[pass]++;
      microbatch_[at(d, i)] = k;
      position_[(std::size_t{d} * kPasses + pass) * problem_.microbatches + k] = i;
    }
  }
}

PairMoves::Place PairMoves::pass_at(std::uint32_t stage, bool forward, std::uint32_t k) const {
  const std::uint32_t d = problem_.device[stage];
  const bool upper = problem_.stages[d][1] == stage;
  const Pass pass =
      forward ? (upper ? Pass::f_upper : Pass::f_lower) : (upper ? Pass::i_upper : Pass::i_lower);
  return {d, position_[(std::size_t{d} * kPasses + index(pass)) * problem_.microbatches + k]};
}

/// Goes from an op to the one whose output it waits for, if there is one.
bool PairMoves::producer(Place& place) const {
  const Pass pass = word_[at(place.device, place.position)];
  if (is_weight(pass)) return false;
  const std::uint32_t s = problem_.stage(place.device, pass);
  const std::uint32_t k = microbatch_[at(place.device, place.position)];
  if (is_forward(pass) && s == 0) return false;
  if (is_forward(pass)) {
    place = pass_at(s - 1, true, k);
  } else if (s + 1 == problem_.stage_count()) {
    place = pass_at(s, true, k);
  } else {
    place = pass_at(s + 1, false, k);
  }
  return true;
}

/// Follows the chain of ops that the last op of device d waits for.
void PairMoves::find_critical(std::uint32_t d) {
  critical_.clear();
  for (Place place{d, length_ - 1};;) {
    const std::size_t i = at(place.device, place.position);
    if (place.position > 0 && now_.end[i - 1] >= now_.start[i]) {
      critical_.push_back(place);
      --place.position;
    } else if (!producer(place)) {
      return;
    }
  }
}

/// Moves an op of the critical path, or the one before it; false when that is no order.
bool PairMoves::move(Place place, std::mt19937_64& random) {
  constexpr std::uint32_t kFurthest = 12;
  const auto first = word_.begin() + static_cast<std::ptrdiff_t>(at(place.device, 0));
  const std::uint32_t i = place.position,
                      far = 1 + static_cast<std::uint32_t>(random() % kFurthest);
  switch (random() % 4) {
    case 0: {  // the op before moves behind this one and on
      const std::uint32_t to = std::min(length_ - 1, i - 1 + far);
      std::rotate(first + (i - 1), first + i, first + to + 1);
      break;
    }
    case 1: {  // this one moves before that one and on
      const std::uint32_t to = i - std::min(i, far);
      std::rotate(first + to, first + i, first + i + 1);
      break;
    }
    default:
      if (first[i] == first[i - 1]) return false;
      std::swap(first[i], first[i - 1]);
  }
  return admissible(problem_, place.device, std::span(word_).subspan(at(place.device, 0), length_));
}

void PairMoves::improve(PairOrder& order, std::size_t evaluations, std::mt19937_64& random) {
  constexpr double kFirstThreshold = 3;  // times of an op
  constexpr std::size_t kAttempts = 8;
  word_ = order.word;
  if (!evaluate(now_)) return;
  number();
  double current = cost(now_), best = current;
  const double mean = problem_.work(0) / length_;
  bool moved = true;
  std::vector<Pass> before(length_);
  std::size_t evaluated = 0;
  for (std::size_t attempt = 0; attempt < kAttempts * evaluations && evaluated < evaluations;
       ++attempt) {
    if (now_.stage_time <= least_.stage_time && now_.makespan <= least_.makespan) break;
    if (moved || attempt % 4 == 0) find_critical(random() % 2 == 0 ? now_.last : now_.longest);
    if (critical_.empty()) break;
    const Place place = critical_[random() % critical_.size()];
    const auto here = word_.begin() + static_cast<std::ptrdiff_t>(at(place.device, 0));
    std::copy_n(here, length_, before.begin());
    moved = move(place, random);
    evaluated += moved;
    if (moved && evaluate(trial_)) {
      const double share = static_cast<double>(random() % 1024) / 1024;
      const double left = 1 - static_cast<double>(evaluated) / static_cast<double>(evaluations);
      const double threshold = kFirstThreshold * mean * left * share * share * share;
      moved = cost(trial_) <= current + threshold;
    } else {
      moved = false;
    }
    if (!moved) {
      std::copy(before.begin(), before.end(), here);
      continue;
    }
    std::swap(now_, trial_);
    current = cost(now_);
    number();
    if (current >= best) continue;
    best = current;
    order = {now_.makespan, now_.stage_time, word_};
  }
}

}  // namespace penstock
