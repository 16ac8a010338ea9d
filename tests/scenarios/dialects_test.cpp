// SPDX-License-Identifier: Apache-2.0
// Jobs of Megatron's family in their dialects, each with what it becomes: tests/scenarios/corpus/
// dialects, FILE and FILE.expected. They are written for this test, after the forms that the
// frameworks' own examples have.
#include "base/error.hpp"
#include "scenarios/megatron_import.hpp"
#include "scenarios/scenario.hpp"
#include "tests/golden.hpp"

#include <algorithm>

namespace penstock::dialects_test {
namespace {

namespace fs = std::filesystem;

fs::path corpus() {
  const char* source = std::getenv("PENSTOCK_SOURCE");
  return fs::path(source != nullptr ? source : ".") / "tests/scenarios/corpus/dialects";
}

std::vector<std::string> jobs() {
  std::vector<std::string> out;
  for (const auto& file : fs::directory_iterator(corpus())) {
    const std::string name = file.path().filename().string();
    const bool part = name.starts_with("ds_") || name.ends_with(".expected");
    if (file.is_regular_file() && !part) out.push_back(name);
  }
  std::ranges::sort(out);
  return out;
}

/// Of a file of the current folder, the scenario, or why there is none. A scenario must be one.
std::string outcome_of(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(name).rdbuf();
  std::string out;
  try {
    out = scenario_of_megatron(text.str(), name, "");
    parse_scenario(out, name);
  } catch (const InputError& error) {
    out = std::string("refused: ") + error.what() + "\n" + out;
  }
  return out;
}

class Dialects : public testing::TestWithParam<std::string> {
 protected:
  Dialects() { fs::current_path(corpus()); }
  ~Dialects() override { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
};

TEST_P(Dialects, BecomeTheirScenario) {
  expect_golden(corpus() / (GetParam() + ".expected"), outcome_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Corpus, Dialects, testing::ValuesIn(jobs()), [](const auto& job) {
  std::string name = job.param;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace penstock::dialects_test
