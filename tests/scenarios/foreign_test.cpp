// SPDX-License-Identifier: Apache-2.0
// Configurations of Hugging Face's models have the parameters that were published, to 0.05 %; what
// is no dense decoder is refused, or a stand-in that says what is missing.
#include "base/json.hpp"
#include "models/shape_keys.hpp"
#include "scenarios/file_import.hpp"
#include "scenarios/scenario.hpp"
#include "tests/shared.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace penstock::foreign_test {
namespace {

namespace fs = std::filesystem;

/// A file of its own for a text, gone at the end.
class File {
 public:
  explicit File(const std::string& text) {
    path_ = fs::temp_directory_path() / fmt::format("foreign-{}-{}.json", ::getpid(), ++count_);
    std::ofstream(path_) << text;
  }
  ~File() { fs::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

ForeignModel read(const std::string& text) { return foreign_model(File(text).path()); }

std::string refused(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void expect_published(const TransformerSpec& model, double published, const std::string& name) {
  EXPECT_NEAR(static_cast<double>(model.parameters()) / published, 1, 0.0005)
      << name << ": " << model.parameters() << ", not " << published;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A second source was found for the layers and vocabularies of 31 of them: in litgpt/config.py of
// github.com/Lightning-AI/litgpt (Qwen2.5, Qwen3, Llama-3.2, Mistral-Small, gemma, gemma-2,
// gemma-3, phi-2, Phi-3-mini, Phi-4-mini, falcon-40b, pythia-6.9b, OLMo-7B, OLMo-2-13B,
// stablelm-3b-4e1t), and in copies of their config.json (gpt-j-6b, internlm2-7b, internlm3-8b,
// glm-4-9b, Baichuan2-7B, SmolLM3-3B, Seed-OSS-36B, ERNIE-4.5-0.3B, granite-3.0-8b, Apertus-8B,
// Olmo-3-7B). None was found for the others, among them Yi-34B, mpt-7b, starcoder and command-r.
TEST(ForeignModels, HaveTheirPublishedParameters) {
  const char* source = std::getenv("PENSTOCK_SOURCE");
  const fs::path path =
      fs::path(source != nullptr ? source : ".") / "tests/scenarios/foreign/published.json";
  const Json models = Json::parse(text_of(path));
  EXPECT_GT(models.size(), 30);
  for (const auto& [name, model] : models.items())
    expect_published(read(model["config"].dump()).model, model["parameters"].get<double>(), name);
}

struct SharedModel {
  const char* name;
  double parameters;
};

TEST(ForeignModels, TheSharedDenseOnesHaveTheirPublishedParameters) {
  const fs::path folder = shared_folder() / "cases" / "hf";
  SKIP_WITHOUT_SHARED(folder);
  for (const SharedModel& m :
       std::initializer_list<SharedModel>{{"qwen3-8b", 8'190'735'360},
                                          {"olmo-2-7b", 7'298'617'344},
                                          {"phi-4", 14'659'507'200},
                                          {"mistral-nemo-12b", 12'247'782'400},
                                          {"gemma-2-9b", 9'241'705'984},
                                          {"gemma-3-27b", 27'432'406'640},
                                          {"gpt-neox-20b", 20'554'567'680},
                                          {"falcon-7b", 6'921'720'704},
                                          {"starcoder2-15b", 15'957'889'024},
                                          {"bloom-7b1", 7'069'016'064},
                                          {"command-r", 34'980'831'232},
                                          {"gpt2-xl", 1'557'611'200},
                                          {"mistral-7b-v0.1", 7'241'732'096}}) {
    const ForeignModel nearest = foreign_model((folder / (m.name + std::string(".json"))).string());
    expect_published(nearest.model, m.parameters, m.name);
    EXPECT_EQ(nearest.missing, m.name == std::string("gemma-3-27b")
                                   ? "the vision encoder's compute and activations"
                                   : "")
        << m.name;
  }
}

/// Returns whether a number is a published one such as "12.9B", as far as that has digits.
bool rounds_to(double number, const std::string& published) {
  const auto point = published.find('.');
  const auto digits = point == std::string::npos ? 0 : published.size() - point - 2;
  const double unit = 1e9 * std::pow(10, -static_cast<double>(digits));
  return std::abs(number - 1e9 * std::stod(published)) <= 0.5 * unit * (1 + 1e-9);
}

// Totals are those of the published weights (safetensors of huggingface.co; of the GLMs without
// the layer that predicts a further token), active parameters those of model cards and papers:
// Mixtral arXiv:2401.04088, DeepSeek-MoE arXiv:2401.06066, DeepSeek-V2 arXiv:2405.04434,
// DeepSeek-V3 README_WEIGHTS.md beside its weights (36.6B with the head, without the embedding),
// gpt-oss arXiv:2508.10925, table 1 (the same), OLMoE arXiv:2409.02060. `left_out`: 1 counts no
// embedding, 2 nothing of the vision encoder.
TEST(ForeignModels, MixturesHaveTheirPublishedParametersAndActiveOnes) {
  const char* source = std::getenv("PENSTOCK_SOURCE");
  const fs::path path =
      fs::path(source != nullptr ? source : ".") / "tests/scenarios/foreign/mixtures.json";
  const Json models = Json::parse(text_of(path));
  EXPECT_GE(models.size(), 20);
  for (const auto& [name, row] : models.items()) {
    const ForeignModel read_one = read(row["config"].dump());
    const TransformerSpec& model = read_one.model;
    expect_published(model, row["parameters"].get<double>(), name);
    for (const std::string& note : read_one.notes)
      EXPECT_EQ(note.find("did you mean"), std::string::npos) << name << ": " << note;
    if (!row.contains("active")) continue;
    const int left_out = row["left_out"].get<int>();
    const auto active = static_cast<double>(
        model.active_parameters() - (left_out == 1 ? model.vocab_size * model.hidden_size : 0) -
        (left_out == 2 ? model.extra_parameters.value_or(0) : 0));
    EXPECT_TRUE(rounds_to(active, row["active"].get<std::string>()))
        << name << ": " << active << ", not " << row["active"].dump();
  }
}

TEST(ForeignModels, TheSharedMixturesHaveTheirPublishedParameters) {
  const fs::path folder = shared_folder() / "cases" / "hf";
  SKIP_WITHOUT_SHARED(folder);
  for (const SharedModel& m :
       std::initializer_list<SharedModel>{{"mixtral-8x7b", 46'702'792'704},
                                          {"qwen3-30b-a3b", 30'532'122'624},
                                          {"gpt-oss-20b", 20'914'757'184},
                                          {"deepseek-v3", 671'026'419'200}}) {
    const ForeignModel read_one =
        foreign_model((folder / (m.name + std::string(".json"))).string());
    expect_published(read_one.model, m.parameters, m.name);
    EXPECT_EQ(read_one.missing, "") << m.name;
  }
}

/// The keys of a small llama, with others.
std::string llama(const std::string& more, const std::string& type = "llama") {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_act": "silu", "rms_norm_eps": 1e-5, "hidden_size": 1024,
          "intermediate_size": 2816, "num_hidden_layers": 24, "num_attention_heads": 16,
          "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096{}}})",
      type, more);
}

TEST(ForeignModels, WhatPredictsAFurtherTokenIsNamedButLeftOut) {
  const ForeignModel m = read(llama(R"(, "num_nextn_predict_layers": 1)", "llama"));
  EXPECT_EQ(m.model.mtp_layers, 0);
  EXPECT_TRUE(std::ranges::any_of(m.notes, [](const std::string& note) {
    return note.find("mtp_layers: 1 adds them") != note.npos;
  })) << fmt::format("{}", fmt::join(m.notes, "\n"));
}

TEST(ForeignModels, AWindowIsKeptWhereItIsUsed) {
  const auto window = [](const std::string& more, const std::string& type = "mistral") {
    const TransformerSpec m = read(llama(more, type)).model;
    return std::pair(m.sliding_window.value_or(0), m.full_attention_every.value_or(0));
  };
  using Pair = std::pair<std::int64_t, int>;
  EXPECT_EQ(window(R"(, "sliding_window": 1024)"), Pair(1024, 0));
  EXPECT_EQ(window(R"(, "sliding_window": null)"), Pair(0, 0));
  const char* const off = R"(, "use_sliding_window": false, "sliding_window": 1024)";
  EXPECT_EQ(window(off, "qwen2"), Pair(0, 0));
  EXPECT_EQ(window(R"(, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 24)",
                   "qwen2"),
            Pair(0, 0));
  EXPECT_EQ(window(R"(, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 18)",
                   "qwen2"),
            Pair(0, 0));
  EXPECT_EQ(window(R"(, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 0)",
                   "qwen2"),
            Pair(64, 0));
  EXPECT_EQ(window(R"(, "sliding_window": 64)", "gemma2"), Pair(64, 2));
  EXPECT_EQ(window(R"(, "sliding_window": 64, "sliding_window_pattern": "LLLG")", "exaone4"),
            Pair(64, 4));
  std::string layers;
  for (int i = 0; i < 24; ++i)
    layers += fmt::format("{}\"{}_attention\"", i > 0 ? ", " : "", i % 4 == 3 ? "full" : "sliding");
  EXPECT_EQ(window(fmt::format(R"(, "sliding_window": 64, "layer_types": [{}])", layers), "olmo3"),
            Pair(64, 4));
  EXPECT_NE(refused(llama(R"(, "layer_types": ["linear_attention"])")).find("'linear_attention'"),
            std::string::npos);
  EXPECT_NE(refused(llama(fmt::format(R"(, "layer_types": [{}, "full_attention"])", layers)))
                .find("'layer_types' lists 25 layers, but the model has 24"),
            std::string::npos);
}

TEST(ForeignModels, AWindowOfTheLastLayersIsLeftOutWithANote) {
  const ForeignModel m = read(llama(
      R"(, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 18)", "qwen2"));
  ASSERT_FALSE(m.notes.empty());
  EXPECT_NE(m.notes[0].find("the sliding window of 6 of its 24 layers is left out"),
            std::string::npos);
}

TEST(ForeignModels, HybridsAreRefusedEvenWithExpertsOrALength) {
  const std::string experts = R"(, "num_experts": 8, "num_experts_per_tok": 2)";
  for (const char* type : {"jamba", "qwen3_next", "bamba", "zamba", "zamba2", "falcon_h1",
                           "granitemoehybrid", "minimax", "nemotron_h", "recurrent_gemma", "rwkv"})
    for (const std::string& more : {std::string(), experts})
      EXPECT_NE(refused(llama(more, type)).find("a state-space or hybrid model"), std::string::npos)
          << type << more;
  for (const char* key : {"mamba_d_state", "attn_layer_period", "full_attention_interval"})
    EXPECT_NE(refused(llama(experts + fmt::format(R"(, "{}": 4)", key), "novelty"))
                  .find("models are not modelled"),
              std::string::npos)
        << key;
}

TEST(ForeignModels, OneExpertAndWhatIsFalseAreNoNews) {
  const ForeignModel m =
      read(llama(R"(, "num_experts": 1, "num_experts_per_tok": 1, "moe_topk": 1, "norm_type": "rms",
                 "position_embedding_type": "rope_gptj", "use_cla": false, "lm_head_bias": false,
                 "original_max_position_embeddings": 2048)",
                 "hunyuan_v1_dense"));
  EXPECT_FALSE(m.model.experts);
  EXPECT_EQ(m.missing, "");
  for (const std::string& note : m.notes)
    EXPECT_EQ(note.find("not understood"), std::string::npos) << note;
  const ForeignModel slip = read(llama(R"(, "tie_word_embedings": false)"));
  EXPECT_TRUE(std::ranges::any_of(slip.notes, [](const std::string& note) {
    return note.find("tie_word_embedings (did you mean 'tie_") != note.npos;
  })) << fmt::format("{}", fmt::join(slip.notes, "\n"));
}

TEST(ForeignModels, AMixtureWithinAMultimodalModelIsRead) {
  std::string inner =
      llama(R"(, "num_local_experts": 16, "num_experts_per_tok": 1)", "llama4_text");
  const ForeignModel m = read(fmt::format(
      R"({{"model_type": "llama4", "vision_config": {{"hidden_size": 8}}, "text_config": {}}})",
      inner));
  ASSERT_TRUE(m.model.experts);
  EXPECT_EQ(m.model.experts->width, 2816);
  EXPECT_EQ(m.model.experts->shared_width, 2816);
  EXPECT_EQ(m.missing, "the vision encoder");
}

TEST(ForeignModels, LayersWithExpertsAreThoseThatItsKeysSay) {
  const auto layers = [](const std::string& more, const std::string& type = "qwen3_moe") {
    const ForeignModel m =
        read(llama(R"(, "num_experts": 8, "num_experts_per_tok": 2)" + more, type));
    return std::pair(m.model.experts->first_dense, m.model.experts->every);
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(layers(""), Pair(0, 1));
  EXPECT_EQ(layers(R"(, "decoder_sparse_step": 2)"), Pair(1, 2));
  EXPECT_EQ(layers(R"(, "mlp_only_layers": [0, 1, 2])"), Pair(3, 1));
  EXPECT_EQ(layers(R"(, "first_k_dense_replace": 3, "moe_layer_freq": 1)", "deepseek"), Pair(3, 1));
  EXPECT_EQ(layers(R"(, "interleave_moe_layer_step": 2)", "llama4_text"), Pair(1, 2));
  EXPECT_EQ(layers(R"(, "moe_layers": [3, 7, 11, 15, 19, 23])", "llama4_text"), Pair(3, 4));
  const std::string odd = R"(, "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [5])";
  EXPECT_NE(refused(llama(odd, "qwen3_moe")).find("'mlp_only_layers' gives experts to layers that"),
            std::string::npos);
}

TEST(ForeignModels, ExpertsThatAreNotSaidAreAskedFor) {
  for (const auto& [type, keys] : std::initializer_list<std::pair<const char*, const char*>>{
           {"mixtral", "num_local_experts, num_experts_per_tok"},
           {"qwen3_moe", "num_experts, num_experts_per_tok"},
           {"olmoe", "num_experts, num_experts_per_tok"},
           {"deepseek_v2", "n_routed_experts, num_experts_per_tok"},
           {"deepseek_v3", "moe_intermediate_size, kv_lora_rank, qk_rope_head_dim"}})
    EXPECT_NE(refused(llama("", type)).find(keys), std::string::npos) << refused(llama("", type));
  EXPECT_NE(refused(llama(R"(, "moe_intermediate_size": 64)", "qwen3_moe"))
                .find("it does not say num_experts, num_experts_per_tok, without which"),
            std::string::npos);
  EXPECT_NE(refused(llama(R"(, "num_experts": 8)", "qwen3_moe"))
                .find("'num_experts' needs 'experts_per_token', too"),
            std::string::npos);
  EXPECT_NE(refused(llama(R"(, "num_experts": 8, "num_experts_per_tok": 9)", "qwen3_moe"))
                .find("a token cannot use 9 of 8 experts"),
            std::string::npos);
}

TEST(ForeignModels, KeysOfQwensAreUnderstood) {
  for (const auto& [more, type] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"(, "use_flash_attn": "auto")", "qwen"},
           {R"(, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632)",
            "qwen2_moe"},
           {R"(, "vision_config": {"depth": 32}, "vision_start_token_id": 5)", "qwen2_5_vl"}}) {
    const ForeignModel m = read(llama(more, type));
    for (const std::string& note : m.notes)
      EXPECT_EQ(note.find("not understood"), std::string::npos) << note;
    EXPECT_EQ(m.missing.empty(), type != std::string("qwen2_5_vl")) << type;
  }
}

TEST(ForeignModels, BiasesAreThoseThatItsKeysSay) {
  const auto biases = [](const std::string& more, const std::string& type = "llama") {
    return kBiasesNames[static_cast<std::size_t>(read(llama(more, type)).model.form().biases)];
  };
  EXPECT_EQ(biases(""), "none");
  EXPECT_EQ(biases(R"(, "attention_bias": true)"), "attention");
  EXPECT_EQ(biases(R"(, "attention_bias": true, "mlp_bias": true)"), "all");
  EXPECT_EQ(biases("", "qwen2"), "qkv");
  EXPECT_EQ(biases(R"(, "attention_bias": true)", "glm4"), "qkv");
  EXPECT_EQ(biases(R"(, "use_qkv_bias": true)", "stablelm"), "qkv");
  EXPECT_EQ(biases(R"(, "use_bias": false)", "starcoder2"), "none");
}

TEST(ForeignModels, AnUnknownTypeIsTakenByItsKeysWhereAllAreKnown) {
  const ForeignModel taken = read(llama("", "novelty"));
  EXPECT_EQ(taken.model.family, Family::llama);
  ASSERT_FALSE(taken.notes.empty());
  EXPECT_NE(taken.notes[0].find("'novelty' is not known; all of its keys are a llama's"),
            std::string::npos);
  EXPECT_NE(refused(llama(R"(, "hyper_gate": 3)", "novelty")).find("hyper_gate"),
            std::string::npos);
  const std::string gelu = R"({"model_type": "novelty", "hidden_act": "gelu", "hidden_size": 8})";
  EXPECT_NE(refused(gelu).find("'novelty' is not known (known: gpt2"), std::string::npos);
}

TEST(ForeignModels, PublishedParametersFilesAreRead) {
  const std::string llama3 =
      R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
         "multiple_of": 1024, "ffn_dim_multiplier": 1.3, "norm_eps": 1e-5, "rope_theta": 5e5,
         "max_seq_len": 8192})";
  EXPECT_EQ(read(llama3).model.parameters(), 8'030'261'248);
  const std::string nemo =
      R"({"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32,
         "n_kv_heads": 8, "norm_eps": 1e-5, "vocab_size": 131072, "max_seq_len": 8192})";
  EXPECT_EQ(read(nemo).model.parameters(), 12'247'782'400);
}

TEST(ForeignModels, WhatIsNoDenseDecoderIsRefused) {
  for (const auto& [text, why] : std::initializer_list<std::pair<std::string, const char*>>{
           {R"({"model_type": "t5", "d_model": 512})", "an encoder-decoder"},
           {R"({"model_type": "mamba", "hidden_size": 512})", "a state-space or hybrid model"},
           {llama(R"(, "state_size": 16)"), "state-space models are not modelled"},
           {llama(R"(, "is_encoder_decoder": true)"), "encoder-decoder models are not modelled"},
           {R"({"hidden_act": "silu", "hidden_size": 64})", "without a 'model_type'"}})
    EXPECT_NE(refused(text).find(why), std::string::npos) << text << refused(text);
}

TEST(ForeignModels, AVisionEncoderIsCountedOrMissing) {
  const std::string vision = R"(, "vision_config": {"model_type": "other_vision"})";
  const ForeignModel other = read(llama(vision));
  EXPECT_EQ(other.missing, "the vision encoder");
  EXPECT_FALSE(other.model.extra_parameters);
}

TEST(ForeignModels, EveryOtherModelInAMapIsMissing) {
  const std::string inner = llama("");
  const auto missing = [&](const std::string& parts) {
    return read(R"({"model_type": "voxtral", "text_config": )" + inner + parts + "}").missing;
  };
  EXPECT_EQ(missing(R"(, "audio_config": {"hidden_size": 1280})"), "the audio encoder");
  EXPECT_EQ(
      missing(R"(, "vision_config": {"hidden_size": 8}, "qformer_config": {}, "x_config": {})"),
      "the vision encoder, the Q-Former, the model in x_config");
  EXPECT_EQ(missing(R"(, "quantization_config": {"quant_method": "fp8"})"), "");
  EXPECT_EQ(read(llama(R"(, "audio_config": {"d_model": 1280})")).missing, "the audio encoder");
  for (const auto& [map, named] : std::initializer_list<std::pair<std::string, const char*>>{
           {R"("llm_config": )" + inner, "'llm_config'"},
           {R"("language_config": )" + inner, "'language_config'"},
           {R"("thinker_config": {"text_config": )" + inner + "}",
            "'thinker_config.text_config'"}}) {
    const std::string why = refused(R"({"model_type": "other", )" + map + "}");
    EXPECT_NE(why.find(std::string("its language model is in ") + named), std::string::npos) << why;
  }
}

TEST(ForeignModels, ASlipOfASizeAndAMissingLengthAreErrorsInTheFilesTerms) {
  std::string text = llama("");
  text.replace(text.find("num_hidden_layers"), 17, "num_hiden_layers");
  EXPECT_NE(
      refused(text).find("'num_hiden_layers' is not known; did you mean 'num_hidden_layers'?"),
      std::string::npos)
      << refused(text);
  text = llama("");
  text.replace(text.find(", \"max_position_embeddings\": 4096"), 33, "");
  EXPECT_NE(refused(text).find("it does not say max_position_embeddings"), std::string::npos)
      << text << refused(text);
}

TEST(ForeignModels, LayersOfAKindAreOneError) {
  std::string types = R"(, "layer_types": ["full_attention")";
  for (int i = 1; i < 24; ++i) types += R"(, "linear_attention")";
  const std::string why = refused(llama(types + "]"));
  const std::size_t first = why.find("layers of 'linear_attention' are not modelled (23 of 24");
  ASSERT_NE(first, std::string::npos) << why;
  EXPECT_EQ(why.find("linear_attention' are not", first + 20), std::string::npos) << why;
}

TEST(ForeignModels, KeysWithoutAMeaningTakeOneShortLineAndSlipsAreNamed) {
  const ForeignModel m = read(llama(
      R"(, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "rope_theta": 1e4,
         "num_key_value_head": 8)"));
  ASSERT_EQ(m.notes.size(), 2);
  EXPECT_NE(m.notes[0].find("5 of its keys change nothing that is predicted"), std::string::npos);
  EXPECT_NE(m.notes[1].find("num_key_value_head (did you mean 'num_key_value_heads'?)"),
            std::string::npos);
}

TEST(ForeignModels, AnImportHasEveryFact) {
  const std::string text = llama(R"(, "sliding_window": 64, "head_dim": 128)", "gemma2");
  const File file(text);
  const ForeignModel nearest = foreign_model(file.path());
  const std::string scenario = import_model(file.path()) + "";
  const File imported("");
  std::ofstream(imported.path() + ".yaml") << scenario;
  const TransformerSpec again = load_model(imported.path() + ".yaml");
  fs::remove(imported.path() + ".yaml");
  EXPECT_EQ(shape_keys(again), shape_keys(nearest.model));
  EXPECT_EQ(again.form().norms, 4);
  EXPECT_EQ(again.sliding_window, 64);
}

}  // namespace
}  // namespace penstock::foreign_test
