// SPDX-License-Identifier: Apache-2.0
// Runs a sweep from its first point to its last row: hands out points, puts rows in order, and
// continues what an interrupted run left.
//
// Points are handed out in the order of their numbers. Rows come back in any order and are written
// in the order of their points, so a row that comes early waits. When very many rows wait for a
// point that takes long, no new points are handed out (`full`), so that memory does not grow with
// the sweep. Rows of an earlier run that are `failed` are evaluated again first and replaced.
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
  /// Returns how many there are in all.
  std::uint64_t count() const;

 private:
  const Space& space_;
  Shard shard_;
  std::uint64_t at_ = 0, ordinal_ = 0;
};

class SweepRun {
 public:
  /// Is called with every row once, in the order of points except for those that are redone.
  /// `evaluated` is the row where it was evaluated now, and null where it was read from the output
  /// of an earlier run.
  using Watch = std::function<void(const Cells& row, const Row* evaluated)>;

  SweepRun(const Space& space, const Columns& columns, Output& output, Shard shard, Watch watch);

  /// Takes over the rows that the output has. Throws InputError when they are not the beginning of
  /// this sweep.
  void resume();

  std::optional<Point> next_point();                             ///< see NextPoint
  void take_row(Row&& row);                                      ///< see TakeRow
  bool full() const { return waiting_.size() >= kMostWaiting; }  ///< see WorkerOptions

  /// Writes rows that have waited for long although no other comes.
  void tick() { output_.flush_if_due(); }
  /// Writes all rows that have come. Returns false when points are left to do.
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
  std::size_t status_;  ///< the index of the column of the status
  std::uint64_t total_, done_ = 0;
  std::deque<std::uint64_t> failed_;  ///< points to be redone
  std::uint64_t first_new_ = 0;       ///< points with lower numbers are redone
  std::vector<Cells> redone_;
  std::deque<Slot> waiting_;  ///< points that were handed out and not yet written, ascending
};

}  // namespace penstock
