// SPDX-License-Identifier: Apache-2.0
// What is made from the table of keys is up to date: scenario.schema.json and docs/scenario.md.
// UPDATE_GOLDEN=1 rewrites them.
#include "scenarios/keys.hpp"
#include "tests/golden.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace penstock::reference_test {
namespace {

void expect_file(const std::string& path, const std::string& text) {
  expect_golden(std::string(std::getenv("PENSTOCK_SOURCE")) + "/" + path, text);
}

TEST(Reference, ShippedSchemaIsTheGeneratedOne) {
  expect_file("scenarios/scenario.schema.json", json_schema());
}

TEST(Reference, DocumentationIsTheGeneratedOne) {
  expect_file("docs/scenario.md", keys_reference());
}

TEST(Reference, EveryKeyHasARow) {
  const std::string text = keys_reference();
  std::size_t rows = 0;
  for (std::size_t at = text.find("\n| `"); at != std::string::npos;
       at = text.find("\n| `", at + 1))
    ++rows;
  EXPECT_EQ(rows, key_table().size());
}

TEST(Keys, AreUniqueWithinTheirSection) {
  for (const KeyRow& row : key_table()) {
    std::set<std::string> names;
    for (const std::string& key : keys_of(row.section))
      EXPECT_TRUE(names.insert(key).second) << row.section << "." << key;
  }
}

TEST(Keys, AllHaveAMeaningOfOneLine) {
  for (const KeyRow& row : key_table()) {
    EXPECT_FALSE(row.help.empty()) << row.key;
    EXPECT_EQ(row.help.find('\n'), std::string::npos) << row.key;
    EXPECT_EQ(row.help.find('|'), std::string::npos) << row.key << ": would break the table";
  }
}

TEST(Keys, AreFoundByTheirAliases) {
  EXPECT_EQ(find_key("model", "n_layer")->key, "num_layers");
  EXPECT_EQ(find_key("pipeline", "depth")->key, "stages");
  EXPECT_EQ(find_key("pipeline", "n_layer"), nullptr);
}

}  // namespace
}  // namespace penstock::reference_test
