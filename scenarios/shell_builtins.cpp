// Simple commands: assignments, bash's own commands, functions, and programs, none of which is run.
#include "base/error.hpp"
#include "base/numbers.hpp"
#include "base/output_file.hpp"
#include "scenarios/shell_machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace penstock {
namespace {

constexpr int kDeepestCalls = 40;
constexpr std::uintmax_t kLargestFile = 1 << 20;

/// Commands of bash that change nothing here, and programs that start no job; their words are no
/// options of a launch.
constexpr std::string_view kNoLaunches[] = {
    "trap",   "alias",      "unalias",  "shopt",   "ulimit", "hash",     "type",     "wait",
    "umask",  "jobs",       "kill",     "caller",  "enable", "complete", "bind",     "disown",
    "fg",     "bg",         "times",    "getopts", "cat",    "tee",      "grep",     "egrep",
    "sed",    "awk",        "cut",      "head",    "tail",   "sort",     "uniq",     "tr",
    "wc",     "date",       "hostname", "mkdir",   "rm",     "cp",       "mv",       "ln",
    "ls",     "chmod",      "touch",    "find",    "git",    "pip",      "pip3",     "conda",
    "module", "ml",         "wget",     "curl",    "tar",    "sleep",    "scontrol", "sinfo",
    "squeue", "nvidia-smi", "which",    "logger",  "diff",   "pushd",    "popd"};

constexpr std::string_view kShells[] = {"bash", "sh", "zsh", "dash"};

/// Scripts that prepare an interactive shell and set nothing of a job.
constexpr std::string_view kEnvironments[] = {"activate", ".bashrc",   ".bash_profile",
                                              ".profile", "conda.sh",  "modules.sh",
                                              "profile",  "setvars.sh"};

bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// Options of `shopt -s` by which commands mean something else than is followed here.
constexpr std::string_view kOtherMeanings[] = {"lastpipe", "nocasematch", "nullglob", "failglob"};

/// Throws where the command changes how later commands run in a way that is not followed.
void require_followed(std::string_view name, const std::vector<ShellText>& words,
                      const ShellNode& node) {
  for (const ShellText& word : words) {
    const std::string text = word.shown();
    if (name == "shopt" && words[0].shown() == "-s" && is_among(text, kOtherMeanings))
      throw ShellError{node.all.place(), "'shopt -s " + text + "' is not followed"};
    if (name == "trap" && &word == &words[0] && text.find('=') != text.npos && words.size() > 1 &&
        std::ranges::any_of(words, [](const ShellText& w) {
          return w.shown() == "DEBUG" || w.shown() == "ERR" || w.shown() == "RETURN";
        }))
      throw ShellError{node.all.place(), "'trap " + text + "' is not followed"};
  }
}

/// -f and the like, which hold where a file to read lies beside the script.
bool tests_file(const std::string& sign) {
  return sign == "-f" || sign == "-e" || sign == "-r" || sign == "-s";
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool names_itself(const ShellAssignment& assignment) {
  if (assignment.adds) return true;
  const std::string text = assignment.value.source == nullptr ? "" : assignment.value.text();
  for (std::size_t at = 0; (at = text.find(assignment.name, at)) != std::string::npos; ++at) {
    const std::size_t end = at + assignment.name.size();
    const bool whole =
        (at == 0 || !is_name(text[at - 1])) && (end >= text.size() || !is_name(text[end]));
    if (whole) return true;
  }
  return std::ranges::any_of(assignment.elements, [&](const ShellAssignment::Element& e) {
    return e.value.text().find(assignment.name) != std::string::npos;
  });
}

ShellText without_quotes(ShellText text) {
  for (ShellPiece& piece : text.pieces) piece.quoted = false;
  return text;
}

}  // namespace

void ShellMachine::run_simple(const Node& node) {
  std::size_t first = 0;
  while (first < node.arguments.size() && node.arguments[first].assignment) ++first;
  if (first == node.arguments.size()) {
    set_status(true);
    for (const ShellArgument& argument : node.arguments) {
      if (argument.assignment->value.source != nullptr &&
          argument.assignment->value.text().find_first_of("`(") != std::string::npos)
        now_.status = {Truth::unknown, argument.assignment->value.text(), {}};
      assign(*argument.assignment);
    }
    return;
  }
  static constexpr std::string_view kDeclarations[] = {"export", "declare", "local", "readonly",
                                                       "typeset"};
  const ShellWord& command = node.arguments[first].word;
  if (is_among(command.text(), kDeclarations) && !now_.functions.contains(command.text()))
    return declare(node);
  std::vector<ShellText> words;
  for (std::size_t i = first; i < node.arguments.size(); ++i)
    expand_fields(node.arguments[i].word, words);
  std::map<std::string, std::optional<ShellVariable>> before;
  for (std::size_t i = 0; i < first; ++i) {
    const ShellAssignment& assignment = *node.arguments[i].assignment;
    const auto at = now_.variables.find(assignment.name);
    before.emplace(assignment.name,
                   at == now_.variables.end() ? std::nullopt : std::optional(at->second));
    assign(assignment);
    if (const auto set = now_.variables.find(assignment.name); set != now_.variables.end())
      set->second.exported = true;
  }
  run_words(std::move(words), node);
  for (auto& [name, variable] : before) {
    if (variable)
      now_.variables[name] = std::move(*variable);
    else
      now_.variables.erase(name);
  }
}

void ShellMachine::run_words(std::vector<ShellText> words, const Node& node) {
  if (words.empty()) return set_status(true);
  const std::string name = words[0].known() ? words[0].shown() : "";
  if (const auto function = now_.functions.find(name); function != now_.functions.end()) {
    if (function->second) {
      run_function(function->second, words, node);
    } else {  // one of several
      throw ShellError{
          node.all.place(),
          "'" + name + "' is one of several functions, by a condition that is not known"};
    }
  } else if (!run_builtin(name, words, node)) {
    run_program(std::move(words), node);
  }
  if (now_.reached && now_.stops_on_failure && checked_ == 0 && now_.status.truth == Truth::no) {
    exited_at_ = node.all.place();
    now_.reached = false;
  }
}

// ---- functions, texts and files

void ShellMachine::run_function(const ShellTree& body, const std::vector<ShellText>& words,
                                const Node& node) {
  if (++depth_ > kDeepestCalls)
    throw ShellError{node.all.place(), "is called too deeply within itself"};
  const ShellTree kept = body;
  now_.scopes.push_back({{words.begin() + 1, words.end()}, {}, true});
  frames_.emplace_back();
  set_status(true);
  run(*kept);
  const std::vector<ShellState> left = std::move(frames_.back().left);
  frames_.pop_back();
  for (const ShellState& state : left) join(state, "", {}, true);
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

/// `eval`, `bash -c` and the like: a text that is a script.
void ShellMachine::run_text(const ShellText& text, const Node& node, bool own_shell,
                            std::vector<ShellText> arguments,
                            const std::vector<ShellText>& before) {
  if (++depth_ > kDeepestCalls)
    throw ShellError{node.all.place(), "is called too deeply within itself"};
  ShellSource source;
  for (const ShellPiece& piece : text.pieces) {
    source.origins.emplace_back(source.text.size(), piece.place);
    source.text += encoded({{piece}});
  }
  if (source.origins.empty()) source.origins.emplace_back(0, node.all.place());
  trees_.push_back(read_shell(keep(std::move(source))));
  const ShellTree tree = trees_.back();
  const std::size_t launches = launches_.size();
  if (!own_shell) {
    run(*tree);
  } else {
    run_apart([&] {
      std::erase_if(now_.variables,
                    [](const auto& v) { return !v.second.exported && !v.second.fixed; });
      now_.scopes.push_back({std::move(arguments), {}, true});
      run(*tree);
    });
  }
  for (std::size_t i = launches; i < launches_.size(); ++i)
    launches_[i].words.insert(launches_[i].words.begin(), before.begin(), before.end());
  --depth_;
}

void ShellMachine::run_file(int file, const std::vector<ShellText>& arguments, const Node& node) {
  if (++depth_ > kDeepestCalls || reading_.size() > 10 ||
      std::ranges::find(reading_, file) != reading_.end())
    throw ShellError{node.all.place(), "reads itself, or files too deep within one another"};
  std::string text = files_[static_cast<std::size_t>(file)].text;
  trees_.push_back(read_shell(keep(shell_source(std::move(text), file))));
  const ShellTree tree = trees_.back();
  reading_.push_back(file);
  if (!arguments.empty()) now_.scopes.push_back({arguments, {}, true});
  frames_.emplace_back();
  run(*tree);
  const std::vector<ShellState> left = std::move(frames_.back().left);
  frames_.pop_back();
  for (const ShellState& state : left) join(state, "", {}, true);
  if (!arguments.empty() && now_.reached) now_.scopes.pop_back();
  reading_.pop_back();
  --depth_;
}

/// Where a path that is known, or known from the script's folder on, leads to a file: the way from
/// that folder.
std::optional<std::filesystem::path> ShellMachine::way_to(const ShellText& path) const {
  if (surroundings_.file.empty()) return {};
  std::filesystem::path inside;
  for (const ShellPiece& piece : path.pieces) {
    if (!piece.known && !piece.folder) return {};
    inside += piece.text;
  }
  std::vector<std::filesystem::path> tried{inside};
  for (const int reading : reading_)
    tried.push_back(
        std::filesystem::path(files_[static_cast<std::size_t>(reading)].inside).parent_path() /
        inside);
  if (now_.folder.known() || (now_.folder.pieces.size() > 1 && now_.folder.pieces[0].folder))
    tried.insert(tried.begin(), std::filesystem::path(now_.folder.shown()) / inside);
  for (const std::filesystem::path& one : tried) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(place_of(one), ignored)) return one;
  }
  return {};
}

std::filesystem::path ShellMachine::place_of(const std::filesystem::path& way) const {
  return way.is_absolute() ? way : std::filesystem::path(surroundings_.file).parent_path() / way;
}

/// The file of a path, read; none where it is not there.
std::optional<int> ShellMachine::file_of(const ShellText& path, const Node& node) {
  const auto way = way_to(path);
  if (!way) return {};
  const std::filesystem::path file = place_of(*way);
  std::error_code ignored;
  if (std::filesystem::file_size(file, ignored) > kLargestFile)
    throw ShellError{node.all.place(), "reads '" + file.string() + "', which is larger than 1 MiB"};
  const std::string name = file.lexically_normal().string();
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (files_[i].name == name) return static_cast<int>(i);
  note_input(file.string());
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  files_.push_back({name, ordinary_text(text.str()), way->lexically_normal().string()});
  return static_cast<int>(files_.size() - 1);
}

void ShellMachine::run_source(const std::vector<ShellText>& words, const Node& node) {
  if (words.size() < 2) return set_status(false);
  const ShellText& path = words[1];
  if (const auto file = file_of(path, node))
    return run_file(*file, {words.begin() + 2, words.end()}, node);
  now_.status = {Truth::unknown, "source " + path.shown(), {}};
  const std::string name = last_part(path.shown());
  const bool prepares = is_among(name, kEnvironments) || path.shown().starts_with("/etc/") ||
                        path.shown().find("/init/") != std::string::npos;
  if (prepares) return;
  if (forks_ > 0) {  // `[ -f FILE ] && source FILE`: the script does without
    now_.reached = false;
    return;
  }
  std::string message = fmt::format("reads '{}', ", path.shown());
  ShellNames defines;
  for (const ShellPiece& piece : path.pieces)
    if (!piece.known && !piece.folder) add_names(defines, piece.names);
  if (!defines.empty())
    message += fmt::format("whose place is not known: give --define {}=VALUE",
                           fmt::join(defines, "=VALUE --define "));
  else if (surroundings_.file.empty())
    message += "and the script is no file beside which it could lie: give the script's file";
  else
    message += "which is not there: put it in its place beside the script";
  missing_.push_back(diagnostic(path.empty() ? node.all.place() : path.pieces[0].place, message));
}

// ---- programs

bool ShellMachine::run_inner_shell(const std::vector<ShellText>& words, const Node& node) {
  const auto text_at = [&](std::size_t i) {
    return i < words.size() && words[i].known() ? words[i].shown() : std::string();
  };
  const std::string program = last_part(text_at(0));
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_among(last_part(text_at(i)), kShells)) continue;
    std::size_t at = i + 1;
    bool command = false;
    for (; text_at(at).starts_with("-") && !command; ++at)
      command = !text_at(at).starts_with("--") && text_at(at).ends_with("c");
    const std::vector<ShellText> before(words.begin(),
                                        words.begin() + static_cast<std::ptrdiff_t>(i));
    if (command && at < words.size()) {
      std::vector<ShellText> arguments;
      if (at + 2 < words.size())
        arguments = {words.begin() + static_cast<std::ptrdiff_t>(at) + 2, words.end()};
      run_text(words[at], node, true, std::move(arguments), before);
      return true;
    }
    if (at >= words.size()) break;
    const auto file = file_of(words[at], node);
    if (!file) return false;
    const std::size_t launches = launches_.size();
    run_apart([&] {
      std::erase_if(now_.variables,
                    [](const auto& v) { return !v.second.exported && !v.second.fixed; });
      now_.scopes.push_back(
          {{words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end()}, {}, true});
      run_file(*file, {}, node);
    });
    for (std::size_t k = launches; k < launches_.size(); ++k)
      launches_[k].words.insert(launches_[k].words.begin(), before.begin(), before.end());
    return true;
  }
  const bool remote = program == "ssh" || program == "pdsh" || program == "clush";
  if (remote && words.size() > 2 && text_at(words.size() - 1).find(' ') != std::string::npos) {
    run_text(words.back(), node, true, {}, {});
    return true;
  }
  for (std::size_t i = 1; program == "sbatch" && i < words.size(); ++i) {
    ShellText wrapped = words[i];
    if (text_at(i) == "--wrap" && i + 1 < words.size()) {
      wrapped = words[i + 1];
    } else if (!wrapped.empty() && wrapped.pieces[0].text.starts_with("--wrap=")) {
      wrapped.pieces[0].text.erase(0, 7);
      if (wrapped.pieces[0].text.empty()) wrapped.pieces.erase(wrapped.pieces.begin());
    } else {
      continue;
    }
    const std::vector<ShellText> before(words.begin(),
                                        words.begin() + static_cast<std::ptrdiff_t>(i));
    run_text(wrapped, node, true, {}, before);
    return true;
  }
  if ((is_among(program, kShells) || program == "sbatch" || remote) && !node.redirections.empty()) {
    if (const auto text = input(node)) {
      run_text(*text, node, true, {}, words);
      return true;
    }
  }
  return false;
}

/// Adds what torchtitan's run_train.sh makes of its environment, where it is not there to be read.
void ShellMachine::add_environment(std::vector<ShellText>& words) const {
  for (const auto& [name, option] :
       {std::pair{"NGPU", "--nproc-per-node"}, std::pair{"CONFIG_FILE", "--job.config_file"}}) {
    const auto variable = now_.variables.find(name);
    if (variable == now_.variables.end() || !variable->second.exported) continue;
    words.insert(words.begin() + 1,
                 {known_text(option, words[0].pieces[0].place), variable->second.value});
  }
}

void ShellMachine::run_program(std::vector<ShellText> words, const Node& node) {
  if (output_ != nullptr) output_->known = false;
  const std::string name = words[0].known() ? last_part(words[0].shown()) : "";
  if (!is_among(name, kNoLaunches) && !run_inner_shell(words, node)) {
    const bool file =
        name.ends_with(".sh") || name.ends_with(".sbatch") || name.ends_with(".slurm");
    const auto own = file ? file_of(words[0], node) : std::nullopt;
    if (own) {
      run_apart([&] {
        std::erase_if(now_.variables,
                      [](const auto& v) { return !v.second.exported && !v.second.fixed; });
        now_.scopes.push_back({{words.begin() + 1, words.end()}, {}, true});
        run_file(*own, {}, node);
      });
    } else {
      if (name == "run_train.sh") add_environment(words);
      const bool stray = name.starts_with("-");
      (stray ? strays_ : launches_).push_back({std::move(words), node.all.place(), false});
    }
  }
  now_.status = {Truth::unknown, name, {}};
}

// ---- bash's own

bool ShellMachine::run_builtin(const std::string& name, const std::vector<ShellText>& words,
                               const Node& node) {
  const std::vector<ShellText> rest(words.begin() + 1, words.end());
  if (name == ":" || name == "true") return set_status(true), true;
  if (name == "false") return set_status(false), true;
  if (name == "echo") return echo(words), true;
  if (name == "printf") return print(words, node), true;
  if (name == "read" || name == "mapfile" || name == "readarray") return read(words, node), true;
  if (name == "unset") return unset(words), true;
  if (name == "set") return set_options(words), true;
  if (name == "cd") return change_folder(words), true;
  if (name == "source" || name == ".") return run_source(words, node), true;
  if (run_flow(name, words, node) || put_path(name, words)) return true;
  if (name == "test" || name == "[") {
    std::vector<ShellText> tested = rest;
    if (name == "[" && (tested.empty() || tested.back().shown() != "]"))
      return set_status(false), true;
    if (name == "[") tested.pop_back();
    if (tested.size() == 2 && tests_file(tested[0].shown()) && way_to(tested[1]))
      set_status(true);
    else
      set_status(truth_of_test(tested, [this](const std::string& n) { return is_set(n); }), node);
    return true;
  }
  if (name == "let") {
    ShellNumber last;
    for (const ShellText& word : rest) {
      const ShellSource& source = keep({encoded(word), {{0, node.all.place()}}});
      last = arithmetic({&source, 0, source.text.size()});
    }
    set_status({last.value ? truth_of(*last.value != 0) : Truth::unknown, last.names}, node);
    return true;
  }
  if (name == "eval") {
    ShellText all;
    for (const ShellText& word : rest) {
      if (!all.empty()) all.add({" ", node.all.place()});
      all.add(word);
    }
    run_text(all, node, false, {}, {});
    return true;
  }
  if (name == "command" || name == "builtin" || name == "exec") {
    if (rest.empty()) return set_status(true), true;
    if (rest[0].shown().starts_with("-")) return now_.status = {Truth::unknown, name, {}}, true;
    if (!run_builtin(rest[0].shown(), rest, node)) run_program(rest, node);
    if (name == "exec") now_.reached = false;
    return true;
  }
  if (name == "getopts" && now_.scopes.back().arguments.empty()) return set_status(false), true;
  if (name == "getopts" && rest.size() > 1) {
    assign_text(rest[1].shown(), {}, unknown_text("$" + rest[1].shown(), {}), false,
                node.all.place());
    assign_text("OPTARG", {}, unknown_text("$OPTARG", {}), false, node.all.place());
    now_.status = {Truth::unknown, "getopts", {}};
    return true;
  }
  require_followed(name, rest, node);
  const auto is_input = [](const ShellRedirection& redirection) {
    using Kind = ShellRedirection::Kind;
    return redirection.kind == Kind::document || redirection.kind == Kind::text;
  };
  if (name == "cat" && rest.empty() && !node.redirections.empty() &&
      std::ranges::all_of(node.redirections, is_input))
    return put_out(*input(node)), set_status(true), true;
  if (is_among(name, kNoLaunches)) {
    if (output_ != nullptr) output_->known = false;
    now_.status = {Truth::unknown, name, {}};
    return true;
  }
  return false;
}

bool ShellMachine::run_flow(const std::string& name, const std::vector<ShellText>& words,
                            const Node& node) {
  const auto count = words.size() > 1 ? parse_number<std::size_t>(words[1].shown()).value_or(1) : 1;
  if (name == "break" || name == "continue")
    return leave(std::max<std::size_t>(1, count), name == "continue"), true;
  if (name == "exit") {
    if (forks_ == 0 || !exited_at_) exited_at_ = node.all.place();
    now_.reached = false;
    return true;
  }
  if (name == "return") {
    if (words.size() > 1)
      set_status({words[1].known() ? truth_of(words[1].shown() == "0") : Truth::unknown, {}}, node);
    for (std::size_t at = frames_.size(); at > 0; --at) {
      if (frames_[at - 1].is_loop) continue;
      frames_[at - 1].left.push_back(now_);
      now_.reached = false;
      break;
    }
    return true;
  }
  if (name == "shift") {
    ShellScope& scope = now_.scopes.back();
    set_status(count <= scope.arguments.size());
    if (count <= scope.arguments.size()) {
      scope.arguments.erase(scope.arguments.begin(),
                            scope.arguments.begin() + static_cast<std::ptrdiff_t>(count));
      scope.given = true;
    }
    return true;
  }
  return false;
}

void ShellMachine::set_options(const std::vector<ShellText>& words) {
  set_status(true);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].shown();
    if (word.size() > 1 && word[0] == '-' && word[1] != '-') {
      if (word.find('e') != std::string::npos && word.find('o') != 1) now_.stops_on_failure = true;
      if (word.ends_with("o")) {
        ++i;
        if (i < words.size() && words[i].shown() == "errexit") now_.stops_on_failure = true;
      }
      continue;
    }
    if (word.starts_with("+")) {
      if (word.find('e') != std::string::npos) now_.stops_on_failure = false;
      if (word.ends_with("o")) ++i;
      continue;
    }
    if (word == "--") ++i;
    now_.scopes.back().arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i),
                                        words.end());
    for (ShellText& argument : now_.scopes.back().arguments)
      argument = without_quotes(std::move(argument));
    now_.scopes.back().given = true;
    return;
  }
}

// ---- output and input

void ShellMachine::put_out(const ShellText& text) {
  if (output_ != nullptr) output_->text.add(text);
}

void ShellMachine::echo(const std::vector<ShellText>& words) {
  std::size_t first = 1;
  bool line = true;
  for (; first < words.size() && words[first].known(); ++first) {
    const std::string option = words[first].shown();
    if (option == "-n")
      line = false;
    else if (option != "-E" && (option.size() < 2 || option[0] != '-' ||
                                option.find_first_not_of("neE", 1) != std::string::npos))
      break;
    else if (output_ != nullptr)
      output_->known = false;
  }
  ShellText out;
  for (std::size_t i = first; i < words.size(); ++i) {
    if (i > first) out.add({" ", {}});
    out.add(words[i]);
  }
  if (line) out.add({"\n", {}});
  put_out(out);
  set_status(true);
}

/// What `printf` makes of its words from the format on; unknown where a directive is beyond %s, %d.
ShellText ShellMachine::formatted(const std::vector<ShellText>& words, std::size_t first) {
  const ShellText unknown = unknown_text("$(printf)", {});
  if (first >= words.size() || !words[first].known()) return unknown;
  const std::string format = words[first].shown();
  std::size_t argument = first + 1;
  ShellText out;
  do {
    const std::size_t before = argument;
    for (std::size_t i = 0; i < format.size(); ++i) {
      const char c = format[i];
      if (c == '\\') {
        const char next = i + 1 < format.size() ? format[++i] : '\0';
        if (next != 'n' && next != 't' && next != '\\') return unknown;
        out.add({std::string(1, next == 'n' ? '\n' : next == 't' ? '\t' : '\\'), {}});
        continue;
      }
      if (c != '%') {
        out.add({std::string(1, c), {}});
        continue;
      }
      const std::size_t end = format.find_first_not_of("0123456789-+ ", i + 1);
      const char what = end == std::string::npos ? '\0' : format[end];
      const std::string flags = format.substr(i + 1, end == std::string::npos ? 0 : end - i - 1);
      i = end == std::string::npos ? format.size() : end;
      if (what == '%' && flags.empty()) {
        out.add({"%", {}});
        continue;
      }
      const ShellText value = argument < words.size() ? words[argument] : ShellText{};
      ++argument;
      if (what == 's' && flags.empty()) {
        out.add(value);
        continue;
      }
      const auto number = value.empty() ? std::optional<std::int64_t>(0)
                                        : parse_number<std::int64_t>(value.shown());
      const bool octal = value.shown().size() > 1 && value.shown()[0] == '0';
      if ((what != 'd' && what != 'i') || flags.size() > 4 || !value.known() || !number || octal)
        return unknown;
      std::array<char, 10'100> text{};
      std::snprintf(text.data(), text.size(), ("%" + flags + "ld").c_str(), *number);
      out.add({text.data(), {}});
    }
    if (argument == before) break;
  } while (argument < words.size());
  return out;
}

void ShellMachine::print(const std::vector<ShellText>& words, const Node& node) {
  std::size_t first = 1;
  std::string variable;
  if (words.size() > 2 && words[1].shown() == "-v") {
    variable = words[2].shown();
    first = 3;
  }
  if (first < words.size() && words[first].shown() == "--") ++first;
  const ShellText text = formatted(words, first);
  set_status(true);
  if (variable.empty()) {
    if (output_ != nullptr && !text.known() && text.shown() == "$(printf)") output_->known = false;
    return put_out(text);
  }
  const std::size_t open = variable.find('[');
  std::optional<std::string> index;
  if (open != std::string::npos && variable.ends_with("]"))
    index = variable.substr(open + 1, variable.size() - open - 2);
  assign_text(variable.substr(0, open), index, text, false, node.all.place());
}

/// Standard input, where the script itself says what it is.
std::optional<ShellText> ShellMachine::input(const Node& node) {
  std::optional<ShellText> out;
  for (const ShellRedirection& redirection : node.redirections) {
    using Kind = ShellRedirection::Kind;
    if (redirection.kind == Kind::file) out.reset();
    if (redirection.kind == Kind::text) {
      out = without_quotes(expand_one(redirection.word));
      out->add({"\n", redirection.word.place()});
    }
    if (redirection.kind != Kind::document) continue;
    ShellWord lines = redirection.word;
    if (redirection.strips) {
      std::string text = lines.text();
      for (std::size_t at = 0; at < text.size();
           at = std::min(text.find('\n', at), text.size() - 1) + 1)
        while (at < text.size() && text[at] == '\t') text.erase(at, 1);
      const ShellSource& source = keep({std::move(text), {{0, lines.place()}}});
      lines = {&source, 0, source.text.size()};
    }
    if (redirection.literal) {
      out = known_text(lines.text(), lines.place());
    } else {
      out = without_quotes(expand_one(lines, true));
    }
  }
  return out;
}

void ShellMachine::read(const std::vector<ShellText>& words, const Node& node) {
  std::vector<std::string> names;
  bool raw = false, array = words[0].shown() != "read", plain = !array;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].shown();
    if (word.starts_with("-") && word.size() > 1) {
      if (word.find('r') != std::string::npos) raw = true;
      if (word.find('a') != std::string::npos) array = true;
      if (word.find_first_not_of("-ra") != std::string::npos) {
        if (word == "-t" && !plain) continue;
        plain = false;
        if (std::string_view("dinNptu").find(word.back()) != std::string_view::npos) ++i;
      }
      continue;
    }
    names.push_back(word);
  }
  if (names.empty()) names.emplace_back(words[0].shown() == "read" ? "REPLY" : "MAPFILE");
  const auto text = input(node);
  const auto cuts = separators();
  const bool usual = cuts && (*cuts == " \t\n" || (cuts->size() == 1 && !is_blank((*cuts)[0])));
  const bool told = text && text->known() && plain && usual &&
                    (raw || text->shown().find('\\') == std::string::npos);
  if (!told) {
    for (const std::string& name : names) {
      ShellNames asked = text ? text->names() : ShellNames{};
      if (asked.empty()) asked = {name};
      assign_text(name, {}, unknown_text("$" + name, asked, node.all.place()), false,
                  node.all.place());
    }
    now_.status = {Truth::unknown, words[0].shown(), {}};
    return;
  }
  const std::string all = text->shown();
  std::string line = all.substr(0, all.find('\n'));
  const auto is_cut = [&](char c) { return cuts->find(c) != std::string::npos; };
  const bool blanks = cuts->size() > 1;
  std::vector<std::string> parts;
  std::size_t at = 0;
  const auto skip = [&] {
    while (blanks && at < line.size() && is_cut(line[at])) ++at;
  };
  while (blanks && !line.empty() && is_cut(line.back())) line.pop_back();
  for (skip(); at < line.size() && (array || parts.size() + 1 < names.size()); skip()) {
    std::size_t end = at;
    while (end < line.size() && !is_cut(line[end])) ++end;
    parts.push_back(line.substr(at, end - at));
    at = blanks ? end : std::min(end + 1, line.size());
  }
  if (!array) {
    std::string last = line.substr(std::min(at, line.size()));
    if (!blanks && !last.empty() && is_cut(last.back()) && std::ranges::count_if(last, is_cut) == 1)
      last.pop_back();
    parts.push_back(last);
  }
  const ShellPlace place = node.all.place();
  if (array) {
    if (!may_assign(names[0], false, place)) return;
    ShellVariable variable;
    variable.kind = ShellVariable::Kind::indexed;
    for (std::size_t i = 0; i < parts.size(); ++i)
      variable.items[static_cast<std::int64_t>(i)] = known_text(parts[i], place);
    now_.variables[names[0]] = variable;
  } else {
    for (std::size_t i = 0; i < names.size(); ++i)
      assign_text(names[i], {}, known_text(i < parts.size() ? parts[i] : "", place), false, place);
  }
  set_status(all.find('\n') != std::string::npos);
}

// ---- paths

void ShellMachine::change_folder(const std::vector<ShellText>& words) {
  set_status(true);
  if (words.size() < 2) {
    now_.folder = unknown_text("$HOME", {});
    return;
  }
  const ShellText& path = words.back();
  const bool begins = !path.empty() && (path.pieces[0].folder || path.shown().starts_with("/"));
  if (begins) {
    now_.folder = without_quotes(path);
  } else {
    now_.folder.add({"/", path.empty() ? ShellPlace{} : path.pieces[0].place});
    now_.folder.add(path);
  }
  if (!is_there(now_.folder)) now_.status = {Truth::unknown, "cd " + path.shown(), path.names()};
}

/// Is it the script's folder, one around it, or one in it?
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

/// Programs that print a path.
bool ShellMachine::put_path(const std::string& name, const std::vector<ShellText>& words) {
  if (output_ == nullptr) return false;
  ShellText path = words.size() > 1 ? without_quotes(words.back()) : ShellText{};
  const bool begins = !path.empty() && (path.pieces[0].folder || path.pieces[0].known);
  if (name == "pwd") {
    path = now_.folder;
  } else if (name == "realpath" || name == "readlink") {
    if (!begins || (name == "readlink" && words.size() < 3)) return false;
    if (!path.pieces[0].folder && !path.pieces[0].text.starts_with("/")) return false;
  } else if (name == "dirname" || (name == "basename" && words.size() < 4)) {
    ShellText suffix;
    if (name == "basename" && words.size() == 3) {
      suffix = path;
      path = without_quotes(words[1]);
    }
    if (path.empty() || !suffix.known()) return false;
    ShellPiece& last = path.pieces.back();
    const std::size_t slash = last.known ? last.text.rfind('/') : std::string::npos;
    if (name == "basename") {
      std::string base = last.known ? last_part(last.text) : "";
      if (base.empty() || (slash == std::string::npos && path.pieces.size() > 1)) return false;
      if (base != suffix.shown() && base.ends_with(suffix.shown()))
        base.resize(base.size() - suffix.size());
      path = known_text(base, last.place);
    } else if (slash == std::string::npos) {
      if (path.pieces.size() == 1 && last.folder)
        path.add({"/..", last.place});
      else if (path.pieces.size() == 1 && last.known)
        path = known_text(".", last.place);
      else
        return false;
    } else {
      if (slash + 1 == last.text.size() || (slash == 0 && path.pieces.size() == 1)) return false;
      last.text.resize(slash);
      if (last.text.empty()) path.pieces.pop_back();
    }
  } else {
    return false;
  }
  path.add({"\n", {}});
  put_out(path);
  set_status(true);
  return true;
}

// ---- assignments

bool ShellMachine::may_assign(const std::string& name, bool from_itself, const ShellPlace& place) {
  if (name.empty() || !std::ranges::all_of(name, is_name) || (name[0] >= '0' && name[0] <= '9'))
    throw ShellError{place, "'" + name + "' is no name of a variable"};
  const auto at = now_.variables.find(name);
  if (at == now_.variables.end()) return true;
  if (at->second.readonly) throw ShellError{place, "'" + name + "' is assigned, which is readonly"};
  return !at->second.fixed || from_itself;
}

void ShellMachine::assign(const ShellAssignment& assignment, bool local) {
  const ShellPlace place =
      assignment.value.source != nullptr ? assignment.value.place() : ShellPlace{};
  if (assignment.is_array) {
    const bool itself = names_itself(assignment);
    ShellVariable variable;
    if (const auto at = now_.variables.find(assignment.name); at != now_.variables.end())
      variable = at->second;
    assign_array(assignment, variable);
    if (may_assign(assignment.name, itself, place))
      now_.variables[assignment.name] = std::move(variable);
    return;
  }
  ShellText text = without_quotes(expand_one(assignment.value));
  // of what nothing sets, the script's own variable begins empty
  std::erase_if(text.pieces, [&](const ShellPiece& piece) {
    return piece.absent && piece.names == ShellNames{assignment.name} && text.pieces.size() > 1;
  });
  if (!may_assign(assignment.name, local || names_itself(assignment), place)) return;
  std::optional<std::string> index;
  if (assignment.index.source != nullptr) index = index_text(assignment.index);
  assign_text(assignment.name, index, std::move(text), assignment.adds, place, true);
}

std::string ShellMachine::index_text(const ShellWord& word) { return encoded(expand_one(word)); }

std::optional<std::int64_t> ShellMachine::index_of(const std::string& text,
                                                   const ShellPlace& place) {
  const ShellSource& source = keep({text, {{0, place}}});
  return arithmetic({&source, 0, source.text.size()}).value;
}

void ShellMachine::assign_array(const ShellAssignment& assignment, ShellVariable& variable) {
  if (!assignment.adds) {
    variable.items.clear();
    variable.keyed.clear();
    variable.counted = true;
  } else if (variable.kind == ShellVariable::Kind::scalar && !variable.value.empty()) {
    variable.items[0] = variable.value;
  }
  variable.value = {};
  if (variable.kind != ShellVariable::Kind::keyed) variable.kind = ShellVariable::Kind::indexed;
  std::int64_t next = variable.items.empty() ? 0 : variable.items.rbegin()->first + 1;
  for (const ShellAssignment::Element& element : assignment.elements) {
    if (variable.kind == ShellVariable::Kind::keyed) {
      if (element.index.source == nullptr)
        throw ShellError{element.value.place(), "stands in an array of keys without its [key]"};
      variable.keyed[index_text(element.index)] = without_quotes(expand_one(element.value));
      continue;
    }
    if (element.index.source != nullptr) {
      const auto index = index_of(index_text(element.index), element.index.place());
      if (!index || *index < 0 || element.adds) {
        variable = {};
        variable.value = unknown_text("${" + assignment.name + "[@]}", {assignment.name});
        return;
      }
      variable.items[*index] = without_quotes(expand_one(element.value));
      next = *index + 1;
      continue;
    }
    std::vector<ShellText> words;
    expand_fields(element.value, words);
    for (ShellText& word : words) {
      const bool single = word.known() || word.pieces.size() > 1 || word.pieces[0].quoted;
      variable.counted = variable.counted && single;
      if (single) word = without_quotes(std::move(word));
      if (single && !word.known() && word.pieces.size() == 1) word.pieces[0].quoted = true;
      variable.items[next++] = std::move(word);
    }
  }
}

void ShellMachine::put_text(ShellVariable& variable, ShellText text, bool adds) {
  if (variable.integer) {
    const ShellSource& source = keep({encoded(text), {{0, {}}}});
    ShellNumber number = arithmetic({&source, 0, source.text.size()});
    if (adds && number.value) {
      const ShellSource& before = keep({encoded(variable.value), {{0, {}}}});
      const ShellNumber old = arithmetic({&before, 0, before.text.size()});
      if (old.value)
        number.value = static_cast<std::int64_t>(static_cast<std::uint64_t>(*old.value) +
                                                 static_cast<std::uint64_t>(*number.value));
      else
        number = old;
    }
    variable.value = number.value ? known_text(std::to_string(*number.value),
                                               text.empty() ? ShellPlace{} : text.pieces[0].place)
                                  : unknown_text(text.shown(), number.names);
    return;
  }
  if (adds) {
    ShellText all = variable.value;
    all.add(text);
    text = std::move(all);
  }
  if (variable.upper || variable.lower)
    for (ShellPiece& piece : text.pieces)
      for (char& c : piece.text)
        c = static_cast<char>(variable.upper ? std::toupper(static_cast<unsigned char>(c))
                                             : std::tolower(static_cast<unsigned char>(c)));
  variable.value = std::move(text);
}

void ShellMachine::assign_text(const std::string& name, const std::optional<std::string>& index,
                               ShellText text, bool adds, const ShellPlace& place, bool may) {
  if (!may && !may_assign(name, adds, place)) return;
  steps_ += text.pieces.size() / 64;
  const bool only = text.pieces.size() == 1;
  for (ShellPiece& piece : text.pieces) {
    piece.quoted = false;
    if (piece.known || !piece.names.empty()) continue;
    piece.names = {name};
    if (only && !piece.folder && !piece.choice) piece.text = "$" + name;
  }
  ShellVariable& variable = now_.variables[name];
  if (variable.kind == ShellVariable::Kind::unset) variable.kind = ShellVariable::Kind::scalar;
  if (index && variable.kind == ShellVariable::Kind::keyed) {
    ShellVariable item;
    item.integer = variable.integer;
    item.value = variable.keyed[*index];
    put_text(item, std::move(text), adds);
    variable.keyed[*index] = item.value;
    return;
  }
  if (!index && variable.kind == ShellVariable::Kind::scalar)
    return put_text(variable, std::move(text), adds);
  const auto at = index ? index_of(*index, place) : std::optional<std::int64_t>(0);
  ShellVariable& array = now_.variables[name];  // the index may have made variables
  const bool was_scalar = array.kind == ShellVariable::Kind::scalar;
  if (was_scalar) {
    if (!array.value.empty()) array.items[0] = array.value;
    array.value = {};
    array.kind = ShellVariable::Kind::indexed;
  }
  std::int64_t item_at = at.value_or(0);
  if (at && *at < 0 && !array.items.empty()) item_at += array.items.rbegin()->first + 1;
  // What is not known of a variable may be further elements.
  const bool untold = index && was_scalar && !array.items.empty() &&
                      !std::ranges::all_of(array.items[0].pieces, &ShellPiece::known);
  if (!at || item_at < 0 || !array.counted || untold) {
    const bool integer = array.integer;
    array = {};
    array.integer = integer;
    array.value = unknown_text("${" + name + "[@]}", {name});
    return;
  }
  ShellVariable item;
  item.integer = array.integer;
  if (const auto old = array.items.find(item_at); old != array.items.end())
    item.value = old->second;
  put_text(item, std::move(text), adds);
  now_.variables[name].items[item_at] = item.value;
}

void ShellMachine::declare(const Node& node) {
  std::string flags;
  std::size_t first = 0;
  while (node.arguments[first].assignment) ++first;
  const std::string command = node.arguments[first].word.text();
  if (command == "export") flags = "x";
  if (command == "readonly") flags = "r";
  if (command == "local" ||
      (now_.scopes.size() > 1 && command != "export" && command != "readonly"))
    flags = "@";
  set_status(true);
  for (std::size_t i = first + 1; i < node.arguments.size(); ++i) {
    const ShellArgument& argument = node.arguments[i];
    if (!argument.assignment) {
      std::vector<ShellText> words;
      expand_fields(argument.word, words);
      if (words.size() == 1 && words[0].known() && words[0].shown().starts_with("-")) {
        flags += words[0].shown().substr(1);
        continue;
      }
      for (const ShellText& word : words) {  // a word that says NAME=VALUE, or NAME
        const ShellSource& source = keep({encoded(word), {{0, node.all.place()}}});
        const ShellWord whole{&source, 0, source.text.size()};
        ShellArgument made{whole, nullptr};
        if (const std::size_t equals = source.text.find('='); equals != std::string::npos) {
          auto assignment = std::make_shared<ShellAssignment>();
          assignment->name = source.text.substr(0, equals);
          assignment->value = {&source, equals + 1, source.text.size()};
          made.assignment = assignment;
        }
        declare_one(made, flags, node);
      }
      continue;
    }
    declare_one(argument, flags, node);
  }
}

void ShellMachine::declare_one(const ShellArgument& argument, const std::string& flags,
                               const Node& node) {
  const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
  const std::string name = argument.assignment ? argument.assignment->name : argument.word.text();
  if (has('f') || has('p') || has('F')) return;
  if (has('n'))
    throw ShellError{
        node.all.place(),
        "declares '" + name + "' as another name of a variable, which is not followed"};
  if (has('@') && !has('g')) hide(name);
  const bool changes = argument.assignment || flags.find_first_of("aAilur") != std::string::npos;
  if (!changes && !now_.variables.contains(name)) return;
  using Kind = ShellVariable::Kind;
  if (!now_.variables.contains(name)) now_.variables[name].kind = Kind::unset;
  ShellVariable& variable = now_.variables[name];
  const Kind kind = has('A') ? Kind::keyed : has('a') ? Kind::indexed : variable.kind;
  if (variable.kind == Kind::unset) variable.kind = kind;
  variable.integer = variable.integer || has('i');
  variable.upper = variable.upper || has('u');
  variable.lower = variable.lower || has('l');
  variable.exported = variable.exported || has('x');
  if (argument.assignment) assign_last(*argument.assignment);
  if (has('r')) now_.variables[name].readonly = true;
}

/// Makes a variable the function's own until it returns.
void ShellMachine::hide(const std::string& name) {
  ShellScope& scope = now_.scopes.back();
  if (now_.scopes.size() < 2 || scope.shadowed.contains(name)) return;
  const auto at = now_.variables.find(name);
  scope.shadowed[name] = at == now_.variables.end() ? std::nullopt : std::optional(at->second);
  if (at != now_.variables.end() && at->second.fixed) return;
  now_.variables[name] = {};
  now_.variables[name].kind = ShellVariable::Kind::unset;
}

/// Of `export A={a,b}`, which is two, the last.
void ShellMachine::assign_last(const ShellAssignment& assignment) {
  const ShellWord& value = assignment.value;
  const std::vector<std::string> all =
      value.source == nullptr ? std::vector<std::string>{} : braces(value.text());
  if (all.size() < 2) return assign(assignment);
  ShellAssignment last = assignment;
  const ShellSource& source = keep({all.back(), {{0, value.place()}}});
  last.value = {&source, 0, source.text.size()};
  assign(last);
}

void ShellMachine::unset(const std::vector<ShellText>& words) {
  set_status(true);
  bool functions = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].shown();
    if (name == "-f") functions = true;
    if (name.starts_with("-") || !words[i].known()) continue;
    if (functions || (!now_.variables.contains(name) && now_.functions.contains(name))) {
      now_.functions.erase(name);
      continue;
    }
    const std::size_t open = name.find('[');
    if (open != std::string::npos) {
      const auto at = now_.variables.find(name.substr(0, open));
      if (at == now_.variables.end()) continue;
      const std::string index = name.substr(open + 1, name.size() - open - 2);
      const auto number = at->second.kind == ShellVariable::Kind::indexed && at->second.counted
                              ? index_of(index, words[i].pieces[0].place)
                              : std::nullopt;
      ShellVariable& array = now_.variables[name.substr(0, open)];
      if (array.kind == ShellVariable::Kind::keyed) {
        array.keyed.erase(index);
      } else if (number && *number >= 0) {
        array.items.erase(*number);
      } else {
        array = {};
        array.value = unknown_text("${" + name.substr(0, open) + "[@]}", {name.substr(0, open)});
      }
      continue;
    }
    if (!may_assign(name, false, words[i].empty() ? ShellPlace{} : words[i].pieces[0].place))
      continue;
    now_.variables[name] = {};
    now_.variables[name].kind = ShellVariable::Kind::unset;
  }
}

}  // namespace penstock
