// SPDX-License-Identifier: Apache-2.0
// The command line: one table of commands and options feeds the parser, `--help`, the completion
// and the documentation, so they cannot disagree.
#pragma once

#include "base/error.hpp"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct OptionSpec {
  std::string_view name;
  std::string_view value;  ///< placeholder of its value; empty: a flag
  std::string_view help;
  std::string_view choices = {};  ///< allowed values, separated by '|'; or what completes it
  bool repeated = false;
  std::string_view short_name = {};
  std::string_view endings = {};  ///< of a file's name, separated by '|'; empty: any
  std::string_view sets = {};     ///< the scenario's key that it stands for: --set KEY=VALUE
};

/// Thrown when help was asked for where no command is complete; the text goes to standard output.
struct HelpWanted {
  std::string text;
};

/// A parsed command line.
class Arguments {
 public:
  bool flag(std::string_view name) const { return options.contains(std::string(name)); }
  std::string value(std::string_view name, std::string_view otherwise = {}) const;
  std::vector<std::string> values(std::string_view name) const;

  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>> options;
  std::map<std::string, std::string>
      meant_by;              ///< of values of `set`: the option that stands for it
  std::string command_line;  ///< as typed
  /// Options whose values are none of the choices, and why; of commands that say more themselves.
  std::vector<std::pair<std::string, std::string>> wrong;
};

struct CommandSpec {
  std::string_view name;  ///< "simulate", "schedule show"
  std::string_view summary;
  std::string_view positional;  ///< as shown in the usage line: "SCENARIO", "A B [C...]"
  int min_positional, max_positional;
  std::vector<OptionSpec> options;
  std::string_view examples;  ///< lines
  int (*run)(const Arguments&);
  /// What its positional arguments are, in their order, the last word for all further ones: file,
  /// scenario, model (or a scenario), schedule, command, or choices separated by '|'.
  std::string_view completes = {};
  bool checks_choices = false;  ///< says itself what is wrong with them, with what else is wrong
  /// What is wrong with the options of a command whose scenario nobody knows.
  std::vector<Diagnostic> (*wrong_options)(const Arguments&) = nullptr;
};

struct ExitMeaning {
  int code;
  std::string_view meaning;
};

std::span<const CommandSpec> commands();
std::span<const ExitMeaning> exit_meanings();

/// "list", "show" ... of "schedule"; nothing of what is no group.
std::vector<std::string_view> subcommands(std::string_view group);

/// The word of `completes` for an argument, from 0 on.
std::string_view argument_kind(const CommandSpec& command, std::size_t position);

/// The command that the words begin with ("schedule", "show", ...), and how many words it took.
/// Throws InputError with a suggestion.
const CommandSpec& find_command(const std::vector<std::string>& words, std::size_t& used);

/// Throws InputError: unknown options (with a suggestion), missing values, wrong choices.
Arguments parse_arguments(const CommandSpec& command, const std::vector<std::string>& words);

std::string help_text(const CommandSpec& command);
std::string group_help(std::string_view group);
std::string general_help();

// One function per command.
int run_simulate(const Arguments&);
int run_sweep(const Arguments&);
int run_merge(const Arguments&);
int run_compare(const Arguments&);
int run_replay(const Arguments&);
int run_train(const Arguments&);
int run_export(const Arguments&);
int run_plan(const Arguments&);
/// What is wrong with its options, and with the cluster that they name, whatever the model.
std::vector<Diagnostic> wrong_plan_options(const Arguments&);
int run_calibrate(const Arguments&);
int run_validate(const Arguments&);
int run_schedule_list(const Arguments&);
int run_schedule_show(const Arguments&);
int run_schedule_export(const Arguments&);
int run_schedule_check(const Arguments&);
int run_import(const Arguments&);
int run_trace_check(const Arguments&);
int run_list(const Arguments&);
int run_init(const Arguments&);
int run_doctor(const Arguments&);
int run_serve(const Arguments&);
int run_completion(const Arguments&);
int run_help(const Arguments&);

}  // namespace penstock
