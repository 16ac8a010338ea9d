// SPDX-License-Identifier: Apache-2.0
// The table of slots while passes move, and its tree, against a plain walk over the whole line.
#include "schedules/slot_line.hpp"
#include "tests/random_shape.hpp"
#include "tests/effort.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::slot_line_test {
namespace {

const int kThinned = kBrief ? 10 : 1;

using Changes = std::vector<HeldTree::Change>;

// --- the tree -----------------------------------------------------------------------------------

/// Held after every slot: all passes, and the Ws in the queue.
std::vector<std::int32_t> walked(const Changes& line) {
  std::vector<std::int32_t> held;
  std::int32_t passes = 0, waiting = 0;
  for (const HeldTree::Change& change : line) {
    passes += change.held;
    waiting = std::max(waiting + change.waiting, 0);
    held.push_back(passes + waiting);
  }
  return held;
}

Changes random_line(std::mt19937_64& random, bool queue) {
  constexpr HeldTree::Change kQueued[] = {{1, 0}, {-1, 0}, {-1, 1}, {0, -1}, {0, 0}};
  constexpr HeldTree::Change kListed[] = {{1, 0}, {-1, 0}, {0, 0}};
  Changes line(random_between(random, 1, 150));
  for (HeldTree::Change& change : line)
    change = queue ? kQueued[random_between(random, 0, 4)] : kListed[random_between(random, 0, 2)];
  return line;
}

void expect_like_a_walk(const HeldTree& tree, const Changes& line, const std::string& what) {
  const std::vector<std::int32_t> held = walked(line);
  const std::int32_t peak = std::ranges::max(held);
  // Slots that fill the tree up hold what the last one does.
  ASSERT_EQ(tree.peak(), peak) << what;
  for (std::int32_t limit = peak - 3; limit <= peak + 1; ++limit) {
    const auto first = std::ranges::find_if(held, [&](std::int32_t h) { return h > limit; });
    const auto expected =
        first == held.end() ? HeldTree::kNowhere : static_cast<std::uint32_t>(first - held.begin());
    ASSERT_EQ(tree.first_beyond(limit), expected) << what << " limit " << limit;
  }
}

std::uint32_t size_of(const Changes& line) { return static_cast<std::uint32_t>(line.size()); }

/// Slots of two stretches change places, as a pass of that width does when it moves; `refresh` is
/// called for each pair after all have been set.
void swap_stretches(HeldTree& tree, Changes& line, std::uint32_t to, std::uint32_t from,
                    std::uint32_t width) {
  for (std::uint32_t i = 0; i < width; ++i) {
    std::swap(line[to + i], line[from + i]);
    tree.set(to + i, line[to + i]);
    tree.set(from + i, line[from + i]);
  }
  for (std::uint32_t i = 0; i < width; ++i) tree.refresh(from + i, to + i);
}

TEST(HeldTree, HoldsWhatAWalkSaysWhileStretchesOfAnyWidthMove) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 400 / kThinned; ++i) {
    Changes line = random_line(random, i % 2 == 0);
    HeldTree tree(line);
    expect_like_a_walk(tree, line, "line " + std::to_string(i));
    for (int moves = 0; moves < 30; ++moves) {
      const std::uint32_t width = std::min(random_between(random, 1, 20), size_of(line));
      const std::uint32_t to = random_between(random, 0, size_of(line) - width);
      const std::uint32_t from = random_between(random, 0, size_of(line) - width);
      swap_stretches(tree, line, to, from, width);
      expect_like_a_walk(tree, line,
                         "line " + std::to_string(i) + " width " + std::to_string(width));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(HeldTree, FindsWhereFewerAreHeldUpToASlotAsAWalkDoes) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 2000 / kThinned; ++i) {
    const Changes line = random_line(random, false);
    const HeldTree tree(line);
    const std::vector<std::int32_t> held = walked(line);
    const std::uint32_t end = random_between(random, 1, size_of(line));
    const std::uint32_t from = random_between(random, 0, end);
    const std::int32_t after = held[end - 1];
    for (std::int32_t limit = after - 1; limit <= std::ranges::max(held) + 1; ++limit) {
      std::uint32_t expected = end;
      while (expected > from && held[expected - 1] < limit) --expected;
      ASSERT_EQ(tree.below_from(limit, from, end, after), expected)
          << i << " limit " << limit << " from " << from << " to " << end;
    }
  }
}

// --- the line -----------------------------------------------------------------------------------

/// What a device runs, slot by slot, without a tree.
struct PlainLine {
  SlotWidths widths;
  bool fills_weights = false;
  std::uint32_t size = 0;
  std::vector<Placed> passes{};

  std::uint32_t width(std::size_t i) const { return widths.slots_of(passes[i].op.kind); }

  /// Each slot's pass, or none; empty when two of them meet.
  std::vector<const Placed*> slots() const {
    std::vector<const Placed*> taken(size, nullptr);
    for (std::size_t i = 0; i < passes.size(); ++i) {
      for (std::uint32_t slot = passes[i].slot; slot < passes[i].slot + width(i); ++slot) {
        if (taken[slot] != nullptr) return {};
        taken[slot] = &passes[i];
      }
    }
    return taken;
  }

  std::int32_t peak() const {
    const std::vector<const Placed*> taken = slots();
    std::int32_t held = 0, most = 0;
    std::uint32_t waiting = 0, running_until = 0;
    const auto free = [&](std::uint32_t slot) { return slot >= size || taken[slot] == nullptr; };
    for (std::uint32_t slot = 0; slot < size; ++slot) {
      if (const Placed* pass = taken[slot]) {
        const OpKind kind = pass->op.kind;
        if (pass->slot != slot) continue;
        if (kind == OpKind::forward) ++held;
        if (kind == OpKind::backward || kind == OpKind::backward_weight) --held;
        if (kind == OpKind::backward_input && fills_weights) ++waiting;
      } else if (waiting > 0 && slot >= running_until) {
        std::uint32_t room = 0;
        while (room < widths.backward_weight && free(slot + room)) ++room;
        if (room == widths.backward_weight) {
          --held;
          --waiting;
          running_until = slot + room;
        }
      }
      most = std::max(most, held);
    }
    return most;
  }

  /// Pass `i` in the first slot from `earliest` on where it meets nobody and no more than `limit`
  /// are held; else where it is.
  void move(std::size_t i, std::uint32_t earliest, std::int32_t limit) {
    const std::uint32_t stays = passes[i].slot;
    for (passes[i].slot = earliest; passes[i].slot < stays; ++passes[i].slot)
      if (!slots().empty() && peak() <= limit) return;
    passes[i].slot = stays;
  }
};

enum class Weights : std::uint8_t { whole, listed, filling };

/// Passes of a few microbatches in an order that can run, with gaps.
PlainLine random_passes(std::mt19937_64& random, Weights weights, std::uint32_t widest) {
  const auto wide = [&] { return random_between(random, 1, widest); };
  PlainLine line{.widths = {wide(), wide(), wide(), wide()},
                 .fills_weights = weights == Weights::filling};
  std::vector<std::vector<OpKind>> left(random_between(random, 1, 7));
  for (auto& of_one : left) {
    of_one = {OpKind::backward, OpKind::forward};  // the last is next
    if (weights == Weights::listed)
      of_one = {OpKind::backward_weight, OpKind::backward_input, OpKind::forward};
    if (weights == Weights::filling) of_one = {OpKind::backward_input, OpKind::forward};
  }
  while (!left.empty()) {
    const std::size_t at = random() % left.size();
    line.size += random_between(random, 0, 2) * random_between(random, 0, 3);
    line.passes.push_back({make_op(left[at].back(), 0, 0), line.size});
    line.size += line.width(line.passes.size() - 1);
    left[at].pop_back();
    if (left[at].empty()) left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return line;
}

void expect_moves_like_a_walk(PlainLine plain, std::mt19937_64& random, const std::string& what) {
  SlotLine line(plain.widths, plain.passes, plain.fills_weights);
  ASSERT_EQ(line.peak(), plain.peak()) << what;
  const std::int32_t limit = plain.peak() + static_cast<std::int32_t>(random() % 2);
  for (std::size_t i = 0; i < plain.passes.size(); ++i) {
    Placed pass = plain.passes[i];
    const std::uint32_t earliest = random_between(random, 0, pass.slot);
    line.move(pass, earliest, limit);
    plain.move(i, earliest, limit);
    ASSERT_EQ(pass.slot, plain.passes[i].slot) << what << " pass " << i << " from " << earliest;
    ASSERT_EQ(line.peak(), plain.peak()) << what << " pass " << i;
  }
}

TEST(SlotLine, MovesPassesOfAnyWidthToWhereAPlainSearchDoes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 6000 / kThinned; ++i) {
    const auto weights = static_cast<Weights>(i % 3);
    const std::uint32_t widest = i % 2 == 0 ? 1 : 4;
    const PlainLine plain = random_passes(random, weights, widest);
    expect_moves_like_a_walk(plain, random, "line " + std::to_string(i));
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace penstock::slot_line_test
