// SPDX-License-Identifier: Apache-2.0
// Bounds of one candidate: its cut into stages is known, and what each recomputes.
#include "plan/search/bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr double kNeverFits = std::numeric_limits<double>::infinity();

/// Sums over the stages before each one, messages included.
struct Line {
  std::vector<double> fill_s, drain_s;  // before the first F and after the last B of a stage
};

}  // namespace

/// A candidate, stage by stage.
struct Bounds::Cut {
  const PlanFamily& family;
  std::vector<Level> levels;
  std::vector<std::uint32_t> position;
  std::vector<std::vector<Share>> shares;  // by device
  std::vector<int> first, count;           // layers of a stage
  std::vector<Level> at;                   // of a stage
  const Stash& stash;

  const Level& level(std::size_t stage) const { return at[stage]; }
  const StagePart& time(std::size_t stage) const {
    return level(stage).time->part(first[stage], count[stage]);
  }
  const StagePart& held(std::size_t stage, const Level& as) const {
    return as.held->part(first[stage], count[stage]);
  }
};

/// One step more in a stage; false: there is none.
bool Bounds::more(Cut& cut, std::size_t stage) {
  if (cut.family.schedule->checkpoints) return false;
  const auto next = steps_.more(cut.at[stage].recompute, cut.count[stage]);
  if (next) cut.at[stage] = level_of(cut.family, *next);
  return next.has_value();
}

Bounds::Cut Bounds::cut_of(const Candidate& candidate) {
  const PlanFamily& family = candidate.family;
  Cut cut{family,
          levels(family),
          positions_of(family),
          shares_of(family),
          {},
          candidate.layers,
          {},
          stashes_.stash_of(family)};
  int first = 0;
  for (std::size_t s = 0; s < candidate.layers.size(); ++s) {
    cut.first.push_back(first);
    first += candidate.layers[s];
    const bool chosen = !candidate.recompute.empty() && !family.schedule->checkpoints;
    cut.at.push_back(chosen ? level_of(family, candidate.recompute[s]) : cut.levels.front());
  }
  return cut;
}

double Bounds::held_bytes(const Cut& cut, std::size_t d, const Held& stash) const {
  const std::vector<Share>& shares = cut.shares[d];
  double bytes = 0, until_input = 0, until_weights = 0;
  for (const Share& share : shares) {
    const StagePart& part = cut.held(share.stage, cut.level(share.stage));
    bytes += part.static_bytes + (shares.size() == 1 ? part.workspace_bytes : 0);
    if (share.microbatches == 0) continue;
    until_input += part.activation_bytes;
    until_weights += part.weight_input_bytes;
  }
  return bytes + std::max(stash.until_input * until_input, stash.until_weights * until_weights);
}

double Bounds::held_bytes(const Cut& cut, std::size_t d) const {
  return held_bytes(cut, d, cut.stash.held_on(d));
}

/// Whatever the other stages of the device recompute.
double Bounds::least_held_bytes(const Cut& cut, std::size_t d, std::uint32_t stage,
                                const Level& level) const {
  const std::vector<Share>& shares = cut.shares[d];
  const Held stash = cut.stash.held_on(d);
  double until_input = 0, until_weights = 0;
  for (const Share& share : shares) {
    const auto least = [&](double k, double StagePart::*kept) {
      const auto held = [&](const Level& as) {
        const StagePart& part = cut.held(share.stage, as);
        return part.static_bytes + (share.microbatches > 0 ? k * part.*kept : 0) +
               (shares.size() == 1 ? part.workspace_bytes : 0);
      };
      double bytes = held(level);
      if (share.stage != stage)
        for (const Level& other : cut.levels) bytes = std::min(bytes, held(other));
      return bytes;
    };
    until_input += least(stash.until_input, &StagePart::activation_bytes);
    until_weights += least(stash.until_weights, &StagePart::weight_input_bytes);
  }
  return std::max(until_input, until_weights);
}

std::vector<Recomputation> Bounds::least_recompute(const Candidate& candidate) {
  if (candidate.family.schedule->checkpoints) return {};
  Candidate least = candidate;
  least.recompute.assign(candidate.layers.size(), recomputes_.front());
  Cut cut = cut_of(least);
  for (std::size_t d = 0; d < cut.shares.size(); ++d)
    for (const Share& share : cut.shares[d])
      while (least_held_bytes(cut, d, share.stage, cut.level(share.stage)) > capacity_ &&
             more(cut, share.stage)) {
      }
  for (std::size_t s = 0; s < cut.at.size(); ++s) least.recompute[s] = cut.level(s).recompute;
  return least.recompute;
}

bool Bounds::make_fit(Candidate& candidate, const Overfull& overfull) {
  if (candidate.family.schedule->checkpoints) return bound_of(candidate).fits;
  Cut cut = cut_of(candidate);
  for (std::size_t d = 0; d < cut.shares.size(); ++d) {
    const auto known = overfull.find(static_cast<int>(d));
    const bool fits = known == overfull.end() ? make_fit(cut, d, 0, capacity_)
                                              : make_fit(cut, d, stash_in(cut, d, known->second),
                                                         known->second.capacity_bytes);
    if (!fits) return false;
  }
  for (std::size_t s = 0; s < cut.at.size(); ++s) candidate.recompute[s] = cut.level(s).recompute;
  return true;
}

/// Microbatches that a device holds at once if that is what takes all its bytes.
double Bounds::stash_in(const Cut& cut, std::size_t d, const TooMany& held) const {
  const double none = held_bytes(cut, d, {0, 0}), of_one = held_bytes(cut, d, {1, 0}) - none;
  return of_one > 0 ? (held.bytes - none) / of_one : 0;
}

/// `k`: microbatches that it holds at least. An order that is searched for takes what it may.
bool Bounds::make_fit(Cut& cut, std::size_t d, double k, double capacity) {
  if (cut.family.schedule->looks_at_costs && k == 0) {
    const Shape& shape = cut.family.shape;
    k = std::min(cut.family.schedule->usual_limit * shape.depth,
                 static_cast<double>(shape.microbatches));
  }
  const auto held = [&] { return std::max(held_bytes(cut, d, {k, 0}), held_bytes(cut, d)); };
  for (double bytes = held(); bytes > capacity;) {
    std::size_t chosen = cut.at.size();
    double best = 0, then = 0;  // bytes per second, bytes
    for (const Share& share : cut.shares[d]) {
      const std::size_t s = share.stage;
      const double before_s = cut.time(s).work_s();
      const Level before = cut.level(s);
      if (!more(cut, s)) continue;
      const double fewer = held();
      const double worth =
          std::max(bytes - fewer, 0.0) / std::max(cut.time(s).work_s() - before_s, 1e-12);
      cut.at[s] = before;
      if (chosen < cut.at.size() && worth <= best) continue;
      chosen = s;
      best = worth;
      then = fewer;
    }
    if (chosen == cut.at.size()) return false;
    more(cut, chosen);
    bytes = then;
  }
  return true;
}

Bound Bounds::bound_of(const Candidate& candidate) {
  if (understood_ == Understood::work) return bound_of(candidate.family.shape);
  const Cut cut = cut_of(candidate);
  return bound_of(cut, std::vector<double>(cut.shares.size(), 0));
}

Bound Bounds::of_what_fits(const Candidate& candidate, const std::vector<bool>& more) {
  if (understood_ == Understood::work) return bound_of(candidate.family.shape);
  Cut cut = cut_of(candidate);
  std::vector<double> extra_s(cut.shares.size(), 0);
  for (std::size_t d = 0; d < extra_s.size(); ++d) {
    constexpr double kMostChoices = 1000;
    double choices = 1;
    for (const Share& share : cut.shares[d]) choices *= steps_.choices(cut.count[share.stage]);
    if (choices > kMostChoices) continue;
    extra_s[d] = least_extra_s(cut, more, d, 0);
    if (extra_s[d] == kNeverFits) return {.time_s = kNeverFits, .fits = false};
  }
  Bound bound = bound_of(cut, extra_s);
  bound.fits = true;  // some of them
  return bound;
}

/// The least work that must be added to a device so that it holds its stages, by recomputing more
/// in those from the given one on; infinite: it never does.
double Bounds::least_extra_s(Cut& cut, const std::vector<bool>& may, std::size_t d,
                             std::size_t share) {
  if (held_bytes(cut, d) <= capacity_) return 0;
  if (share == cut.shares[d].size()) return kNeverFits;
  const std::size_t s = cut.shares[d][share].stage;
  const Level level = cut.level(s);
  const double before_s = cut.time(s).work_s(), m = cut.shares[d][share].microbatches;
  double least = kNeverFits;
  do {
    const double added_s = m * (cut.time(s).work_s() - before_s);
    least = std::min(least, added_s + least_extra_s(cut, may, d, share + 1));
  } while (may[s] && more(cut, s));
  cut.at[s] = level;
  return least;
}

/// `extra_s`: work added to each device.
Bound Bounds::bound_of(const Cut& cut, const std::vector<double>& extra_s) const {
  const PlanFamily& family = cut.family;
  Line line;
  double fill_s = 0, drain_s = 0;
  for (std::size_t s = 0; s < cut.count.size(); ++s) {
    line.fill_s.push_back(fill_s);
    line.drain_s.push_back(drain_s);
    const StagePart& part = cut.time(s);
    const bool moves = s + 1 < cut.position.size() && cut.position[s] != cut.position[s + 1];
    const double message = moves ? message_s(part.output_bytes) : 0;
    fill_s += part.forward_s + message;
    drain_s += part.input_s + message;
  }
  const bool splits_backward = family.schedule->splits_backward,
             flushes = family.schedule->flushes();
  Bound bound;
  double first_end_s = 0;
  for (std::size_t d = 0; d < cut.shares.size(); ++d) {
    const double held = held_bytes(cut, d);
    if (held > bound.memory_bytes) {
      bound.memory_bytes = held;
      bound.overfull = held > capacity_ ? static_cast<int>(d) : -1;
    }
    double work_s = extra_s[d], until_input_s = splits_backward ? 0 : extra_s[d], step_s = 0,
           bytes = 0;
    double fill = kNeverFits, drain = kNeverFits;
    for (const Share& share : cut.shares[d]) {
      const StagePart& part = cut.time(share.stage);
      work_s += share.microbatches * part.work_s();
      until_input_s += share.microbatches * (part.forward_s + part.input_s - part.saving_s);
      step_s += part.step_s;
      bytes += part.reduced_bytes;
      if (share.microbatches == 0) continue;
      fill = std::min(fill, line.fill_s[share.stage]);
      drain = std::min(drain, line.drain_s[share.stage]);
    }
    if (fill == kNeverFits) continue;  // it computes nothing
    const double end_s = step_s + reduce_s(family, bytes);
    if (d == 0) first_end_s = end_s;
    if (!flushes) {
      if (d == 0) bound.time_s = work_s;
      continue;
    }
    const double until_s = splits_backward ? until_input_s : work_s;
    bound.time_s =
        std::max({bound.time_s, fill + work_s + end_s, fill + until_s + drain + first_end_s});
  }
  bound.fits = bound.memory_bytes <= capacity_;
  return bound;
}

}  // namespace penstock
