// SPDX-License-Identifier: Apache-2.0
// Lines that are too long end where words do.
#include "base/terminal.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::terminal_test {
namespace {

TEST(Wrapped, LinesThatFitStayAsTheyAre) {
  EXPECT_EQ(wrapped("a b c\n\n  d\n", 5), "a b c\n\n  d\n");
  EXPECT_EQ(wrapped("a line of any length", 0), "a line of any length");
  EXPECT_EQ(wrapped("größe €", 7), "größe €");
}

TEST(Wrapped, ALineGoesOnTwoBlanksToTheRightOfItsBeginning) {
  EXPECT_EQ(wrapped("one two three four\n", 10), "one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("  one two three\n", 11), "  one two\n    three\n");
}

TEST(Wrapped, ARowOfAListGoesOnBelowItsLastColumn) {
  EXPECT_EQ(wrapped("  --set KEY  change a key of all\n", 26),
            "  --set KEY  change a key\n             of all\n");
}

TEST(Wrapped, WhereTheNextLineBeginsThereItGoesOnToTheRight) {
  EXPECT_EQ(wrapped("Why?   one two three\n       four\n", 16),
            "Why?   one two\n         three\n       four\n");
}

TEST(Wrapped, WhatIsLongerThanALineStaysWhole) {
  EXPECT_EQ(wrapped("see /a/very/long/path.yaml now", 12), "see\n  /a/very/long/path.yaml\n  now");
}

TEST(Wrapped, CommandsAreForPasting) {
  EXPECT_EQ(wrapped("  penstock simulate my.yaml --set a=b\n", 20),
            "  penstock simulate my.yaml --set a=b\n");
  EXPECT_EQ(wrapped("  penstock list   # what there is\n", 24),
            "  penstock list\n      # what there is\n");
  EXPECT_EQ(wrapped("as often: penstock list models", 24), "as often:\n  penstock list models");
}

TEST(Wrapped, WhatFollowsARemarkIsOneToo) {
  EXPECT_EQ(wrapped("# one two three\na: b", 10), "# one two\n#   three\na: b");
}

TEST(Wrapped, WhatBelongsTogetherStaysOnALine) {
  EXPECT_EQ(wrapped("a cluster of it, 'x y z' or so", 20), "a cluster of it,\n  'x y z' or so");
  EXPECT_EQ(wrapped("take this: --set stages=4", 20), "take this:\n  --set stages=4");
  EXPECT_EQ(wrapped("update time -17.9 %", 18), "update time\n  -17.9 %");
  EXPECT_EQ(wrapped("a device's memory and all", 20), "a device's memory\n  and all");
}

TEST(Wrapped, DrawingsInColourAreAsWideAsTheyAre) {
  EXPECT_EQ(wrapped("\x1b[1mone two three\x1b[0m", 8), "\x1b[1mone two three\x1b[0m");
}

TEST(TerminalWidth, IsThatOfColumnsWhereItIsANumber) {
  const char* const before = std::getenv("COLUMNS");
  const std::string kept = before == nullptr ? "" : before;
  setenv("COLUMNS", "61", 1);
  EXPECT_EQ(terminal_width(), 61U);
  set_results_to_file(true);
  EXPECT_EQ(results_width(), 0U);
  set_results_to_file(false);
  EXPECT_EQ(results_width(), 61U);
  for (const char* none : {"", "0", "-3", "wide", "80x"}) {
    setenv("COLUMNS", none, 1);
    EXPECT_NE(terminal_width(), 80U) << none;
    EXPECT_NE(terminal_width(), 61U) << none;
  }
  setenv("COLUMNS", kept.c_str(), 1);
}

}  // namespace
}  // namespace penstock::terminal_test
