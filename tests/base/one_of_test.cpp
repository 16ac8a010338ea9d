// SPDX-License-Identifier: Apache-2.0
#include "base/one_of.hpp"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

namespace penstock::one_of_test {
namespace {

/// Of which a second copy is one too many.
struct Scarce {
  Scarce() { ++alive; }
  Scarce(const Scarce& /*other*/) {
    if (alive >= most) throw std::bad_alloc();
    ++alive;
  }
  Scarce& operator=(const Scarce&) = default;
  ~Scarce() { --alive; }
  static inline int alive = 0, most = 0;
};

using Some = OneOf<std::monostate, std::string, std::vector<Scarce>>;

TEST(OneOf, WhoseCopyCannotBeMadeIsNotDestroyedTwice) {
  {
    Some some = std::vector<Scarce>(2);
    Scarce::most = 3;
    EXPECT_THROW(Some{some}, std::bad_alloc);
    EXPECT_EQ(Scarce::alive, 2);
    Some other = "a text that is too long to be kept in a string itself";
    EXPECT_THROW(other = some, std::bad_alloc);
    EXPECT_EQ(std::get<std::string>(other).substr(0, 6), "a text") << "as it was";
    Scarce::most = 4;
    other = some;
    EXPECT_EQ(std::get<std::vector<Scarce>>(other).size(), 2U);
  }
  EXPECT_EQ(Scarce::alive, 0);
}

}  // namespace
}  // namespace penstock::one_of_test
