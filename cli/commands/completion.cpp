// penstock completion bash: from the same table as the parser.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "cli/options.hpp"
#include "scenarios/keys.hpp"
#include "schedules/generator.hpp"

#include <fmt/format.h>

#include <set>

namespace penstock {
namespace {

std::string words(std::string_view choices) {
  std::string out(choices);
  for (char& c : out) c = c == '|' ? ' ' : c;
  return out;
}

/// `case` arms: for "command" and "command:option", the words that may follow.
std::string arms() {
  std::string out;
  for (const CommandSpec& command : commands()) {
    std::string options = "--help";
    for (const OptionSpec& option : command.options) {
      options += fmt::format(" --{}", option.name);
      if (option.choices.find('|') != std::string_view::npos) {
        out += fmt::format("    '{}:--{}') words='{}' ;;\n", command.name, option.name,
                           words(option.choices));
      } else if (option.choices == "file") {
        out += fmt::format("    '{}:--{}') files=1 ;;\n", command.name, option.name);
      } else if (option.choices == "key") {
        std::set<std::string> keys;
        for (const char* section : {"scenario", "pipeline"}) {
          for (const std::string& key : keys_of(section)) keys.insert(key + "=");
        }
        if (command.name == "schedule show" || command.name == "schedule export") {
          for (const char* key :
               {"forward", "backward", "backward_input", "backward_weight", "step", "transfer"})
            keys.insert(std::string(key) + "=");
        }
        out += fmt::format("    '{}:--{}') words='{}' ;;\n", command.name, option.name,
                           fmt::join(keys, " "));
      }
    }
    std::string positional;
    if (command.completes == "schedule")
      positional = fmt::format("{}", fmt::join(schedule_names(), " "));
    if (command.completes.find('|') != std::string_view::npos || command.completes == "bash")
      positional = words(command.completes);
    out += fmt::format("    '{}:') words='{} {}'{} ;;\n", command.name, options, positional,
                       command.completes == "file" ? " files=1" : "");
  }
  return out;
}

}  // namespace

int run_completion(const Arguments& arguments) {
  if (arguments.positional[0] != "bash")
    throw InputError("penstock completion",
                     "only bash is known, got '" + arguments.positional[0] + "'");
  std::set<std::string> first, pairs;
  for (const CommandSpec& command : commands()) {
    const std::string name(command.name);
    const std::size_t space = name.find(' ');
    first.insert(name.substr(0, space));
    if (space != std::string::npos) pairs.insert(name);
  }
  std::string second;
  for (const std::string& group : first) {
    std::string inside;
    for (const std::string& pair : pairs) {
      if (pair.starts_with(group + " ")) inside += pair.substr(group.size() + 1) + " ";
    }
    if (!inside.empty()) second += fmt::format("    {}) words='{}' ;;\n", group, inside);
  }
  fmt::print(R"(# bash completion of penstock: source <(penstock completion bash)
_penstock() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words='' files=''
  local command=${{COMP_WORDS[1]}}
  if [[ $current == = ]]; then current=''; fi  # bash splits --format=json at the sign
  if [[ $previous == = ]]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$current"))
    return
  fi
  if (( COMP_CWORD == 2 )); then
    case $command in
{}    esac
    if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$current")); return; fi
  fi
  case "$command ${{COMP_WORDS[2]}}" in {}) command="$command ${{COMP_WORDS[2]}}" ;; esac
  local option=''
  [[ $previous == --* ]] && option=$previous
  local place
  for place in "$command:$option" "$command:"; do
    case $place in
{}    esac
    [[ -n $words$files ]] && break
  done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ -n $files ]] && COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _penstock penstock ./penstock
)",
             fmt::join(first, " "), second, fmt::format("'{}'", fmt::join(pairs, "' | '")), arms());
  return exit_ok;
}

}  // namespace penstock
