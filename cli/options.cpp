// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/suggest.hpp"
#include "base/terminal.hpp"

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace penstock {
namespace {

namespace po = boost::program_options;

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string boost_name(const OptionSpec& option) {
  std::string name(option.name);
  if (!option.short_name.empty()) name += "," + std::string(option.short_name);
  return name;
}

po::options_description describe(const CommandSpec& command) {
  po::options_description description;
  auto add = description.add_options();
  for (const OptionSpec& option : command.options) {
    if (option.value.empty()) {
      add(boost_name(option).c_str(), "");
    } else {
      add(boost_name(option).c_str(), po::value<std::vector<std::string>>()->composing(), "");
    }
  }
  add("help,h", "");
  add("positional", po::value<std::vector<std::string>>(), "");
  return description;
}

/// Notes what is none of an option's choices; throws InputError unless the command does.
void check_choices(const CommandSpec& command, Arguments& arguments) {
  const auto refuse = [&](const std::string& flag, const std::string& why) {
    arguments.wrong.emplace_back(flag, why);
  };
  for (const OptionSpec& option : command.options) {
    const auto given = arguments.values(option.name);
    const std::string flag = "--" + std::string(option.name);
    if (!option.repeated && given.size() > 1) refuse(flag, "is given more than once");
    if (option.choices.find('|') == std::string_view::npos) continue;
    const auto choices = split(option.choices, '|');
    for (const std::string& value : given) {
      if (std::ranges::find(choices, value) != choices.end()) continue;
      refuse(flag, fmt::format("must be one of {}, got '{}'{}", fmt::join(choices, ", "), value,
                               did_you_mean(value, choices)));
    }
  }
  if (arguments.wrong.empty() || command.checks_choices) return;
  std::vector<Diagnostic> wrong;
  for (const auto& [flag, why] : arguments.wrong) wrong.push_back({{flag, 0, 0}, why, "", 1, 0});
  throw InputError(wrong);
}

/// "run.html" of "run.txt"; of what names no file "report.html".
std::string with_ending(const std::string& file, const std::string& ending) {
  const std::filesystem::path path(file);
  const std::string stem = path.stem().string();
  if (stem.empty() || stem.starts_with('.') || stem == "-") return "report" + ending;
  return (path.parent_path() / stem).string() + ending;
}

/// Before any work is done: a page under another name would be opened as something else.
void check_endings(const CommandSpec& command, const Arguments& arguments) {
  for (const OptionSpec& option : command.options) {
    const auto endings = split(option.endings, '|');
    for (const std::string& file : arguments.values(option.name)) {
      const auto ends = [&](const std::string& ending) {
        return file.size() > ending.size() && file.ends_with(ending);
      };
      if (endings.empty() || std::ranges::any_of(endings, ends)) continue;
      throw InputError(
          fmt::format("--{}", option.name),
          fmt::format("must be a file ending in {}, got '{}'; did you mean '{}'?",
                      fmt::join(endings, " or "), file, with_ending(file, endings[0])));
    }
  }
}

void check_positional(const CommandSpec& command, const Arguments& arguments) {
  const int count = static_cast<int>(arguments.positional.size());
  if (count >= command.min_positional && count <= command.max_positional) return;
  const std::string usage = fmt::format("usage: penstock {}{}{}", command.name,
                                        command.positional.empty() ? "" : " ", command.positional);
  if (count < command.min_positional)
    throw InputError(fmt::format("penstock {}", command.name), "an argument is missing; " + usage);
  throw InputError(
      fmt::format("penstock {}", command.name),
      fmt::format("unexpected argument '{}'; {}",
                  arguments.positional[static_cast<std::size_t>(command.max_positional)], usage));
}

/// In lines of at most 100 columns.
std::string exit_codes_text() {
  const std::size_t width = terminal_width(),
                    columns = width == 0 ? 100 : std::min<std::size_t>(width, 100);
  std::string text, line = "exit codes:";
  const char* between = " ";
  for (const auto& [code, meaning] : exit_meanings()) {
    const std::string item = fmt::format("{} {}", code, meaning);
    line += std::exchange(between, ", ");
    if (line.size() + item.size() >= columns) {
      line.pop_back();
      text += std::exchange(line, "") + "\n";
    }
    line += item;
  }
  return text + line + "\n";
}

InputError unknown_option(const CommandSpec& command, std::string flag) {
  const char* dashes = flag.starts_with('-') && !flag.starts_with("--") ? "-" : "--";
  while (flag.starts_with('-')) flag.erase(0, 1);
  flag = flag.substr(0, flag.find('='));
  std::vector<std::string> known{"help"};
  for (const OptionSpec& option : command.options) known.emplace_back(option.name);
  const std::string guess = nearest(flag, known);
  return InputError(
      fmt::format("penstock {}", command.name),
      fmt::format("unknown option '{}{}'{}; see penstock {} --help", dashes, flag,
                  guess.empty() ? "" : "; did you mean '--" + guess + "'?", command.name));
}

/// All of them.
std::vector<Diagnostic> unknown_options(const CommandSpec& command,
                                        const po::parsed_options& parsed) {
  std::vector<Diagnostic> wrong;
  for (const auto& option : parsed.options) {
    if (!option.unregistered || option.original_tokens.empty()) continue;
    const InputError error = unknown_option(command, option.original_tokens.front());
    wrong.push_back(error.diagnostics().front());
  }
  return wrong;
}

}  // namespace

std::string Arguments::value(std::string_view name, std::string_view otherwise) const {
  const auto it = options.find(std::string(name));
  return it == options.end() || it->second.empty() ? std::string(otherwise) : it->second.back();
}

std::vector<std::string> Arguments::values(std::string_view name) const {
  const auto it = options.find(std::string(name));
  return it == options.end() ? std::vector<std::string>{} : it->second;
}

std::span<const ExitMeaning> exit_meanings() {
  static constexpr ExitMeaning kMeanings[] = {
      {exit_ok, "ok (an infeasible scenario is a result, too)"},
      {exit_failed, "failed"},
      {exit_usage, "wrong usage or input"},
      {exit_out_of_tolerance, "out of tolerance"},
      {exit_no_hardware, "hardware not available"},
      {exit_internal_bug, "a bug in penstock"},
      {exit_interrupted, "interrupted (129 hung up, 143 terminated)"}};
  return kMeanings;
}

std::vector<std::string_view> subcommands(std::string_view group) {
  std::vector<std::string_view> inside;
  for (const CommandSpec& command : commands()) {
    const std::size_t space = command.name.find(' ');
    if (space != std::string_view::npos && command.name.substr(0, space) == group)
      inside.push_back(command.name.substr(space + 1));
  }
  return inside;
}

std::string_view argument_kind(const CommandSpec& command, std::size_t position) {
  std::string_view kinds = command.completes;
  for (std::size_t space; position > 0 && (space = kinds.find(' ')) != kinds.npos; --position)
    kinds.remove_prefix(space + 1);
  return kinds.substr(0, kinds.find(' '));
}

const CommandSpec& find_command(const std::vector<std::string>& words, std::size_t& used) {
  const CommandSpec* found = nullptr;
  std::vector<std::string> names;
  for (const CommandSpec& command : commands()) {
    names.emplace_back(command.name);
    const auto parts = split(command.name, ' ');
    const bool matches =
        words.size() >= parts.size() && std::equal(parts.begin(), parts.end(), words.begin());
    if (!matches) continue;
    found = &command;
    used = parts.size();
  }
  if (found != nullptr) return *found;
  const std::string first = words.empty() ? "" : words[0];
  const auto known = subcommands(first);
  const std::vector<std::string> inside(known.begin(), known.end());
  if (!inside.empty()) {
    const std::string second = words.size() > 1 ? words[1] : "";
    const bool asks = second == "--help" || second == "-h";
    if (asks) throw HelpWanted{group_help(first)};
    throw InputError("penstock " + first,
                     second.empty()
                         ? fmt::format("needs one of {}", fmt::join(inside, ", "))
                         : fmt::format("unknown '{}'; one of {}{}", second, fmt::join(inside, ", "),
                                       did_you_mean(second, inside)));
  }
  throw InputError("penstock", fmt::format("unknown command '{}'{}; see penstock --help", first,
                                           did_you_mean(first, names)));
}

Arguments parse_arguments(const CommandSpec& command, const std::vector<std::string>& words) {
  using namespace po::command_line_style;
  const po::options_description description = describe(command);
  po::positional_options_description positional;
  positional.add("positional", -1);
  const auto style = static_cast<int>(unix_style) & ~static_cast<int>(allow_guessing);
  Arguments arguments;
  try {
    const auto parsed = po::command_line_parser(words)
                            .options(description)
                            .positional(positional)
                            .style(style)
                            .run();
    for (const auto& option : parsed.options) {
      if (option.string_key == "positional") {
        arguments.positional.insert(arguments.positional.end(), option.value.begin(),
                                    option.value.end());
      } else {
        auto& values = arguments.options[option.string_key];
        values.insert(values.end(), option.value.begin(), option.value.end());
      }
    }
  } catch (const po::unknown_option& error) {
    throw together(unknown_option(command, error.get_option_name()),
                   unknown_options(command, po::command_line_parser(words)
                                                .options(description)
                                                .positional(positional)
                                                .style(style)
                                                .allow_unregistered()
                                                .run()));
  } catch (const po::error& error) {
    throw InputError(
        fmt::format("penstock {}", command.name),
        std::string(error.what()) + fmt::format("; see penstock {} --help", command.name));
  }
  if (arguments.flag("help")) return arguments;
  check_choices(command, arguments);
  for (const OptionSpec& option : command.options)
    for (const std::string& value :
         option.sets.empty() ? std::vector<std::string>{} : arguments.values(option.name))
      arguments.meant_by[arguments.options["set"].emplace_back(
          fmt::format("{}={}", option.sets, value))] = option.name;
  check_endings(command, arguments);
  check_positional(command, arguments);
  return arguments;
}

std::string help_text(const CommandSpec& command) {
  std::string text =
      fmt::format("penstock {}: {}\n\nusage: penstock {}{}{}{}\n", command.name, command.summary,
                  command.name, command.positional.empty() ? "" : " ", command.positional,
                  command.options.empty() ? "" : " [options]");
  if (!command.examples.empty()) {
    text += "\nexamples:\n";
    for (const std::string& line : split(command.examples, '\n')) text += "  " + line + "\n";
  }
  text += "\noptions:\n";
  std::vector<std::pair<std::string, std::string>> rows;
  for (const OptionSpec& option : command.options) {
    std::string left = option.short_name.empty() ? "" : fmt::format("-{}, ", option.short_name);
    left += fmt::format("--{}", option.name);
    if (!option.value.empty()) left += fmt::format(" {}", option.value);
    rows.emplace_back(left, option.help);
  }
  rows.emplace_back("-h, --help", "this text");
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  for (const auto& row : rows) text += fmt::format("  {:<{}}  {}\n", row.first, width, row.second);
  return text + "\n" + exit_codes_text();
}

std::string group_help(std::string_view group) {
  const auto inside = subcommands(group);
  std::string text = fmt::format("penstock {}: one of {}\n\n", group, fmt::join(inside, ", "));
  for (const CommandSpec& command : commands())
    if (command.name.starts_with(fmt::format("{} ", group)))
      text += fmt::format("  {:<15}  {}\n", command.name, command.summary);
  return text + fmt::format("\npenstock help {} {} explains that one\n", group, inside.at(0));
}

std::string general_help() {
  std::string text =
      "penstock: will this pipeline-parallel training fit, how fast will it be, which schedule, "
      "and why\n\n"
      "usage: penstock COMMAND [arguments] [options]\n\nexamples:\n"
      "  penstock simulate gpt-2.2b-2bw\n"
      "  penstock simulate gpt-2.2b-2bw --set schedule=1f1b --trace 1f1b.json.gz\n"
      "  penstock compare gpt-2.2b-2bw gpt-2.2b-flush my.yaml\n"
      "  penstock schedule show 1f1b --set stages=4 --set microbatches=8\n\ncommands:\n";
  for (const CommandSpec& command : commands())
    text += fmt::format("  {:<15}  {}\n", command.name, command.summary);
  return text + "\npenstock help COMMAND explains a command; penstock --version\n";
}

}  // namespace penstock
