#include "schedules/search/moves.hpp"

#include <algorithm>

namespace penstock {

Replay::Replay(const LinearProblem& problem)
    : problem_(problem),
      forward_end_(std::size_t{problem.depth} * problem.microbatches),
      input_end_(forward_end_.size()),
      forward_at_(forward_end_.size()),
      input_at_(forward_end_.size()),
      begin_(problem.letters()),
      microbatch_(problem.letters()),
      at_(problem.depth) {}

LinearCost Replay::run(const std::vector<OpKind>& letters) {
  std::ranges::fill(at_, Cursor{});
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t d = 0; d < problem_.depth; ++d)
      moved = advance(d, letters.data() + d * problem_.word()) || moved;
  }
  LinearCost cost{0, 0, 0};
  for (const Cursor& one : at_) {
    if (one.done() != problem_.word()) return {};
    cost.stage_time = std::max(cost.stage_time, one.now - one.begin);
    cost.makespan = std::max(cost.makespan, one.now);
    cost.mean += (one.now - one.begin) / problem_.depth;
  }
  return cost;
}

/// Runs device d until it has to wait for an op that has not run.
bool Replay::advance(std::uint32_t d, const OpKind* word) {
  Cursor one = at_[d];
  const StageTimes& t = problem_.times[d];
  const std::size_t m = problem_.microbatches, own = d * m;
  const std::uint32_t last = problem_.depth - 1;
  const std::size_t forwards = d == 0 ? m : at_[d - 1].f;
  const std::size_t inputs = d == last ? m : at_[d + 1].i;
  double* begin = &begin_[d * problem_.word()];
  std::uint32_t* microbatch = &microbatch_[d * problem_.word()];
  const std::uint32_t first = one.done();
  for (std::uint32_t n = first; n < problem_.word(); ++n) {
    if (word[n] == OpKind::forward) {
      if (one.f >= forwards) break;
      if (d > 0) one.now = std::max(one.now, forward_end_[own - m + one.f] + problem_.transfer);
      begin[n] = one.now;
      if (n == 0) one.begin = one.now;
      microbatch[n] = one.f;
      forward_at_[own + one.f] = n;
      forward_end_[own + one.f++] = one.now += t.forward;
    } else if (word[n] == OpKind::backward_input) {
      if (one.i >= inputs) break;
      if (d < last) one.now = std::max(one.now, input_end_[own + m + one.i] + problem_.transfer);
      begin[n] = one.now;
      microbatch[n] = one.i;
      input_at_[own + one.i] = n;
      input_end_[own + one.i++] = one.now += t.backward_input;
    } else {
      begin[n] = one.now;
      one.now += t.backward_weight;
      ++one.w;
    }
  }
  at_[d] = one;
  return one.done() != first;
}

const std::vector<std::size_t>& Replay::critical_path(const std::vector<OpKind>& letters) {
  const auto longer = [](const Cursor& a, const Cursor& b) {
    return a.now - a.begin < b.now - b.begin;
  };
  const std::size_t word = problem_.word(), m = problem_.microbatches;
  auto d = static_cast<std::size_t>(std::ranges::max_element(at_, longer) - at_.begin());
  const auto duration = [&](OpKind kind) {
    const StageTimes& t = problem_.times[d];
    return kind == OpKind::forward          ? t.forward
           : kind == OpKind::backward_input ? t.backward_input
                                            : t.backward_weight;
  };
  path_.clear();
  for (std::size_t n = word - 1;;) {
    const std::size_t place = d * word + n;
    path_.push_back(place);
    if (n > 0 && begin_[place] <= begin_[place - 1] + duration(letters[place - 1])) {
      --n;
      continue;
    }
    const bool forward = letters[place] == OpKind::forward;
    if (forward ? d == 0 : d + 1 == problem_.depth) break;
    d = forward ? d - 1 : d + 1;
    n = (forward ? forward_at_ : input_at_)[d * m + microbatch_[place]];
  }
  return path_;
}

namespace {

class MoveWalk {
 public:
  MoveWalk(const LinearProblem& problem, Replay& replay, Dice& dice, LinearOrder& order)
      : problem_(problem), replay_(replay), dice_(dice), best_(order), now_(order.letters) {
    mixed_ = replay_.run(now_).mixed();
    path_ = replay_.critical_path(now_);
  }

  void step() {
    const std::size_t word = problem_.word();
    const std::size_t from =
        dice_.below(4) == 0 ? dice_.below(now_.size()) : path_[dice_.below(path_.size())];
    const std::size_t start = from - from % word, reach = 1 + dice_.below(8);
    const bool later = dice_.below(2) == 0;
    const std::size_t to =
        later ? std::min(from + reach, start + word - 1) : std::max(from, start + reach) - reach;
    if (now_[from] == now_[to] && reach == 1) return;
    shift(from, to);
    if (!allowed(start, std::max(from, to)) || !accept()) shift(to, from);
  }

 private:
  /// Takes the letter at `from` to `to`; those between move by one.
  void shift(std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t place) {
      return now_.begin() + static_cast<std::ptrdiff_t>(place);
    };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    if (to < from) std::rotate(at(to), at(from), at(from + 1));
  }

  /// Is every I after its F, every W after its I, and all within the limit, up to a place?
  bool allowed(std::size_t start, std::size_t last) const {
    const std::size_t d = start / problem_.word();
    const StageTimes& t = problem_.times[d];
    const double limit = with_slack(problem_.limits[d]);
    double held = 0;
    std::uint32_t f = 0, i = 0, w = 0;
    for (std::size_t n = start; n <= last; ++n) {
      if (now_[n] == OpKind::forward) {
        ++f;
        held += t.activation;
      } else if (now_[n] == OpKind::backward_input) {
        ++i;
        held -= t.activation - t.activation_after_input;
      } else {
        ++w;
        held -= t.activation_after_input;
      }
      if (held > limit || i > f || w > i) return false;
    }
    return true;
  }

  /// Keeps the changed order unless it is worse.
  bool accept() {
    const LinearCost cost = replay_.run(now_);
    if (!(cost.mixed() <= mixed_ * (1 + 1e-12))) return false;
    mixed_ = cost.mixed();
    path_ = replay_.critical_path(now_);
    if (cost < best_.cost) {
      best_.cost = cost;
      best_.letters = now_;
    }
    return true;
  }

  const LinearProblem& problem_;
  Replay& replay_;
  Dice& dice_;
  LinearOrder& best_;
  std::vector<OpKind> now_;
  std::vector<std::size_t> path_;
  double mixed_ = 0;
};

}  // namespace

void improve_by_moves(const LinearProblem& problem, std::uint64_t trials, const LinearCost& enough,
                      Replay& replay, Dice& dice, LinearOrder& order) {
  MoveWalk walk(problem, replay, dice, order);
  for (std::uint64_t n = 0; n < trials && enough < order.cost; ++n) walk.step();
}

}  // namespace penstock
