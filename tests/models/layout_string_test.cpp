// SPDX-License-Identifier: Apache-2.0
#include "models/layout_string.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::layout_string_test {
namespace {

std::string said(const std::string& text) {
  try {
    parse_layout(text, "layout");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(LayoutString, IsReadAsMegatronReadsIt) {
  // DeepSeek-V3 on 16 x 2 stages, of Megatron's guide.
  const auto stages = parse_layout("Et*3|(tt|)*29,m|L", "layout");
  ASSERT_EQ(stages.size(), 32U);
  EXPECT_EQ(stages[0], (StageLayers{.embedding = true, .layers = 3}));
  for (std::size_t s = 1; s < 30; ++s) EXPECT_EQ(stages[s], (StageLayers{.layers = 2}));
  EXPECT_EQ(stages[30], (StageLayers{.mtp = 1}));
  EXPECT_EQ(stages[31], (StageLayers{.head = true}));
}

TEST(LayoutString, PartsRepeatAcrossStages) {
  const auto layers = [](const char* text) {
    std::vector<int> out;
    for (const StageLayers& s : parse_layout(text, "layout")) out.push_back(s.layers);
    return out;
  };
  EXPECT_EQ(layers("E(t|t*2)*2L"), (std::vector<int>{1, 3, 2}));
  EXPECT_EQ(layers("E(|tt)*2,L"), (std::vector<int>{0, 2, 2}));
  EXPECT_EQ(layers("Et|*3tL"), (std::vector<int>{1, 0, 0, 1}));
  EXPECT_EQ(layers("Et,|,t,L"), (std::vector<int>{1, 1}));
  EXPECT_EQ(layers("Et*0t|tL"), (std::vector<int>{1, 1}));
  EXPECT_EQ(layers("E||t|L"), (std::vector<int>{0, 0, 1, 0}));
}

TEST(LayoutString, IsWrittenInItsShortestForm) {
  EXPECT_EQ(to_layout(layout_of({2, 2, 2, 2, 2, 1})), "Et*2|(t*2|)*4,tL");
  EXPECT_EQ(to_layout(layout_of({1, 1, 1})), "Et|t|tL");
  EXPECT_EQ(to_layout(layout_of({24})), "Et*24L");
  EXPECT_EQ(to_layout(parse_layout("Et*3|(tt|)*29,m|L", "layout")), "Et*3|(t*2|)*29,m|L");
}

TEST(LayoutString, WhatIsWrittenIsReadBack) {
  std::mt19937 rng(5);
  for (int i = 0; i < 2000; ++i) {
    std::vector<StageLayers> stages(1 + rng() % 12);
    for (StageLayers& s : stages) s.layers = static_cast<int>(rng() % 3);
    stages.front().embedding = true;
    stages.back().head = true;
    stages.back().mtp = static_cast<int>(rng() % 3);
    EXPECT_EQ(parse_layout(to_layout(stages), "layout"), stages) << to_layout(stages);
  }
}

TEST(LayoutString, EveryErrorHasItsColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"Et|xL", "layout:1:4: 'x' is none of E (embedding), t (layer), m (MTP)"},
      {"eL", "layout:1:1: 'e' is none of"},
      {"eL", "did you mean 'E'?"},
      {"Et L", "leave out blanks"},
      {"Et*L", "layout:1:3: '*' must be followed by a number"},
      {"E(t|", "layout:1:2: '(' is not closed"},
      {"E(t|)L", "a part in parentheses needs a count, as in (t|)*3"},
      {"E((t)*2)*2L", "layout:1:3: parts in parentheses do not nest"},
      {"E()*2tL", "there is nothing in the parentheses"},
      {"Et)L", "nothing was opened"},
      {"t|tL", "there is no embedding ('E')"},
      {"Et|t", "there is no loss ('L')"},
      {"EtE|L", "layout:1:3: a second embedding ('E'); there is one"},
      {"tE|tL", "layout:1:2: the embedding must come before all layers"},
      {"EtL|t", "layout:1:5: nothing may come after the loss ('L')"},
      {"Et|tt|tL|", "layout:1:9: the loss ('L') must be in the last stage"},
      {"|EtL", "layout:1:1: the embedding ('E') must be in the first stage"},
      {"EtmtL", "layout:1:4: transformer layers ('t') come before 'm'"},
      {"E(t*999)*9999L", "the layout has more than 1000000 layers"},
      {"", "there is no embedding"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_NE(said(text).find(message), std::string::npos) << text << "\n" << said(text);
}

TEST(LayoutString, AllErrorsComeAtOnce) {
  const std::string text = said("Ex|y|tL");
  EXPECT_NE(text.find("'x' is none"), std::string::npos);
  EXPECT_NE(text.find("'y' is none"), std::string::npos);
}

}  // namespace
}  // namespace penstock::layout_string_test
