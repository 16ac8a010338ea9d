// SPDX-License-Identifier: Apache-2.0
// Malformed scenarios through the command line: each ends with exit code 2 and the message in the
// golden file beside it, says everything at once, and costs neither time nor memory. Small files go
// through this process one after the other, big ones and what is no file each through one of its
// own.
//
// UPDATE_GOLDEN=1 rewrites the golden files (and marks the tests skipped): read every change.
#include "scenarios/document.hpp"
#include "tests/cli/in_process.hpp"
#include "tests/golden.hpp"
#include "tests/parameter_name.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

namespace penstock::malformed_test {
namespace {

namespace fs = std::filesystem;

constexpr int kExitUsage = 2;
constexpr rlim_t kMostCpuSeconds = 20;  // sanitizers included; without, everything takes < 1 s
constexpr std::size_t kMostToRead = 100'000;
constexpr long kMostKibibytes = 1024 * 1024;  // likewise; without, < 150 MB

fs::path folder() { return source_folder() / "tests/scenarios/malformed"; }

struct Process {
  int code;  ///< 128 + signal when it was killed
  std::string standard_error;
  long kibibytes;
};

/// `penstock simulate ARGUMENTS...` in a folder.
Process simulate(const fs::path& directory, std::vector<std::string> arguments) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {-1, "no pipe", 0};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(126);
    const rlimit cpu{kMostCpuSeconds, kMostCpuSeconds};
    setrlimit(RLIMIT_CPU, &cpu);
    // LeakSanitizer's own tracer crashes now and then in one of many short-lived processes.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    const char* binary = std::getenv("PENSTOCK_BINARY");
    std::vector<char*> words{const_cast<char*>(binary), const_cast<char*>("simulate")};
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    if (chdir(directory.c_str()) == 0) execv(binary, words.data());
    _exit(127);
  }
  close(ends[1]);
  Process ended{-1, "", 0};
  std::array<char, 65536> part{};
  ssize_t count = 0;
  while ((count = ::read(ends[0], part.data(), part.size())) > 0)
    ended.standard_error.append(part.data(), static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.kibibytes = usage.ru_maxrss;
  return ended;
}

void expect_refused(const Process& ended) {
  EXPECT_EQ(ended.code, kExitUsage) << ended.standard_error.substr(0, 2000);
  EXPECT_LT(ended.kibibytes, kMostKibibytes);
  EXPECT_LT(ended.standard_error.size(), kMostToRead);
  EXPECT_NE(ended.standard_error, "");
}

// --- files with their messages ------------------------------------------------------------------

std::vector<std::string> names() {
  std::vector<std::string> found;
  if (std::getenv("PENSTOCK_SOURCE") == nullptr) return found;
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() == ".yaml") found.push_back(entry.path().stem().string());
  }
  std::ranges::sort(found);
  return found;
}

class Malformed : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Malformed);

TEST_P(Malformed, IsRefusedWithTheExpectedMessage) {
  const std::string said = refuses({"simulate", GetParam() + ".yaml"}, folder());
  EXPECT_LT(said.size(), kMostToRead);
  expect_golden(folder() / (GetParam() + ".expected"), said);
}

INSTANTIATE_TEST_SUITE_P(Files, Malformed, testing::ValuesIn(names()), ByName());

TEST(MalformedFiles, TakeLittleMemoryAllTogether) {
  for (const std::string& name : names()) run_here({"simulate", name + ".yaml"}, folder());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, kMostKibibytes);
}

TEST(MalformedFiles, AreManyAndAllHaveAMessage) {
  EXPECT_GE(names().size(), 100U);
  for (const auto& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() != ".expected") continue;
    EXPECT_TRUE(fs::exists(fs::path(entry.path()).replace_extension(".yaml"))) << entry.path();
  }
}

// --- big and binary ones, made here -------------------------------------------------------------

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  out.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string joined(std::size_t count, const std::function<std::string(std::size_t)>& item) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += item(i);
  return out;
}

const std::string kRest = "\nschedule: gpipe\npipeline: {stages: 4, microbatches: 8}\n";
constexpr std::size_t kMega = 1'000'000;

struct Made {
  std::string name;
  std::function<std::string()> text;
  std::string message;  ///< must be in the answer
};

const std::vector<Made>& made() {
  using std::string;
  static const std::vector<Made> kMade = {
      {"NulBytes", [] { return string("model: a\0b\n", 11); }, "made.yaml:1:9: is not a text file"},
      {"Elf",
       [] {
         return string(
             "\x7f"
             "ELF\x02\x01\x01\0\0\0",
             10);
       },
       "(byte 0x7f)"},
      {"Gzip", [] { return string("\x1f\x8b\x08\0\0", 5); }, "(byte 0x1f)"},
      {"InvalidUtf8", [] { return string("name: caf\xe9\nmodel: x\n"); },
       "made.yaml:1:10: is not a text file in UTF-8 (byte 0xe9)"},
      {"TruncatedUtf8", [] { return string("name: caf\xc3"); }, "(byte 0xc3)"},
      {"OverlongUtf8", [] { return string("name: \xc0\xaf"); }, "(byte 0xc0)"},
      {"Utf16",
       [] {
         return string(
             "\xff\xfe"
             "m\0o\0",
             6);
       },
       "(byte 0xff)"},
      {"OldMacLines", [] { return string("model: x\rschedule: y\r"); }, "(byte 0x0d)"},
      {"EscapeSequences", [] { return string("name: \x1b[31m\n"); }, "(byte 0x1b)"},
      {"RandomBytes",
       [] {
         unsigned state = 1;
         return joined(100'000, [&](std::size_t) {
           state = state * 1664525 + 1013904223;
           return string(1, static_cast<char>(state >> 24));
         });
       },
       "is not a text file"},
      {"WindowsLinesKeepTheirColumns",
       [] { return string("model: {forward: 1 s, backward: 2 s}\r\nschedule: gpip\r\n"); },
       "made.yaml:2:11: unknown schedule 'gpip'; did you mean 'gpipe'? (`penstock schedule list` "
       "shows all)\n   2 | schedule: gpip\n     |           ^~~~\n"},
      {"ByteOrderMarkKeepsItsColumns",
       [] { return string("\xef\xbb\xbfschedule: gpip\nmodel: gpt-2.2b\ncluster: p3.16xlarge\n"); },
       "made.yaml:1:11: unknown schedule 'gpip'; did you mean 'gpipe'? (`penstock schedule list` "
       "shows all)\n   1 | schedule: gpip\n     |           ^~~~\n"},
      {"TenMegabytesOfBrackets", [] { return "a: " + repeated("[", 10 * kMega); },
       "made.yaml:1:132: is nested more than 32 deep"},
      {"TenMegabytesOfText", [] { return "name: " + repeated("x", 10 * kMega) + kRest; },
       "made.yaml:1:2097153: is larger than 2 MB"},
      {"TenMegabytesOfLines", [] { return repeated("# a comment 16 b\n", kMega / 2); },
       "made.yaml:123362:"},
      {"SizeCutsACharacter", [] { return "name: x" + repeated("\xe2\x82\xac", kMega) + kRest; },
       "is larger than 2 MB"},
      {"ManyBrackets", [] { return "a: " + repeated("[", 2 * kMega); }, "nested more than 32 deep"},
      {"ManyBraces", [] { return repeated("{a: ", kMega / 2); }, "nested more than 32 deep"},
      {"ManyDashes", [] { return repeated("- ", kMega); }, "nested more than 32 deep"},
      {"ManyQuestions", [] { return repeated("? ", kMega); }, "nested more than 32 deep"},
      {"DeepBlockMaps",
       [] { return joined(1000, [](std::size_t i) { return string(i, ' ') + "a:\n"; }); },
       "nested more than 32 deep"},
      {"ManyColons", [] { return repeated("a: ", kMega / 2); }, "cannot stand here"},
      {"ManyTags", [] { return repeated("!a ", kMega / 2); }, "made.yaml:1:"},
      {"ManyAnchors", [] { return repeated("&a ", kMega / 2); }, "made.yaml:1:"},
      {"ManyItems", [] { return "model: [" + repeated("1,", kMega) + "1]" + kRest; },
       "more than 300000 values"},
      {"LongName", [] { return "name: " + repeated("x", kMega) + "\nmodel: y" + kRest; },
       "unknown model 'y'"},
      {"LongSchedule",
       [] {
         return "model: {forward: 1 s, backward: 2 s}\nschedule: " + repeated("x", kMega) + "\n";
       },
       "unknown schedule 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'"},
      {"LongModel", [] { return "model: " + repeated("x", kMega) + kRest; }, "unknown model 'xxx"},
      {"LongFile", [] { return "model: /" + repeated("x", kMega) + kRest; }, "does not exist"},
      {"LongNumber",
       [] { return "model: {forward: " + repeated("9", kMega) + " s, backward: 1 s}" + kRest; },
       "is too large"},
      {"LongKey", [] { return repeated("k", 1000) + ": 1\n" + kRest; }, "unknown key 'kkk"},
      {"ManyUnknownKeysInOneLine",
       [] {
         return "{" +
                joined(100'000, [](std::size_t i) { return "k" + std::to_string(i) + ": 1,"; }) +
                "}";
       },
       "and more; correct these first"},
      {"ManyDuplicates", [] { return repeated("stages: 1\n", 100'000); },
       "already given in line 1"},
      {"ManyNewlines", [] { return repeated("\n", 2 * kMega); }, "is empty"},
      {"ManyDocuments", [] { return repeated("---\na\n", 100'000); }, "second YAML document"},
      {"LongLiteral", [] { return "name: |\n" + repeated(" x\n", kMega / 2) + kRest; },
       "the scenario needs a 'model'"},
      {"AliasesOfBigMaps",
       [] {
         return "a: &a [" + repeated("1,", 100'000) + "1]\nb: [" + repeated("*a,", 100'000) +
                "1]\n";
       },
       "more than 300000 values"},
      {"ManyStages",
       [] {
         return "model: {forward: [" + repeated("1 s,", 70'000) + "1 s], backward: 2 s}\n" +
                "schedule: gpipe\n";
       },
       "at most 65535 stages"},
  };
  return kMade;
}

class Generated : public testing::TestWithParam<std::size_t> {};

TEST_P(Generated, IsRefusedCheaply) {
  const Made& made_file = made()[GetParam()];
  const fs::path place = fs::temp_directory_path() / ("penstock-" + std::to_string(getpid()));
  fs::create_directories(place);
  std::ofstream(place / "made.yaml", std::ios::binary) << made_file.text();
  const Process ended = simulate(place, {"made.yaml"});
  fs::remove_all(place);
  expect_refused(ended);
  EXPECT_NE(ended.standard_error.find(made_file.message), std::string::npos)
      << ended.standard_error.substr(0, 2000);
}

INSTANTIATE_TEST_SUITE_P(Files, Generated, testing::Range<std::size_t>(0, made().size()),
                         [](const auto& test) { return made()[test.param].name; });

// --- files that are none ------------------------------------------------------------------------

TEST(MalformedPath, MissingFileSuggestsANeighbour) {
  const Process ended = simulate(folder(), {"many-error.yaml"});
  expect_refused(ended);
  EXPECT_EQ(ended.standard_error,
            "many-error.yaml: cannot be read: No such file or directory; did you mean "
            "'many-errors.yaml'?\n");
}

TEST(MalformedPath, DirectoryIsSaid) {
  const Process ended = simulate(folder(), {"parts"});
  expect_refused(ended);
  EXPECT_EQ(ended.standard_error, "parts: cannot be read: Is a directory\n");
}

TEST(MalformedPath, EndlessDeviceIsNotReadToItsEnd) {
  expect_refused(simulate(folder(), {"/dev/zero"}));
  expect_refused(simulate(folder(), {"/dev/urandom"}));
}

TEST(MalformedPath, EmptyDeviceIsEmpty) {
  EXPECT_EQ(simulate(folder(), {"/dev/null"}).standard_error, "/dev/null: is empty\n");
}

TEST(MalformedPath, PermissionDeniedIsSaid) {
  const fs::path file = fs::temp_directory_path() / ("penstock-" + std::to_string(getpid()));
  std::ofstream(file) << "model: x\n";
  fs::permissions(file, fs::perms::none);
  // Root may read everything, so it becomes somebody else for a moment.
  const bool root = geteuid() == 0;
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  std::string said;
  try {
    load_document(file.string());
  } catch (const InputError& error) {
    said = error.what();
  }
  ASSERT_TRUE(!root || seteuid(0) == 0);
  fs::remove(file);
  EXPECT_NE(said.find("cannot be read: Permission denied"), std::string::npos) << said;
}

TEST(MalformedPath, ReadErrorIsSaid) {
  const Process ended = simulate(folder(), {"/proc/self/mem"});
  EXPECT_EQ(ended.code, 1) << "the machine's error, not that of the input";
  EXPECT_NE(ended.standard_error.find("cannot read '/proc/self/mem': Input/output error"),
            std::string::npos)
      << ended.standard_error;
}

}  // namespace
}  // namespace penstock::malformed_test
