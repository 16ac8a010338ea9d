// SPDX-License-Identifier: Apache-2.0
#include "base/json_depth.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace penstock::json_test {
namespace {

TEST(Json, BracesAroundPairsMakeAnObjectAndOthersAList) {
  const Json json = {{"a", 1}, {"b", {1, 2.5, nullptr}}, {"c", {{"d", "e"}}}, {"f", Json::array()}};
  EXPECT_EQ(json.dump(), R"({"a":1,"b":[1,2.5,null],"c":{"d":"e"},"f":[]})");
  EXPECT_EQ(Json(std::vector<int>{1, 2}).dump(), "[1,2]");
  EXPECT_EQ(Json({"a", "b"}).dump(), R"(["a","b"])");
}

TEST(Json, IsPrintedWithIndentation) {
  const Json json = {{"a", {1, 2}}, {"b", Json::object()}};
  EXPECT_EQ(json.dump(2), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}

TEST(Json, NumbersAndTextsArePrintedAsTheLibraryDoes) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(UINT64_MAX).dump(), "18446744073709551615");
  EXPECT_EQ(Json(INT64_MIN).dump(), "-9223372036854775808");
  EXPECT_EQ(Json("a\"b\\\n\xc3\xa9").dump(), "\"a\\\"b\\\\\\n\xc3\xa9\"");
  EXPECT_EQ(Json("\xff").dump(), "\"\xef\xbf\xbd\"");  // no UTF-8
}

TEST(Json, IsReadAsItWasPrintedHoweverDeep) {
  const std::string text =
      R"([[1,{"a":[-2,1e+300,"é\n",{"b":[[],{}]}],"z":true,"y":null}],[],{"k":[[[[0]]]]},18446744073709551615])";
  EXPECT_EQ(Json::parse(text).dump(), text);
}

TEST(Json, WhatIsNoneSaysWhere) {
  EXPECT_EQ(Json::parse_if("[1,"), nullptr);
  try {
    Json::parse("{\"a\": tru}");
    FAIL();
  } catch (const JsonError& error) {
    EXPECT_EQ(error.byte, 10U);
  }
}

std::string nested(std::size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += "0";
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, WhatIsNestedTooDeepIsRefusedWithItsPlace) {
  for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"[\\\"\":", "}")}) {
    const std::string most = nested(kDeepestJson, open, close);
    EXPECT_EQ(Json::parse(most).dump(), most);
    for (const std::size_t depth : {kDeepestJson + 1, std::size_t{300'000}}) {
      EXPECT_EQ(Json::parse_if(nested(depth, open, close)), nullptr);
      EXPECT_EQ(Json::parse_if(nested(depth, open, "")), nullptr);
      try {
        Json::parse(nested(depth, open, close));
        FAIL();
      } catch (const JsonError& error) {
        EXPECT_STREQ(error.what(), "is nested more than 128 deep");
        EXPECT_EQ(error.byte, kDeepestJson * std::string(open).size() + 1);
      }
    }
  }
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[{}],\"[[\",";
  EXPECT_NO_THROW(Json::parse(wide + "0]"));  // depth, not how many brackets there are
}

TEST(Json, NothingThatATerminalObeysIsPrinted) {
  const Json json("\x1b \x7f \xc2\x9b \xe2\x80\xae \xe2\x81\xa6 \xd8\x9c \x9b");
  EXPECT_EQ(json.dump(), R"("\u001b \u007f \u009b \u202e \u2066 \u061c )"
                         "\xef\xbf\xbd\"");
  EXPECT_EQ(Json::parse("\"\\u202e\"").dump(), "\"\\u202e\"");
}

TEST(Json, MembersAreFoundOrMissing) {
  Json json = {{"a", 1}, {"b", "text"}};
  EXPECT_EQ(json.find("a")->get<int>(), 1);
  EXPECT_EQ(json.find("c"), nullptr);
  EXPECT_EQ(json.value("b", ""), "text");
  EXPECT_EQ(json.value("c", 7), 7);
  EXPECT_THROW(json.at("c"), JsonError);
  json["c"]["d"].push_back(3);
  json.erase("a");
  EXPECT_EQ(json.dump(), R"({"b":"text","c":{"d":[3]}})");
}

TEST(Json, WhatIsAnotherTypeIsRefused) {
  EXPECT_THROW(Json("1").get<int>(), JsonError);
  EXPECT_THROW(Json(1).get<std::string>(), JsonError);
  EXPECT_THROW(Json(1).get<bool>(), JsonError);
  EXPECT_THROW(Json("x").begin(), JsonError);
  EXPECT_THROW(Json(std::vector<int>{1}).items(), JsonError);
  EXPECT_THROW(Json(std::vector<int>{1}).at(1), JsonError);
  EXPECT_THROW(Json(1).value("a", 2), JsonError);
  EXPECT_EQ(Json().begin(), Json().end());
}

TEST(Json, ANumberIsReadWhole) {
  EXPECT_EQ(Json(3.0).get<int>(), 3);
  EXPECT_EQ(Json(0xFFFFFFFFFFFFFFFFU).get<std::uint64_t>(), 0xFFFFFFFFFFFFFFFFU);
  EXPECT_EQ(Json(std::numeric_limits<std::int64_t>::min()).get<std::int64_t>(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_THROW(Json(1.5).get<int>(), JsonError);
  EXPECT_THROW(Json(2.9e27).get<std::int64_t>(), JsonError);
  EXPECT_THROW(Json(std::nan("")).get<int>(), JsonError);
  EXPECT_THROW(Json(0x100000000).get<std::uint32_t>(), JsonError);
  EXPECT_THROW(Json(-1).get<std::uint32_t>(), JsonError);
  EXPECT_THROW(Json(0xFFFFFFFFFFFFFFFFU).get<std::int64_t>(), JsonError);
}

TEST(Json, EqualityIsThatOfValues) {
  EXPECT_EQ(Json(1), Json(1U));
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_NE(Json(-1), Json(UINT64_MAX));
  EXPECT_EQ(Json::parse(R"({"a":1,"b":[2]})"), Json::parse(R"({"b":[2],"a":1})"));
  EXPECT_NE(Json::parse("[1,2]"), Json::parse("[1]"));
  EXPECT_NE(Json("1"), Json(1));
}

TEST(Json, AKeyThatIsThereTwiceIsRefusedWhereItStandsAgain) {
  const auto place = [](const std::string& text) -> std::size_t {
    try {
      Json::parse(text);
    } catch (const JsonError& error) {
      EXPECT_NE(std::string(error.what()).find("is there twice"), std::string::npos);
      return error.byte;
    }
    return 0;
  };
  EXPECT_EQ(place(R"({"a": 1, "a": 2})"), 10U);
  EXPECT_EQ(place(R"([{"b": {"a": 1, "c": {"a": 3}, "a" : 2}}])"), 32U);
  EXPECT_EQ(place(R"({"a\"b": 1, "a\"b": 2})"), 13U);
  EXPECT_EQ(place(R"({"\\": 1, "\\": 2})"), 11U);
  EXPECT_EQ(place(R"({"": 1, "": 2})"), 9U);
  EXPECT_EQ(place(R"({"a": 1, "\u0061": 2})"), 10U);
  EXPECT_EQ(place(R"({"a": {"a": 1}, "b": {"a": 1}, "A": 2})"), 0U);
  EXPECT_EQ(Json::parse_if(R"({"a": 1, "a": 2})")->at("a").get<int>(), 2);
}

}  // namespace
}  // namespace penstock::json_test
