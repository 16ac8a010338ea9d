// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/json.hpp"
#include "base/last_words.hpp"
#include "base/output_file.hpp"
#include "base/say.hpp"
#include "base/terminal.hpp"
#include "cli/options.hpp"
#include "cli/scenario_names.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>

namespace penstock {
namespace {

/// As a shell reads it back.
std::string shell_command(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::string command = "penstock";
  for (const std::string& word : words) {
    if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) {
      command += " " + word;
      continue;
    }
    command += " '";
    for (const char c : word) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += "'";
  }
  return command;
}

/// Returns the files that the options write.
std::vector<OutputFile> outputs_of(const CommandSpec& command, const Arguments& arguments) {
  if (arguments.value("to") == "chakra") return {};  // a prefix of names, of a file for each device
  std::vector<OutputFile> outputs;
  for (const OptionSpec& option : command.options)
    if (option.value == "FILE" && option.name != "result")
      for (const std::string& file : arguments.values(option.name))
        if (file.find("%K") == file.npos)  // a shard's number follows
          outputs.push_back({fmt::format("--{}", option.name), file});
  return outputs;
}

/// Notes what the command line may name to be read.
void note_inputs(const CommandSpec& command, const Arguments& arguments) {
  for (const std::string& input : arguments.positional) note_input(input);
  for (const OptionSpec& option : command.options)
    if (option.value != "FILE" || option.name == "result")
      for (const std::string& value : arguments.values(option.name)) note_input(value);
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) {
    say("{}", general_help());
    return exit_usage;
  }
  if (words[0] == "--help" || words[0] == "-h") {
    print_text(general_help());
    return exit_ok;
  }
  if (words[0] == "--version") {
    fmt::print("penstock {}\n", PENSTOCK_VERSION);
    return exit_ok;
  }
  std::size_t used = 0;
  const CommandSpec& command = find_command(words, used);
  Arguments arguments =
      parse_arguments(command, {words.begin() + static_cast<std::ptrdiff_t>(used), words.end()});
  if (arguments.flag("help")) {
    print_text(help_text(command));
    return exit_ok;
  }
  try {
    name_scenario_files(command, arguments);
  } catch (const InputError& error) {
    if (command.wrong_options == nullptr) throw;
    throw together(error, command.wrong_options(arguments));
  }
  const RunFiles files(outputs_of(command, arguments));
  note_inputs(command, arguments);
  arguments.command_line = shell_command(words);
  set_results_to_file(arguments.value("output", "-") != "-");
  return command.run(arguments);
}

int answer(const std::vector<std::string>& words) {
  try {
    return dispatch(words);
  } catch (const HelpWanted& help) {
    print_text(help.text);
    return exit_ok;
  }
}

/// `text`; for programs that call this one ($PENSTOCK_ERRORS=json), the last line of standard error
/// as JSON.
void complain(const char* kind, const std::string& text, const std::string& message,
              const Json& diagnostics = Json::array()) {
  const char* form = std::getenv("PENSTOCK_ERRORS");
  if (form == nullptr || std::string_view(form) != "json") return say("{}\n", text);
  const Json json{{"kind", kind}, {"message", message}, {"diagnostics", diagnostics}};
  say_text(json.dump() + "\n", Wrap::no);
}

std::string for_terminal(const InputError& error) {
  constexpr int kMost = 100, kLeast = 20, kBeside = 12;  // the line's number and what marks a cut
  const auto width = static_cast<int>(std::min<std::size_t>(terminal_width(STDERR_FILENO), 1000));
  return width == 0 ? error.what() : error.rendered(std::clamp(width - kBeside, kLeast, kMost));
}

Json diagnostics_json(const InputError& error) {
  Json list = Json::array();
  for (const Diagnostic& d : error.diagnostics())
    list.push_back({{"file", d.where.origin},
                    {"line", d.where.line},
                    {"column", d.where.column},
                    {"message", d.message},
                    {"rendered", render(d)}});
  return list;
}

}  // namespace

int run_command_line(const std::vector<std::string>& words) {
  try {
    const int code = answer(words);
    require_output();
    return code;
  } catch (const InputError& error) {
    complain("input", for_terminal(error), error.what(), diagnostics_json(error));
    return exit_usage;
  } catch (const InternalBug& bug) {
    complain(
        "bug",
        fmt::format("penstock: this is a bug: {}\nplease report it with the scenario", bug.what()),
        bug.what());
    return exit_internal_bug;
  } catch (const std::bad_alloc&) {
    say_no_memory("penstock");
    return exit_failed;
  } catch (const std::system_error& error) {  // fmt's, which does not say what it cannot write to
    const bool output = std::ferror(stdout) != 0;
    say("penstock: {}{}\n", output ? "cannot write 'standard output': " : "",
        output ? error.code().message() : error.what());
    return exit_failed;
  } catch (const std::exception& error) {
    complain("system", fmt::format("penstock: {}", error.what()), error.what());
    return exit_failed;
  }
}

}  // namespace penstock
