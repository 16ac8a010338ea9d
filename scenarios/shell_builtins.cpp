// SPDX-License-Identifier: Apache-2.0
// Simple commands: assignments, functions, and what bash does itself.
#include "base/numbers.hpp"
#include "scenarios/shell_machine.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace penstock {
namespace {

constexpr int kDeepestCalls = 40;

constexpr std::string_view kDeclarations[] = {"export", "declare", "local", "readonly", "typeset"};

/// Commands of bash that change no variable.
constexpr std::string_view kHarmless[] = {
    "alias", "unalias", "ulimit", "hash", "type", "wait",     "umask", "jobs",  "kill",
    "times", "caller",  "enable", "bg",   "fg",   "complete", "bind",  "disown"};

/// Options by which commands mean something else than is followed here.
constexpr std::string_view kOtherMeanings[] = {
    "lastpipe", "nocasematch", "nullglob",         "failglob",       "expand_aliases", "posix",
    "noexec",   "keyword",     "localvar_inherit", "localvar_unset", "xpg_echo",       "onecmd"};

template <std::size_t n>
bool is_in(std::string_view name, const std::string_view (&names)[n]) {
  return std::ranges::find(names, name) != std::end(names);
}

/// Returns the text of `<<-`, whose lines lose their leading tabs.
std::string without_tabs(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != '\t' || (!out.empty() && out.back() != '\n')) out += c;
  return out;
}

}  // namespace

void ShellMachine::run_simple(const Node& node) {
  std::size_t first = 0;
  while (first < node.arguments.size() && node.arguments[first].assignment) ++first;
  if (first == node.arguments.size()) {
    set_status(true);
    for (const ShellArgument& argument : node.arguments) {
      const ShellWord& value = argument.assignment->value;
      if (value.source != nullptr && value.text().find_first_of("`(") != std::string::npos)
        now_.status = {Truth::unknown, one_line(value), {}};
      assign(*argument.assignment);
    }
    return;
  }
  const std::string command = node.arguments[first].word.text();
  if (is_in(command, kDeclarations) && !now_.functions.contains(command)) {
    declare(node, first);
    for (std::size_t i = 0; i < first; ++i) lose(node.arguments[i].assignment->name);
    return;
  }
  ShellWords words;
  for (std::size_t i = first; i < node.arguments.size(); ++i)
    expand_fields(node.arguments[i].word, words);
  count_step(here_, 16 * words.size());
  const std::size_t around = before_.size();
  std::map<std::string, std::optional<ShellVariable>> before;
  for (std::size_t i = 0; i < first; ++i) {
    const std::string& name = node.arguments[i].assignment->name;
    const auto at = now_.variables.find(name);
    before.emplace(name, at == now_.variables.end() ? std::nullopt : std::optional(at->second));
    before_.push_back(name);
    assign(*node.arguments[i].assignment);
    if (const auto set = now_.variables.find(name); set != now_.variables.end())
      set->second.exported = true;
  }
  run_words(words, node);
  before_.resize(around);
  for (auto& [name, variable] : before) {
    if (variable)
      now_.variables[name] = std::move(*variable);
    else
      now_.variables.erase(name);
  }
}

void ShellMachine::run_words(const ShellWords& words, const Node& node) {
  if (words.empty()) return set_status(true);
  const std::string name = words[0].known() ? words[0].shown() : "";
  const auto function = now_.functions.find(name);
  if (function == now_.functions.end()) {
    if (!run_builtin(name, words, node)) run_program(words, node);
  } else if (function->second) {
    run_function(function->second, words, node);
  } else {
    throw ShellError{
        node.all.place(),
        "'" + name + "' is one of several functions, by a condition that is not known"};
  }
}

void ShellMachine::run_function(const ShellTree& body, const ShellWords& words, const Node& node) {
  if (++depth_ > kDeepestCalls)
    throw ShellError{node.all.place(), "is called too deeply within itself"};
  const ShellTree kept = body;
  now_.scopes.emplace_back();
  set_arguments(words, 1);
  frames_.emplace_back();
  set_status(true);
  run(*kept);
  join_all(close_frame());
  --depth_;
  if (!now_.reached) return;
  for (auto& [name, variable] : now_.scopes.back().shadowed) {
    if (variable)
      now_.variables[name] = *variable;
    else
      now_.variables.erase(name);
  }
  now_.scopes.pop_back();
}

void ShellMachine::set_arguments(const ShellWords& words, std::size_t first) {
  ShellScope& scope = now_.scopes.back();
  scope.arguments.clear();
  scope.given = scope.counted = true;
  for (std::size_t i = first; i < words.size(); ++i) {
    scope.counted = scope.counted && is_one_word(words[i]);
    scope.arguments.push_back(words[i].unquoted());
  }
}

// ---- bash's own

bool ShellMachine::run_builtin(const std::string& name, const ShellWords& words, const Node& node) {
  if (name == ":" || name == "true") return set_status(true), true;
  if (name == "false") return set_status(false), true;
  if (name == "unset") return unset(words), true;
  if (name == "set") return set_options(words, node), true;
  if (name == "cd") return change_folder(words), true;
  if (name == "source" || name == ".") return run_source(words, node), true;
  if (name == "trap") return set_trap(words), true;
  if (run_flow(name, words, node) || run_assigning(name, words, node)) return true;
  if (put_out(name, words, node) || put_path(name, words)) return true;
  const ShellWords rest(words.begin() + 1, words.end());
  if (name == "test" || name == "[") {
    ShellWords tested = rest;
    const bool closed = name == "test" || (!tested.empty() && tested.back().shown() == "]");
    if (!closed) return set_status(false), true;
    if (name == "[") tested.pop_back();
    const std::string sign = tested.size() == 2 ? tested[0].shown() : "";
    const bool file = sign == "-f" || sign == "-e" || sign == "-r" || sign == "-s";
    if (file && way_to(tested[1]))
      set_status(true);
    else
      set_status(truth_of_test(tested), node);
    return true;
  }
  if (name == "shopt") {
    for (const ShellText& word : rest)
      if (is_in(word.shown(), kOtherMeanings) && rest[0].shown() != "-u" && rest[0].shown() != "-q")
        throw ShellError{node.all.place(), "'shopt -s " + word.shown() + "' is not followed"};
    now_.status = {Truth::unknown, name, {}};
    return true;
  }
  if (name == "command" || name == "builtin" || name == "exec") {
    if (rest.empty()) return set_status(true), true;
    if (rest[0].shown().starts_with("-")) return now_.status = {Truth::unknown, name, {}}, true;
    if (!run_builtin(rest[0].shown(), rest, node)) run_program(rest, node);
    if (name == "exec") now_.reached = false;
    return true;
  }
  if (name == "coproc") throw ShellError{node.all.place(), "'coproc' is not followed"};
  if (!is_in(name, kHarmless)) return false;
  if (output_ != nullptr) output_->known = false;
  now_.status = {Truth::unknown, name, {}};
  return true;
}

/// Runs commands that assign variables in a way that is not evaluated.
bool ShellMachine::run_assigning(const std::string& name, const ShellWords& words,
                                 const Node& node) {
  if (name == "eval") {
    ShellText all;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (!all.empty()) all.add({" ", node.all.place()});
      all.add(words[i]);
    }
    const std::string shown = all.shown();
    const auto has = [&](const char* word) { return shown.find(word) != std::string::npos; };
    // what prepares a shell, such as `eval "$(conda shell.bash hook)"`, sets nothing of a job
    const bool prepares = has(" hook") || has("conda") || has("ssh-agent") || has("modulecmd");
    if (all.known() || !prepares) run_text(all, node);
    if (!all.known() && !prepares && now_.reached) lose_all();
    return true;
  }
  if (name == "let") {
    ShellNumber last;
    for (std::size_t i = 1; i < words.size(); ++i) last = arithmetic_of(words[i]);
    set_status({last.value ? truth_of(*last.value != 0) : Truth::unknown, last.names}, node);
    return true;
  }
  if (name == "read" && read(words, node)) return true;
  constexpr std::string_view kAssigning[] = {"read", "mapfile", "readarray", "getopts"};
  const bool to_variable =
      (name == "printf" || name == "wait") && words.size() > 1 && words[1].shown().starts_with("-");
  if (!is_in(name, kAssigning) && !to_variable) return false;
  std::string names;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].shown();
    const bool may_be_name =
        words[i].known() ? word.find('%') == word.npos : word.find(' ') == word.npos;
    if (!words[i].known() && may_be_name && (name != "printf" || i == 2)) lose_all();
    if (may_be_name && (name != "printf" || i < 3))
      names += word.substr(word.starts_with("-") && word.size() > 1 ? 2 : 0) + " ";
  }
  lose_names_in(names);
  if (name == "read" || name == "getopts") lose("REPLY");
  if (name != "read" && name != "getopts") lose("MAPFILE");
  now_.status = {Truth::unknown, name, {}};
  return true;
}

namespace {

/// The options of `read` that are followed.
struct ReadOptions {
  bool raw = false, is_list = false;
  bool all = false;       ///< -d '': what is read has no end but the input's
  std::size_t names = 1;  ///< the first word that is a name
};

/// Returns nothing where it has options that are not followed.
std::optional<ReadOptions> read_options(const ShellWords& words) {
  ReadOptions out;
  for (; out.names < words.size(); ++out.names) {
    const std::string word = words[out.names].shown();
    if (!words[out.names].known()) return std::nullopt;
    if (!word.starts_with("-") || word.size() < 2) break;
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (word[i] == 'r') {
        out.raw = true;
      } else if (word[i] == 'a') {
        out.is_list = true;
      } else if (word[i] == 'd' && i + 1 == word.size() && out.names + 1 < words.size() &&
                 words[out.names + 1].known() && words[out.names + 1].shown().empty()) {
        out.all = true;
        ++out.names;
        break;
      } else {
        return std::nullopt;
      }
    }
  }
  if (out.is_list && words.size() != out.names + 1) return std::nullopt;
  return out;
}

/// Returns the blanks at which a command splits words, where it sets IFS for itself: a space, or
/// nothing, after which a line is one word. None: it sets something else.
std::optional<std::string_view> blanks_of(const ShellNode& node) {
  std::string_view blanks = " \t\n";
  for (const auto& argument : node.arguments) {
    if (!argument.assignment || argument.assignment->name != "IFS") continue;
    const ShellWord& value = argument.assignment->value;
    const std::string text = value.source == nullptr ? "" : value.text();
    if (text != "" && text != "''" && text != "\"\"" && text != "' '" && text != "\" \"")
      return std::nullopt;
    blanks = text.find(' ') != text.npos ? " " : "";
  }
  return blanks;
}

}  // namespace

/// Reads words of a line, or of all lines, that the script has. Returns whether that can be told.
bool ShellMachine::read(const ShellWords& words, const Node& node) {
  const auto options = read_options(words);
  const auto blanks = blanks_of(node);
  const bool own_blanks = std::ranges::find(before_, "IFS") != before_.end();
  if (!options || !blanks || now_.lost || (now_.variables.contains("IFS") && !own_blanks))
    return false;
  for (std::size_t i = options->names; i < words.size(); ++i)
    if (!is_variable_name(words[i].shown()) || !words[i].known()) return false;
  if (!input_ || !input_->known() || options->names == words.size()) return false;
  const std::string text = input_->shown();
  if (!options->raw && text.find('\\') != std::string::npos) return false;
  std::string_view line = text;
  if (!options->all) line = line.substr(0, line.find('\n'));
  line = line.substr(0, line.find_last_not_of(*blanks) + 1);
  const auto next = [&](bool last) {
    line.remove_prefix(std::min(line.find_first_not_of(*blanks), line.size()));
    const std::size_t end = last ? line.size() : std::min(line.find_first_of(*blanks), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end);
    return known_text(std::string(word), node.all.place());
  };
  const std::string& first = words[options->names].shown();
  if (options->is_list) {
    ShellVariable list{.kind = ShellVariable::Kind::list};
    while (!line.empty()) list.items.push_back(next(false));
    if (may_assign(first, false, node.all.place())) now_.variables[first] = std::move(list);
  }
  for (std::size_t i = options->names; i < words.size() && !options->is_list; ++i)
    if (ShellText word = next(i + 1 == words.size());
        may_assign(words[i].shown(), false, node.all.place()))
      assign_text(words[i].shown(), std::move(word), false);
  set_status(!options->all);  // the end of the input comes before the delimiter
  return true;
}

/// Forgets for good what the commands of a trap name: when they are run is not known.
void ShellMachine::set_trap(const ShellWords& words) {
  now_.status = {Truth::unknown, "trap", {}};
  if (words.size() < 2) return;
  if (!words[1].known()) return lose_all();
  lose_names_in(words[1].shown(), true);
}

bool ShellMachine::run_flow(const std::string& name, const ShellWords& words, const Node& node) {
  const bool counts = name == "break" || name == "continue" || name == "shift";
  if (!counts && name != "exit" && name != "return") return false;
  std::optional<std::size_t> count = 1;
  if (words.size() > 1)
    count = words[1].known() ? parse_number<std::size_t>(words[1].shown()) : std::nullopt;
  if (counts && name != "shift") {
    if (!count) throw ShellError{node.all.place(), "leaves a number of loops that is not known"};
    leave(std::max<std::size_t>(1, *count), name == "continue");
  } else if (name == "exit") {
    if (forks_ == 0 || !exited_at_) exited_at_ = node.all.place();
    now_.reached = false;
  } else if (name == "return") {
    if (words.size() > 1)
      set_status({count ? truth_of(*count % 256 == 0) : Truth::unknown, {}}, node);
    for (std::size_t at = frames_.size(); at > 0; --at) {
      if (frames_[at - 1].is_loop) continue;
      frames_[at - 1].left.push_back(now_);
      now_.reached = false;
      break;
    }
  } else {
    ShellScope& scope = now_.scopes.back();
    if (!count || !scope.counted) {
      scope.counted = false;
      now_.status = {Truth::unknown, name, {}};
      return true;
    }
    set_status(*count <= scope.arguments.size());
    if (*count > scope.arguments.size()) return true;
    scope.arguments.erase(scope.arguments.begin(),
                          scope.arguments.begin() + static_cast<std::ptrdiff_t>(*count));
    scope.given = true;
  }
  return true;
}

void ShellMachine::set_options(const ShellWords& words, const Node& node) {
  set_status(true);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].shown();
    const bool on = word.starts_with("-");
    if (word == "--" || !words[i].known() || word.size() < 2 || (!on && word[0] != '+'))
      return set_arguments(words, word == "--" ? i + 1 : i);
    for (const char flag : word.substr(1)) {
      const std::string option = flag == 'o' && i + 1 < words.size() ? words[++i].shown() : "";
      if (flag == 'e' || option == "errexit") now_.stops_on_failure = on;
      if (flag == 'a' || option == "allexport") now_.exports_all = on;
      if (on && (is_in(option, kOtherMeanings) || std::string_view("nkt").find(flag) < 3))
        throw ShellError{node.all.place(), "'set " + word + "' is not followed"};
    }
  }
}

// ---- output and input

/// Runs commands that print what can be told: `echo`, and `cat` of lines that the script has. What
/// goes into a file is kept, as the script may name that file later.
bool ShellMachine::put_out(const std::string& name, const ShellWords& words, const Node& node) {
  using Kind = ShellRedirection::Kind;
  ShellText out;
  bool told = true;
  const auto target = std::ranges::find(node.redirections, Kind::output, &ShellRedirection::kind);
  const auto is_told = [](const ShellRedirection& redirection) {
    return redirection.kind != Kind::file && redirection.kind != Kind::other;
  };
  if (name == "cat" && words.size() == 1 && !node.redirections.empty() && input_ &&
      std::ranges::all_of(node.redirections, is_told)) {
    out = *input_;
  } else if (name == "echo" || name == "printf") {
    const std::string option = words.size() > 1 ? words[1].shown() : "";
    const bool plain = name == "echo" && (option == "-n" || !option.starts_with("-")) &&
                       std::ranges::all_of(words, [](const ShellText& word) {
                         return !word.known() || is_one_word(word);
                       });
    told = plain;
    for (std::size_t i = option == "-n" ? 2 : 1; plain && i < words.size(); ++i) {
      if (!out.empty() || i > 1) out.add({i > 1 && !(option == "-n" && i == 2) ? " " : "", {}});
      out.add(words[i]);
    }
    if (option != "-n") out.add({"\n", {}});
  } else {
    return false;
  }
  set_status(true);
  if (target != node.redirections.end()) {
    const std::string file = written_name(expand_one(target->word).unquoted());
    if (!target->adds) written_[file] = {};
    const auto kept = written_.find(file);
    if (kept != written_.end()) kept->second.add(out);
    if (!told || forks_ > 0) written_.erase(file);
  } else if (output_ != nullptr) {
    output_->known = output_->known && told;
    output_->text.add(out);
  }
  return true;
}

/// Expands what is redirected. Returns standard input, where the script itself says what it is.
std::optional<ShellText> ShellMachine::input(const Node& node) {
  using Kind = ShellRedirection::Kind;
  std::optional<ShellText> out;
  for (const ShellRedirection& redirection : node.redirections) {
    ShellWord lines = redirection.word;
    count_step(here_, lines.end - lines.begin);
    if (redirection.kind != Kind::document) {
      const ShellText text = expand_one(lines).unquoted();
      if (redirection.kind == Kind::other || redirection.kind == Kind::output) continue;
      out.reset();
      if (redirection.kind == Kind::text) (out = text)->add({"\n", lines.place()});
      continue;
    }
    if (redirection.strips) {
      const ShellSource& source = keep({without_tabs(lines.text()), {{0, lines.place()}}});
      lines = {&source, 0, source.text.size()};
    }
    out = redirection.literal ? known_text(lines.text(), lines.place()) : expand_document(lines);
  }
  return out;
}

// ---- paths

void ShellMachine::change_folder(const ShellWords& words) {
  set_status(true);
  now_.variables.erase("PWD");
  now_.variables.erase("OLDPWD");
  if (words.size() < 2) {
    now_.folder = unknown_text("$HOME", {});
    return;
  }
  const ShellText& path = words.back();
  const bool begins = !path.empty() && (path.pieces[0].folder || path.shown().starts_with("/"));
  if (begins) {
    now_.folder = path.unquoted();
  } else {
    now_.folder.add({"/", path.empty() ? ShellPlace{} : path.pieces[0].place});
    now_.folder.add(path);
  }
  if (!is_there(now_.folder)) now_.status = {Truth::unknown, "cd " + path.shown(), path.names()};
}

/// Returns whether it is the script's folder, one around it, or one in it.
bool ShellMachine::is_there(const ShellText& folder) const {
  std::filesystem::path way;
  for (const ShellPiece& piece : folder.pieces) {
    if (!piece.known && !piece.folder) return false;
    way += piece.text;
  }
  if (!folder.empty() && folder.pieces[0].folder &&
      way.string().find_first_not_of("./") == std::string::npos)
    return true;
  std::error_code ignored;
  return !surroundings_.file.empty() && way.is_relative() &&
         std::filesystem::is_directory(place_of(way), ignored);
}

/// Runs programs that print a path from the script's folder: `pwd`, `dirname`, `realpath` and the
/// like. Returns whether what they print can be told.
bool ShellMachine::put_path(const std::string& name, const ShellWords& words) {
  if (output_ == nullptr) return false;
  ShellText path = words.size() > 1 ? words.back().unquoted() : ShellText{};
  if (name == "pwd") {
    path = now_.folder;
  } else if (path.empty() || words.size() > 3) {
    return false;
  } else if (name == "realpath" || name == "readlink") {
    if (!path.pieces[0].folder && !path.pieces[0].text.starts_with("/")) return false;
    if (name == "readlink" && words.size() < 3) return false;
  } else if (name == "basename" || name == "dirname") {
    const bool base = name == "basename";
    ShellPiece& last = path.pieces.back();
    const std::size_t slash = last.known ? last.text.rfind('/') : std::string::npos;
    if (!base && path.pieces.size() == 1 && last.folder) {
      path.add({"/..", last.place});
    } else if (!last.known || last.text.ends_with('/') || (base && words.size() > 2) ||
               (slash == std::string::npos && path.pieces.size() > 1) ||
               (slash == 0 && path.pieces.size() == 1)) {
      return false;
    } else if (base) {
      path = known_text(last.text.substr(slash + 1), last.place);
    } else if (slash == std::string::npos) {
      path = known_text(".", last.place);
    } else {
      last.text.resize(slash);
      if (last.text.empty()) path.pieces.pop_back();
    }
  } else {
    return false;
  }
  path.add({"\n", {}});
  output_->text.add(path);
  set_status(true);
  return true;
}

}  // namespace penstock
