// SPDX-License-Identifier: Apache-2.0
// Shards: every point is in one of them, whatever is expensive is in all of them, and what says
// which shard a process is.
#include "sweep/shard.hpp"

#include "base/error.hpp"
#include "sweep/run.hpp"
#include "tests/sweep/space_rig.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace penstock::shard_test {
namespace {

using Variables = std::map<std::string, std::string>;

Environment saying(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables array(int task, int least, int most, int step, int count) {
  return {{"SLURM_ARRAY_TASK_ID", std::to_string(task)},
          {"SLURM_ARRAY_TASK_MIN", std::to_string(least)},
          {"SLURM_ARRAY_TASK_MAX", std::to_string(most)},
          {"SLURM_ARRAY_TASK_STEP", std::to_string(step)},
          {"SLURM_ARRAY_TASK_COUNT", std::to_string(count)}};
}

std::string of_environment(const Variables& variables) {
  return to_string(shard_of_environment(saying(variables)));
}

std::vector<std::uint64_t> numbers_of(const Space& space, const Shard& shard) {
  Numbers numbers(space, shard);
  std::vector<std::uint64_t> all;
  while (const auto number = numbers.next_number()) all.push_back(*number);
  EXPECT_EQ(all.size(), numbers.count());
  EXPECT_TRUE(std::ranges::is_sorted(all));
  return all;
}

TEST(Shards, DivideThePointsThatHaveARow) {
  const SpaceRig rig;
  for (const std::uint64_t count : {1U, 2U, 3U, 7U, 19U, 20U, 21U, 64U}) {
    std::set<std::uint64_t> all;
    for (std::uint64_t index = 0; index < count; ++index) {
      const auto part = numbers_of(rig.space, {index, count});
      EXPECT_LE(part.size(), (rig.space.size() + count - 1) / count);
      EXPECT_GE(part.size(), rig.space.size() / count);
      for (const std::uint64_t number : part) EXPECT_TRUE(all.insert(number).second) << number;
    }
    EXPECT_EQ(all.size(), rig.space.size()) << count;
  }
}

TEST(Shards, HaveEveryValueOfEveryAxisThoughTheirNumberDividesIt) {
  const SpaceRig rig({"stages=1:8", "microbatches=1:8", "batches=1:8"});
  for (std::uint64_t index = 0; index < 8; ++index) {
    std::map<std::pair<std::size_t, std::size_t>, int> seen;  // axis and value
    for (const std::uint64_t number : numbers_of(rig.space, {index, 8})) {
      const auto digits = rig.space.digits(number);
      for (std::size_t axis = 1; axis < digits.size(); ++axis) ++seen[{axis, digits[axis]}];
    }
    EXPECT_EQ(seen.size(), 3U * 8U) << index;
    for (const auto& [where, times] : seen) {  // 8 of 64 if it were even
      EXPECT_LE(times, 16) << index << " has value " << where.second << " of " << where.first;
    }
  }
}

TEST(Shards, AreNamedFromOneOn) {
  EXPECT_EQ(to_string(parse_shard("1/8")), "1/8");
  EXPECT_EQ(parse_shard("8/8").index, 7U);
  for (const char* wrong : {"", "1", "0/3", "4/3", "a/2", "1/0", "1/2x", "-1/2", "1/99999999"})
    EXPECT_THROW(parse_shard(wrong), InputError) << wrong;
}

TEST(Shards, FilesAreNamedAfterThem) {
  EXPECT_EQ(file_of_shard("part-%K-of-%N.csv", {2, 12}), "part-3-of-12.csv");
  EXPECT_EQ(file_of_shard("100%.csv", {2, 12}), "100%.csv");
  EXPECT_EQ(file_of_shard("%%K", {0, 1}), "%1");
}

TEST(Shards, AreTheRanksOfALauncher) {
  EXPECT_EQ(of_environment({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "3/4");
  EXPECT_EQ(of_environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), "1/2");
  EXPECT_EQ(of_environment({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "2/2");
  EXPECT_EQ(of_environment({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}}),
            "4/4");
  EXPECT_EQ(of_environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "1/1");
  EXPECT_THROW(of_environment({}), InputError);
  EXPECT_THROW(of_environment({{"RANK", "1"}}), InputError);
  EXPECT_THROW(of_environment({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), InputError);
}

TEST(Shards, ABatchScriptIsNoRank) {
  const Environment script = saying({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_FALSE(rank_of_many(script));
}

TEST(Shards, AreTheTasksOfAnArray) {
  EXPECT_EQ(of_environment(array(0, 0, 31, 1, 32)), "1/32");
  EXPECT_EQ(of_environment(array(31, 0, 31, 1, 32)), "32/32");
  EXPECT_EQ(of_environment(array(5, 1, 9, 4, 3)), "2/3");
  for (const auto& gap : {array(5, 1, 9, 1, 3), array(6, 1, 9, 4, 3), array(10, 1, 9, 1, 9)})
    EXPECT_THROW(of_environment(gap), InputError);
  EXPECT_THROW(of_environment({{"SLURM_ARRAY_TASK_ID", "1"}}), InputError);
}

TEST(Shards, AreTheRanksWithinEachTaskOfAnArray) {
  std::set<std::string> all;
  for (int task = 1; task <= 3; ++task) {
    for (int rank = 0; rank < 2; ++rank) {
      auto variables = array(task, 1, 3, 1, 3);
      variables.insert(
          {{"SLURM_PROCID", std::to_string(rank)}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}});
      all.insert(of_environment(variables));
    }
  }
  EXPECT_EQ(all, (std::set<std::string>{"1/6", "2/6", "3/6", "4/6", "5/6", "6/6"}));
}

}  // namespace
}  // namespace penstock::shard_test
