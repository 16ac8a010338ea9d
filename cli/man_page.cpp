// SPDX-License-Identifier: Apache-2.0
#include "cli/man_page.hpp"

#include "cli/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace penstock {
namespace {

/// When the text in this file was last changed; what comes from the tables is of the version.
constexpr const char* kWritten = "2026-11-22";

/// Text as roff shows it: nothing that starts a request, and signs that can be copied.
std::string plain(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      case '"': out += "\\(dq"; break;
      default: out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain(text) + "\\fR"; }

/// Broken into lines as mandoc likes them, where that changes nothing.
std::string filled(std::string_view text) {
  constexpr std::size_t kColumns = 70;
  std::string out;
  while (text.size() > kColumns) {
    const std::size_t space = text.rfind(' ', kColumns);
    if (space == std::string_view::npos) break;
    out += plain(text.substr(0, space)) + "\n";
    text.remove_prefix(space + 1);
  }
  return out + plain(text);
}

std::string section(std::string_view name, std::string_view text = {}) {
  return fmt::format(".SH {}\n{}{}", name, filled(text), text.empty() ? "" : "\n");
}

std::string paragraph(std::string_view text) { return fmt::format(".PP\n{}\n", filled(text)); }

/// A term, which is roff already, and what it is.
std::string item(const std::string& term, std::string_view meaning) {
  return fmt::format(".TP\n{}\n{}\n", term, filled(meaning));
}

/// Lines as they are.
std::string verbatim(std::string_view lines) {
  std::string text = ".PP\n.RS 4\n.nf\n";
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    text += plain(line) + "\n";
  }
  return text + ".fi\n.RE\n";
}

std::string option_item(const OptionSpec& option) {
  std::string term =
      option.short_name.empty() ? "" : bold(fmt::format("-{}", option.short_name)) + ", ";
  term += bold(fmt::format("--{}", option.name));
  if (!option.value.empty()) term += " " + italic(option.value);
  std::string meaning(option.help);
  if (option.choices.find('|') != std::string_view::npos)
    meaning += fmt::format(" [{}]", option.choices);
  return item(term, meaning);
}

std::string command_part(const CommandSpec& command) {
  std::string summary = fmt::format("{}.", command.summary);
  summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
  std::string text = fmt::format(".SS penstock {}\n{}\n", command.name, filled(summary));
  text += fmt::format(".PP\n{}", bold(fmt::format("penstock {}", command.name)));
  if (!command.positional.empty()) text += " " + italic(command.positional);
  text += command.options.empty() ? "\n" : " [options]\n";
  for (const OptionSpec& option : command.options) text += option_item(option);
  return command.examples.empty() ? text : text + verbatim(command.examples);
}

std::string exit_status() {
  std::string text = section("EXIT STATUS");
  for (const auto& [code, meaning] : exit_meanings())
    text += item(bold(std::to_string(code)), meaning);
  return text;
}

std::string environment() {
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"PENSTOCK_HOME",
       "The folder with the shipped models/ and scenarios/. Default: share/penstock beside the "
       "folder of the program, else the sources that it was built from."},
      {"PENSTOCK_MODULES",
       "A folder that is searched first for modules: libpenstock_simgrid.so (the engine simgrid), "
       "libpenstock_cuda.so (the backend cuda)."},
      {"PENSTOCK_ERRORS",
       "json: what is wrong is a line of JSON, the last of standard error: kind, message, "
       "diagnostics (file, line, column, message, rendered)."},
      {"PENSTOCK_RUN", "The program that executes, instead of the penstock-run beside penstock."},
      {"COLUMNS",
       "Characters in a line of texts and tables; by default as many as the terminal has, and in "
       "pipes "
       "and files lines stay whole."},
      {"NO_COLOR", "Set to anything: no colours."}};
  std::string text = section("ENVIRONMENT");
  for (const auto& [name, meaning] : kVariables) text += item(bold(name), meaning);
  return text;
}

std::string shipped_files() {
  constexpr std::pair<const char*, const char*> kFiles[] = {
      {"share/penstock/scenarios/*.yaml", "What commands know by name: penstock list scenarios."},
      {"share/penstock/scenarios/scenario.schema.json",
       "The JSON Schema of scenarios, for editors."},
      {"share/penstock/models/*.yaml",
       "Models; below it devices/, clusters/ and stacks/, each number with its source."},
      {"lib/penstock/*.so", "Modules, which are loaded when they are needed."},
      {"share/doc/penstock/", "What every key, field and file format means."}};
  std::string text =
      section("FILES", "All of them under the folder (/usr, say) that penstock was installed in.");
  for (const auto& [name, meaning] : kFiles) text += item(italic(name), meaning);
  return text;
}

std::string opening() {
  return fmt::format(".TH PENSTOCK 1 \"{}\" \"penstock {}\" \"User Commands\"\n", kWritten,
                     PENSTOCK_VERSION) +
         section("NAME") + "penstock \\- simulator of pipeline\\-parallel training\n" +
         section("SYNOPSIS") + bold("penstock") + " " + italic("COMMAND") +
         " [arguments] [options]\n.br\n" + bold("penstock help") + " [" + italic("COMMAND") + "]\n";
}

std::string description() {
  return section("DESCRIPTION",
                 "penstock predicts how a pipeline-parallel training job will behave: will it fit, "
                 "how fast will it be, which schedule, and why. Then the same schedule can be "
                 "executed for real and the two timelines compared.") +
         paragraph(
             "A scenario is a YAML file that names a model, a cluster and a schedule, or the name "
             "of a shipped one; a file of that name goes first. Results go to standard output, all "
             "else to standard error. Options may stand anywhere behind the command.");
}

constexpr const char* kExamples =
    "penstock simulate gpt-2.2b-2bw --report run.html\n"
    "penstock compare gpt-2.2b-2bw gpt-2.2b-flush gpt-2.2b-gpipe\n"
    "penstock init my.yaml && penstock simulate my.yaml\n"
    "penstock sweep my.yaml --over stages=2,4,8 --over microbatch_size=1:8:*2\n"
    "penstock plan gpt-3.8b --cluster p3.16xlarge-x8 --batch 512";

}  // namespace

std::string man_page() {
  std::string text = ".\\\" Written by `penstock help --man` from the table of commands.\n" +
                     opening() + description() + section("COMMANDS");
  for (const CommandSpec& command : commands()) text += command_part(command);
  text += section("OPTIONS") +
          item(bold("-h") + ", " + bold("--help"), "Of every command: what it takes.") +
          item(bold("--version"), "The version.");
  text += exit_status() + environment() + shipped_files();
  text +=
      section("EXAMPLES", "To begin with; others stand with each command.") + verbatim(kExamples);
  return text +
         section("SEE ALSO",
                 "penstock-run --help: executes, on a bare machine, what penstock export has "
                 "written.");
}

}  // namespace penstock
