// SPDX-License-Identifier: Apache-2.0
// Results side by side: what is best, and what makes them hard to compare.
#include "results/comparison.hpp"

#include <gtest/gtest.h>

#include <cmath>

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

Json result_of_model(const char* model, double parameters, double length, double samples_per_s) {
  Json result = result_of(model, samples_per_s, 1);
  result["model"] = model;
  result["parameters"] = parameters;
  result["seq_length"] = length;
  result["tokens_per_s"] = samples_per_s * length;
  return result;
}

TEST(Comparison, OtherSequenceLengthsAreComparedByTokens) {
  const std::vector<Json> results{result_of_model("a", 1e9, 2048, 8),
                                  result_of_model("a", 1e9, 8192, 4)};
  EXPECT_EQ(compared_rate(results).unit, "tokens/s");
  EXPECT_EQ(best_of(results).fastest, 1U);
  EXPECT_EQ(best_of(results).faster_than_first, 2.0);
  EXPECT_EQ(comparison_notes(results, labels_of(results)),
            "the sequences differ, 2048 to 8192 tokens: rows are compared by tokens/s\n");
  const std::vector<Json> alike{results[0], results[0]};
  EXPECT_EQ(compared_rate(alike).unit, "samples/s");
}

TEST(Comparison, OtherModelsAreSaid) {
  const std::vector<Json> results{result_of_model("a", 1e9, 2048, 8),
                                  result_of_model("b", 2e9, 2048, 4)};
  EXPECT_EQ(comparison_notes(results, labels_of(results)),
            "the models differ: a (1,000,000,000 parameters), b (2,000,000,000 parameters)\n");
}

TEST(Comparison, TokensOfAnOlderResultAreThoseOfItsGpus) {
  Json older = result_of("a", 2, 8);
  older["tokens_per_s_per_device"] = 100;
  EXPECT_EQ(tokens_per_s(older), 200);
  EXPECT_TRUE(std::isnan(tokens_per_s(result_of("a", 2, 8))));
}

}  // namespace
}  // namespace penstock::comparison_test
