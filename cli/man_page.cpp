// SPDX-License-Identifier: Apache-2.0
#include "cli/man_page.hpp"

#include "cli/options.hpp"
#include "scenarios/shipped_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace penstock {
namespace {

/// Returns text as roff shows it: nothing that starts a request, and signs that can be copied.
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

/// Returns text in lines as mandoc likes them, where that changes nothing.
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

/// Returns a term, which is roff already, and what it is.
std::string item(const std::string& term, std::string_view meaning) {
  return fmt::format(".TP\n{}\n{}\n", term, filled(meaning));
}

/// Returns lines as they are.
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

}  // namespace

std::string man_page() {
  std::string commands_part, exit_status;
  for (const CommandSpec& command : commands()) commands_part += command_part(command);
  for (const auto& [code, meaning] : exit_meanings())
    exit_status += item(bold(std::to_string(code)), meaning);
  commands_part.pop_back();  // the text has the line's end
  exit_status.pop_back();
  return shipped_text(
      "cli/shipped/penstock.1",
      {{"version", PENSTOCK_VERSION}, {"commands", commands_part}, {"exit_status", exit_status}});
}

}  // namespace penstock
