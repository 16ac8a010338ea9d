// Orders of a linear pipeline changed letter by letter. The longest device ends when it does
// because of a chain of ops without a gap, the critical path; only a change on it can shorten the
// whole. So a move takes a letter of the path, or now and then any letter, and puts it some places
// earlier or later on its device. What makes nothing worse is kept.
#pragma once

#include "schedules/search/linear.hpp"

namespace penstock {

/// The time source of the moves: an order, replayed.
class Replay {
 public:
  explicit Replay(const LinearProblem& problem);

  /// What the order takes; infinite when it can never finish. Precondition: every letter as often
  /// as there are microbatches.
  LinearCost run(const std::vector<OpKind>& letters);
  /// Places of the letters that the longest device of the run before had to wait for.
  const std::vector<std::size_t>& critical_path(const std::vector<OpKind>& letters);

 private:
  struct Cursor {
    double now = 0, begin = 0;
    std::uint32_t f = 0, i = 0, w = 0;

    std::uint32_t done() const { return f + i + w; }
  };
  bool advance(std::uint32_t d, const OpKind* word);

  const LinearProblem& problem_;
  std::vector<double> forward_end_, input_end_;       // [device][microbatch]
  std::vector<std::uint32_t> forward_at_, input_at_;  // places of the letters in their words
  std::vector<double> begin_;                         // of every letter
  std::vector<std::uint32_t> microbatch_;
  std::vector<Cursor> at_;
  std::vector<std::size_t> path_;
};

/// Numbers that look random, the same in every run (Marsaglia's xorshift).
class Dice {
 public:
  std::uint32_t below(std::size_t n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>((state_ >> 32) % n);
  }

 private:
  std::uint64_t state_ = 88172645463325252U;
};

/// Improves an order by `trials` moves, or until its cost is not more than `enough`.
void improve_by_moves(const LinearProblem& problem, std::uint64_t trials, const LinearCost& enough,
                      Replay& replay, Dice& dice, LinearOrder& order);

}  // namespace penstock
