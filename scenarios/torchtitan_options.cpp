// SPDX-License-Identifier: Apache-2.0
#include "scenarios/torchtitan_options.hpp"

#include "base/error.hpp"
#include "base/text.hpp"
#include "scenarios/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace penstock {
namespace {

/// Up to a comment; quotes are taken off.
std::string toml_value(std::string_view text) {
  const std::string value(trimmed(text));
  if (value.empty() || (value[0] != '"' && value[0] != '\''))
    return std::string(trimmed(std::string_view(value).substr(0, value.find('#'))));
  return value.substr(1, value.find(value[0], 1) - 1);
}

/// Of a line of TOML: brackets and braces that it opens, less those that it closes, outside of
/// texts and comments.
int brackets_opened(std::string_view line) {
  int opened = 0;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '#') {
      break;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else {
      opened += (c == '[' || c == '{' ? 1 : 0) - (c == ']' || c == '}' ? 1 : 0);
    }
  }
  return opened;
}

/// Of TOML what these files use: `[section]` and `key = value`, a list also over several lines (a
/// whole library for that takes seconds to compile).
std::vector<ScriptOption> toml_options(std::string_view text) {
  std::vector<ScriptOption> options;
  std::string section;
  int open = 0;
  for (int line = 1; !text.empty(); ++line) {
    const std::string one(trimmed(text.substr(0, text.find('\n'))));
    text.remove_prefix(
        std::min(text.size(), text.find('\n') == text.npos ? text.size() : text.find('\n') + 1));
    const auto equals = one.find('=');
    if (open > 0) {
      open += brackets_opened(one);
      options.back().values.back() += one;
    } else if (one.starts_with('[')) {
      section = one.substr(1, one.find(']') - 1) + ".";
    } else if (!one.starts_with('#') && equals != one.npos) {
      options.push_back({section + std::string(trimmed(std::string_view(one).substr(0, equals))),
                         {toml_value(std::string_view(one).substr(equals + 1))},
                         line});
      open = brackets_opened(std::string_view(one).substr(equals + 1));
    }
  }
  return options;
}

bool of_titan(const ScriptOption& option) {
  return option.name.starts_with("parallelism.") || option.name.starts_with("training.") ||
         option.name.starts_with("activation_checkpoint.") ||
         option.name.starts_with("experimental.pipeline");
}

/// Throws InputError where a key stands twice, as TOML has it.
void refuse_twice(const std::vector<ScriptOption>& options, const std::string& origin) {
  std::map<std::string, int> lines;
  for (const ScriptOption& option : options)
    if (const auto [first, is_new] = lines.try_emplace(option.name, option.line); !is_new)
      throw InputError(fmt::format("{}:{}", origin, option.line),
                       fmt::format("'{}' stands on line {} already, which TOML refuses",
                                   printable(option.name), first->second));
}

/// Is it an option by which a launch is one of torchtitan's?
bool is_titan_flag(const std::string& name) {
  return name.find('.') != name.npos || name == "config-file" || name == "config";
}

/// What a script's --job.config_file says, which its flags go over.
std::vector<ScriptOption> options_of_file(const std::vector<ScriptOption>& flags,
                                          const std::string& origin) {
  const auto named = std::ranges::find_if(flags, [](const ScriptOption& o) {
    return (o.name == "job.config_file" || o.name == "config_file") && !o.values.empty();
  });
  if (named == flags.end()) return {};
  const std::string& name = named->values.front();
  std::filesystem::path path = std::filesystem::path(origin).parent_path() / name;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    path = path.parent_path() / std::filesystem::path(name).filename();
    const std::filesystem::path beside =
        std::filesystem::path(origin).parent_path() / path.filename();
    if (std::filesystem::is_regular_file(beside, ignored)) path = beside;
  }
  if (!std::filesystem::is_regular_file(path, ignored))
    throw InputError(origin, fmt::format("the file of --job.config_file, '{}', is not beside it: "
                                         "put it there, or import that file instead",
                                         printable(name)));
  Documents documents;
  return toml_options(documents.text(path.string()));
}

/// Appends what --define says of how many GPUs a launch takes, and of options by their names, where
/// no flag says it; NGPU is the number of a node in torchtitan's run_train.sh.
void add_defined(const ScriptSurroundings& defined, std::vector<ScriptOption>& options) {
  for (const auto& [name, value] : defined) {
    const std::string option = name == "NGPU" ? "nproc_per_node" : name;
    const bool known = option == "nnodes" || option == "nproc_per_node" || of_titan({option, {}});
    if (!known || std::ranges::find(options, option, &ScriptOption::name) != options.end())
      continue;
    ScriptOption& added = options.emplace_back();
    added.name = option;
    added.values = {value};
    added.shown = fmt::format("--define {}", name);
  }
}

}  // namespace

std::vector<ScriptOption> titan_options(const std::string& text, const std::string& origin,
                                        const ScriptSurroundings& defined) {
  std::vector<ScriptOption> options = toml_options(text);
  std::erase_if(options,
                [](const ScriptOption& o) { return o.name.find_first_of("-$ ") != o.name.npos; });
  const bool is_toml = std::ranges::any_of(options, of_titan);
  if (is_toml) refuse_twice(options, origin);
  std::vector<ScriptOption> flags =
      is_toml ? std::vector<ScriptOption>{}
              : script_launch(text, origin, defined, is_titan_flag).options;
  for (ScriptOption& flag : flags) std::ranges::replace(flag.name, '-', '_');
  if (!is_toml) options = options_of_file(flags, origin);
  for (ScriptOption& flag : flags) options.push_back(std::move(flag));
  const auto names = [](const ScriptOption& o) { return of_titan(o) || o.name == "config"; };
  if (std::ranges::none_of(options, names))
    throw InputError(origin,
                     "has none of torchtitan's options, such as [parallelism] "
                     "pipeline_parallel_degree or --training.local_batch_size");
  add_defined(defined, options);
  return options;
}

std::vector<std::int64_t> titan_split(std::int64_t layers, std::int64_t stages,
                                      std::int64_t first_less, std::int64_t last_less) {
  const std::int64_t all = layers + first_less + last_less;
  if (all / stages < std::max(first_less, last_less)) return {};
  std::vector<std::int64_t> split;
  for (std::int64_t i = 0; i < stages; ++i)
    split.push_back(all / stages + (i < all % stages ? 1 : 0));
  split.front() -= first_less;
  split.back() -= last_less;
  return split;
}

}  // namespace penstock
