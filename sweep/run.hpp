// SPDX-License-Identifier: Apache-2.0
// A sweep from its first point to its last row: hands out points, puts rows in order, continues
// what an interrupted run left behind.
//
// Points are handed out by their numbers, rows come back in any order and are written in that of
// their points: one that comes early waits. When very many wait, for a point that takes long, no
// new ones are handed out (`full`), so that memory does not grow with the sweep. What is redone
// (rows `failed` of an earlier run) is handed out first and replaces its row.
#pragma once

#include "sweep/output.hpp"
#include "sweep/shard.hpp"
#include "sweep/workers.hpp"

#include <deque>

namespace penstock {

/// The numbers of a shard's points, ascending.
class Numbers {
 public:
  Numbers(const Space& space, Shard shard) : space_(space), shard_(shard) {}
  std::optional<std::uint64_t> next_number();
  /// How many there are in all.
  std::uint64_t count() const;

 private:
  const Space& space_;
  Shard shard_;
  std::uint64_t at_ = 0, ordinal_ = 0;
};

class SweepRun {
 public:
  /// Sees every row once, in order of points but for those that are redone; of what is evaluated
  /// now, not read from the output of an earlier run, also as `evaluated` (else null).
  using Watch = std::function<void(const Cells& row, const Row* evaluated)>;

  SweepRun(const Space& space, const Columns& columns, Output& output, Shard shard, Watch watch);

  /// Takes over the rows that are there. Throws InputError when they are not the beginning of this
  /// sweep.
  void resume();

  std::optional<Point> next_point();                             ///< see NextPoint
  void take_row(Row&& row);                                      ///< see TakeRow
  bool full() const { return waiting_.size() >= kMostWaiting; }  ///< see WorkerOptions

  /// Rows that have waited for long are written although no other comes.
  void tick() { output_.flush_if_due(); }
  /// Writes what has come. False when points are left to do.
  bool finish();

  static constexpr std::size_t kMostWaiting = 100'000;  ///< some 50 MB of rows

  std::uint64_t total() const { return total_; }
  std::uint64_t left() const { return total_ - done_; }

 private:
  struct Slot {
    std::uint64_t number;
    std::optional<Row> row;
  };
  void put(const Row& row);
  void put_redone();

  const Space& space_;
  const Columns& columns_;
  Output& output_;
  Watch watch_;
  Numbers numbers_;
  std::size_t status_;  ///< its column
  std::uint64_t total_, done_ = 0;
  std::deque<std::uint64_t> failed_;  ///< to be redone
  std::uint64_t first_new_ = 0;       ///< numbers below are redone
  std::vector<Cells> redone_;
  std::deque<Slot> waiting_;  ///< handed out, not yet written; ascending
};

}  // namespace penstock
