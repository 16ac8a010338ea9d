// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_programs.hpp"

#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "scenarios/import_tables.hpp"
#include "scenarios/shell_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace penstock {
namespace {

bool has_word(const std::string& name, std::string_view word) {
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const auto is_letter = [&](std::size_t i) {
      return i < name.size() && std::isalnum(static_cast<unsigned char>(name[i])) != 0;
    };
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

/// Returns what a table says of a program by a word of its name; empty where it says nothing.
std::string reason_in(const char* table, const std::string& program) {
  for (const auto& [word, reason] : import_table("megatron", table).entries)
    if (has_word(program, word.text)) return reason.text;
  return "";
}

/// Returns why a program pretrains no decoder; empty where its name does not say so.
std::string other_kind(const std::string& program) {
  const std::string model = reason_in("other_programs", program);
  return !model.empty() ? model : reason_in("other_purposes", program);
}

bool trains_gpt(const std::string& program) {
  if (!other_kind(program).empty()) return false;
  return has_word(program, "gpt") || has_word(program, "gpt2") || has_word(program, "gpt3") ||
         program.find("llama") != program.npos;
}

}  // namespace

bool pretrains(const std::string& command) {
  return std::ranges::all_of(programs_in(command), [](const std::string& program) {
    return reason_in("other_purposes", program).empty();
  });
}

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
    if (const std::string reason = other_kind(program); !gpt && what.empty() && !reason.empty())
      what = program + ".py", why = reason;
  for (const auto& [flag, reason] : import_table("megatron", "other_flags").entries)
    if (what.empty() && notes.mentions(flag.text)) what = "--" + flag.text, why = reason.text;
  const std::string layers = notes.mentions("spec") ? notes.word("spec", "") : "";
  if (what.empty() && layers.find("mamba") != layers.npos)
    what = "--spec " + layers, why = "Mamba's state-space layers are no attention";
  for (const std::string& program : programs)
    if (!gpt && what == program + ".py" && reason_in("other_programs", program).empty())
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
