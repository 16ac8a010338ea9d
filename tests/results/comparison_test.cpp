// Results side by side: what is best, and what makes them hard to compare.
#include "results/comparison.hpp"

#include <gtest/gtest.h>

namespace penstock::comparison_test {
namespace {

Json result_of(const char* name, double rate, double bytes, bool fits = true) {
  return {{"schema_version", 1},
          {"makespan_s", 1},
          {"scenario", name},
          {"throughput_samples_per_s", rate},
          {"samples_per_update", 8},
          {"feasible", fits},
          {"devices", {{{"peak_memory_bytes", bytes}}, {{"peak_memory_bytes", bytes / 2}}}}};
}

TEST(Comparison, TheBestAreAmongThoseThatFit) {
  const std::vector<Json> results{result_of("a", 2, 8), result_of("b", 9, 1, false),
                                  result_of("c", 3, 9), result_of("d", 1, 7)};
  const BestResults best = best_of(results);
  EXPECT_EQ(best.fastest, 2U);
  EXPECT_EQ(best.smallest, 3U);
  EXPECT_EQ(best.faster_than_first, 1.5);
  EXPECT_EQ(best.unfit, 1U);
  EXPECT_FALSE(best_of({result_of("b", 9, 1, false)}).fastest);
  EXPECT_FALSE(best_of({result_of("a", 2, 8), result_of("c", 1, 9)}).faster_than_first);
}

TEST(Comparison, RowsAreNamedByWhatTheyDoNotHaveInCommon) {
  Json one = result_of("a", 1, 1), other = result_of("a", 1, 1);
  one["overrides"] = {"transfers=free", "pipeline.stages=2"};
  other["overrides"] = {"transfers=free"};
  const ComparisonLabels labels = labels_of({one, other});
  EXPECT_EQ(labels.heading, "a [transfers=free]");
  EXPECT_EQ(labels.rows, (std::vector<std::string>{"pipeline.stages=2", "as it is"}));
  EXPECT_EQ(labels_of({one, result_of("b", 1, 1)}).heading, "");
}

TEST(Comparison, UnequalWorkIsNoted) {
  Json other = result_of("b", 1, 1);
  other["samples_per_update"] = 16;
  other["devices"].push_back({{"peak_memory_bytes", 1}});
  other["notes"] = {"a note"};
  const std::vector<Json> results{result_of("a", 1, 1), other};
  EXPECT_EQ(comparison_notes(results, labels_of(results)),
            "the batches differ, 8 to 16 samples (pipeline.global_batch_size sets one)\n"
            "the GPUs differ, 2 to 3: a higher ratio may only be more GPUs\n"
            "note, b: a note\n");
}

}  // namespace
}  // namespace penstock::comparison_test
