// SPDX-License-Identifier: Apache-2.0
#include "base/last_words.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <thread>

namespace penstock::last_words_test {
namespace {

void ask_for_memory() { throw std::bad_alloc(); }

TEST(LastWordsDeathTest, SayThatThereIsNoMemory) {
  const auto end = [] {
    say_what_nobody_catches("p");
    const auto may_not_throw = [](void (*what)()) noexcept { what(); };
    may_not_throw(ask_for_memory);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(1), "^p: not enough memory for this run");
}

TEST(LastWordsDeathTest, AreOfThreadsToo) {
  const auto end = [] {
    say_what_nobody_catches("p");
    std::thread([] { throw std::runtime_error("xyz"); }).join();
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(70), "^p: this is a bug: xyz");
}

TEST(LastWordsDeathTest, AreSaidWhereNothingWasThrown) {
  const auto end = [] {
    say_what_nobody_catches("p");
    const std::thread left([] {});
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(70), "^p: this is a bug: it was ended");
}

}  // namespace
}  // namespace penstock::last_words_test
