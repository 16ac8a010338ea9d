#include "schedules/search/linear.hpp"

#include "schedules/search/dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace penstock {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1e-9;  // rounding of sums

}  // namespace

bool LinearCost::operator<(const LinearCost& other) const {
  if (stage_time < other.stage_time * (1 - 1e-12)) return true;
  if (!(stage_time <= other.stage_time * (1 + 1e-12))) return false;
  return makespan < other.makespan * (1 - 1e-12);
}

LinearShape handcrafted(std::uint32_t depth, double reach) {
  LinearShape shape;
  for (std::uint32_t d = 0; d < depth; ++d) {
    shape.ahead.push_back(static_cast<std::uint32_t>(std::floor(reach * (depth - 1 - d) + kSlack)) + 1);
    shape.behind.push_back(static_cast<std::uint32_t>(std::floor(reach * d + kSlack)));
  }
  return shape;
}

namespace {

/// Calls `put(kind, k)` for the letters of device d.
template <class Put>
void word_of(std::uint32_t ahead, std::uint32_t behind, std::uint32_t m, const StageTimes& time,
             double limit, Put put) {
  double held = 0;
  std::uint32_t f = 0, w = 0;
  const auto weight = [&] {
    held -= time.activation_after_input;
    put(OpKind::backward_weight, w++);
  };
  for (std::uint32_t i = 0; i < m; ++i) {
    while (f < m && f < i + ahead) {
      while (w < i && held + time.activation > limit * (1 + kSlack)) weight();
      if (held + time.activation > limit * (1 + kSlack)) break;
      held += time.activation;
      put(OpKind::forward, f++);
    }
    held -= time.activation - time.activation_after_input;
    put(OpKind::backward_input, i);
    if (i >= w + behind) weight();
  }
  while (w < m) weight();
}

}  // namespace

void append_handcrafted(const ScheduleShape& shape, double reach, OpLists& order) {
  const LinearShape lines = handcrafted(shape.depth, reach);
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    word_of(lines.ahead[d], lines.behind[d], shape.microbatches_per_update, shape.time(d), kNever,
            [&](OpKind kind, std::uint32_t k) { order.add(make_op(kind, d, k)); });
    order.end_device();
  }
}

LinearProblem linear_problem(const ScheduleShape& shape, double multiple) {
  LinearProblem problem{.depth = shape.depth,
                        .microbatches = shape.microbatches_per_update,
                        .transfer = shape.transfer,
                        .times = {},
                        .limits = {}};
  if (shape.memory_limit > 0) multiple = shape.memory_limit;
  for (std::uint32_t d = 0; d < shape.depth; ++d) {
    problem.times.push_back(shape.time(d));
    const double most = shape.memory_limits.empty() ? multiple : shape.memory_limits[d];
    problem.limits.push_back(most * shape.depth * shape.time(0).activation);
  }
  return problem;
}

namespace {

/// W that must run before the last F of a device starts, or its activations do not fit.
double forced_weights(const StageTimes& t, double limit, std::uint32_t m) {
  const double kept = m * t.activation - (m - 1) * (t.activation - t.activation_after_input);
  if (kept <= limit * (1 + kSlack) || t.activation_after_input <= 0) return 0;
  return std::ceil((kept - limit) / t.activation_after_input - 1e-6);
}

}  // namespace

double least_stage_time(const LinearProblem& problem) {
  const std::uint32_t p = problem.depth;
  const double m = problem.microbatches, c = problem.transfer;
  double least = 0;
  for (std::uint32_t d = 0; d < p; ++d) {
    const StageTimes& t = problem.times[d];
    const double work = m * (t.forward + t.backward());
    double trip = 0;  // of a microbatch, from the end of F on d to I on d without stage q itself
    for (std::uint32_t q = d; q < p; ++q) {
      const StageTimes& there = problem.times[q];
      const double forced = forced_weights(there, problem.limits[q], problem.microbatches);
      least = std::max(least, trip + m * (there.forward + there.backward_input) +
                                  forced * there.backward_weight + t.backward_weight);
      trip += there.forward + there.backward_input + 2 * c;
    }
    // Before its first I a device can only run the forwards that fit.
    const double fits = std::clamp(std::floor(problem.limits[d] / t.activation * (1 + kSlack)), 1.0, m);
    const double first_input = t.activation > 0 ? trip - 2 * c - t.backward_input : 0;
    least = std::max({least, work, first_input + work - fits * t.forward});
  }
  return least;
}

namespace {

/// The time source of the search: an order, run.
class Replay {
 public:
  explicit Replay(const LinearProblem& problem)
      : problem_(problem),
        forward_end_(std::size_t{problem.depth} * problem.microbatches),
        input_end_(forward_end_.size()),
        at_(problem.depth) {}

  LinearCost run(const OpKind* letters) {
    const std::uint32_t p = problem_.depth;
    std::fill(at_.begin(), at_.end(), Cursor{});
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t d = 0; d < p; ++d) moved = advance(d, letters + d * problem_.word()) || moved;
    }
    LinearCost cost{0, 0};
    for (const Cursor& one : at_) {
      if (one.f + one.i + one.w != problem_.word()) return {};
      cost.stage_time = std::max(cost.stage_time, one.now - one.begin);
      cost.makespan = std::max(cost.makespan, one.now);
    }
    pot = 0; for (const Cursor& one : at_) pot += one.now - one.begin;
    pot = cost.stage_time + 0.01 * pot / p + 0.001 * cost.makespan;
    return cost;
  }
  double pot = 0;
  double potential(const OpKind* l) { run(l); return pot; }

 private:
  struct Cursor {
    double now = 0, begin = 0;
    std::uint32_t f = 0, i = 0, w = 0;
  };

  bool advance(std::uint32_t d, const OpKind* word) {
    Cursor one = at_[d];
    const StageTimes& t = problem_.times[d];
    const std::size_t m = problem_.microbatches;
    const std::uint32_t last = problem_.depth - 1;
    const std::uint32_t forwards = d == 0 ? problem_.microbatches : at_[d - 1].f;
    const std::uint32_t inputs = d == last ? problem_.microbatches : at_[d + 1].i;
    const double* from_before = d == 0 ? nullptr : &forward_end_[(d - 1) * m];
    const double* from_behind = d == last ? nullptr : &input_end_[(d + 1) * m];
    const std::uint32_t first = one.f + one.i + one.w;
    std::uint32_t n = first;
    for (; n < problem_.word(); ++n) {
      if (word[n] == OpKind::forward) {
        if (one.f >= forwards) break;
        double begin = one.now;
        if (d > 0) begin = std::max(begin, from_before[one.f] + problem_.transfer);
        if (n == 0) one.begin = begin;
        one.now = begin + t.forward;
        forward_end_[d * m + one.f++] = one.now;
      } else if (word[n] == OpKind::backward_input) {
        if (one.i >= inputs) break;
        if (d < last) one.now = std::max(one.now, from_behind[one.i] + problem_.transfer);
        one.now += t.backward_input;
        input_end_[d * m + one.i++] = one.now;
      } else {
        one.now += t.backward_weight;
        ++one.w;
      }
    }
    at_[d] = one;
    return n != first;
  }

  const LinearProblem& problem_;
  std::vector<double> forward_end_, input_end_;  // [device][microbatch]
  std::vector<Cursor> at_;
};

}  // namespace

LinearCost replay(const LinearProblem& problem, const std::vector<OpKind>& letters) {
  return Replay(problem).run(letters.data());
}

namespace {

class Search {
 public:
  explicit Search(const LinearProblem& problem)
      : problem_(problem), least_(least_stage_time(problem)), replay_(problem), dispatch_(problem) {}

  LinearOrder run(std::uint64_t steps) {
    for (const double reach : {1.0, 2.0}) try_handcrafted(handcrafted(problem_.depth, reach));
    LinearShape plain = handcrafted(problem_.depth, 1);
    std::ranges::fill(plain.behind, 0U);
    try_handcrafted(plain);
    const auto ps = profiles();
    std::vector<DispatchRule> rules(problem_.depth);
    for (double target : {1.0, 1.003, 1.01, 1.03})
    for (const float patience : {1.0f, 0.5f})
    for (const bool in_turn : {false, true})
    for (std::size_t n = 0; n < ps.size(); ++n)
          for (const std::uint32_t lead : {10000u, 2u})
              { profile = n; for (std::uint32_t d = 0; d < problem_.depth; ++d) rules[d] = {in_turn, patience, lead, ps[n][d]};
                 try_rule(rules, target * least_); }
    tune(steps);
    improve(steps / 4);
    return best_;
  }

 private:
  void try_rule(const std::vector<DispatchRule>& rules, double target) {
    if (best_.cost.stage_time <= least_ * (1 + 1e-12) && ++extra > 6) return;
    const LinearCost cost = dispatch_.run(rules, target, trial_);
    if (dispatch_.pot < best_pot) { best_pot = dispatch_.pot; best_rules = rules; best_target = target; }
    keep(cost, "rule" + std::to_string(profile));
  }
  double best_pot = kNever, best_target = 0; std::vector<DispatchRule> best_rules;
  void tune(std::uint64_t steps) {
    if (best_rules.empty()) return;
    auto rules = best_rules; double target = best_target;
    for (std::uint64_t e = 0; e < steps / 10 / best_.letters.size(); ++e) {
      auto old = rules; double old_target = target;
      do {
        DispatchRule& r = rules[random(problem_.depth)];
        switch (random(5)) {
          case 0: r.in_turn = !r.in_turn; break;
          case 1: r.patience = std::array{0.f,0.5f,1.f,10.f}[random(4)]; break;
          case 2: r.lead = std::array{1u,2u,3u,10000u}[random(4)]; break;
          case 3: { auto now = std::min(r.ahead, problem_.microbatches); r.ahead = random(2) ? now + 1 : std::max(1u, now - 1);} break;
          case 4: target = least_ * std::array{1.0,1.001,1.003,1.01,1.03,1.1}[random(6)]; break;
        }
      } while (random(2));
      const LinearCost cost = dispatch_.run(rules, target, trial_);
      keep(cost, "tune");
      if (dispatch_.pot > best_pot * (1 + 1e-12)) rules = old, target = old_target; else best_pot = dispatch_.pot;
    }
  }
  void keep(const LinearCost& cost, std::string what) {
    if (!(cost < best_.cost)) return;
    best_.cost = cost;
    best_.letters = trial_;
    best_what = what;
  }
  void try_handcrafted(LinearShape shape) {
    trial_.clear();
    std::uint32_t ahead = problem_.microbatches;
    for (std::uint32_t d = 0; d < problem_.depth; ++d) {
      const StageTimes& t = problem_.times[d];
      const double fits = problem_.limits[d] * (1 + kSlack) / t.activation;
      ahead = std::min(ahead, shape.ahead[d]);
      if (fits < ahead) ahead = static_cast<std::uint32_t>(fits);
      word_of(ahead, shape.behind[d], problem_.microbatches, t, problem_.limits[d],
              [&](OpKind kind, std::uint32_t) { trial_.push_back(kind); });
    }
    keep(replay_.run(trial_.data()), "hand");
  }
 std::size_t profile=0, extra = 0;
  std::uint64_t state = 88172645463325252ULL;
  std::uint32_t random(std::uint32_t n) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return std::uint32_t((state >> 32) % n); }
  bool valid(std::uint32_t d, const OpKind* word, std::size_t upto) {
    const auto& t = problem_.times[d]; double held = 0; std::uint32_t f=0,i=0,w=0;
    for (std::size_t n = 0; n <= upto; ++n) {
      if (word[n]==OpKind::forward) { ++f; held += t.activation; if (held > problem_.limits[d]*(1+kSlack)) return false; }
      else if (word[n]==OpKind::backward_input) { if (i++ == f) return false; held -= t.activation - t.activation_after_input; }
      else { if (w++ == i) return false; held -= t.activation_after_input; }
    }
    return true;
  }
  void improve(std::uint64_t steps) {
    auto now = best_.letters; double pot = replay_.potential(best_.letters.data());
    trial_ = now;
    const std::uint64_t evals = steps / now.size();
    for (std::uint64_t e = 0; e < evals; ++e) {
      const std::uint32_t d = random(problem_.depth);
      const std::uint32_t a = random(std::uint32_t(problem_.word())), b = std::min<std::uint32_t>(std::uint32_t(problem_.word() - 1), a + 1 + random(8));
      OpKind* w = trial_.data() + d * problem_.word();
      const bool later = random(2);
      if (later) std::rotate(w + a, w + a + 1, w + b + 1); else std::rotate(w + a, w + b, w + b + 1);
      bool ok = valid(d, w, b);
      if (ok) {
        const LinearCost c = replay_.run(trial_.data());
        const double np = replay_.pot;
        if (std::isinf(c.stage_time) || np > pot * (1 + 1e-12)) ok = false;
        else { pot = np; keep(c, "improved"); }
      }
      if (!ok) { if (later) std::rotate(w + a, w + b, w + b + 1); else std::rotate(w + a, w + a + 1, w + b + 1); }
    }
  }

  std::vector<std::vector<std::uint32_t>> profiles() {
    const std::uint32_t p = problem_.depth, m = problem_.microbatches;
    std::vector<std::vector<std::uint32_t>> out(6, std::vector<std::uint32_t>(p, m));
    double trip = 0; 
    for (std::uint32_t d = p; d-- > 0;) {
      const auto& t = problem_.times[d];
      out[1][d] = std::min<std::uint32_t>(m, std::uint32_t(trip / t.forward + 1e-9) + 1);
      out[2][d] = std::min<std::uint32_t>(m, std::uint32_t(std::ceil(trip / t.forward - 1e-9)) + 1);
      trip += t.forward + t.backward_input + 2 * problem_.transfer;
    }
    for (std::uint32_t d = 0; d < p; ++d) {
      const auto cap = std::max(1u, std::uint32_t(problem_.limits[d] * (1 + kSlack) / problem_.times[d].activation));
      out[3][d] = std::min(out[1][d], cap);
      if (d && out[3][d] >= out[3][d - 1] && out[3][d-1] > 1) out[3][d] = out[3][d - 1] - 1;
      out[4][d] = p - d;
      out[5][d] = 2 * (p - d) - 1;
    }
    return out;
  }
 public:
  std::string best_what;
 private:

  const LinearProblem& problem_;
  double least_;
  Replay replay_;
  Dispatch dispatch_;
  std::vector<OpKind> trial_;
  LinearOrder best_;
};

}  // namespace

LinearOrder search_linear(const LinearProblem& problem, std::uint64_t steps) {
  Search s(problem);
  LinearOrder o = s.run(steps);
  if (getenv("ZBDEBUG")) fprintf(stderr, "%s ", s.best_what.c_str());
  return o;
}

}  // namespace penstock
