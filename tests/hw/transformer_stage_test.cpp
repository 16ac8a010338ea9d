// SPDX-License-Identifier: Apache-2.0
#include "hw/transformer_stage.hpp"

#include "stage_rig.hpp"

#include <gtest/gtest.h>

#include <map>
#include <span>

namespace penstock::transformer_stage_test {
namespace {

constexpr std::int64_t kSequences = 2;
constexpr std::uint64_t kSeed = 11;

TransformerSpec small_model(Family family = Family::gpt) {
  TransformerSpec m;
  m.family = family;
  m.num_layers = 2;
  m.hidden_size = 12;
  m.num_attention_heads = 3;
  m.num_query_groups = 3;
  m.ffn_hidden_size = 20;
  m.vocab_size = 17;
  m.seq_length = 5;
  return m;
}

TransformerSpec flash_model(Family family = Family::gpt) {
  TransformerSpec m = small_model(family);
  m.flash_attention = true;
  return m;
}

/// The second layer has experts, of which a token uses some, and perhaps one that all use.
TransformerSpec expert_model(int per_token, std::int64_t shared, int first_dense = 1) {
  TransformerSpec m = small_model();
  m.experts = Experts{.count = 4,
                      .top_k = per_token,
                      .width = 7,
                      .shared_width = shared,
                      .router_bias = true,
                      .first_dense = first_dense};
  return m;
}

TransformerStage make(const TransformerPart& part, const Recomputation& recompute = Recompute::none,
                      const TransformerSpec& spec = small_model()) {
  return {spec, part, kSequences, recompute, 4, TrainingSpec{.seed = kSeed}};
}

/// Large enough that nothing is nearly linear; gammas around 1.
std::vector<float> lively_weights(const TransformerStage& stage) {
  std::vector<float> w = random_values(stage.sizes().parameters, 3, 0.5F);
  for (const Parameter& p : stage.layout().parameters) {
    if (p.start != Parameter::Start::one) continue;
    for (std::int64_t i = 0; i < p.elements; ++i) w[static_cast<std::size_t>(p.offset + i)] += 1;
  }
  return w;
}

/// The same, with a router whose choice no small step changes: experts 0, 1 ... before the others.
std::vector<float> decided_weights(const TransformerStage& stage) {
  std::vector<float> w = lively_weights(stage);
  for (const Parameter& p : stage.layout().parameters) {
    const bool bias = p.name.ends_with("router bias");
    if (!bias && !p.name.ends_with("router")) continue;
    for (std::int64_t i = 0; i < p.elements; ++i) w[static_cast<std::size_t>(p.offset + i)] *= 0.1F;
    for (std::int64_t i = 0; bias && i < p.elements; ++i)
      w[static_cast<std::size_t>(p.offset + i)] -= 1.5F * static_cast<float>(i);
  }
  return w;
}

std::vector<float> initial_weights(const Stage& stage) {
  std::vector<float> w(static_cast<std::size_t>(stage.sizes().parameters));
  stage.initialize(w);
  return w;
}

std::vector<float> piece(const std::vector<float>& all, const Parameter& p) {
  return {all.begin() + p.offset, all.begin() + p.offset + p.elements};
}

struct Role {
  std::string name;
  TransformerPart part;
};
std::vector<Role> roles() {
  return {{"first", {0, 1, true, false}},
          {"middle", {1, 2, false, false}},
          {"last", {1, 1, false, true}},
          {"only", {0, 2, true, true}},
          {"embedding alone", {0, 0, true, false}},
          {"head alone", {2, 0, false, true}}};
}

StageResult lively_result(const TransformerStage& stage, std::uint32_t microbatch = 0) {
  return run_stage(stage, lively_weights(stage), random_values(input_elements(stage), 5),
                   random_values(output_elements(stage), 6), microbatch);
}

void expect_gradients(const TransformerStage& stage, const std::string& what,
                      const std::vector<float>& weights) {
  const Objective objective(stage, weights);
  const StageResult r = objective.result();
  for (const Parameter& p : stage.layout().parameters) {
    const std::vector<float> gradient = piece(r.gradients, p);
    const bool unused = std::ranges::all_of(gradient, [](float x) { return x == 0; });
    EXPECT_TRUE(!unused || p.name.find("expert") != std::string::npos) << p.name;
    if (unused) continue;
    const double error = worst_error(gradient, [&](const std::vector<float>& step) {
      return objective.along_weights(static_cast<std::size_t>(p.offset), step);
    });
    EXPECT_LT(error, kGradientTolerance) << what << ": " << p.name;
  }
  if (r.input_gradient.empty()) return;
  const double error = worst_error(r.input_gradient, [&](const std::vector<float>& step) {
    return objective.along_input(step);
  });
  EXPECT_LT(error, kGradientTolerance) << what << ": input";
}

void expect_gradients(const TransformerStage& stage, const std::string& what) {
  expect_gradients(stage, what, lively_weights(stage));
}

TEST(TransformerStage, EveryGradientIsThatOfCentralDifferencesOnEveryKindOfStage) {
  for (const Role& role : roles()) expect_gradients(make(role.part), role.name);
}

TEST(TransformerStage, GradientsWithoutCausalMaskAreThoseOfCentralDifferences) {
  expect_gradients(make({0, 1, true, true}, Recompute::none, small_model(Family::bert)), "bert");
}

TEST(TransformerStage, GradientsThroughFlashAttentionAreThoseOfCentralDifferences) {
  for (const Family family : {Family::gpt, Family::bert}) {
    for (const Recompute mode : {Recompute::none, Recompute::full})
      expect_gradients(make({0, 1, true, true}, mode, flash_model(family)), "flash");
  }
}

TEST(TransformerStage, GradientsOfExpertsAndTheirRouterAreThoseOfCentralDifferences) {
  for (const int per_token : {1, 2, 4}) {
    for (const std::int64_t shared : {0, 9}) {
      for (const int dense : {0, 1}) {
        const TransformerStage stage =
            make({0, 2, true, true}, dense == 0 ? Recompute::none : Recompute::full,
                 expert_model(per_token, shared, dense));
        expect_gradients(stage, std::to_string(per_token) + " of 4 experts",
                         per_token == 4 ? lively_weights(stage) : decided_weights(stage));
      }
    }
  }
}

TEST(TransformerStage, WithExpertsHasTheParametersOfTheModelWhereverTheyLie) {
  for (const std::int64_t shared : {0, 9}) {
    TransformerSpec spec = expert_model(2, shared);
    spec.tie_embeddings = false;
    TransformerPart part{0, 2, true, true};
    const TransformerStage inside = make(part, Recompute::none, spec);
    EXPECT_EQ(inside.sizes().parameters, spec.parameters());
    part.expert.apart = true;
    const TransformerStage apart = make(part, Recompute::none, spec);
    EXPECT_EQ(apart.sizes().parameters, spec.parameters());
    const auto starts = [](const TransformerStage& stage) {
      std::map<std::string, std::vector<float>> all;
      const std::vector<float> weights = initial_weights(stage);
      for (const Parameter& p : stage.layout().parameters) all[p.name] = piece(weights, p);
      return all;
    };
    const auto all = starts(inside);
    EXPECT_EQ(starts(apart), all);
    // Ranks with half of the experts each.
    for (const int half : {0, 1}) {
      part.expert = {2, half, true};
      const TransformerStage own = make(part, Recompute::none, spec);
      EXPECT_EQ(own.sizes().expert_parameters * 2, apart.sizes().expert_parameters);
      EXPECT_EQ(own.sizes().parameters - own.sizes().expert_parameters,
                apart.sizes().parameters - apart.sizes().expert_parameters);
      for (const auto& [name, values] : starts(own)) EXPECT_EQ(values, all.at(name)) << name;
    }
  }
}

TEST(TransformerStage, FlashAttentionIsAttentionAndRecomputationChangesNoBitOfIt) {
  constexpr TransformerPart all{0, 2, true, true};
  for (const Family family : {Family::gpt, Family::bert}) {
    const StageResult stored = lively_result(make(all, Recompute::none, small_model(family)));
    const StageResult flash = lively_result(make(all, Recompute::none, flash_model(family)));
    EXPECT_NEAR(flash.loss, stored.loss, 1e-5);
    for (std::size_t i = 0; i < stored.gradients.size(); ++i)
      ASSERT_NEAR(flash.gradients[i], stored.gradients[i], 1e-5) << i;
    for (const Recompute mode : {Recompute::selective, Recompute::full})
      EXPECT_EQ(lively_result(make(all, mode, flash_model(family))), flash);
  }
}

/// What a forward and a backward of so many sequences issue.
int issued(std::int64_t sequences) {
  const TransformerStage stage(small_model(), {0, 2, true, true}, sequences, Recompute::none, 4,
                               TrainingSpec{.seed = kSeed});
  const std::vector<float> weights = lively_weights(stage);
  StageRig rig(stage);
  rig.forward(weights, {});
  rig.backward_input(weights, {});
  std::vector<float> gradients(weights.size());
  rig.backward_weight(gradients);
  return rig.issued();
}

TEST(TransformerStage, AttentionsProductsAreBatchesOfHeadsOrSequencesWhicheverAreMore) {
  EXPECT_EQ(issued(2) - issued(1), 6 * 2);  // of two layers
  EXPECT_EQ(issued(3) - issued(2), 6 * 2);
  EXPECT_EQ(issued(4), issued(3));  // there are three heads
  EXPECT_EQ(issued(30), issued(3));
  for (const Family family : {Family::gpt, Family::bert})
    expect_gradients({small_model(family),
                      {0, 1, true, true},
                      4,
                      Recompute::none,
                      4,
                      TrainingSpec{.seed = kSeed}},
                     "more sequences than heads");
}

TEST(TransformerStage, AGradientOnePercentTooLargeIsSeenInEveryParameter) {
  const TransformerStage stage = make({0, 1, true, true});
  const Objective objective(stage, lively_weights(stage));
  StageResult r = objective.result();
  for (float& g : r.gradients) g *= 1.01F;
  for (const Parameter& p : stage.layout().parameters) {
    const double error = worst_error(piece(r.gradients, p), [&](const std::vector<float>& step) {
      return objective.along_weights(static_cast<std::size_t>(p.offset), step);
    });
    EXPECT_GT(error, kGradientTolerance) << p.name;
  }
}

TEST(TransformerStage, RecomputationChangesNoBit) {
  for (const Role& role : roles()) {
    const StageResult kept = lively_result(make(role.part));
    for (const Recompute mode : {Recompute::selective, Recompute::full}) {
      EXPECT_EQ(lively_result(make(role.part, mode)), kept) << role.name;
    }
  }
}

TEST(TransformerStage, RecomputationOfExpertsChangesNoBit) {
  const TransformerSpec spec = expert_model(2, 9, 0);
  const StageResult kept = lively_result(make({0, 2, true, true}, Recompute::none, spec));
  for (const Recomputation& mode :
       {Recomputation(Recompute::selective), Recomputation(Recompute::full),
        Recomputation::block(1), Recomputation::uniform(2)})
    EXPECT_EQ(lively_result(make({0, 2, true, true}, mode, spec)), kept) << to_string(mode);
}

TEST(TransformerStage, LayersMadeAgainOneByOneOrInGroupsChangeNoBit) {
  for (const bool flash : {false, true}) {
    for (const TransformerPart& part :
         {TransformerPart{0, 5, true, true}, {0, 5, true, false}, {1, 4, false, true}}) {
      const TransformerSpec spec = flash ? flash_model() : small_model();
      const StageResult kept = lively_result(make(part, Recompute::none, spec));
      for (int n = 1; n <= 6; ++n)
        for (const Recomputation& mode : {Recomputation::block(n), Recomputation::uniform(n)})
          EXPECT_EQ(lively_result(make(part, mode, spec)), kept) << to_string(mode);
    }
  }
}

TEST(TransformerStage, WeightGradientsMayComeLaterInTheOrderOfTheMicrobatches) {
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    const TransformerStage stage = make({0, 2, false, false}, mode);
    const std::vector<float> weights = lively_weights(stage);
    const std::vector<float> message = random_values(input_elements(stage), 5);
    std::vector<float> together(weights.size()), apart(weights.size());
    StageRig a(stage, 0), b(stage, 1), c(stage, 0), d(stage, 1);
    for (StageRig* rig : {&a, &b}) {
      rig->forward(weights, message);
      rig->backward_input(weights, message);
      rig->backward_weight(together);
    }
    for (StageRig* rig : {&c, &d}) rig->forward(weights, message);
    for (StageRig* rig : {&d, &c}) rig->backward_input(weights, message);
    for (StageRig* rig : {&c, &d}) rig->backward_weight(apart);
    EXPECT_EQ(together, apart);
  }
}

TEST(TransformerStage, GradientsOfMicrobatchesAddUp) {
  const TransformerStage stage = make({0, 1, true, true});
  const std::vector<float> weights = lively_weights(stage);
  const StageResult first = lively_result(stage, 0);
  const StageResult second = lively_result(stage, 1);
  EXPECT_NE(first.gradients, second.gradients);
  EXPECT_NE(first.loss, second.loss);
  std::vector<float> sum(weights.size());
  for (const std::uint32_t microbatch : {0U, 1U}) {
    StageRig rig(stage, microbatch);
    rig.forward(weights, {});
    rig.backward_input(weights, {});
    rig.backward_weight(sum);
  }
  for (std::size_t i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(sum[i], first.gradients[i] + second.gradients[i], 1e-6) << i;
}

TEST(TransformerStage, HowLayersAreSplitIntoStagesChangesNoBit) {
  const TransformerStage whole = make({0, 2, true, true});
  const TransformerStage front = make({0, 1, true, false});
  const TransformerStage back = make({1, 1, false, true});
  const std::vector<float> all = initial_weights(whole);
  const std::vector<float> w0 = initial_weights(front), w1 = initial_weights(back);
  std::vector<float> joined = w0;
  joined.insert(joined.end(), w1.begin(), w1.end());
  EXPECT_EQ(joined, all);

  StageRig rig0(front), rig1(back), both(whole);
  both.forward(all, {});
  both.backward_input(all, {});
  std::vector<float> gradients(all.size()), g0(w0.size()), g1(w1.size());
  both.backward_weight(gradients);
  rig1.forward(w1, rig0.forward(w0, {}));
  rig0.backward_input(w0, rig1.backward_input(w1, {}));
  rig1.backward_weight(g1);
  rig0.backward_weight(g0);
  g0.insert(g0.end(), g1.begin(), g1.end());
  EXPECT_EQ(rig1.loss(), both.loss());
  EXPECT_EQ(g0, gradients);
}

TEST(TransformerStage, HasTheParametersOfTheModel) {
  TransformerSpec spec = small_model();
  spec.tie_embeddings = false;
  EXPECT_EQ(make({0, 2, true, true}).sizes().parameters, spec.parameters());
  EXPECT_EQ(make({1, 1, false, false}).sizes().parameters, spec.layer_parameters());
}

TEST(TransformerStage, StartsWithSmallNormalMatricesAndNeutralNorms) {
  TransformerSpec spec = small_model();
  spec.hidden_size = 96;
  const TransformerStage stage = make({0, 1, true, true}, Recompute::none, spec);
  const std::vector<float> weights = initial_weights(stage);
  for (const Parameter& p : stage.layout().parameters) {
    const std::vector<float> w = piece(weights, p);
    if (p.start != Parameter::Start::normal) {
      EXPECT_EQ(w, std::vector<float>(w.size(), p.start == Parameter::Start::one ? 1.0F : 0.0F));
      continue;
    }
    const auto n = static_cast<double>(w.size());
    const double mean = std::accumulate(w.begin(), w.end(), 0.0) / n;
    EXPECT_NEAR(mean, 0, 0.02 * 4 / std::sqrt(n)) << p.name;
    EXPECT_NEAR(std::sqrt(dot(w, w) / n), 0.02, 0.02 * 4 / std::sqrt(2 * n)) << p.name;
  }
}

TEST(TransformerStage, LargeMatricesAreFilledByPartsAsOneWouldBe) {
  // A number depends on its index alone, so a smaller matrix is the begin of a larger one; and
  // every part of a large one, each a thread's, is as random as any other.
  TransformerSpec spec = small_model();
  const auto up_of = [&](std::int64_t hidden, std::int64_t ffn) {
    spec.hidden_size = hidden;
    spec.ffn_hidden_size = ffn;
    const TransformerStage stage = make({1, 1, false, false}, Recompute::none, spec);
    const auto& all = stage.layout().parameters;
    return piece(initial_weights(stage), *std::ranges::find(all, "layer 1 up", &Parameter::name));
  };
  const std::vector<float> large = up_of(1536, 4099), small = up_of(12, 20);
  EXPECT_TRUE(std::ranges::equal(small, std::span(large).first(small.size())));
  const auto parts = large.size() / 100000;
  for (std::size_t i = 0; i < parts; ++i) {
    const auto part = std::span(large).subspan(i * 100000, 100000);
    const double squares = std::transform_reduce(
        part.begin(), part.end(), 0.0, std::plus<>(),
        [](float x) { return static_cast<double>(x) * static_cast<double>(x); });
    ASSERT_NEAR(std::sqrt(squares / 100000), 0.02, 0.0003) << i;
  }
}

std::int64_t buffer(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

TEST(TransformerStage, SizesAreTheFormulasOfTheHeader) {
  const std::int64_t rows = kSequences * 5, h = 12, f = 20, v = 17;
  const std::int64_t row_h = buffer(4 * rows * h), row_f = buffer(4 * rows * f);
  const std::int64_t qkv = buffer(4 * rows * 3 * h), stats = 2 * buffer(4 * rows);
  const std::int64_t scores = buffer(4 * kSequences * 3 * 5 * 5);
  const std::int64_t for_weight = 4 * row_h + row_f + 2 * stats;
  const std::int64_t gradients = 4 * row_h + row_f + qkv;  // the input's has its own buffer

  const StageSizes none = make({1, 1, false, false}).sizes();
  EXPECT_EQ(none.saved_bytes, qkv + scores);
  EXPECT_EQ(none.saved_for_weight_bytes, for_weight);
  EXPECT_EQ(none.kept_bytes, gradients);
  EXPECT_EQ(none.forward_workspace_bytes, row_f);
  EXPECT_EQ(none.backward_workspace_bytes, std::max(scores + row_h, row_f));
  EXPECT_EQ(none.input_bytes, 4 * rows * h);
  EXPECT_EQ(none.output_bytes, 4 * rows * h);
  EXPECT_TRUE(none.weight_needs_input);

  const StageSizes selective = make({1, 1, false, false}, Recompute::selective).sizes();
  EXPECT_EQ(selective.saved_bytes, qkv);
  EXPECT_EQ(selective.backward_workspace_bytes, 2 * scores + row_h);

  for (const Recompute mode : {Recompute::none, Recompute::selective}) {
    const StageSizes flash = make({1, 1, false, false}, mode, flash_model()).sizes();
    const std::int64_t sums = buffer(4 * rows * 3);
    EXPECT_EQ(flash.saved_bytes, qkv + sums);
    EXPECT_EQ(flash.saved_for_weight_bytes, for_weight);
    EXPECT_EQ(flash.backward_workspace_bytes, std::max(sums + row_h, row_f));
  }

  const StageSizes full = make({1, 2, false, false}, Recompute::full).sizes();
  EXPECT_EQ(full.saved_bytes, 0);
  EXPECT_EQ(full.saved_for_weight_bytes, row_h);
  EXPECT_EQ(full.kept_bytes, 2 * (gradients + for_weight));

  const StageSizes block = make({1, 3, false, false}, Recomputation::block(2)).sizes();
  EXPECT_EQ(block.saved_bytes, qkv + scores);
  EXPECT_EQ(block.saved_for_weight_bytes, 2 * row_h + for_weight);
  EXPECT_EQ(block.kept_bytes, 3 * gradients + 2 * for_weight);
  EXPECT_EQ(block.backward_workspace_bytes, scores + row_h + qkv + scores);

  const StageSizes groups = make({1, 4, false, false}, Recomputation::uniform(2)).sizes();
  EXPECT_EQ(groups.saved_bytes, 0);
  EXPECT_EQ(groups.saved_for_weight_bytes, row_h) << "of the second group; the first has a message";
  EXPECT_EQ(groups.kept_bytes, 4 * (gradients + for_weight) + 2 * row_h);
  EXPECT_EQ(groups.forward_workspace_bytes, 2 * row_h + for_weight + qkv + scores + row_f);
  EXPECT_EQ(groups.backward_workspace_bytes, scores + row_h + row_f + 2 * (qkv + scores));

  const StageSizes only = make({0, 1, true, true}).sizes();
  EXPECT_EQ(only.saved_for_weight_bytes, for_weight + 3 * row_h + stats + buffer(4 * rows * v));
  EXPECT_EQ(only.input_bytes, 0);
  EXPECT_EQ(only.output_bytes, 0);
  EXPECT_FALSE(only.weight_needs_input);
}

TEST(TransformerStage, SixteenBitElementsHalveTheMessages) {
  const TransformerStage stage(small_model(), {1, 1, false, false}, 2, Recompute::none, 2, {});
  EXPECT_EQ(stage.sizes().output_bytes, 2 * 2 * 5 * 12);
}

// The slow reference: the formulas of the header, one number at a time, in double.

using Matrix = std::vector<std::vector<double>>;

class SlowModel {
 public:
  SlowModel(const TransformerStage& stage, const std::vector<float>& weights,
            const TransformerSpec& spec)
      : stage_(stage), weights_(weights), spec_(spec) {}

  double loss() {
    double sum = 0;
    for (std::int64_t q = 0; q < kSequences; ++q) sum += sequence_loss(q);
    return sum / static_cast<double>(kSequences * spec_.seq_length);
  }

 private:
  double at(const std::string& name, std::int64_t index) const {
    const auto& all = stage_.layout().parameters;
    const auto p = std::ranges::find(all, name, &Parameter::name);
    return static_cast<double>(weights_.at(static_cast<std::size_t>(p->offset + index)));
  }
  Matrix linear(const Matrix& x, const std::string& name, std::size_t out) const {
    Matrix y(x.size(), std::vector<double>(out));
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (std::size_t o = 0; o < out; ++o) {
        y[r][o] = name == "head matrix" ? 0 : at(name + " bias", static_cast<std::int64_t>(o));
        for (std::size_t i = 0; i < x[r].size(); ++i)
          y[r][o] += x[r][i] * at(name, static_cast<std::int64_t>(o * x[r].size() + i));
      }
    }
    return y;
  }
  Matrix norm(Matrix x, const std::string& name) const {
    for (std::vector<double>& row : x) {
      const auto n = static_cast<double>(row.size());
      const double mean = std::accumulate(row.begin(), row.end(), 0.0) / n;
      double variance = 0;
      for (const double v : row) variance += (v - mean) * (v - mean) / n;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) * at(name + " gamma", index) +
                 at(name + " beta", index);
      }
    }
    return x;
  }
  Matrix attention(const Matrix& qkv) const {
    const auto h = static_cast<std::size_t>(spec_.hidden_size);
    const auto d = h / static_cast<std::size_t>(spec_.num_attention_heads);
    Matrix context(qkv.size(), std::vector<double>(h));
    for (std::size_t head = 0; head < h; head += d) {
      for (std::size_t q = 0; q < qkv.size(); ++q) {
        const std::size_t keys = spec_.family == Family::gpt ? q + 1 : qkv.size();
        std::vector<double> p(keys);
        double sum = 0;
        for (std::size_t k = 0; k < keys; ++k) {
          double score = 0;
          for (std::size_t i = head; i < head + d; ++i) score += qkv[q][i] * qkv[k][h + i];
          sum += p[k] = std::exp(score / std::sqrt(static_cast<double>(d)));
        }
        for (std::size_t k = 0; k < keys; ++k)
          for (std::size_t i = head; i < head + d; ++i)
            context[q][i] += p[k] / sum * qkv[k][2 * h + i];
      }
    }
    return context;
  }
  static Matrix plus(Matrix a, const Matrix& b) {
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < a[r].size(); ++i) a[r][i] += b[r][i];
    return a;
  }
  static Matrix gelu(Matrix z) {
    for (std::vector<double>& row : z)
      for (double& x : row)
        x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return z;
  }
  Matrix layer(const Matrix& x, const std::string& name) const {
    const auto h = static_cast<std::size_t>(spec_.hidden_size);
    const auto f = static_cast<std::size_t>(spec_.ffn_hidden_size);
    const Matrix qkv = linear(norm(x, name + " ln1"), name + " qkv", 3 * h);
    const Matrix x2 = plus(x, linear(attention(qkv), name + " projection", h));
    const Matrix z = linear(norm(x2, name + " ln2"), name + " up", f);
    return plus(x2, linear(gelu(z), name + " down", h));
  }
  double sequence_loss(std::int64_t sequence) const {
    const TokenSource source{.seed = kSeed,
                             .sequences = kSequences,
                             .seq_length = spec_.seq_length,
                             .vocab_size = spec_.vocab_size};
    const std::int64_t h = spec_.hidden_size;
    Matrix x(static_cast<std::size_t>(spec_.seq_length));
    for (std::int64_t i = 0; i < spec_.seq_length; ++i)
      for (std::int64_t c = 0; c < h; ++c)
        x[static_cast<std::size_t>(i)].push_back(
            at("embedding tokens", kernels::token(source, sequence, i) * h + c) +
            at("embedding positions", i * h + c));
    for (int i = 0; i < spec_.num_layers; ++i) x = layer(x, "layer " + std::to_string(i));
    const Matrix logits =
        linear(norm(x, "head ln"), "head matrix", static_cast<std::size_t>(spec_.vocab_size));
    double loss = 0;
    for (std::int64_t i = 0; i < spec_.seq_length; ++i) {
      const std::vector<double>& row = logits[static_cast<std::size_t>(i)];
      double sum = 0;
      for (const double l : row) sum += std::exp(l);
      loss +=
          std::log(sum) - row[static_cast<std::size_t>(kernels::token(source, sequence, i + 1))];
    }
    return loss;
  }

  const TransformerStage& stage_;
  const std::vector<float>& weights_;
  const TransformerSpec& spec_;
};

TEST(TransformerStage, LossIsThatOfASlowReferenceInDoublePrecision) {
  for (const TransformerSpec& spec :
       {small_model(), small_model(Family::bert), flash_model(), flash_model(Family::bert)}) {
    const TransformerStage stage = make({0, 2, true, true}, Recompute::none, spec);
    const std::vector<float> weights = lively_weights(stage);
    StageRig rig(stage);
    rig.forward(weights, {});
    EXPECT_NEAR(rig.loss(), SlowModel(stage, weights, spec).loss(), 1e-5);
  }
}

TEST(TransformerStage, LearnsWhichTokensAreFrequent) {
  const TransformerStage stage = make({0, 1, true, true});
  std::vector<float> weights = initial_weights(stage);
  HostMath math = immediate_math();
  const std::vector<float> none(weights.size());
  Memory master(weights), gradient(none), m(none), v(none);
  const auto mean_loss = [&] {
    double sum = 0;
    for (std::uint32_t i = 1000; i < 1050; ++i) {
      StageRig rig(stage, i);
      rig.forward(weights, {});
      sum += static_cast<double>(rig.loss()) / 50;
    }
    return sum;
  };
  EXPECT_NEAR(mean_loss(), std::log(17), 0.05);
  for (std::uint32_t step = 1; step <= 300; ++step) {
    gradient.set(run_stage(stage, weights, {}, {}, step).gradients);
    AdamwSettings settings;
    settings.learning_rate = 0.003;
    math.adamw_step(
        std::ssize(weights),
        {master.tensor(), master.tensor(), {}, gradient.tensor(), m.tensor(), v.tensor()}, settings,
        step);
    weights = master.values();
  }
  EXPECT_LT(mean_loss(), std::log(17) - 0.2);  // the tokens' entropy is 0.3 below
}

TEST(TransformerStage, SaysWhyAModelCannotBeExecuted) {
  EXPECT_EQ(why_not_executable(small_model()), "");
  EXPECT_EQ(why_not_executable(small_model(Family::bert)), "");
  EXPECT_NE(why_not_executable(small_model(Family::llama)).find("llama"), std::string::npos);
  TransformerSpec spec = small_model();
  spec.num_query_groups = 1;
  EXPECT_NE(why_not_executable(spec).find("num_query_groups"), std::string::npos);
  spec = small_model();
  spec.num_attention_heads = spec.num_query_groups = 5;
  EXPECT_NE(why_not_executable(spec).find("multiple"), std::string::npos);
  spec = flash_model();
  EXPECT_EQ(why_not_executable(spec), "");
  spec.hidden_size = 3 * 129;
  EXPECT_NE(why_not_executable(spec).find("flash_attention: false"), std::string::npos);
  spec.flash_attention = false;
  EXPECT_EQ(why_not_executable(spec), "");
  spec = expert_model(2, 9);
  EXPECT_EQ(why_not_executable(spec), "");
  spec.experts->shared_gate = true;
  EXPECT_NE(why_not_executable(spec).find("shared_expert_gate"), std::string::npos);
}

}  // namespace
}  // namespace penstock::transformer_stage_test
