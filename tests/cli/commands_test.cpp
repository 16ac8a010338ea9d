// SPDX-License-Identifier: Apache-2.0
// Command lines as data: what is typed, the exit code, what stands on the standard streams. All in
// one process; what needs a shell, a terminal, a signal or files is in the scripts beside this.
#include "cli/options.hpp"
#include "tests/cli/in_process.hpp"
#include "tests/golden.hpp"

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

namespace penstock::commands_test {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kSmall = "scenarios/small-1f1b.yaml";
constexpr const char* kTensor = "scenarios/gpt3-175b-tensor.yaml";

constexpr const char* kCommands[] = {
    "simulate",        "sweep",          "compare",     "schedule list", "schedule show",
    "schedule export", "schedule check", "trace check", "list",          "init",
    "replay",          "train",          "export",      "import",        "calibrate",
    "validate",        "doctor",         "completion",  "help"};

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words split(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not in it: " << part << "\n" << text;
}

class EmptyFolder {
 public:
  EmptyFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("penstock-commands-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~EmptyFolder() {
    std::filesystem::current_path(source_folder());
    std::filesystem::remove_all(path_);
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Wrong usage is exit code 2, with a suggestion, on standard error.
TEST(Usage, Suggestions) {
  const std::vector<std::pair<Words, const char*>> cases = {
      {{"simulat", kSmall}, "did you mean 'simulate'?"},
      {{"schedule", "shw"}, "did you mean 'show'?"},
      {{"schedule"}, "needs one of list, show"},
      {{"simulate", kSmall, "--formt", "json"}, "did you mean '--format'?"},
      {{"simulate", kSmall, "--format", "jsn"}, "did you mean 'json'?"},
      {{"simulate", kSmall, "--engine=exct"}, "did you mean 'exact'?"},
      {{"simulate", kSmall, "--set", "batchs=3"}, "did you mean 'batches'?"},
      {{"list", "modls"}, "did you mean 'models'?"},
      {{"schedule", "show", "1f1"}, "did you mean '1f1b'?"},
      {{"doctor", "-x"}, "unknown option '-x'"},
      {{"doctor", "extra"}, "unexpected argument 'extra'; usage: penstock doctor\n"},
      {{"simulate"}, "usage: penstock simulate SCENARIO"},
      {{"simulate", "a", "b"}, "unexpected argument 'b'"},
      {{"simulate", kSmall, "--set"}, "--set"},
      {{"simulate", kSmall, "--set", "stages"}, "stages"},
      {{"simulate", kSmall, "--format", "json", "--format", "csv"}, "more than once"},
      {{"simulate", "missing.yaml"}, "missing.yaml: cannot be read: No such file"},
      {{"compare", "missing.json"}, "missing.json: cannot be read: No such file"},
      {{"trace", "check", "missing.json"}, "missing.json: cannot be read: No such"},
      {{"schedule", "show", "1f1b", "--width", "12"}, "from 40 to 10000"},
      {{"completion", "zhs"}, "did you mean 'zsh'?"}};
  for (const auto& [words, hint] : cases) expect_contains(refuses(words), hint);
}

TEST(Usage, WithoutACommandIsUsage) { expect_contains(refuses({}), "usage: penstock COMMAND"); }

TEST(Usage, ContentionNamesTheLinkAndTheKey) {
  const auto real = [](const std::string& attachment) {
    return "cluster={nodes: 1, devices_per_node: 4, intra: {attachment: " + attachment + "}}";
  };
  std::string star;
  for (int d = 0; d < 4; ++d)
    star += (d > 0 ? ", " : "") + std::string("{between: [") + std::to_string(d) +
            ", sw], bandwidth: 1 GB/s}";
  struct Case {
    std::string set;
    const char *link, *key;
  };
  for (const Case& c :
       {Case{"cluster.link.duplex=half", "'0--1'", "cluster.link.duplex"},
        {real("switch, bandwidth: 1 GB/s"), "'gpu1 in'", "cluster.intra.attachment"},
        {real("pairs, duplex: half, bandwidth: 1 GB/s"), "'gpu0--gpu1'", "cluster.intra.duplex"},
        {"cluster={devices: 4, network: [" + star + "]}", "'sw->1'", "cluster.network"}}) {
    Words words = {"simulate", kSmall, "--set", c.set};
    if (!c.set.starts_with("cluster="))
      words = joined(words, {"--set", "cluster.link.bandwidth=1 GB/s"});
    const std::string why = refuses(joined(words, {"--engine", "exact"}));
    for (const char* part : {"contention", c.link, c.key, "--engine simgrid"})
      expect_contains(why, part);
    expect_contains(succeeds(joined(words, {"--engine", "auto", "--format", "json"})),
                    "\"engine\": \"fluid\"");
  }
}

TEST(Usage, ATerminalObeysNothingThatNamesHold) {
  const std::string evil = "\x1b[31m\x07\x7f\xc2\x9bx";
  const EmptyFolder folder;
  const std::string path = folder.path() / (evil + ".yaml");
  std::ofstream(path) << "stages: 4\n";
  const std::vector<Words> cases = {{evil},
                                    {"simulate", evil + ".yaml"},
                                    {"simulate", path},
                                    {"simulate", kSmall, "--set", evil},
                                    {"compare", path},
                                    {"sweep", kSmall, "--over", "stages=1,2", "--where", evil},
                                    {"schedule", "show", evil},
                                    {"schedule", "check", path}};
  for (const Words& words : cases) {
    const std::string said = run_here(words).err;
    EXPECT_NE(said, "") << testing::PrintToString(words);
    for (const char* part : {"\x1b", "\x07", "\x7f", "\xc2\x9b"})
      EXPECT_EQ(said.find(part), std::string::npos) << said;
  }
}

TEST(Usage, GroupHelp) {
  for (const std::string group : {"schedule", "trace"})
    expect_contains(succeeds({group, "--help"}), "penstock " + group + ": one of");
}

TEST(Usage, Version) {
  EXPECT_TRUE(
      std::regex_match(succeeds({"--version"}), std::regex("penstock \\d+\\.\\d+\\.\\d+\n")));
}

TEST(Usage, AReportThatIsNoPageByItsNameIsRefused) {
  for (const char* command : {"simulate", "sweep", "compare", "validate", "plan"}) {
    for (const auto& [name, guess] : {std::pair{"run.txt", "run.html"},
                                      {"run", "run.html"},
                                      {"a.b/run.pdf", "a.b/run.html"},
                                      {"-", "report.html"},
                                      {".html", "report.html"},
                                      {"", "report.html"}}) {
      EXPECT_EQ(refuses({command, kSmall, "--report", name}),
                std::string("--report: must be a file ending in .html or .htm, got '") + name +
                    "'; did you mean '" + guess + "'?\n");
    }
  }
  const EmptyFolder folder;
  const std::string page = folder.path() / "run.htm";
  succeeds({"simulate", kSmall, "--report", page});
  EXPECT_TRUE(std::filesystem::exists(page));
}

TEST(Usage, SamplesArePercentilesOfWhatIsDrawn) {
  for (const char* wrong : {"0", "-3", "many", "1000000", "1.5"})
    expect_contains(refuses({"simulate", kSmall, "--samples", wrong}),
                    "--samples: must be an integer from 1 to 100000, got '");
  expect_contains(succeeds({"simulate", kSmall, "--samples", "5"}),
                  "nothing in the scenario is drawn");
  const Words job{"simulate", "llama-3-70b-h100",
                  "--advice", "none",
                  "--set",    "documents={lengths: [512, 8192]}"};
  const std::string table = succeeds(joined(job, {"--samples", "4"}));
  for (const char* line : {"Varies?    over 4 draws", "iteration: p5 ", "tokens/s: p5 ",
                           "bubble: p5 ", "peak memory: p5 ", "note: documents: attention has "})
    expect_contains(table, line);
  const std::string json = succeeds(joined(job, {"--samples", "4", "--format", "json"}));
  expect_contains(json, "\"samples\": {\n    \"n\": 4");
  const EmptyFolder folder;
  const std::string page = folder.path() / "run.html";
  succeeds(joined(job, {"--samples", "4", "--report", page}));
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  expect_contains(text.str(), "What varies");
}

TEST(Usage, WhatDiffersByMicrobatchIsNeitherPlannedNorExecuted) {
  const Words set{"--set", "documents={lengths: [512]}", "--set", "model.flash_attention=true"};
  expect_contains(refuses(joined({"plan", "gpt-355m-uneven"}, set)), "leave 'documents' out");
  expect_contains(refuses(joined({"replay", "gpt-355m-uneven"}, set)),
                  "'documents' can be predicted, not executed");
}

TEST(Usage, WhatCannotBeExecutedIsRefusedByName) {
  const std::string devices = "scenarios/perturbed-devices.yaml";
  for (const Words& words : {Words{"replay", devices, "--clock", "virtual"},
                             {"replay", "scenarios/perturbed-jitter.yaml"},
                             {"export", devices, "--to", "program"}})
    expect_contains(refuses(words), "'perturbations' can be predicted, not executed");
  for (const Words& words : {Words{"replay", kTensor, "--backend", "host"}, {"export", kTensor}}) {
    const std::pair<const char*, const char*> refused[] = {
        {"pipeline.context=2", "--set pipeline.context=1"},
        {"pipeline.transfers_divided=true", "--set pipeline.transfers_divided=false"}};
    for (const auto& [change, says] : refused) {
      Words changed = words;
      changed.insert(changed.end(), {"--set", "pipeline.stages=6", "--set", change});
      expect_contains(refuses(changed), says);
    }
  }
}

TEST(Usage, UnknownNamesGetASuggestionAndWhereTheyAreListed) {
  const std::vector<std::pair<Words, const char*>> cases = {
      {{"simulate", "gpt-2.2b-2bv"},
       "unknown scenario 'gpt-2.2b-2bv'; did you mean 'gpt-2.2b-2bw'? (`penstock list scenarios` "
       "shows "},
      {{"compare", "small-1f1b", "small_gpip"}, "did you mean 'small-gpipe'?"},
      {{"sweep", "small-1f1", "--over", "stages=2"}, "did you mean 'small-1f1b'?"},
      {{"replay", "nothing"}, "unknown scenario 'nothing' (`penstock list scenarios`"},
      {{"validate", "x.json", "small-1f1"}, "did you mean 'small-1f1b'?"},
      {{"plan", "gpt-2.2", "--cluster", "p3.16xlarge"}, "did you mean 'gpt-2.2b'?"},
      {{"calibrate", "gpt-2.2b-2b"}, "unknown model or scenario"},
      {{"simulate", kSmall}, "did you mean 'small-1f1b', which is shipped?"}};
  const EmptyFolder folder;
  for (const auto& [words, hint] : cases) expect_contains(refuses(words, folder.path()), hint);
  std::ofstream(folder.path() / "my.yaml") << "x";
  expect_contains(refuses({"simulate", "my"}, folder.path()), "did you mean 'my.yaml'?");
}

TEST(Help, FitsAScreenAndNamesOptionsExamplesAndExitCodes) {
  const std::map<std::string, std::string> expected = {
      {"simulate", "set engine format events trace output reproducible"},
      {"compare", "set engine format output reproducible"},
      {"schedule list", "width format output"},
      {"schedule show", "set width format output"},
      {"list", "format output"},
      {"trace check", "format"},
      {"doctor", "format"}};
  for (const std::string name : kCommands) {
    const std::string text = succeeds(joined(split(name), {"--help"}));
    EXPECT_LE(lines(text).size(), 40U) << name;
    for (const std::string& line : lines(text)) EXPECT_LE(line.size(), 100U) << line;
    EXPECT_TRUE(text.starts_with("penstock " + name + ": ")) << text;
    for (const char* part : {"usage: ", "examples:", "options:", "--help", "exit codes: 0 ok"})
      expect_contains(text, part);
    if (const auto found = expected.find(name); found != expected.end()) {
      for (const std::string& option : split(found->second)) expect_contains(text, "--" + option);
    }
    EXPECT_EQ(text, succeeds(joined(split(name), {"-h"})));
  }
}

TEST(Help, GeneralHelpListsEveryCommand) {
  const std::string text = succeeds({"--help"});
  EXPECT_EQ(text, succeeds({"help"}));
  EXPECT_LE(lines(text).size(), 40U);
  for (const char* command : kCommands)
    EXPECT_TRUE(std::ranges::any_of(lines(text), [&](const std::string& line) {
      return std::regex_search(line, std::regex(std::string("^  ") + command + " +\\w"));
    })) << command;
}

TEST(Help, EveryOptionOfTheHelpIsOneOfTheParser) {
  const std::regex option("^  (?:-\\w, )?(--[a-z-]+)");
  for (const CommandSpec& command : commands()) {
    for (const std::string& line : lines(succeeds(joined(split(command.name), {"--help"})))) {
      std::smatch found;
      if (!std::regex_search(line, found, option)) continue;
      try {
        parse_arguments(command, {found[1]});
      } catch (const std::exception& error) {
        EXPECT_EQ(std::string(error.what()).find("unknown option"), std::string::npos)
            << error.what();
      } catch (const HelpWanted&) {
      }
    }
  }
}

// --- what people see, kept under golden/ ---------------------------------------------------------

struct Transcript {
  const char* file;
  Words words;
};

const std::vector<Transcript>& transcripts() {
  static const std::vector<Transcript> kAll = {
      {"simulate-gpt-2.2b-2bw", {"simulate", "scenarios/gpt-2.2b-2bw.yaml", "--reproducible"}},
      {"simulate-gpt-2.2b-pipedream",
       {"simulate", "scenarios/gpt-2.2b-pipedream.yaml", "--reproducible"}},
      {"compare-gpt-2.2b",
       {"compare", "scenarios/gpt-2.2b-2bw.yaml", "scenarios/gpt-2.2b-flush.yaml",
        "scenarios/gpt-2.2b-pipedream.yaml"}},
      {"schedule-list", {"schedule", "list"}},
      {"show-1f1b", {"schedule", "show", "1f1b"}},
      {"show-pipedream", {"schedule", "show", "pipedream"}},
      {"show-interleaved-1f1b", {"schedule", "show", "interleaved-1f1b"}},
      {"show-v-half", {"schedule", "show", "v-half"}},
      {"show-dualpipe", {"schedule", "show", "dualpipe"}},
      {"show-data-parallel", {"schedule", "show", "data-parallel"}},
      {"show-1f1b-coupled",
       {"schedule", "show", "1f1b", "--set", "transfer=0.5", "--set", "transfers=coupled"}}};
  return kAll;
}

class Transcripts : public testing::TestWithParam<std::size_t> {};

TEST_P(Transcripts, AreWhatWasKept) {
  const Transcript& kept = transcripts()[GetParam()];
  const std::string text = succeeds(kept.words);
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << "coloured, though not on a terminal";
  expect_golden(source_folder() / "tests/cli/golden" / (std::string(kept.file) + ".txt"), text);
}

INSTANTIATE_TEST_SUITE_P(Golden, Transcripts, testing::Range<std::size_t>(0, transcripts().size()),
                         [](const auto& test) {
                           std::string name = transcripts()[test.param].file;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(Show, KeepsToItsWidth) {
  std::size_t shown = 0;
  for (const std::string& listed : lines(succeeds({"schedule", "list", "--format", "csv"}))) {
    const std::string schedule = listed.substr(0, listed.find(','));
    if (shown++ == 0) continue;  // the head
    for (const int width : {40, 60, 200}) {
      const std::string text =
          succeeds({"schedule", "show", schedule, "--width", std::to_string(width)});
      std::size_t rows = 0;
      for (const std::string& line : lines(text)) {
        if (!line.starts_with("device ") || line.find("holds") != std::string::npos) continue;
        ++rows;
        // Each character is one column: some take two bytes.
        EXPECT_LE(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }), width);
      }
      EXPECT_GE(rows, 4U) << text;
      EXPECT_EQ(rows % 4, 0U) << text;
    }
  }
  EXPECT_GT(shown, 30U);
}

/// Is an op of a drawing numbered 1?
bool shows_version_1(const std::string& text) {
  return std::ranges::any_of(lines(text), [](const std::string& line) {
    const auto numbered = [](unsigned char kind, char number) {
      return std::isalpha(kind) != 0 && number == '1';
    };
    return line.starts_with("device 0 ") &&
           std::ranges::adjacent_find(line, numbered) != line.end();
  });
}

TEST(Show, VersionsAreDrawnUntilTheSecondIsUsed) {
  std::size_t shown = 0;
  for (const std::string& listed : lines(succeeds({"schedule", "list", "--format", "csv"}))) {
    const std::string schedule = listed.substr(0, listed.find(','));
    if (shown++ == 0) continue;  // the head
    const std::string text =
        succeeds({"schedule", "show", schedule, "--versions", "--width", "400"});
    EXPECT_TRUE(shows_version_1(text)) << text;
  }
  EXPECT_GT(shown, 30U);
  const Words one{"schedule", "show", "2bw", "--versions", "--set", "batches=1"};
  EXPECT_FALSE(shows_version_1(succeeds(one))) << "the user said how many";
}

}  // namespace
}  // namespace penstock::commands_test
