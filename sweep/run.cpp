#include "sweep/run.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace penstock {

Shard parse_shard(const std::string& text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  const bool divided = index.ec == std::errc() && index.ptr != end && *index.ptr == '/';
  const auto count = divided ? std::from_chars(index.ptr + 1, end, shard.count) : index;
  if (!divided || count.ec != std::errc() || count.ptr != end || shard.index >= shard.count)
    throw InputError("--shard " + text, "expected K/N with K from 0 to N-1, such as 0/8");
  return shard;
}

std::optional<std::uint64_t> Numbers::next() {
  while ((at_ = space_.next(at_)) < space_.size()) {
    const bool mine = ordinal_++ % shard_.count == shard_.index;
    const std::uint64_t number = at_++;
    if (mine) return number;
  }
  return std::nullopt;
}

std::uint64_t Numbers::count() const {
  const std::uint64_t all = space_.count();
  return all / shard_.count + (all % shard_.count > shard_.index ? 1 : 0);
}

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
    const auto number = numbers_.next();
    if (!number || row[0] != std::to_string(*number)) {
      throw InputError(
          "--resume",
          fmt::format("the row of point {} stands where {} belongs: the file "
                      "was sorted or edited",
                      row[0], number ? fmt::format("that of point {}", *number) : "none"));
    }
    first_new_ = *number + 1;
    if (row[status_] == kStatusNames[static_cast<std::size_t>(Row::Status::failed)]) {
      failed_.push_back(*number);
    } else {
      ++done_;
      watch_(row, false);
    }
  });
}

std::optional<Point> SweepRun::next() {
  std::optional<std::uint64_t> number;
  if (failed_.empty()) {
    number = numbers_.next();
  } else {
    number = failed_.front();
    failed_.pop_front();
  }
  if (!number) return std::nullopt;
  waiting_.push_back({*number, std::nullopt});
  return space_.point(*number);
}

void SweepRun::take(Row&& row) {
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
  watch_(cells, true);
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
