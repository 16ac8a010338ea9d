// SPDX-License-Identifier: Apache-2.0
#include "sweep/run.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

std::optional<std::uint64_t> Numbers::next_number() {
  while ((at_ = space_.next(at_)) < space_.size()) {
    const bool mine = Shard::of_ordinal(ordinal_++, shard_.count) == shard_.index;
    const std::uint64_t number = at_++;
    if (mine) return number;
  }
  return std::nullopt;
}

std::uint64_t Numbers::count() const { return shard_.part_of(space_.count()); }

SweepRun::SweepRun(const Space& space, const Columns& columns, Output& output, Shard shard,
                   Watch watch)
    : space_(space),
      columns_(columns),
      output_(output),
      watch_(std::move(watch)),
      numbers_(space, shard),
      status_(columns.at("status")),
      total_(numbers_.count()) {}

void SweepRun::resume() {
  output_.previous([&](const Cells& row) {
    const auto number = numbers_.next_number();
    if (!number || row[0] != std::to_string(*number)) {
      throw InputError(
          "--resume",
          fmt::format("the row of point {} stands where {} belongs: the file "
                      "was sorted or edited",
                      row[0], number ? fmt::format("that of point {}", *number) : "none"));
    }
    first_new_ = *number + 1;
    if (row[status_] == kFailed) {
      failed_.push_back(*number);
    } else {
      ++done_;
      watch_(row, nullptr);
    }
  });
}

std::optional<Point> SweepRun::next_point() {
  std::optional<std::uint64_t> number;
  if (failed_.empty()) {
    number = numbers_.next_number();
  } else {
    number = failed_.front();
    failed_.pop_front();
  }
  if (!number) return std::nullopt;
  waiting_.push_back({*number, std::nullopt});
  return space_.point(*number);
}

void SweepRun::take_row(Row&& row) {
  const auto slot = std::ranges::lower_bound(waiting_, row.point, {}, &Slot::number);
  invariant(slot != waiting_.end() && slot->number == row.point && !slot->row,
            "a row of a point that nobody was given");
  slot->row = std::move(row);
  for (; !waiting_.empty() && waiting_.front().row; waiting_.pop_front())
    put(*waiting_.front().row);
}

void SweepRun::put(const Row& row) {
  Cells cells = columns_.cells(row);
  ++done_;
  watch_(cells, &row);
  if (row.point < first_new_) {
    redone_.push_back(std::move(cells));
    return;
  }
  put_redone();
  output_.put(cells);
}

void SweepRun::put_redone() {
  if (redone_.empty()) return;
  output_.replace(redone_);
  redone_.clear();
}

bool SweepRun::finish() {
  put_redone();
  output_.flush();
  return left() == 0;
}

}  // namespace penstock
