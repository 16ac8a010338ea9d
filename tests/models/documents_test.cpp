// SPDX-License-Identifier: Apache-2.0
// Documents in sequences: what attention has to do of them, counted pair by pair.
#include "models/documents.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace penstock::documents_test {
namespace {

using Division = DocumentsSpec::Division;

TransformerSpec model(std::int64_t seq_length, std::optional<std::int64_t> window = {}) {
  return {.name = "m",
          .family = Family::llama,
          .num_layers = 4,
          .hidden_size = 256,
          .num_attention_heads = 4,
          .num_query_groups = 4,
          .ffn_hidden_size = 1024,
          .vocab_size = 1000,
          .seq_length = seq_length,
          .sliding_window = window,
          .flash_attention = true,
          .bytes = {}};
}

double mean_of(const TransformerSpec& m, const Pieces& pieces) {
  return attended(m, {pieces}, Division::documents, 1, false).mean;
}

TEST(Documents, AWholeSequenceIsOneToTheLastBit) {
  const Attended whole = attended(model(4096), {{4096}, {4096}}, Division::sequences, 4, false);
  EXPECT_EQ(whole.mean, 1);
  EXPECT_NEAR(whole.slowest, 1, 1e-12) << "the division suits it";
}

TEST(Documents, FlopsFollowTheSumOfSquares) {
  EXPECT_DOUBLE_EQ(mean_of(model(1024), {512, 512}), 0.5);
  EXPECT_DOUBLE_EQ(mean_of(model(1024), {256, 768}), (256.0 * 256 + 768 * 768) / (1024 * 1024));
  const TransformerSpec windowed = model(1024, 256);
  EXPECT_DOUBLE_EQ(mean_of(windowed, {512, 512}),
                   2 * windowed.attention_pairs(512) / windowed.attention_pairs());
}

TEST(Documents, MorePiecesNeverTakeMore) {
  Pieces pieces{1024};
  double last = mean_of(model(1024), pieces);
  while (pieces.size() < 64) {
    Pieces halves;
    for (const std::int64_t piece : pieces)
      halves.insert(halves.end(), {piece / 2, piece - piece / 2});
    pieces = halves;
    const double now = mean_of(model(1024), pieces);
    EXPECT_LT(now, last);
    last = now;
  }
}

/// Counts every pair: rank r of c has the r-th part of 2c from either end.
double slowest_by_counting(std::int64_t seq_length, const Pieces& pieces, int context) {
  std::vector<double> of(static_cast<std::size_t>(context));
  std::int64_t token = 0;
  for (const std::int64_t piece : pieces)
    for (std::int64_t i = 0; i < piece; ++i, ++token) {
      const std::int64_t chunk = token * 2 * context / seq_length;
      of[static_cast<std::size_t>(std::min(chunk, 2 * context - 1 - chunk))] +=
          static_cast<double>(i + 1);
    }
  double most = 0, sum = 0;
  for (const double keys : of) {
    most = std::max(most, keys);
    sum += keys;
  }
  return most * context / sum;
}

TEST(Documents, DividedAsSequencesTheRankWithMostPairsDecides) {
  const TransformerSpec m = model(1024);
  for (const Pieces& pieces :
       {Pieces{256, 768}, {512, 512}, {100, 900, 24}, {1000, 24}, {1, 1023}, {300, 300, 424}})
    for (const int context : {2, 4, 8}) {
      const Attended alike = attended(m, {pieces}, Division::documents, context, false);
      EXPECT_EQ(alike.slowest, alike.mean);
      const Attended whole = attended(m, {pieces}, Division::sequences, context, false);
      EXPECT_NEAR(whole.slowest / whole.mean, slowest_by_counting(1024, pieces, context), 1e-12);
      EXPECT_EQ(attended(m, {pieces}, Division::sequences, context, true).slowest, whole.mean)
          << "heads are divided instead";
    }
}

TEST(Documents, GoOnInTheNextSequence) {
  const DocumentsSpec spec{.lengths = {2500}};
  DocumentStream stream(spec, 1024, 0);
  EXPECT_EQ(stream.next(), Pieces{1024});
  EXPECT_EQ(stream.next(), Pieces{1024});
  EXPECT_EQ(stream.next(), (Pieces{452, 572}));
}

TEST(Documents, ComeUpAsOftenAsTheirWeightsSay) {
  const DocumentsSpec spec{.lengths = {10, 1000}, .weights = {3, 1}};
  DocumentStream stream(spec, 1'000'000, 7);
  const Pieces pieces = stream.next();
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0}), 1'000'000);
  const auto brief = static_cast<double>(std::count(pieces.begin(), pieces.end(), 10));
  EXPECT_NEAR(brief / static_cast<double>(pieces.size()), 0.75, 0.03);
}

}  // namespace
}  // namespace penstock::documents_test
