// SPDX-License-Identifier: Apache-2.0
// Shards become the file of the whole sweep, or it is said which of them is not what it should be.
#include "sweep/merge.hpp"

#include "sweep/run.hpp"
#include "tests/sweep/space_rig.hpp"
#include "tests/traces/temp_folder.hpp"
#include "traces/byte_sink.hpp"

#include <filesystem>
#include <fstream>

namespace penstock::merge_test {
namespace {

constexpr std::uint64_t kShards = 3;

Manifest manifest_of(const SpaceRig& rig, const Shard& shard) {
  Manifest m;
  m.version = "0";
  m.scenarios = {{"made-up.yaml", "1"}};
  m.axes = rig.space.axes();
  m.engine = "auto";
  m.shard = to_string(shard);
  m.points = rig.space.count();
  return m;
}

/// The first `most` rows of a shard; the one of `failing` failed.
void sweep(const std::string& path, const Shard& shard, std::size_t most = 1000,
           std::uint64_t failing = ~std::uint64_t{0}, const SpaceRig& rig = SpaceRig()) {
  const auto output = open_output(path, rig.columns, manifest_of(rig, shard), Existing::overwrite);
  SweepRun run(rig.space, rig.columns, *output, shard, [](const Cells&, const Row*) {});
  while (const auto point = most-- > 0 ? run.next_point() : std::nullopt) {
    Row row = made_up_row(point->number);
    if (row.point == failing) row.status = Row::Status::failed;
    run.take_row(std::move(row));
  }
  run.finish();
}

class Merge : public testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& name) const { return folder_ / (name + GetParam()); }
  std::vector<std::string> shards() const {
    std::vector<std::string> files;
    for (std::uint64_t index = 0; index < kShards; ++index) {
      files.push_back(path("part" + std::to_string(index)));
      sweep(files.back(), {index, kShards});
    }
    return files;
  }
  std::string refusal(const std::vector<std::string>& files) const {
    try {
      merge_shards(files, path("merged"), Existing::refuse);
    } catch (const InputError& error) {
      EXPECT_FALSE(std::filesystem::exists(path("merged"))) << "nothing is written";
      return error.what();
    }
    return "merged";
  }
  void expect_same(const std::string& a, const std::string& b) const {
    const SweepColumns columns(SpaceRig().space.axes());
    const auto rows_a = read_rows(a, columns), rows_b = read_rows(b, columns);
    for (std::optional<Cells> row; (row = rows_a());) EXPECT_EQ(*row, rows_b());
    EXPECT_EQ(rows_b(), std::nullopt);
    EXPECT_EQ(to_json(manifest_of_file(a)), to_json(manifest_of_file(b)));
    if (std::string(GetParam()) == ".sqlite") return;
    EXPECT_EQ(read_file(a), read_file(b));
    EXPECT_EQ(read_file(a + ".sweep"), read_file(b + ".sweep"));
  }
  TempFolder folder_;
};

TEST_P(Merge, MakesTheFileOfTheWholeSweep) {
  auto files = shards();
  std::ranges::reverse(files);
  const Merged merged = merge_shards(files, path("merged"), Existing::refuse);
  EXPECT_EQ(merged.rows, 20U);
  EXPECT_EQ(merged.failed, 0U);
  sweep(path("whole"), {});
  expect_same(path("merged"), path("whole"));
}

TEST_P(Merge, RowsThatFailedAreCountedAndKept) {
  const auto files = shards();
  for (std::uint64_t index = 0; index < kShards; ++index)
    sweep(files[index], {index, kShards}, 1000, 4);
  EXPECT_EQ(merge_shards(files, path("merged"), Existing::refuse).failed, 1U);
  sweep(path("whole"), {}, 1000, 4);
  expect_same(path("merged"), path("whole"));
}

TEST_P(Merge, NeedsEveryShardOnce) {
  const auto files = shards();
  EXPECT_NE(refusal({files[0], files[2]}).find("no file has shard 2/3"), std::string::npos);
  EXPECT_NE(refusal({files[1]}).find("no file has shards 1/3, 3/3"), std::string::npos);
  EXPECT_NE(refusal({files[0], files[1], files[2], files[1]}).find("is shard 2/3, as "),
            std::string::npos);
}

TEST_P(Merge, NeedsWholeShards) {
  const auto files = shards();
  for (const std::size_t most : {0U, 1U, 5U}) {
    sweep(files[1], {1, kShards}, most);
    EXPECT_NE(refusal(files).find("has " + std::to_string(most) + " of its "), std::string::npos)
        << refusal(files);
  }
}

TEST_P(Merge, NeedsShardsOfOneSweep) {
  auto files = shards();
  sweep(files[1], {1, kShards}, 1000, ~std::uint64_t{0},
        SpaceRig({"stages=1:4", "microbatches=1:6"}));
  EXPECT_NE(refusal(files).find("is of another sweep than "), std::string::npos);
  sweep(files[1], {1, 4});
  EXPECT_NE(refusal(files).find("is one of 4 shards, "), std::string::npos) << refusal(files);
}

TEST_P(Merge, LeavesFilesAloneUnlessTold) {
  const auto files = shards();
  std::ofstream(path("merged")) << "mine\n";
  EXPECT_THROW(merge_shards(files, path("merged"), Existing::refuse), InputError);
  EXPECT_EQ(read_file(path("merged")), "mine\n");
  EXPECT_THROW(merge_shards(files, files[0], Existing::overwrite), InputError);
  EXPECT_EQ(merge_shards(files, path("merged"), Existing::overwrite).rows, 20U);
}

INSTANTIATE_TEST_SUITE_P(Csv, Merge, testing::Values(".csv"));
INSTANTIATE_TEST_SUITE_P(JsonLines, Merge, testing::Values(".jsonl"));
#ifdef PENSTOCK_WITH_SQLITE
INSTANTIATE_TEST_SUITE_P(Sqlite, Merge, testing::Values(".sqlite"));
#endif

TEST(MergedLines, WereNotEdited) {
  const TempFolder folder;
  std::vector<std::string> files;
  for (std::uint64_t index = 0; index < kShards; ++index) {
    files.push_back(folder / ("part" + std::to_string(index) + ".csv"));
    sweep(files.back(), {index, kShards});
  }
  const std::string whole = read_file(files[1]);
  const std::size_t header = whole.find('\n') + 1, first = whole.find('\n', header) + 1;
  const auto refused = [&](const std::string& text) {
    std::ofstream(files[1], std::ios::binary) << text;
    EXPECT_THROW(merge_shards(files, folder / "merged.csv", Existing::refuse), InputError) << text;
    EXPECT_FALSE(std::filesystem::exists(folder / "merged.csv"));
  };
  const std::string row = whole.substr(header, first - header);
  refused(whole.substr(0, header) + whole.substr(first) + row);  // sorted
  refused(whole + row);                                          // twice
  refused(whole.substr(0, first) + row + whole.substr(first));   // twice
  refused(whole.substr(0, header) + whole.substr(first));        // missing
  refused(whole.substr(0, whole.size() - 1));                    // cut
  refused(whole.substr(0, header + 1) + '9' + whole.substr(header + 2));
}

TEST(MergedLines, MayBeOfAnyKind) {
  const TempFolder folder;
  std::vector<std::string> files{folder / "a.csv", folder / "b.jsonl", folder / "c.csv"};
  for (std::uint64_t index = 0; index < kShards; ++index) sweep(files[index], {index, kShards});
  for (const char* end : {".csv", ".jsonl"}) {
    const std::string merged = folder / (std::string("merged") + end),
                      whole = folder / (std::string("whole") + end);
    merge_shards(files, merged, Existing::refuse);
    sweep(whole, {});
    EXPECT_EQ(read_file(merged), read_file(whole));
  }
}

}  // namespace
}  // namespace penstock::merge_test
