// SPDX-License-Identifier: Apache-2.0
#include "base/say.hpp"
#include "base/table.hpp"

#include <gtest/gtest.h>

namespace penstock::table_test {
namespace {

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  TextTable table({"device", "busy", "peak"});
  table.add_row({"0", "1.5", "12"});
  table.add_row({"longer name", "22.25", "3"});
  EXPECT_EQ(table.render(),
            "device        busy  peak\n"
            "0              1.5    12\n"
            "longer name  22.25     3\n");
}

TEST(Table, TakesAnAlignmentPerColumn) {
  TextTable table({"a", "b"}, {TextTable::Align::right, TextTable::Align::left});
  table.add_row({"xxx", "y"});
  EXPECT_EQ(table.render(), "  a  b\nxxx  y\n");
}

TEST(Table, IndentsAndLeavesNoTrailingBlanks) {
  TextTable table({"name", "note"}, {TextTable::Align::left, TextTable::Align::left});
  table.add_row({"x", ""});
  table.add_row({"y"});
  EXPECT_EQ(table.render(2), "  name  note\n  x\n  y\n");
}

TEST(Table, TakesOutTheLeastWhereThereIsNoRoom) {
  const auto table = [] {
    TextTable t({"name", "much", "little", "least"});
    t.add_row({"x", "1", "22", "333"});
    return t;
  };
  TextTable all = table(), some = table(), few = table();
  EXPECT_EQ(all.fit(26, {"least", "little"}), "");
  EXPECT_EQ(all.fit(0, {"least", "little"}), "");
  EXPECT_EQ(all.render(), "name  much  little  least\nx        1      22    333\n");
  EXPECT_EQ(some.fit(24, {"least", "little"}),
            "(no room for least: a wider terminal or --format json has them)\n");
  EXPECT_EQ(some.render(), "name  much  little\nx        1      22\n");
  EXPECT_EQ(few.fit(10, {"no such", "least", "little"}),
            "(no room for least, little: a wider terminal or --format json has them)\n");
  EXPECT_EQ(few.render(), "name  much\nx        1\n");
}

TEST(Table, ExplainsTheColumnsThatAreThere) {
  TextTable t({"name", "much", "little"});
  t.add_row({"x", "1", "22"});
  EXPECT_EQ(t.legend({{"much", "a lot"}, {"gone", "nothing"}, {"little", "not much"}}),
            "much: a lot; little: not much\n");
  EXPECT_EQ(t.legend({{"much", "a lot"}, {"little", "not much"}}, 20),
            "much: a lot;\nlittle: not much\n");
  EXPECT_EQ(t.legend({{"gone", "nothing"}}), "");
  t.fit(5, {"much", "little"});
  EXPECT_EQ(t.legend({{"much", "a lot"}}), "");
}

TEST(Table, SaysManyEqualWordsOnce) {
  EXPECT_EQ(compressed({}, " "), "");
  EXPECT_EQ(compressed({"1", "1", "1", "1", "1", "2"}, " "), "1 1 1 1 1 2");
  EXPECT_EQ(compressed({"3", "1", "1", "1", "1", "1", "1", "2"}, ", "), "3, [1]*6, 2");
  EXPECT_EQ(compressed(std::vector<std::string>(96, "1"), " "), "[1]*96");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(display_width("größe"), 5U);
  EXPECT_EQ(display_width(""), 0U);
  TextTable table({"ä", "b"});
  table.add_row({"xy", "1"});
  EXPECT_EQ(table.render(), "ä   b\nxy  1\n");
}

TEST(TextTable, WordsOfALastColumnOfTextsAreWrapped) {
  TextTable table({"what", "n", "detail"},
                  {TextTable::Align::left, TextTable::Align::right, TextTable::Align::left});
  table.add_row({"a", "10", "one two three four five six seven"});
  EXPECT_EQ(table.render(0, 34),
            "what   n  detail\n"
            "a     10  one two three four five\n"
            "          six seven\n");
  EXPECT_EQ(table.render(0, 0), "what   n  detail\na     10  one two three four five six seven\n");
}

TEST(TextTable, ColumnsThatHaveNoRoomStandBelowBesideTheFirst) {
  TextTable table({"name", "much", "little", "least"});
  table.add_row({"x", "1", "22", "333"});
  EXPECT_EQ(table.render(0, 18),
            "name  much  little\nx        1      22\n\nname  least\nx       333\n");
  EXPECT_EQ(table.render(2, 14),
            "  name  much\n  x        1\n\n  name  little\n  x         22\n\n  name  least\n"
            "  x       333\n");
  EXPECT_EQ(table.fit(7, {"least"}), "") << "not even without it";
  EXPECT_EQ(table.render(0, 0), "name  much  little  least\nx        1      22    333\n");
}

TEST(TextTable, ACellIsOneLineWithoutWhatATerminalObeys) {
  TextTable table({"name", "n"});
  table.add_row({"a\x1b[31m\n\xc2\x9b \x9b\xe2\x80\xae", "1"});
  EXPECT_EQ(table.render(0, 0),
            "name                         n\n"
            "a\\x1b[31m \\u009b \\x9b\\u202e  1\n");
}

TEST(WithoutControls, LeavesLettersAndWritesOutWhatATerminalObeys) {
  EXPECT_EQ(without_controls("é\n\t漢😀"), "é\n\t漢😀");
  EXPECT_EQ(without_controls("a\tb", ""), "a\\x09b");
  EXPECT_EQ(without_controls("\r\x1b\x7f"), "\\x0d\\x1b\\x7f");
  EXPECT_EQ(without_controls("\xc2\x80\xc2\x9f\xc2\xa0"), "\\u0080\\u009f\xc2\xa0");
  EXPECT_EQ(without_controls("\xe0\x82\x9b"), "\\u009b") << "of more bytes than it needs";
  EXPECT_EQ(without_controls("\x80\x9b\xff\xe2\x80"), "\\x80\\x9b\\xff\\xe2\\x80");
  const char* const marks[] = {"\xd8\x9c",     "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xaa",
                               "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"};
  for (const char* mark : marks) EXPECT_EQ(without_controls(mark).substr(0, 2), "\\u") << mark;
}

}  // namespace
}  // namespace penstock::table_test
