// SPDX-License-Identifier: Apache-2.0
// How an error looks: position, source line, caret.
#include "base/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>

namespace penstock::error_test {
namespace {

Diagnostic diagnostic(int column, const std::string& line, int length = 1) {
  return {{"s.yaml", 12, column}, "wrong", line, length};
}

TEST(Render, PutsTheCaretUnderTheColumn) {
  EXPECT_EQ(render(diagnostic(11, "  stages: four", 4)),
            "s.yaml:12:11: wrong\n"
            "   12 |   stages: four\n"
            "      |           ^~~~");
}

TEST(Render, ShowsATabAsOneBlank) {
  EXPECT_EQ(render(diagnostic(2, "\tstages: four", 6)),
            "s.yaml:12:2: wrong\n"
            "   12 |  stages: four\n"
            "      |  ^~~~~~");
}

TEST(Render, CountsCharactersNotBytes) {
  EXPECT_EQ(render(diagnostic(9, "größe: \"四\", x", 2)),
            "s.yaml:12:9: wrong\n"
            "   12 | größe: \"四\", x\n"
            "      |         ^~");
}

TEST(Render, NeverUnderlinesBeyondTheLine) {
  EXPECT_EQ(render(diagnostic(3, "a: b", 50)),
            "s.yaml:12:3: wrong\n"
            "   12 | a: b\n"
            "      |   ^~");
  EXPECT_EQ(render(diagnostic(40, "a: b", 5)),
            "s.yaml:12:40: wrong\n"
            "   12 | a: b\n"
            "      |     ^");
}

TEST(Render, CutsLongLinesAroundTheCaret) {
  const std::string line = std::string(200, 'a') + "XY" + std::string(200, 'b');
  EXPECT_EQ(render(diagnostic(201, line, 2)),
            "s.yaml:12:201: wrong\n"
            "   12 | …" +
                std::string(50, 'a') + "XY" + std::string(48, 'b') +
                "…\n"
                "      | " +
                std::string(51, ' ') + "^~");
  EXPECT_EQ(render(diagnostic(1, std::string(101, 'a'))),
            "s.yaml:12:1: wrong\n"
            "   12 | " +
                std::string(100, 'a') +
                "…\n"
                "      | ^");
}

TEST(Render, KeepsLinesThatFit) {
  const std::string line = std::string(95, 'a') + "XY";
  EXPECT_EQ(render(diagnostic(96, line, 2)),
            "s.yaml:12:96: wrong\n"
            "   12 | " +
                line +
                "\n"
                "      | " +
                std::string(95, ' ') + "^~");
}

TEST(Render, AcceptsAPartOfALine) {
  Diagnostic d = diagnostic(1001, "aaaXbbb");
  d.source_offset = 997;
  EXPECT_EQ(render(d), "s.yaml:12:1001: wrong\n   12 | …aaaXbbb\n      |     ^");
}

TEST(Render, WithoutALineIsOneLine) {
  EXPECT_EQ(render({{"--set a=b", 0, 0}, "wrong", "", 1}), "--set a=b: wrong");
  EXPECT_EQ(render({{"s.yaml", 3, 4}, "wrong", "", 1}), "s.yaml:3:4: wrong");
}

TEST(InputErrors, SayEverythingAtOnce) {
  const InputError error({diagnostic(1, "a"), {{"other", 0, 0}, "too", "", 1}});
  EXPECT_STREQ(error.what(), "s.yaml:12:1: wrong\n   12 | a\n      | ^\nother: too");
  EXPECT_EQ(error.diagnostics().size(), 2U);
  EXPECT_STREQ(InputError("--jobs 0", "expected at least 1").what(),
               "--jobs 0: expected at least 1");
}

TEST(SystemErrors, NameOperationObjectAndReason) {
  errno = EACCES;
  EXPECT_STREQ(SystemError::from_errno("read", "a.yaml").what(),
               "cannot read 'a.yaml': Permission denied");
}

TEST(Invariants, ThrowOnlyWhenBroken) {
  EXPECT_NO_THROW(invariant(true, "never"));
  EXPECT_THROW(invariant(false, "broken"), InternalBug);
}

TEST(WhatOf, IsOurWordForMemoryThatIsNotThere) {
  EXPECT_EQ(what_of(std::bad_alloc()), "out of memory");
  EXPECT_EQ(what_of(std::runtime_error("why")), "why");
}

}  // namespace
}  // namespace penstock::error_test
