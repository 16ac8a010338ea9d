// SPDX-License-Identifier: Apache-2.0
// Programs, none of which is run: the launches among them, and those that read a script.
#include "base/error.hpp"
#include "base/output_file.hpp"
#include "scenarios/shell_machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace penstock {
namespace {

constexpr int kDeepestScripts = 40;
constexpr std::size_t kMostLaunches = 1'000;
constexpr std::uintmax_t kLargestFile = 1 << 20;

/// Programs that start no job; their words are no options of a launch.
constexpr std::string_view kNoLaunches[] = {
    "cat",    "tee",        "grep",  "egrep",  "sed",   "awk",      "cut",   "head",     "tail",
    "sort",   "uniq",       "tr",    "wc",     "date",  "hostname", "mkdir", "rm",       "cp",
    "mv",     "ln",         "ls",    "chmod",  "touch", "find",     "git",   "pip",      "pip3",
    "conda",  "module",     "ml",    "wget",   "curl",  "tar",      "sleep", "scontrol", "sinfo",
    "squeue", "nvidia-smi", "which", "logger", "diff",  "pushd",    "popd"};

constexpr std::string_view kShells[] = {"bash", "sh", "zsh", "dash"};

/// Scripts that prepare an interactive shell and set nothing of a job.
constexpr std::string_view kEnvironments[] = {"activate", ".bashrc",   ".bash_profile",
                                              ".profile", "conda.sh",  "modules.sh",
                                              "profile",  "setvars.sh"};

template <std::size_t n>
bool is_among(std::string_view name, const std::string_view (&names)[n]) {
  return std::ranges::find(names, name) != std::end(names);
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

ShellWords words_from(const ShellWords& words, std::size_t first) {
  return {words.begin() + static_cast<std::ptrdiff_t>(std::min(first, words.size())), words.end()};
}

}  // namespace

void ShellMachine::run_program(const ShellWords& words, const Node& node) {
  if (output_ != nullptr) output_->known = false;
  const std::string name = words[0].known() ? last_part(words[0].shown()) : "";
  const bool file = name.ends_with(".sh") || name.ends_with(".sbatch") || name.ends_with(".slurm");
  if (name == "pushd" || name == "popd") now_.folder = unknown_text("$PWD", {});
  if (!is_among(name, kNoLaunches) && !run_inner_shell(words, node)) {
    if (const auto own = file ? file_of(words[0], node) : std::nullopt) {
      run_own_shell(words_from(words, 1), {}, [&] { run_file(*own, {}, node); });
    } else {
      if (launches_.size() + strays_.size() > kMostLaunches)
        throw ShellError{
            node.all.place(),
            fmt::format("starts more than {} programs up to here: such a script is not followed",
                        kMostLaunches)};
      ShellWords all = words;
      if (name == "run_train.sh") add_environment(all);
      (name.starts_with("-") ? strays_ : launches_)
          .push_back({std::move(all), node.all.place(), false, exported("NVTE_")});
    }
  }
  now_.status = {Truth::unknown, name, {}};
}

/// Returns the variables with names that begin so which a program gets that is started here.
std::map<std::string, std::string> ShellMachine::exported(const std::string& beginning) const {
  std::map<std::string, std::string> out;
  for (auto at = now_.variables.lower_bound(beginning);
       at != now_.variables.end() && at->first.starts_with(beginning); ++at)
    if (at->second.exported) out[at->first] = at->second.value.shown();
  return out;
}

/// Adds what torchtitan's run_train.sh makes of its environment, where it is not there to be read.
void ShellMachine::add_environment(ShellWords& words) const {
  for (const auto& [name, option] :
       {std::pair{"NGPU", "--nproc-per-node"}, std::pair{"CONFIG_FILE", "--job.config_file"},
        std::pair{"MODULE", "--module"}, std::pair{"CONFIG", "--config"}}) {
    const auto variable = now_.variables.find(name);
    if (variable == now_.variables.end() || !variable->second.exported) continue;
    words.insert(words.begin() + 1,
                 {known_text(option, words[0].pieces[0].place), variable->second.value});
  }
}

/// Follows the script that a shell gets which is started here. Returns whether there is one.
bool ShellMachine::run_inner_shell(const ShellWords& words, const Node& node) {
  const auto text_at = [&](std::size_t i) {
    return i < words.size() && words[i].known() ? words[i].shown() : std::string();
  };
  const std::string program = last_part(text_at(0));
  const bool remote = program == "ssh" || program == "pdsh" || program == "clush";
  const auto until = [&](std::size_t end) {
    return ShellWords(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (program == "sbatch" && text_at(i) == "--wrap" && i + 1 < words.size())
      return run_own_shell({}, until(i), [&] { run_text(words[i + 1], node); }), true;
    if (program == "sbatch" && words[i].shown().starts_with("--wrap=")) {
      ShellText text = words[i];
      text.pieces[0].text.erase(0, std::min<std::size_t>(7, text.pieces[0].text.size()));
      return run_own_shell({}, until(i), [&] { run_text(text, node); }), true;
    }
    if (!is_among(last_part(text_at(i)), kShells)) continue;
    std::size_t at = i + 1;
    bool command = false;
    for (; text_at(at).starts_with("-") && !command; ++at)
      command = !text_at(at).starts_with("--") && text_at(at).ends_with("c");
    if (at >= words.size()) break;
    if (!command) return run_script(words, i, at, node);
    run_own_shell(words_from(words, at + 2), until(i), [&] { run_text(words[at], node); });
    return true;
  }
  for (std::size_t i = 1; program == "sbatch" && i < words.size(); ++i)
    if (!text_at(i).starts_with("-") && run_script(words, i, i, node)) return true;
  if (remote && words.size() > 2 && text_at(words.size() - 1).find(' ') != std::string::npos)
    return run_own_shell({}, {}, [&] { run_text(words.back(), node); }), true;
  if (!is_among(program, kShells) && program != "sbatch" && !remote) return false;
  const auto text = input_;
  if (text)
    run_own_shell({}, words, [&] {
      if (program == "sbatch") take_batch(text->shown());
      run_text(*text, node);
    });
  return text.has_value();
}

/// Runs the script that a word names in a shell of its own, if it is there or the script wrote it.
/// `program`: which word starts it; those before it stand in front of what it launches.
bool ShellMachine::run_script(const ShellWords& words, std::size_t program, std::size_t at,
                              const Node& node) {
  const auto file = file_of(words[at], node);
  const auto kept = written_.find(written_name(words[at]));
  if (!file && kept == written_.end()) return false;
  const ShellText text =
      file ? known_text(files_[static_cast<std::size_t>(*file)].text) : kept->second;
  const ShellWords before(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(program));
  run_own_shell(words_from(words, at + 1), before, [&] {
    if (last_part(words[0].shown()) == "sbatch") take_batch(text.shown());
    if (file)
      run_file(*file, {}, node);
    else
      run_text(text, node);
  });
  return true;
}

std::string ShellMachine::written_name(const ShellText& path) {
  return std::filesystem::path(path.shown()).lexically_normal().string();
}

/// Runs commands in a shell that has of the variables those that are exported. `before`: the words
/// in front of what it starts.
void ShellMachine::run_own_shell(const ShellWords& arguments, const ShellWords& before,
                                 const std::function<void()>& commands) {
  const std::size_t launches = launches_.size();
  run_apart([&] {
    std::erase_if(now_.variables,
                  [](const auto& one) { return !one.second.exported && !one.second.fixed; });
    now_.functions.clear();
    now_.scopes.emplace_back();
    set_arguments(arguments, 0);
    now_.stops_on_failure = now_.exports_all = false;
    commands();
  });
  for (std::size_t i = launches; i < launches_.size(); ++i)
    launches_[i].words.insert(launches_[i].words.begin(), before.begin(), before.end());
}

// ---- texts and files

/// Runs a text that is a script: of `eval`, `bash -c` and the like.
void ShellMachine::run_text(const ShellText& text, const Node& node) {
  if (++depth_ > kDeepestScripts)
    throw ShellError{node.all.place(), "is called too deeply within itself"};
  count_step(node.all.place(), text.size());
  ShellSource source;
  for (const ShellPiece& piece : text.pieces) {
    source.origins.emplace_back(source.text.size(), piece.place);
    source.text += encoded({{piece}});
  }
  if (source.origins.empty()) source.origins.emplace_back(0, node.all.place());
  const ShellTree tree = read_shell(keep(std::move(source)));
  run(*tree);
  --depth_;
}

void ShellMachine::run_file(int file, const ShellWords& arguments, const Node& node) {
  if (++depth_ > kDeepestScripts || reading_.size() > 10 ||
      std::ranges::find(reading_, file) != reading_.end())
    throw ShellError{node.all.place(), "reads itself, or files too deep within one another"};
  std::string text = files_[static_cast<std::size_t>(file)].text;
  count_step(node.all.place(), text.size());
  const ShellTree tree = read_shell(keep(shell_source(std::move(text), file)));
  reading_.push_back(file);
  if (!arguments.empty()) {
    now_.scopes.emplace_back();
    set_arguments(arguments, 0);
  }
  frames_.emplace_back();
  run(*tree);
  join_all(close_frame());
  if (!arguments.empty() && now_.reached) now_.scopes.pop_back();
  reading_.pop_back();
  --depth_;
}

/// Returns the way from the script's folder to the file of a path, where that is known, or known
/// from there on, and the file is there.
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

/// Reads the file of a path. Returns its number; none where it is not there.
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

void ShellMachine::run_source(const ShellWords& words, const Node& node) {
  if (words.size() < 2) return set_status(false);
  const ShellText& path = words[1];
  if (const auto file = file_of(path, node)) return run_file(*file, words_from(words, 2), node);
  if (const auto kept = written_.find(written_name(path)); kept != written_.end())
    return run_text(ShellText(kept->second), node);
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
  const ShellPlace place = path.empty() ? ShellPlace{} : path.pieces[0].place;
  const bool defined = place.file == 0 && place.line == 1 && place.column == 1;  // or there is none
  missing_.push_back(diagnostic(defined ? node.all.place() : place, message));
}

}  // namespace penstock
