#include "base/table.hpp"

#include <gtest/gtest.h>

namespace penstock::table_test {
namespace {

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  TextTable table({"device", "busy", "peak"});
  table.add({"0", "1.5", "12"});
  table.add({"longer name", "22.25", "3"});
  EXPECT_EQ(table.render(),
            "device        busy  peak\n"
            "0              1.5    12\n"
            "longer name  22.25     3\n");
}

TEST(Table, TakesAnAlignmentPerColumn) {
  TextTable table({"a", "b"}, {TextTable::Align::right, TextTable::Align::left});
  table.add({"xxx", "y"});
  EXPECT_EQ(table.render(), "  a  b\nxxx  y\n");
}

TEST(Table, IndentsAndLeavesNoTrailingBlanks) {
  TextTable table({"name", "note"}, {TextTable::Align::left, TextTable::Align::left});
  table.add({"x", ""});
  table.add({"y"});
  EXPECT_EQ(table.render(2), "  name  note\n  x\n  y\n");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(display_width("größe"), 5U);
  EXPECT_EQ(display_width(""), 0U);
  TextTable table({"ä", "b"});
  table.add({"xy", "1"});
  EXPECT_EQ(table.render(), "ä   b\nxy  1\n");
}

}  // namespace
}  // namespace penstock::table_test
