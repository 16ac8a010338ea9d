// SPDX-License-Identifier: Apache-2.0
// Vocabularies by the name of a tokenizer.
#include "scenarios/vocabularies.hpp"

#include <gtest/gtest.h>

namespace penstock::vocabularies_test {
namespace {

TEST(Vocabularies, AreToldByTheTokenizersName) {
  const struct {
    const char* name;
    std::optional<std::int64_t> vocabulary;
  } kCases[] = {
      {"Qwen/Qwen2.5-7B", 152'064},
      {"Qwen/Qwen2.5-3B-Instruct", 151'936},
      {"Qwen/Qwen3-8B", 151'936},
      {"meta-llama/Meta-Llama-3-8B", 128'256},
      {"meta-llama/Llama-3.1-70B-Instruct", 128'256},
      {"/data/models/llama3/tokenizer.model", 128'256},
      {"/data/Llama-2-7b-hf/tokenizer.model", 32'000},
      {"Llama2Tokenizer", 32'000},
      {"codellama/CodeLlama-7b-hf", 32'016},
      {"codellama/CodeLlama-7b-Python-hf", 32'000},
      {"codellama/CodeLlama-34b-Instruct-hf", 32'000},
      {"codellama/CodeLlama-70b-hf", 32'016},
      {"google/gemma-3-27b-it", 262'208},
      {"google/gemma-7b", 256'000},
      {"gpt2-vocab.json", 50'257},
      {"GPT2BPETokenizer", 50'257},
      {"mistralai/Mistral-7B-v0.3", 32'768},
      {"mistralai/Mistral-7B-v0.1", 32'000},
      {"THUDM/glm-4-9b", 151'552},
      {"deepseek-ai/DeepSeek-V3", 129'280},
      // A name that leaves the size open, or is another's beginning.
      {"Qwen/Qwen2.5", std::nullopt},
      {"Qwen/Qwen4-8B", std::nullopt},
      {"meta-llama/Llama-3.9", std::nullopt},
      {"mistralai/Mistral-7B", std::nullopt},
      {"acme/llama-300", std::nullopt},
      {"HuggingFaceTokenizer", std::nullopt},
      {"SentencePieceTokenizer", std::nullopt},
      {"tokenizer.model", std::nullopt},
      // Another language's words were added to them.
      {"hfl/chinese-llama-2-7b", std::nullopt},
      {"beomi/llama-2-ko-7b", std::nullopt},
      {"ckiplab/gpt2-base-chinese", std::nullopt},
      {"/data/zh/Llama-2-7b-hf/tokenizer.model", 32'000},
      {"", std::nullopt},
  };
  for (const auto& [name, vocabulary] : kCases) EXPECT_EQ(vocabulary_of(name), vocabulary) << name;
}

}  // namespace
}  // namespace penstock::vocabularies_test
