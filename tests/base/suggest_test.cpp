// SPDX-License-Identifier: Apache-2.0
#include "base/suggest.hpp"

#include <gtest/gtest.h>

namespace penstock::suggest_test {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("abc", "abxc"), 1);
  EXPECT_EQ(edit_distance("abc", "ac"), 1);
  EXPECT_EQ(edit_distance("abc", "axc"), 1);
  EXPECT_EQ(edit_distance("abc", "acb"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, FindsSlipsOfTheFinger) {
  const std::vector<std::string> known = {"gpipe", "1f1b", "pipedream", "pipedream-2bw"};
  EXPECT_EQ(nearest("gpip", known), "gpipe");
  EXPECT_EQ(nearest("1fb1", known), "1f1b");
  EXPECT_EQ(nearest("pipedreem", known), "pipedream");
  EXPECT_EQ(nearest("PipeDream_2BW", known), "pipedream-2bw");
  EXPECT_EQ(nearest("pipedream-2", known), "pipedream-2bw") << "the beginning of a word";
}

TEST(Nearest, PrefersTheWordThatDiffersInSeparatorsAndCaseOnly) {
  const std::vector<std::string> known = {"zb", "zb-h1", "zb-v", "v-zb", "zb-v-search"};
  EXPECT_EQ(nearest("zbv", known), "zb-v");
  EXPECT_EQ(nearest("ZBV", known), "zb-v");
  EXPECT_EQ(nearest("Z.B.V", known), "zb-v");
  EXPECT_EQ(nearest("zb_v_search", known), "zb-v-search");
  EXPECT_EQ(nearest("VZB", known), "v-zb");
  EXPECT_EQ(nearest("zbvsearch", known), "zb-v-search");
  EXPECT_EQ(nearest("---", {"-"}), "") << "separators alone are no word";
}

TEST(Nearest, KeepsSilentAboutTheRest) {
  const std::vector<std::string> known = {"s", "gpipe", "stages"};
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest("x", known), "") << "nothing in common with 's'";
  EXPECT_EQ(nearest("interleaved", known), "");
  EXPECT_EQ(nearest(std::string(100'000, 'g'), known), "");
  EXPECT_EQ(nearest("gpipe", {}), "");
}

TEST(DidYouMean, IsReadyToBeAppended) {
  EXPECT_EQ(did_you_mean("stagse", {"stages"}), "; did you mean 'stages'?");
  EXPECT_EQ(did_you_mean("xyzzy", {"stages"}), "");
}

}  // namespace
}  // namespace penstock::suggest_test
