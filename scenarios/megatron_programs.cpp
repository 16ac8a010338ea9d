// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_programs.hpp"

#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "scenarios/shell_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

namespace penstock {
namespace {

/// Programs that train something else than a decoder, by a word of their names.
constexpr std::pair<std::string_view, const char*> kOtherPrograms[] = {
    {"t5", "T5 has an encoder, too"},
    {"ul2", "it has an encoder, too"},
    {"mamba", "Mamba's state-space layers are no attention"},
    {"hybrid", "its layers are of several kinds"},
    {"vlm", "it has a vision encoder, too"},
    {"llava", "it has a vision encoder, too"},
    {"multimodal", "it has encoders, too"},
    {"clip", "it has a vision encoder, too"},
    {"vision", "it sees images"},
    {"retro", "Retro retrieves and attends to chunks, too"},
    {"ict", "it trains two encoders"},
    {"realm", "it trains two encoders"},
    {"biencoder", "it trains two encoders"},
    {"dit", "it is a diffusion model"},
    {"sd", "it is a diffusion model"},
    {"flux", "it is a diffusion model"}};

/// Programs that pretrain nothing, by a word of their names.
constexpr std::pair<std::string_view, const char*> kOtherPurposes[] = {
    {"generation", "it generates text"},
    {"generate", "it generates text"},
    {"inference", "it generates text"},
    {"server", "it answers requests"},
    {"serve", "it answers requests"},
    {"evaluate", "it evaluates a model"},
    {"convert", "it converts a checkpoint"},
    {"converter", "it converts a checkpoint"},
    {"preprocess", "it prepares data"},
    {"quantize", "it quantizes a model"},
    {"prune", "it prunes a model"},
    {"export", "it exports a model"},
    {"dpo", "it compares with a second, frozen model"},
    {"orpo", "it learns from preferences"},
    {"kto", "it compares with a second, frozen model"},
    {"ppo", "reinforcement learning generates, too"},
    {"grpo", "reinforcement learning generates, too"},
    {"rl", "reinforcement learning generates, too"},
    {"rlhf", "reinforcement learning generates, too"},
    {"reward", "it trains a model of rewards"},
    {"distill", "a teacher runs beside it"},
    {"distillation", "a teacher runs beside it"}};

/// Flags that only such have.
constexpr std::pair<const char*, const char*> kOtherFlags[] = {
    {"decoder-num-layers", "it has an encoder and a decoder"},
    {"decoder-seq-length", "it has an encoder and a decoder"},
    {"hybrid-override-pattern", "its layers are of several kinds"},
    {"hybrid-layer-pattern", "its layers are of several kinds"},
    {"is-hybrid-model", "its layers are of several kinds"},
    {"vision-model-type", "it has a vision encoder, too"},
    {"retro-add-retriever", "Retro retrieves and attends to chunks, too"},
    {"retro-project-dir", "Retro retrieves and attends to chunks, too"},
    {"ict-head-size", "it trains two encoders"},
    {"language-model-type", "it has a vision encoder, too"},
    {"perform-rl-step", "reinforcement learning generates, too"},
    {"load-teacher", "a teacher runs beside it"},
    {"num-layers-teacher", "a teacher runs beside it"},
    {"hidden-size-teacher", "a teacher runs beside it"},
    {"export-kd-teacher-load", "a teacher runs beside it"},
    {"kd-teacher-load", "a teacher runs beside it"}};

bool has_word(const std::string& name, std::string_view word) {
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const auto is_letter = [&](std::size_t i) {
      return i < name.size() && std::isalnum(static_cast<unsigned char>(name[i])) != 0;
    };
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

const char* reason_in(std::span<const std::pair<std::string_view, const char*>> table,
                      const std::string& program) {
  for (const auto& [word, reason] : table)
    if (has_word(program, word)) return reason;
  return nullptr;
}

/// Returns why a program pretrains no decoder; null where its name does not say so.
const char* other_kind(const std::string& program) {
  const char* model = reason_in(kOtherPrograms, program);
  return model != nullptr ? model : reason_in(kOtherPurposes, program);
}

bool trains_gpt(const std::string& program) {
  if (other_kind(program) != nullptr) return false;
  return has_word(program, "gpt") || has_word(program, "gpt2") || has_word(program, "gpt3") ||
         program.find("llama") != program.npos;
}

}  // namespace

std::vector<std::string> programs_in(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    std::string line = std::string(text.substr(at, end - at));
    std::ranges::transform(line, line.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == line.npos || line[first] == '#') continue;
    for (std::size_t py = line.find(".py"); py != line.npos; py = line.find(".py", py + 1)) {
      std::size_t begin = py;
      while (begin > 0 && (is_name(line[begin - 1]) || line[begin - 1] == '-')) --begin;
      if (begin == py) continue;
      std::size_t folder = begin;  // of examples/multimodal/train.py it says what is trained
      if (begin > 0 && line[begin - 1] == '/' && line.compare(begin, 8, "pretrain") != 0) {
        --folder;
        while (folder > 0 && (is_name(line[folder - 1]) || line[folder - 1] == '-')) --folder;
      }
      out.push_back(line.substr(folder, py - folder));
    }
  }
  return out;
}

void refuse_other_models(const std::vector<std::string>& programs, ImportNotes& notes,
                         const std::string& origin) {
  std::string what, why;
  const bool gpt = std::ranges::any_of(programs, trains_gpt);
  for (const std::string& program : programs)
    if (const char* reason = other_kind(program); !gpt && what.empty() && reason != nullptr)
      what = program + ".py", why = reason;
  for (const auto& [flag, reason] : kOtherFlags)
    if (what.empty() && notes.mentions(flag)) what = "--" + std::string(flag), why = reason;
  const std::string layers = notes.mentions("spec") ? notes.word("spec", "") : "";
  if (what.empty() && layers.find("mamba") != layers.npos)
    what = "--spec " + layers, why = "Mamba's state-space layers are no attention";
  for (const std::string& program : programs)
    if (!gpt && what == program + ".py" && reason_in(kOtherPrograms, program) == nullptr)
      throw InputError(origin, fmt::format("'{}' is no pretraining of a GPT: {}. Import the script "
                                           "that pretrains the model",
                                           printable(what), why));
  if (!what.empty())
    throw InputError(
        origin,
        fmt::format("'{}' trains no decoder-only GPT: {}. Such a model is not read from flags; "
                    "give its costs (`penstock init` shows the keys of a model by costs) or a "
                    "table of its measured layers (`penstock import layers.csv`)",
                    printable(what), why));
  const auto is_named = [](const std::string& program) {
    return trains_gpt(program) || has_word(program, "bert") ||
           program.find("pretrain") != program.npos;
  };
  if (!programs.empty() && std::ranges::none_of(programs, is_named))
    notes.assume(fmt::format("'{}.py' pretrains a GPT (its name does not say what it does)",
                             as_comment(programs.front())));
}

bool is_started_by_deepspeed(std::string_view command) {
  constexpr std::string_view kName = "deepspeed";
  command = command.substr(0, command.find(".py"));
  for (std::size_t at = command.find(kName); at != command.npos; at = command.find(kName, at + 1)) {
    const std::size_t end = at + kName.size();
    const bool begins = at == 0 || std::string_view(" \t\n/").find(command[at - 1]) != command.npos;
    const bool ends = end == command.size() ||
                      std::string_view(" \t\n\\").find(command[end]) != command.npos ||
                      command.substr(end).starts_with(".launcher");
    if (begins && ends) return true;
  }
  return false;
}

bool trains_bert(const std::vector<std::string>& programs, ImportNotes& notes) {
  const auto is_bert = [](const std::string& program) { return has_word(program, "bert"); };
  return std::ranges::none_of(programs, trains_gpt) &&
         (std::ranges::any_of(programs, is_bert) ||
          notes.word("tokenizer-type", "").starts_with("BertWordPiece"));
}

}  // namespace penstock
