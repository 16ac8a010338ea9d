// SPDX-License-Identifier: Apache-2.0
// Launch scripts by what their shell does, each with what it becomes: tests/scenarios/corpus/shell,
// FILE.sh and FILE.sh.expected. They are written for this test. A line `# import: --define A=8
// --launch 2` in one gives it what the command line would.
#include "base/error.hpp"
#include "scenarios/config_import.hpp"
#include "scenarios/megatron_import.hpp"
#include "scenarios/scenario.hpp"
#include "tests/golden.hpp"

#include <algorithm>

namespace penstock::scripts_test {
namespace {

namespace fs = std::filesystem;

fs::path corpus() {
  const char* source = std::getenv("PENSTOCK_SOURCE");
  return fs::path(source != nullptr ? source : ".") / "tests/scenarios/corpus/shell";
}

std::vector<std::string> scripts() {
  std::vector<std::string> out;
  for (const auto& file : fs::directory_iterator(corpus()))
    if (file.path().extension() == ".sh") out.push_back(file.path().filename().string());
  std::ranges::sort(out);
  return out;
}

ScriptSurroundings surroundings_of(const std::string& text, const std::string& name) {
  ScriptSurroundings out;
  out.file = name;
  const std::size_t at = text.find("# import: ");
  if (at == std::string::npos) return out;
  std::istringstream words(text.substr(at + 10, text.find('\n', at) - at - 10));
  for (std::string option, value; words >> option >> value;) {
    if (option == "--launch") out.launch = std::stoul(value);
    if (option == "--define")
      out[value.substr(0, value.find('='))] = value.substr(value.find('=') + 1);
  }
  return out;
}

/// The scenario, which must be one, or why there is none.
std::string outcome_of(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(name, std::ios::binary).rdbuf();
  try {
    const ScriptSurroundings surroundings = surroundings_of(text.str(), name);
    std::string out = name.starts_with("titan-")
                          ? scenario_of_torchtitan(text.str(), name, "", surroundings)
                          : scenario_of_megatron(text.str(), name, "", surroundings);
    parse_scenario(out, name);
    return out;
  } catch (const InputError& error) {
    return std::string("refused: ") + error.what() + "\n";
  }
}

class Scripts : public testing::TestWithParam<std::string> {
 protected:
  Scripts() { fs::current_path(corpus()); }
  ~Scripts() override { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
};

TEST_P(Scripts, BecomeTheirScenario) {
  expect_golden(corpus() / (GetParam() + ".expected"), outcome_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Corpus, Scripts, testing::ValuesIn(scripts()), [](const auto& script) {
  std::string name = script.param;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace penstock::scripts_test
