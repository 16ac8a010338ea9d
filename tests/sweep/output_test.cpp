// SPDX-License-Identifier: Apache-2.0
// Rows in files: what is written is read back, what is torn is cut off, and an interrupted sweep
// that is resumed leaves the very bytes of one that was not.
#include "base/error.hpp"
#include "sweep/line_format.hpp"
#include "sweep/run.hpp"
#include "tests/sweep/space_rig.hpp"
#include "tests/traces/temp_folder.hpp"
#include "traces/byte_sink.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace penstock::output_test {
namespace {

Manifest manifest_of(const Space& space) {
  return {"0",    {{"made-up.yaml", "1"}}, {},          {}, space.axes(), {},
          "auto", to_string(Shard{}),      space.size()};
}

/// Visits points in a random order, at most `window` at a time, `most` in all; those in `broken`
/// fail.
void sweep(const std::string& path, Existing existing, unsigned seed, std::size_t most = 1000,
           std::uint64_t broken = ~std::uint64_t{0}) {
  const SpaceRig rig;
  const auto output = open_output(path, rig.columns, manifest_of(rig.space), existing);
  SweepRun run(rig.space, rig.columns, *output, {}, [](const Cells&, const Row*) {});
  if (existing == Existing::resume) run.resume();
  std::mt19937 random(seed);
  std::vector<std::uint64_t> handed;
  for (bool more = true; more || !handed.empty();) {
    while (more && handed.size() < 5) {
      const auto point = most > 0 ? run.next_point() : std::nullopt;
      more = point.has_value();
      if (more) handed.push_back(point->number);
      if (more) --most;
    }
    if (handed.empty()) break;
    const std::size_t at = random() % handed.size();
    Row row = made_up_row(handed[at]);
    if (row.point == broken) row.status = Row::Status::failed;
    handed.erase(handed.begin() + static_cast<std::ptrdiff_t>(at));
    run.take_row(std::move(row));
  }
  run.finish();
}

class Files : public testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& name) const { return folder_ / (name + GetParam()); }
  /// The rows, whatever the form of the file.
  static std::vector<Cells> rows(const std::string& file) {
    const SpaceRig rig;
    const auto output = open_output(file, rig.columns, manifest_of(rig.space), Existing::resume);
    std::vector<Cells> out;
    output->previous([&](const Cells& row) { out.push_back(row); });
    return out;
  }
  static bool is_database(const std::string& file) { return file.ends_with(".sqlite"); }
  void expect_same(const std::string& a, const std::string& b) const {
    EXPECT_EQ(rows(a), rows(b));
    if (is_database(a)) return;
    EXPECT_EQ(read_file(a), read_file(b));
  }
  TempFolder folder_;
};

TEST_P(Files, RowsComeBackAsTheyWerePut) {
  sweep(path("all"), Existing::refuse, 1);
  const SpaceRig rig;
  std::vector<Cells> expected;
  for (std::uint64_t n = 0; n < rig.space.size(); ++n)
    expected.push_back(rig.columns.cells(made_up_row(n)));
  EXPECT_EQ(rows(path("all")), expected);
}

TEST_P(Files, TheOrderInWhichRowsComeChangesNothing) {
  sweep(path("one"), Existing::refuse, 1);
  sweep(path("two"), Existing::refuse, 2);
  expect_same(path("one"), path("two"));
}

TEST_P(Files, ResumedSweepsEqualThoseThatRanThrough) {
  sweep(path("whole"), Existing::refuse, 1);
  for (const std::size_t most : {0U, 1U, 7U, 19U, 20U}) {
    const std::string part = path("part" + std::to_string(most));
    sweep(part, Existing::refuse, 3, most);
    sweep(part, Existing::resume, 4);
    expect_same(part, path("whole"));
  }
}

TEST_P(Files, WhatFailedIsDoneAgain) {
  sweep(path("whole"), Existing::refuse, 1);
  sweep(path("failed"), Existing::refuse, 1, 1000, 3);
  EXPECT_EQ(rows(path("failed"))[3][SpaceRig().columns.at("status")], "failed");
  sweep(path("failed"), Existing::resume, 1);
  expect_same(path("failed"), path("whole"));
  sweep(path("both"), Existing::refuse, 1, 10, 3);
  sweep(path("both"), Existing::resume, 2);
  expect_same(path("both"), path("whole"));
}

TEST_P(Files, AnExistingFileIsLeftAlone) {
  sweep(path("there"), Existing::refuse, 1);
  EXPECT_THROW(sweep(path("there"), Existing::refuse, 1), InputError);
  EXPECT_EQ(rows(path("there")).size(), 20U);
  sweep(path("there"), Existing::overwrite, 1, 5);
  EXPECT_EQ(rows(path("there")).size(), 5U);
}

TEST_P(Files, AnotherSweepIsNotContinued) {
  sweep(path("old"), Existing::refuse, 1);
  const SpaceRig other({"stages=1:4", "microbatches=1:6"});
  try {
    open_output(path("old"), other.columns, manifest_of(other.space), Existing::resume);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("the axis pipeline.microbatches was 1, 2, 3, 4 ... 5 "
                        "(5 values), now it is 1, 2, 3, 4 ... 6 (6 values)"),
              std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Csv, Files, testing::Values(".csv"));
INSTANTIATE_TEST_SUITE_P(JsonLines, Files, testing::Values(".jsonl"));
#ifdef PENSTOCK_WITH_SQLITE
INSTANTIATE_TEST_SUITE_P(Sqlite, Files, testing::Values(".sqlite"));
#endif

class TornFiles : public Files {};

TEST_P(TornFiles, AFileCutAnywhereIsContinued) {
  sweep(path("whole"), Existing::refuse, 1);
  const std::string all = read_file(path("whole"));
  for (std::size_t length = 0; length < all.size(); length += 101) {
    const std::string torn = path("torn" + std::to_string(length));
    std::ofstream(torn, std::ios::binary) << all.substr(0, length);
    std::filesystem::copy_file(path("whole") + ".sweep", torn + ".sweep");
    sweep(torn, Existing::resume, 5);
    ASSERT_EQ(read_file(torn), all) << length;
  }
}

TEST_P(TornFiles, AFileThatWasSortedOrEditedIsRefused) {
  sweep(path("edited"), Existing::refuse, 1);
  std::string text = read_file(path("edited"));
  const std::size_t end = text.rfind('\n', text.size() - 2);
  text = text.substr(0, end + 1) + text.substr(end + 1) + text.substr(end + 1);
  std::ofstream(path("edited"), std::ios::binary) << text;
  EXPECT_THROW(sweep(path("edited"), Existing::resume, 1), InputError);
  std::ofstream(path("edited"), std::ios::binary) << text.substr(0, end + 1) << "what?\n";
  EXPECT_THROW(sweep(path("edited"), Existing::resume, 1), InputError);
}

TEST_P(TornFiles, AForeignLineThatIsNotEndedIsLeftAlone) {
  sweep(path("ours"), Existing::refuse, 1, 0);
  std::ofstream(path("ours"), std::ios::binary) << "my only notes";
  EXPECT_THROW(sweep(path("ours"), Existing::resume, 1), InputError);
  EXPECT_EQ(read_file(path("ours")), "my only notes");
}

INSTANTIATE_TEST_SUITE_P(Csv, TornFiles, testing::Values(".csv"));
INSTANTIATE_TEST_SUITE_P(JsonLines, TornFiles, testing::Values(".jsonl"));

TEST(Output, FilesWithoutAManifestOrAKnownExtensionAreRefused) {
  const TempFolder folder;
  EXPECT_THROW(check_extension("rows.cvs"), InputError);
  std::ofstream(folder / "mine.csv") << "my own\n";
  EXPECT_THROW(sweep(folder / "mine.csv", Existing::resume, 1), InputError);
  EXPECT_EQ(read_file(folder / "mine.csv"), "my own\n");
}

TEST(Columns, AnAxisTakesTheNameOfWhatItRepeats) {
  const SpaceRig rig({"stages=1,2", "schedule=gpipe,1f1b", "cluster.devices=4,8"});
  std::vector<std::string> names;
  for (const SweepColumn& column : rig.columns.all()) names.push_back(column.name);
  EXPECT_EQ((std::vector<std::string>(names.begin(), names.begin() + 7)),
            (std::vector<std::string>{"point", "scenario", "stages", "schedule", "cluster.devices",
                                      "engine", "transfers"}));
  for (const std::string& name : names) EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  EXPECT_EQ(std::ranges::count(names, "devices"), 1);
}

TEST(Lines, JsonHasNumbersOnlyWhereNothingIsLost) {
  for (const char* text : {"1", "-3", "0.5", "12.25", "1.50", "1e3", "0"})
    EXPECT_TRUE(is_json_number(text)) << text;
  for (const char* text :
       {"", "01", "+1", ".5", "1.", "1ms", "[1]", "true", "12345678901234567890123"})
    EXPECT_FALSE(is_json_number(text)) << text;
}

}  // namespace
}  // namespace penstock::output_test
