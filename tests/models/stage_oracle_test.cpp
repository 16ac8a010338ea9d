// SPDX-License-Identifier: Apache-2.0
// What stages cost, compared with the oracle over random models, stacks, degrees and number types.
#include "tests/models/stage_oracle.hpp"

#include "models/stage_costs.hpp"
#include "tests/models/hand_made.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace penstock::stage_oracle_test {
namespace {

namespace oracle = stage_oracle;

/// One stage of a pipeline, as the library takes it, and what links it has.
struct Case {
  TransformerSpec model;
  DeviceSpec device;
  StageCostOptions options;
  std::vector<int> layers;
  std::size_t stage = 0;
  LinkSpec tensor_link, context_link;

  bool first() const { return stage == 0; }
  bool last() const { return stage + 1 == layers.size(); }
  StageCosts costs() const {
    StageCostOptions with = options;
    const int ranks = options.tensor.degree;  // an all-reduce goes round their ring twice
    with.tensor_sum = CollectivePrice{2 * (ranks - 1) * tensor_link.latency_s,
                                      2.0 * (ranks - 1) / ranks / tensor_link.bytes_per_s};
    return stage_costs(model, device, layers, with)[stage];
  }
};

/// By the definitions of the formats: scales of 32 bits for 128 elements, of 8 bits for 32 and 16.
oracle::Operands operands_of(const Case& c, ProductClass products) {
  const NumberType type = c.model.product_types.of(products);
  if (type == NumberType::model) return {};
  oracle::Operands of{.bytes = 1, .looks = 0, .casts_itself = false};
  std::string row = "fp8";
  if (type == NumberType::fp8_current || type == NumberType::fp8_rowwise) of.looks = 1;
  if (type == NumberType::fp8_block) of.bytes = 1 + 4.0 / 128, of.casts_itself = true;
  if (type == NumberType::mxfp8) of.bytes = 1 + 1.0 / 32;
  if (type == NumberType::nvfp4) of.bytes = 0.5 + 1.0 / 16, of.casts_itself = true, row = "nvfp4";
  const auto& [peaks, shares] = std::pair(c.device.peak_flops_per_s, c.device.product_share);
  const auto rate = [&](const std::string& name) {
    return peaks.at(name) * (shares.empty() ? 1 : shares.at(name));
  };
  of.slower = rate(c.model.compute_type) / rate(row);
  return of;
}

oracle::Model model_of(const Case& c) {
  const TransformerSpec& m = c.model;
  const LayerForm f = m.form();
  oracle::Model out;
  out.hidden = static_cast<double>(m.hidden_size);
  out.heads = static_cast<double>(m.num_attention_heads);
  out.kv_heads = static_cast<double>(m.num_query_groups);
  out.head_size = static_cast<double>(m.head_dim.value_or(m.hidden_size / m.num_attention_heads));
  out.columns = static_cast<double>(m.ffn_hidden_size);
  out.vocabulary = static_cast<double>(m.vocab_size);
  out.tokens = static_cast<double>(m.seq_length);
  out.causal = f.causal;
  out.gated = f.gated_mlp;
  out.dropout = f.dropout;
  out.flash = m.flash_attention;
  out.tied = m.tie_embeddings;
  out.biases = f.biases == Biases::all;
  out.learned_positions = f.positions == Positions::learned;
  out.rotary = f.positions == Positions::rotary;
  out.parallel_residual = f.parallel_residual;
  out.norms = f.norms;
  out.norm_vectors = f.norm == Norm::layer ? 2 : 1;
  out.element_bytes = m.compute_type == "fp32" ? 4 : 2;
  out.projections = operands_of(c, ProductClass::attention_projections);
  out.mlp = operands_of(c, ProductClass::mlp);
  out.logits = operands_of(c, ProductClass::head);
  out.attention = operands_of(c, ProductClass::attention);
  return out;
}

oracle::Device device_of(const Case& c) {
  const DeviceSpec& d = c.device;
  oracle::Device out;
  out.peak_flops = d.peak_flops_per_s.at(c.model.compute_type);
  for (const EfficiencyPoint& p : d.efficiency)
    out.efficiency.emplace_back(p.hidden_size, p.share_of_peak);
  out.matrix_efficiency = d.matrix_efficiency;
  out.attention_efficiency = d.attention_efficiency;
  out.streamed_bytes_per_s = d.memory_bytes_per_s * d.memory_efficiency;
  out.launch_s = d.launch_s;
  if (!d.product_share.empty()) out.product_share = d.product_share.at(c.model.compute_type);
  return out;
}

oracle::Stack stack_of(const Case& c) {
  const StackSpec& s = c.options.stack;
  return {.apart = s.matrix_efficiency > 0,
          .matrix_efficiency = s.matrix_efficiency,
          .attention_efficiency = s.attention_efficiency,
          .misaligned_attention = s.misaligned_attention,
          .misaligned_head = s.misaligned_head,
          .operand_traffic = s.operand_traffic,
          .forward_traffic = s.forward_traffic,
          .backward_traffic = s.backward_traffic,
          .accumulation = s.accumulation,
          .logits_traffic = s.logits_traffic,
          .forward_host_s = s.forward_host_s,
          .backward_host_s = s.backward_host_s,
          .tensor_host_s = s.tensor_host_s,
          .kept_per_hidden = s.kept_per_hidden,
          .kept_per_column = s.kept_per_column,
          .kept_whole = s.kept_whole,
          .logits_kept = s.logits_kept,
          .gathers_again = s.gathers_again,
          .in_place = s.cross_entropy == CrossEntropy::in_place};
}

oracle::Job job_of(const Case& c) {
  const Recomputation& again = c.options.recompute.at(c.stage);
  oracle::Job job;
  job.sequences = c.options.microbatch_size;
  job.tensor = c.options.tensor.degree;
  job.context = c.options.context;
  job.ulysses = c.options.ulysses;
  job.sequence_parallel = c.options.tensor.sequence;
  job.divided_messages = c.options.tensor.divided_messages;
  job.again = static_cast<oracle::Again>(again.granularity);
  job.parts.clear();
  for (const std::string_view name : names_of(again.parts)) job.parts.emplace(name);
  job.layers = c.layers[c.stage];
  const bool block = again.method == RecomputeMethod::block;
  job.first_layers = block ? again.layers : job.layers;
  job.group = block ? 1 : again.layers;
  job.first = c.first();
  job.last = c.last();
  job.weight_bytes = c.model.bytes.weights;
  job.tensor_link = {c.tensor_link.latency_s, c.tensor_link.bytes_per_s};
  job.context_link = {c.context_link.latency_s, c.context_link.bytes_per_s};
  return job;
}

constexpr std::array kKinds{oracle::Kind::forward, oracle::Kind::backward, oracle::Kind::input,
                            oracle::Kind::weight};

oracle::Played played(const Case& c, oracle::Kind kind) {
  return oracle::play(model_of(c), device_of(c), stack_of(c), job_of(c), kind);
}

/// What the library says that an op takes, its links for itself.
double seconds(const Case& c, std::size_t kind) {
  const StageCosts costs = c.costs();
  const double compute_s = costs.ops[kind].seconds;
  return compute_s + exposed_s(costs.ops[kind].recipe, compute_s, [&](const Segment& s) {
           const bool tensor = s.axis == Axis::tensor;
           const int ranks = tensor                    ? c.options.tensor.degree
                             : s.axis == Axis::ulysses ? c.options.ulysses
                                                       : c.options.context / c.options.ulysses;
           const LinkSpec& link = tensor ? c.tensor_link : c.context_link;
           const int steps = (s.what == Collective::all_reduce ? 2 : 1) * (ranks - 1);
           return steps * (s.calls * link.latency_s +
                           static_cast<double>(s.bytes) / ranks / link.bytes_per_s);
         });
}

// Random cases
// -------------------------------------------------------------------------------------

class Random {
 public:
  explicit Random(unsigned seed) : bits_(seed) {}
  int below(int n) { return static_cast<int>(bits_() % static_cast<unsigned>(n)); }
  bool flip() { return below(2) == 0; }
  template <class T>
  T among(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }
  double between(double low, double high) { return low + (high - low) * below(1001) / 1000; }

 private:
  std::mt19937 bits_;
};

TransformerSpec random_model(Random& r) {
  TransformerSpec t;
  t.family = r.among<Family>({Family::gpt, Family::bert, Family::llama});
  LayerForm form = form_of(t.family);
  if (r.below(4) == 0) form.parallel_residual = true;
  if (r.below(4) == 0) form.norms = form.parallel_residual ? 1 : 4;
  if (!(form == form_of(t.family))) t.own_form = form;
  t.num_attention_heads = r.among<std::int64_t>({8, 16, 24});
  t.num_query_groups = t.family == Family::llama ? 8 : t.num_attention_heads;
  const auto head = r.among<std::int64_t>({64, 100, 128});
  t.hidden_size = t.num_attention_heads * head;
  t.ffn_hidden_size = 4 * t.hidden_size;
  t.vocab_size = r.among<std::int64_t>({32000, 50257, 128256});
  t.seq_length = r.among<std::int64_t>({512, 2048, 8192, 32768});
  t.tie_embeddings = r.flip();
  t.flash_attention = r.flip();
  t.compute_type = r.among<std::string>({"fp16", "bf16", "fp32"});
  if (t.compute_type == "fp32") t.bytes = {4, 4, 8, 4, 4};
  if (r.flip()) return t;
  const auto type = [&] {
    return static_cast<NumberType>(static_cast<int>(NumberType::fp8) + r.below(6));
  };
  t.product_types = linear_layers_in(type());
  if (r.flip()) t.product_types.of(ProductClass::head) = type();
  if (r.flip()) t.product_types.of(ProductClass::attention) = type();
  return t;
}

StackSpec random_stack(Random& r) {
  StackSpec s;
  if (r.below(3) == 0) return s;
  const auto maybe = [&](double value) { return r.flip() ? value : 0; };
  s.matrix_efficiency = r.between(0.3, 0.9);
  s.attention_efficiency = maybe(r.between(0.1, 0.7));
  s.misaligned_attention = maybe(0.05);
  s.misaligned_head = maybe(0.4);
  s.operand_traffic = maybe(r.between(0.1, 1.5));
  s.forward_traffic = maybe(r.between(50, 130));
  s.backward_traffic = maybe(r.between(50, 150));
  s.accumulation = maybe(r.between(4, 12));
  s.logits_traffic = maybe(r.between(1, 60));
  s.forward_host_s = maybe(r.between(1e-4, 1e-2));
  s.backward_host_s = maybe(r.between(1e-4, 1e-2));
  s.tensor_host_s = maybe(r.between(1e-4, 1e-3));
  s.logits_kept = maybe(r.between(0.5, 10));
  s.cross_entropy = static_cast<CrossEntropy>(r.below(3));
  if (r.flip()) return s;
  s.kept_per_hidden = r.between(15, 45);
  s.kept_per_column = r.between(0, 5);
  s.kept_whole = maybe(0.2);
  s.gathers_again = r.flip();
  return s;
}

DeviceSpec random_device(Random& r) {
  DeviceSpec d = plain_device();
  for (auto& [type, rate] : d.peak_flops_per_s) rate *= r.between(10, 1000);
  d.efficiency = {{1024, r.between(0.2, 0.4)}, {4096, r.between(0.4, 0.6)}};
  if (r.flip()) d.memory_bytes_per_s = r.between(0.5e12, 4e12);
  if (r.below(3) == 0) d.matrix_efficiency = 0.7;
  if (r.below(3) == 0) d.attention_efficiency = 0.35;
  d.peak_flops_per_s["fp8"] = 2 * d.peak_flops_per_s.at("bf16");
  d.peak_flops_per_s["nvfp4"] = 4 * d.peak_flops_per_s.at("bf16");
  if (r.flip())
    d.product_share = {{"fp16", 0.7}, {"bf16", 0.7}, {"fp32", 0.9}, {"fp8", 0.6}, {"nvfp4", 0.4}};
  return d;
}

Recomputation random_recomputation(Random& r) {
  switch (r.below(5)) {
    case 0: return Recompute::none;
    case 1: {
      Recomputation parts = Recompute::selective;
      if (r.flip()) parts.parts.bits = static_cast<std::uint8_t>(1 + r.below(15));
      if (r.below(4) == 0) parts.parts = LayerPart::every_second_product;
      return parts;
    }
    case 2: return Recompute::full;
    case 3: return Recomputation::block(1 + r.below(6));
    default: return Recomputation::uniform(1 + r.below(6));
  }
}

Case random_case(unsigned seed) {
  Random r(seed);
  Case c;
  c.model = random_model(r);
  c.device = random_device(r);
  c.options.microbatch_size = r.among<double>({1, 2, 3});
  c.options.recompute = random_recomputation(r);
  c.options.tensor.degree = r.among<int>({1, 2, 4, 8});
  c.options.tensor.sequence = c.options.tensor.degree > 1 && r.flip();
  c.options.tensor.divided_messages = c.options.tensor.degree > 1 && r.flip();
  c.options.context = r.among<int>({1, 2, 4, 8});
  if (r.flip()) c.options.ulysses = std::min(c.options.context, r.among<int>({1, 2, 4}));
  c.options.stack = random_stack(r);
  c.tensor_link = {r.among<double>({0, 5e-6, 1e-3}), r.between(5e9, 4e11)};
  c.context_link = {r.among<double>({0, 5e-6, 1e-3}), r.between(5e8, 1e11)};
  c.layers = std::vector<int>(static_cast<std::size_t>(1 + r.below(3)));
  for (int& n : c.layers) n = r.below(7);
  c.layers.front() += 1;
  c.model.num_layers = 0;
  for (const int n : c.layers) c.model.num_layers += n;
  c.stage = static_cast<std::size_t>(r.below(static_cast<int>(c.layers.size())));
  // How many kernels parts of a layer launch nobody says: they never count where it runs again.
  if (c.options.recompute.at(0).granularity != Recompute::selective && r.flip())
    c.device.launch_s = r.between(1e-6, 1e-4);
  return c;
}

std::string text_of(const Case& c, unsigned seed) {
  return fmt::format(
      "seed {}: {} layers, stage {} of {}, t {}{}, c {} (u {}), {}, {}, stack {}, {}", seed,
      c.layers[c.stage], c.stage, c.layers.size(), c.options.tensor.degree,
      c.options.tensor.sequence ? " sequence parallel" : "", c.options.context, c.options.ulysses,
      recompute_text(c.options.recompute), c.model.compute_type,
      c.options.stack.takes_layers_apart() ? "apart" : "none",
      c.model.flash_attention ? "flash" : "no flash");
}

constexpr unsigned kCases = 3000;

/// Calls `check(case)` with as many random cases.
template <class Check>
void for_each_case(const Check& check) {
  for (unsigned seed = 1; seed <= kCases && !testing::Test::HasFailure(); ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(text_of(c, seed));
    check(c);
  }
}

void expect_close(double ours, double right, const std::string& what) {
  EXPECT_NEAR(ours, right, 1e-9 * std::abs(right) + 1e-300) << what;
}

TEST(StageOracle, AgreesOnArithmetic) {
  for_each_case([](const Case& c) {
    const StageCosts costs = c.costs();
    expect_close(costs[OpKind::forward].flops, played(c, oracle::Kind::forward).flops(false), "F");
    expect_close(costs[OpKind::backward].flops, played(c, oracle::Kind::backward).flops(false),
                 "B");
    expect_close(costs[OpKind::backward].again_flops, played(c, oracle::Kind::backward).flops(true),
                 "again");
    EXPECT_EQ(played(c, oracle::Kind::forward).flops(true), 0);
  });
}

TEST(StageOracle, AgreesOnSecondsOfComputing) {
  for_each_case([](const Case& c) {
    const StageCosts costs = c.costs();
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind)
      expect_close(costs.ops[kind].seconds, played(c, kKinds[kind]).computed_s(),
                   std::string(token(static_cast<OpKind>(kind))));
  });
}

TEST(StageOracle, AgreesOnWhatIsExchanged) {
  for_each_case([](const Case& c) {
    const StageCosts costs = c.costs();
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      auto right = played(c, kKinds[kind]).exchanged();
      std::map<std::pair<oracle::Group, oracle::What>, oracle::Played::Sum> ours;
      for (const Segment& s : costs.ops[kind].recipe.segments) {
        if (s.lane != Lane::exchange) continue;
        auto& sum = ours[{static_cast<oracle::Group>(s.axis), static_cast<oracle::What>(s.what)}];
        sum.bytes += static_cast<double>(s.bytes);
        sum.calls += s.calls;
      }
      EXPECT_EQ(ours.size(), right.size()) << kind;
      for (const auto& [what, sum] : ours) {
        EXPECT_EQ(sum.calls, right[what].calls) << kind;
        EXPECT_NEAR(sum.bytes, right[what].bytes, 1 + 1e-9 * sum.bytes) << kind;
      }
    }
  });
}

TEST(StageOracle, AgreesOnWhatOpsTakeWithWhatIsExchanged) {
  for_each_case([](const Case& c) {
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      const double right = played(c, kKinds[kind]).seconds(job_of(c));
      EXPECT_NEAR(seconds(c, kind), right, 1e-7 * right) << token(static_cast<OpKind>(kind));
    }
  });
}

/// Of narrow weights there are two copies, by rows and by columns, beside the wide ones or instead.
double narrow_weight_bytes(const Case& c) {
  const oracle::Model m = model_of(c);
  double bytes = 0;
  for (const auto& [module, count] : oracle::parameters(m, job_of(c))) {
    const bool of_mlp = module == "up" || module == "down";
    const oracle::Operands of = of_mlp                                      ? m.mlp
                                : module == "qkv" || module == "projection" ? m.projections
                                                                            : oracle::Operands{};
    if (of.bytes == 0) continue;
    // Biases stay wide; a count has them.
    const double columns = module == "qkv"  ? (m.heads + 2 * m.kv_heads) * m.head_size
                           : module == "up" ? (m.gated ? 2 : 1) * m.columns
                                            : m.hidden * c.options.tensor.degree;
    const double biases = m.biases ? c.layers[c.stage] * columns / c.options.tensor.degree : 0;
    const double instead = c.model.product_types.narrow_parameters ? c.model.bytes.weights : 0;
    bytes += (2 * of.bytes - instead) * (count - biases);
  }
  return bytes;
}

TEST(StageOracle, AgreesOnParameters) {
  for_each_case([](const Case& c) {
    double count = 0;
    for (const auto& [module, of_module] : oracle::parameters(model_of(c), job_of(c)))
      count += of_module;
    EXPECT_NEAR(static_cast<double>(c.costs().weight_bytes),
                c.model.bytes.weights * count + narrow_weight_bytes(c), 1);
  });
}

double kept_bytes(const Case& c, const std::string& without = "") {
  double sum = 0;
  for (const auto& [module, of] : oracle::kept(model_of(c), stack_of(c), job_of(c)))
    if (module != without) sum += of.until_input + of.until_weight;
  return sum;
}

TEST(StageOracle, AgreesOnBytesKept) {
  for_each_case([](const Case& c) {
    const StackSpec& stack = c.options.stack;
    if (stack.kept_per_hidden > 0 && c.model.own_form) return;  // beyond what the stack says
    EXPECT_NEAR(static_cast<double>(c.costs().activation_bytes), kept_bytes(c), 1);
  });
}

TEST(StageOracle, AgreesOnBytesThatWaitForW) {
  for_each_case([](const Case& c) {
    if (c.last()) return;  // what the LM head leaves is not compared here
    const StackSpec& stack = c.options.stack;
    if (stack.kept_per_hidden > 0 && c.model.own_form) return;  // beyond what the stack says
    const StageCosts costs = c.costs();
    Case none = c;
    none.options.recompute = Recomputation(Recompute::none);
    const double right = oracle::kept_after_input(model_of(c), stack_of(c), job_of(c));
    EXPECT_NEAR(static_cast<double>(costs.activation_after_input_bytes),
                std::min(right, kept_bytes(none, "embedding")), 1);
  });
}

// What has been wrong
// -------------------------------------------------------------------------------

/// Llama-3 8B with sequences of 32,768 tokens on H100 with a stack that halves causal attention.
Case long_sequences(int context, Recompute recompute) {
  Case c;
  c.model = llama_3_8b();
  c.model.seq_length = 32768;
  c.device = plain_device();
  c.device.peak_flops_per_s = {{"bf16", 989e12}, {"fp32", 67e12}};
  c.device.memory_bytes_per_s = 3.35e12;
  c.options.recompute = Recomputation(recompute);
  c.options.context = context;
  c.options.stack.matrix_efficiency = 0.6;
  c.options.stack.forward_traffic = 120;
  c.options.stack.backward_traffic = 137;
  c.tensor_link = c.context_link = {13.2e-6, 2.6e11};
  c.layers = {16, 16};
  return c;
}

TEST(StageOracle, TheRingHidesUnderWhatAttentionTakes) {
  const Case c = long_sequences(4, Recompute::none);
  double attention_s = 0;
  for (const oracle::Step& step : played(c, oracle::Kind::forward).steps)
    if (step.module == "attention") attention_s += step.compute_s;
  const StageCosts costs = c.costs();
  const std::vector<Segment>& segments = costs.ops[0].recipe.segments;
  ASSERT_EQ(segments.size(), 3U);
  ASSERT_EQ(segments[1].axis, Axis::context);
  expect_close(segments[0].share * costs[OpKind::forward].seconds, 0.75 * attention_s,
               "the window");
}

TEST(StageOracle, MoreRecomputationTakesNoLessTimeAndKeepsNoMore) {
  for_each_case([](const Case& c) {
    Case none = c, selective = c, full = c;
    none.options.recompute = Recomputation(Recompute::none);
    selective.options.recompute = Recomputation(Recompute::selective);
    full.options.recompute = Recomputation(Recompute::full);
    const std::vector<Case> cases = c.options.recompute.at(0).in_full()
                                        ? std::vector{none, c, full}
                                        : std::vector{none, selective, full};
    for (std::size_t i = 1; i < cases.size(); ++i) {
      for (const std::size_t kind : {std::size_t{1}, std::size_t{2}})
        EXPECT_GE(seconds(cases[i], kind), seconds(cases[i - 1], kind) * (1 - 1e-12)) << i;
      // Groups keep fewer inputs than single layers do, and make more at once.
      if (cases[i - 1].options.recompute.at(0).group(2) > 1) continue;
      EXPECT_LE(cases[i].costs().activation_bytes, cases[i - 1].costs().activation_bytes) << i;
    }
  });
}

TEST(StageOracle, EachPartMadeAgainTakesNoLessTimeAndKeepsNoMore) {
  for_each_case([](const Case& c) {
    Case before = c;
    before.options.recompute = Recomputation(Recompute::none);
    LayerParts parts;
    for (std::size_t i = 0; i <= kMegatronParts; ++i) {
      Case more = c;
      Recomputation again = i < kMegatronParts ? Recompute::selective : Recompute::full;
      parts = parts | LayerParts(static_cast<LayerPart>(i % kMegatronParts));
      again.parts = parts;
      more.options.recompute = again;
      for (const std::size_t kind :
           {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}})
        EXPECT_GE(seconds(more, kind), seconds(before, kind) * (1 - 1e-12)) << kind;
      EXPECT_LE(more.costs().activation_bytes, before.costs().activation_bytes);
      EXPECT_EQ(more.costs().activation_after_input_bytes,
                before.costs().activation_after_input_bytes);
      before = more;
    }
  });
}

TEST(StageOracle, EverySecondProductMadeAgainLiesBetweenNothingAndAll) {
  for_each_case([](const Case& c) {
    Case none = c, second = c, full = c;
    none.options.recompute = Recomputation(Recompute::none);
    full.options.recompute = Recomputation(Recompute::full);
    Recomputation again = Recompute::selective;
    again.parts = LayerPart::every_second_product;
    second.options.recompute = again;
    for (const std::size_t kind : {std::size_t{1}, std::size_t{2}}) {
      EXPECT_GE(seconds(second, kind), seconds(none, kind) * (1 - 1e-12)) << kind;
      EXPECT_LE(seconds(second, kind), seconds(full, kind) * (1 + 1e-12)) << kind;
    }
    EXPECT_GE(second.costs().activation_bytes, full.costs().activation_bytes);
  });
}

/// The same case with all of its products in the model's own type.
Case in_own_type(const Case& c) {
  Case own = c;
  own.model = c.model.in_own_type();
  return own;
}

TEST(StageOracle, NarrowProductsComputeNoLongerWhereMemoryTakesNoTime) {
  for_each_case([](const Case& c) {
    // Narrow gathers hide less of the host's launches than wide ones.
    if (c.model.product_types == ProductTypes{} || c.options.tensor.degree > 1) return;
    Case narrow = c, own = in_own_type(c);
    narrow.device.memory_bytes_per_s = own.device.memory_bytes_per_s = 0;
    for (const char* type : {"fp8", "nvfp4"}) {  // faster than any type of 16 or 32 bits
      narrow.device.peak_flops_per_s[type] = 1e18;
      if (!narrow.device.product_share.empty()) narrow.device.product_share[type] = 1;
    }
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind)
      EXPECT_LE(narrow.costs().ops[kind].seconds, own.costs().ops[kind].seconds * (1 + 1e-12))
          << kind;
  });
}

TEST(StageOracle, BytesOfNarrowOperandsAreWhatDependsOnTheType) {
  for_each_case([](const Case& c) {
    // fp8 beside a type of half its bytes: of what is more than without any, half is left.
    Case wide = in_own_type(c), fp8 = c, half = c;
    fp8.model.product_types = linear_layers_in(NumberType::fp8);
    half.model.product_types = linear_layers_in(NumberType::nvfp4);
    fp8.options.recompute = half.options.recompute = wide.options.recompute =
        Recomputation(Recompute::none);
    const double of_half = (0.5 + 1.0 / 16);
    const auto weights = [](const Case& of) {
      return static_cast<double>(of.costs().weight_bytes);
    };
    EXPECT_NEAR(weights(half) - weights(wide), of_half * (weights(fp8) - weights(wide)), 2);
    for (Case* of : {&fp8, &half}) of->model.product_types.narrow_parameters = true;
    EXPECT_LE(weights(fp8), weights(wide));
    if (c.layers[c.stage] > 0 && c.options.tensor.sequence) {
      const auto gathered = [](const Case& of) {
        return static_cast<double>(
            of.costs()[OpKind::forward].recipe.bytes(Axis::tensor, Collective::all_gather));
      };
      EXPECT_LT(gathered(half), gathered(fp8));
      EXPECT_LT(gathered(fp8), gathered(wide));
    }
  });
}

TEST(StageOracle, FirstAndLastLayersMayStayWide) {
  for_each_case([](const Case& c) {
    const Recomputation& again = c.options.recompute.at(c.stage);
    if (c.device.launch_s > 0 || again.method == RecomputeMethod::block || again.layers > 1) return;
    Case some = c, all = c;
    some.model.product_types.first_wide = some.model.product_types.last_wide = 1;
    all.model.product_types.first_wide = all.model.product_types.last_wide = 100;
    const Case own = in_own_type(c);
    const int n = c.layers[c.stage];
    const int wide = std::min(n, (c.first() ? 1 : 0) + (c.last() ? 1 : 0));
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      const auto seconds = [&](const Case& of) { return of.costs().ops[kind].seconds; };
      const auto layer = [&](Case of) {
        Case without = of;
        without.layers[c.stage] = 0;
        return n == 0 ? 0 : (seconds(of) - seconds(without)) / n;
      };
      if (c.device.memory_bytes_per_s == 0)
        expect_close(seconds(some), seconds(c) + wide * (layer(own) - layer(c)), "some");
    }
    if (c.first() && c.last()) {
      EXPECT_EQ(all.costs().activation_bytes, own.costs().activation_bytes);
    }
  });
}

TEST(StageOracle, ElementsOfTwiceTheBytesKeepAndExchangeTwice) {
  for_each_case([](const Case& c) {
    if (c.last() || c.model.form().dropout || c.model.compute_type != "fp32" ||
        c.model.product_types != ProductTypes{})
      return;
    Case half = c;
    half.model.compute_type = "bf16";
    half.model.product_types = {};
    const StageCosts ours = c.costs(), of_half = half.costs();
    const auto expect_twice = [](std::int64_t twice, std::int64_t once) {
      EXPECT_NEAR(static_cast<double>(twice), 2 * static_cast<double>(once), 2);
    };
    expect_twice(ours.activation_bytes, of_half.activation_bytes);
    expect_twice(ours.activation_after_input_bytes, of_half.activation_after_input_bytes);
    expect_twice(ours.output_bytes, of_half.output_bytes);
    expect_twice(ours.forward_workspace_bytes, of_half.forward_workspace_bytes);
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind)
      for (const Axis axis : kInnerAxes)
        for (const Collective what : kCollectives)
          expect_twice(ours.ops[kind].recipe.bytes(axis, what),
                       of_half.ops[kind].recipe.bytes(axis, what));
  });
}

}  // namespace
}  // namespace penstock::stage_oracle_test
