// SPDX-License-Identifier: Apache-2.0
#include "scenarios/shell_words.hpp"

#include "scenarios/document.hpp"
#include "scenarios/shell_machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cctype>
#include <filesystem>
#include <span>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t kMostOptions = 20'000;

/// `--name`, `--name=value`; "-5", "-" and a text with blanks in front of any '=' are values.
bool is_option(std::string_view word) {
  if (!word.starts_with("--") || word.size() < 3) return false;
  const std::string_view name = word.substr(2, word.find('=') - 2);
  return !name.empty() &&
         std::ranges::none_of(name, [](char c) { return is_blank(c) || c == '\''; });
}

std::string with_sign(const std::string& a, const std::string& b) {
  constexpr std::size_t kShown = 200;
  if (a.empty() || b.empty() || a == b) return a.empty() ? b : a;
  return a.size() > kShown ? a : a + " && " + b;
}

std::string inverted(const std::string& condition) {
  return condition.starts_with("! ") ? condition.substr(2) : "! " + condition;
}

/// The name of a variable that holds options, as such names go.
bool sounds_like_options(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return std::ranges::any_of(
      std::array{"ARG", "OPT", "FLAG", "PARAM", "EXTRA", "LAUNCH", "CONFIG"},
      [&](const char* part) { return name.find(part) != std::string::npos; });
}

bool sounds_like_file(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return std::ranges::any_of(
      std::array{"SCRIPT", "PATH", "FILE", "DIR", "PY", "EXE", "HOME", "ROOT", "BIN"},
      [&](const char* part) { return name.find(part) != std::string::npos; });
}

/// Adds to `--gres gpu:a100:4`, `--gpus-per-node a100:4` and `--gpus a100:4` a number alone, and
/// the GPU's name.
std::vector<ScriptOption> with_gpus(std::vector<ScriptOption> options) {
  std::vector<ScriptOption> out;
  for (ScriptOption& option : options) {
    const std::string value = option.values.empty() ? "" : option.values[0];
    const bool gres = option.name == "gres" && value.starts_with("gpu");
    if (gres) out.push_back(option);
    if (gres || option.name == "gpus-per-node" || option.name == "gpus") {
      const std::string all = value.substr(0, value.find_first_of(",("));
      const std::size_t last = all.rfind(':');
      const std::size_t first = gres ? all.find(':') : 0;
      std::string model;
      if (last != all.npos && last > first)
        model = all.substr(first + (gres ? 1 : 0), last - first - (gres ? 1 : 0));
      if (gres) option.name = "gpus-per-node";
      if (last != all.npos) option.values = {all.substr(last + 1)};
      if (!model.empty()) {
        out.push_back(option);
        option.name = "gpu-model";
        option.values = {model};
      }
      if (gres && last == all.npos) continue;
    }
    out.push_back(std::move(option));
  }
  return out;
}

/// Returns the long name of a short option of Slurm that counts nodes, tasks or GPUs (`-N`, `-N4`,
/// `-Ga100:4`); null where it is another, or a program's word that begins alike (`-name`).
const char* slurm_count(std::string_view text) {
  if (text.size() < 2 || text[0] != '-') return nullptr;
  const std::string_view value = text.substr(2);
  const std::size_t digits = text[1] == 'G' ? value.rfind(':') + 1 : 0;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool counts = !value.empty() && std::ranges::all_of(value.substr(digits), is_digit);
  if (!value.empty() && !counts) return nullptr;
  switch (text[1]) {
    case 'N': return "nodes";
    case 'n': return "ntasks";
    case 'G': return "gpus";
    default: return nullptr;
  }
}

struct Condition {
  std::string text;
  ShellNames names;
};

/// The words of a launch as options.
class Options {
 public:
  Options(const ShellMachine& machine, const std::vector<ScriptOption>& batch)
      : machine_(machine), out_(batch) {}

  std::vector<ScriptOption> of(const ShellLaunch& launch) {
    const std::string program = launch.words[0].known() ? launch.words[0].shown() : "";
    launcher_ = program.substr(program.rfind('/') + 1);
    for (const ShellText& word : launch.words) {
      add(word, {});
      first_ = false;
    }
    return with_gpus(std::move(out_));
  }

 private:
  void add(const ShellText& word, const Condition& under) {
    if (word.empty()) return add_value(word, under);
    const ShellPiece& piece = word.pieces.front();
    const bool alone = word.pieces.size() == 1 && !piece.known && !piece.quoted;
    if (alone && piece.choice && has_option(*piece.choice, 0)) return add_choice(piece, under);
    if (alone && is_bundle(piece)) return add_bundle(word, under);
    if (!is_option(word.shown())) return add_value(word, under);
    add_option(word, under);
  }

  static bool has_option(const ShellChoice& choice, int depth) {
    const auto in = [&](const ShellText& text) {
      return std::ranges::any_of(text.pieces, [&](const ShellPiece& piece) {
        if (piece.choice) return depth < 20 && has_option(*piece.choice, depth + 1);
        const std::size_t at = piece.text.find("--");
        return at != std::string::npos && (at == 0 || is_blank(piece.text[at - 1]));
      });
    };
    return std::ranges::any_of(choice.yes, in) || std::ranges::any_of(choice.no, in);
  }

  void add_choice(const ShellPiece& piece, const Condition& under) {
    if (++depth_ > 40) return;
    Condition yes = under, no = under;
    add_names(yes.names, piece.names);
    add_names(no.names, piece.names);
    yes.text = with_sign(under.text, piece.choice->condition);
    no.text = with_sign(under.text, inverted(piece.choice->condition));
    const std::size_t before = out_.size();
    for (const ShellText& text : piece.choice->yes) add_words(text, yes);
    if (out_.size() > before) open_ = true;
    for (const ShellText& text : piece.choice->no) add_words(text, no);
    --depth_;
  }

  /// A text of one of the ways, cut at its blanks.
  void add_words(const ShellText& text, const Condition& under) {
    ShellText word;
    const auto end = [&] {
      if (!word.empty()) add(word, under);
      word = {};
    };
    for (const ShellPiece& piece : text.pieces) {
      if (!piece.known) {
        const bool whole =
            piece.choice && piece.choice->yes.size() == 1 && piece.choice->no.size() == 1;
        if (whole && is_cut_before(piece)) end();
        word.add(piece);
        if (whole && is_cut_behind(piece)) end();
        continue;
      }
      std::string part;
      const auto flush = [&] {
        if (part.empty()) return;
        ShellPiece one = piece;
        one.text = std::exchange(part, "");
        word.add(std::move(one));
      };
      for (const char c : piece.text) {
        if (!is_blank(c)) {
          part += c;
          continue;
        }
        flush();
        end();
      }
      flush();
    }
    end();
  }

  /// May it hold options? A word behind an option is its value, unless its name says otherwise.
  bool is_bundle(const ShellPiece& piece) const {
    const std::string name = piece.names.empty() ? "" : piece.names.front();
    if (piece.text.starts_with("${#")) return false;
    if (piece.text.ends_with("[@]}") || piece.text.ends_with("[*]}")) return true;
    if (piece.folder || piece.text == "$@" || piece.text == "$*") return false;
    if (sounds_like_options(piece.text)) return true;
    const bool value = open_ && !out_.empty() && out_.back().values.empty();
    if (value || first_) return false;
    // A program that trains takes options alone; what starts it takes its file, too.
    if (of_program_) return piece.text.starts_with("$") || piece.text.starts_with("`");
    return !name.empty() && piece.text.starts_with("$") && !piece.text.starts_with("$(") &&
           !sounds_like_file(piece.text);
  }

  ScriptOption made(std::string name, const ShellText& word, const Condition& under) const {
    ScriptOption option;
    option.name = std::move(name);
    const ShellPlace place = word.empty() ? ShellPlace{} : word.pieces.front().place;
    option.place = machine_.diagnostic(place, "");
    option.line = option.place.where.line;
    option.condition = under.text;
    option.asked = under.names;
    return option;
  }

  void add_bundle(const ShellText& word, const Condition& under) {
    ScriptOption option = made(word.shown(), word, under);
    add_names(option.asked, word.names());
    option.bundle = true;
    push(std::move(option));
    open_ = false;
  }

  void add_option(const ShellText& word, const Condition& under) {
    const std::string text = word.shown();
    const std::size_t equals = text.find('=');
    ScriptOption option =
        made(text.substr(2, equals == std::string::npos ? equals : equals - 2), word, under);
    std::ranges::replace(option.name, '_', '-');
    if (equals != std::string::npos) option.values.push_back(text.substr(equals + 1));
    add_names(option.asked, word.names());
    push(std::move(option));
    open_ = true;
  }

  void add_value(const ShellText& word, const Condition& under) {
    const std::string text = word.shown();
    if (const char* option = option_of_launcher(text)) return add_count(option, word, under);
    if (text.ends_with(".py") || text.starts_with("python")) launcher_.clear();  // its own follow
    // `-m` names a module, which trains unless it is a launcher.
    const bool launches = text.starts_with("torch.") || text.starts_with("accelerate") ||
                          text.starts_with("deepspeed");
    if (text.ends_with(".py") || (after_module_ && !launches)) of_program_ = true;
    after_module_ = text == "-m";
    if (!open_) return;
    ScriptOption& option = out_.back();
    if (option.condition.empty()) option.condition = under.text;
    add_names(option.asked, under.names);
    if (option.values.empty()) add_names(option.asked, word.names());
    option.values.push_back(text);
  }

  /// Returns what a short option of srun or mpirun is: `-N 4`, `-G4`, `-np 32`; null where the word
  /// is none. mpirun's `-N` are processes a node (Open MPI; MPICH and Intel say `-ppn`).
  const char* option_of_launcher(const std::string& text) const {
    const bool mpi = launcher_.starts_with("mpi") || launcher_ == "orterun";
    if (!mpi && launcher_ != "srun") return nullptr;
    if (mpi && (text == "-npernode" || text == "-ppn" || text == "-N")) return "ntasks-per-node";
    if (mpi && (text == "-np" || text == "-n" || text == "-c")) return "ntasks";
    return mpi ? nullptr : slurm_count(text);
  }

  void add_count(const char* option, const ShellText& word, const Condition& under) {
    push(made(option, word, under));
    open_ = true;
    const std::string text = word.shown();
    if (launcher_ == "srun" && text.size() > 2) out_.back().values.push_back(text.substr(2));
  }

  void push(ScriptOption option) {
    out_.push_back(std::move(option));
    if (out_.size() > kMostOptions) throw ShellError{{}, "has too many options"};
  }

  const ShellMachine& machine_;
  std::vector<ScriptOption> out_;
  std::string launcher_;
  bool open_ = false, first_ = true, of_program_ = false, after_module_ = false;
  int depth_ = 0;
};

// ---- #SBATCH

/// What Slurm tells its jobs of their options.
void give_batch_variable(const std::string& option, std::string value,
                         std::map<std::string, std::string>& given) {
  if (option == "gres" || option == "gpus-per-node") {
    value = value.substr(0, value.find(','));
    value = value.substr(value.rfind(':') + 1);
    given["SLURM_GPUS_ON_NODE"] = given["SLURM_GPUS_PER_NODE"] = value;
  } else if (option == "nodes") {
    given["SLURM_NNODES"] = given["SLURM_JOB_NUM_NODES"] = value;
  } else if (option == "ntasks-per-node") {
    given["SLURM_NTASKS_PER_NODE"] = value;
  } else if (option == "ntasks") {
    given["SLURM_NTASKS"] = given["SLURM_NPROCS"] = value;
  } else if (option == "gpus") {
    given["SLURM_GPUS"] = value.substr(value.rfind(':') + 1);
  }
}

/// Of lines `#SBATCH --nodes=4 -n 16 --gres=gpu:8` before the first command.
class Batch {
 public:
  explicit Batch(const std::string& script) {
    int number = 0;
    for (std::size_t at = 0; at < script.size(); ++number) {
      const std::size_t end = std::min(script.find('\n', at), script.size());
      const std::string line = script.substr(at, end - at);
      at = end + 1;
      if (line.starts_with("#SBATCH"))
        add_line(line.substr(7, line.find('#', 1) - 7), number + 1);
      else if (line.find_first_not_of(" \t\r") != std::string::npos && !line.starts_with("#"))
        return;
    }
  }

  std::vector<ScriptOption> options;
  std::map<std::string, std::string> variables;

 private:
  void add_line(std::string line, int number) {
    std::ranges::replace(line, '=', ' ');
    for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string::npos;) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      std::string word = line.substr(at, end - at);
      at = end;
      if (const char* count = slurm_count(word)) {
        if (word.size() > 2) line.insert(at, " " + word.substr(2));
        word = std::string("--") + count;
      }
      if (word.starts_with("-")) {
        open_ = word.starts_with("--");  // a short one's value, -J NAME, is nobody's
        if (open_) add_option(word.substr(2), number);
      } else if (open_) {
        options.back().values.push_back(word);
        give_batch_variable(options.back().name, word, variables);
      }
    }
  }

  void add_option(std::string name, int number) {
    std::ranges::replace(name, '_', '-');
    ScriptOption option;
    option.name = std::move(name);
    option.line = number;
    options.push_back(std::move(option));
  }

  bool open_ = false;
};

/// Is the text a list of arguments, not a script?
bool is_argument_list(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", at);
    if (first < end && text[first] != '#') return text.compare(first, 2, "--") == 0;
    at = end + 1;
  }
  return false;
}

std::string first_words(const ShellText& word, const std::vector<ShellText>& words) {
  constexpr std::size_t kShown = 40;
  std::string out = word.shown();
  for (std::size_t i = 1; i < words.size() && out.size() < kShown; ++i)
    out += " " + words[i].shown();
  return out.size() > kShown ? out.substr(0, kShown) + "..." : out;
}

/// Throws InputError where a launch has words that may be options, of which none is known.
void refuse_bundles(const ShellMachine& machine, const std::vector<ScriptOption>& batch,
                    const std::vector<ShellLaunch>& launches) {
  std::vector<Diagnostic> errors;
  for (const ShellLaunch& launch : launches)
    for (const ScriptOption& option : Options(machine, batch).of(launch)) {
      if (!option.bundle) continue;
      errors.push_back(option.place);
      errors.back().message = fmt::format(
          "'{}' may hold any flags, and its value is not known; give {}", option.name,
          option.asked.empty()
              ? "them in its place"
              : fmt::format("--define {}=VALUE", fmt::join(option.asked, "=VALUE --define ")));
    }
  if (!errors.empty()) throw InputError(std::move(errors));
}

/// Why a script starts no job, where that can be told.
std::string why_none(const ShellMachine& machine) {
  if (const auto end = machine.exited_at())
    return fmt::format(
        "it ends in line {} before it starts a job: does it need arguments (--define 1=VALUE)?",
        machine.diagnostic(*end, "").where.line);
  for (const auto& [name, variable] : machine.state().variables) {
    const bool holds = variable.value.shown().find("--") != std::string::npos ||
                       std::ranges::any_of(variable.items, [](const auto& item) {
                         return item.shown().starts_with("--");
                       });
    if (holds) return fmt::format("'{}' holds options, but nothing is started with them", name);
  }
  return "";
}

}  // namespace

std::string ordinary_text(std::string text) {
  std::string out;
  out.reserve(text.size());
  int line = 1;
  for (std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    const char c = text[i];
    line += c == '\n' ? 1 : 0;
    if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (c == '\0' || c == '\x01' || c == '\x02')
      throw ShellError{{0, line, 1}, "this line has a control character that no script has"};
    out += c;
  }
  return out;
}

ShellMachine::ShellMachine(const ScriptSurroundings& surroundings) : surroundings_(surroundings) {
  for (const auto& [name, value] : surroundings) {
    try {
      ordinary_text(name + value);
    } catch (const ShellError&) {
      throw InputError("--define " + printable(name),
                       "has a control character that no script has, in '" + printable(value) + "'");
    }
    const bool number =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    auto& arguments = now_.scopes.front().arguments;
    const std::size_t at =
        number ? std::min<std::size_t>(99, static_cast<std::size_t>(std::atoi(name.c_str()))) : 0;
    if (at > 0) {
      while (arguments.size() < at)
        arguments.push_back(unknown_text("$" + std::to_string(arguments.size() + 1),
                                         {std::to_string(arguments.size() + 1)}));
      arguments[at - 1] = known_text(value);
      continue;
    }
    ShellVariable& variable = now_.variables[name];
    variable.value = known_text(value);
    variable.fixed = true;
  }
  ShellPiece folder{".", {}, false};
  folder.folder = true;
  now_.folder.add(std::move(folder));
}

Diagnostic ShellMachine::diagnostic(const ShellPlace& place, const std::string& message) const {
  constexpr std::size_t kBefore = 120, kShown = 240;
  const File& file = files_[static_cast<std::size_t>(place.file)];
  Diagnostic out{{file.name, place.line, place.column}, message, "", 1, 0, Reason::other, 0};
  std::size_t begin = 0;
  for (int line = 1; line < place.line && begin != std::string::npos; ++line) {
    begin = file.text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos || begin > file.text.size()) return out;
  const std::string_view line =
      std::string_view(file.text).substr(begin, file.text.find('\n', begin) - begin);
  const auto column = static_cast<std::size_t>(std::max(1, place.column) - 1);
  const std::size_t cut = column > kBefore ? column - kBefore : 0;
  if (cut > line.size()) return out;
  out.source_line = line.substr(cut, kShown);
  out.source_offset = static_cast<int>(cut);
  std::size_t end = column;
  while (end < line.size() && !is_blank(line[end])) ++end;
  out.length = static_cast<int>(std::max<std::size_t>(1, end - std::min(end, column)));
  return out;
}

/// Takes the options of a script's #SBATCH lines, of which Slurm tells it in variables.
void ShellMachine::take_batch(const std::string& script) {
  Batch batch(script);
  for (const auto& [name, value] : batch.variables) {
    if (now_.variables.contains(name)) continue;
    now_.variables[name].value = known_text(value);
    now_.variables[name].exported = true;
  }
  std::ranges::move(batch.options, std::back_inserter(batch_));
}

void ShellMachine::follow(std::string_view text, const std::string& origin) {
  files_.push_back({origin, std::string(text), std::filesystem::path(origin).filename().string()});
  try {
    files_[0].text = ordinary_text(std::string(text));
    take_batch(files_[0].text);
    reading_ = {0};
    const ShellTree tree =
        read_shell(keep(shell_source(files_[0].text, 0)), !is_argument_list(files_[0].text));
    frames_.emplace_back();
    run(*tree);
  } catch (const ShellError& error) {
    std::vector<Diagnostic> all = missing_;
    const bool placed = error.place.file > 0 || error.place.line > 1 || error.place.column > 1;
    all.push_back(diagnostic(placed ? error.place : here_, error.message));
    throw InputError(std::move(all));
  }
  if (!missing_.empty()) throw InputError(missing_);
}

ScriptLaunch script_launch(std::string_view text, const std::string& origin,
                           const ScriptSurroundings& surroundings,
                           const std::function<bool(const std::string& name)>& counts,
                           const std::function<bool(const std::string& command)>& trains) {
  ShellMachine machine(surroundings);
  machine.follow(text, origin);
  const std::vector<ScriptOption>& batch = machine.batch();
  std::vector<std::pair<const ShellLaunch*, std::vector<ScriptOption>>> found;
  const bool arguments = is_argument_list(std::string(text));
  std::vector<ShellLaunch> all = machine.launches();
  if (arguments) all.insert(all.begin(), machine.strays().begin(), machine.strays().end());
  for (const ShellLaunch& launch : all) {
    std::vector<ScriptOption> options = Options(machine, batch).of(launch);
    const auto own = std::span(options).subspan(with_gpus(batch).size());
    if (std::ranges::any_of(own,
                            [&](const ScriptOption& o) { return !o.bundle && counts(o.name); }))
      found.emplace_back(&launch, std::move(options));
  }
  ScriptLaunch out;
  if (found.empty()) {
    refuse_bundles(machine, batch, all);
    out.options = with_gpus(batch);
    out.none = why_none(machine);
    return out;
  }
  if (surroundings.launch > found.size())
    throw InputError("--launch", fmt::format("must be from 1 to {}, the launches of {}, got {}",
                                             found.size(), origin, surroundings.launch));
  const auto command_of = [](const auto& launch) {
    std::string command;
    for (const ShellText& word : launch.first->words) command += word.shown() + " ";
    return command;
  };
  std::size_t taken = std::max<std::size_t>(1, surroundings.launch) - 1;
  if (surroundings.launch == 0 && trains)
    while (taken < found.size() && !trains(command_of(found[taken]))) ++taken;
  if (taken == found.size()) taken = 0;
  out.options = std::move(found[taken].second);
  out.command = command_of(found[taken]);
  for (const auto& [name, document] : machine.written()) out.written[name] = document.shown();
  out.exported = found[taken].first->environment;
  if (found.size() > 1) {
    std::vector<std::string> others;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const ShellLaunch& launch = *found[i].first;
      if (i != taken)
        others.push_back(
            fmt::format("{} (line {})", i + 1, machine.diagnostic(launch.place, "").where.line));
    }
    const ShellLaunch& launch = *found[taken].first;
    out.notes.push_back(
        fmt::format("launch {} of {}, '{}' in line {}: --launch N takes another, {}", taken + 1,
                    found.size(), first_words(launch.words[0], launch.words),
                    machine.diagnostic(launch.place, "").where.line, fmt::join(others, ", ")));
  }
  if (!arguments)
    for (const ShellLaunch& stray : machine.strays())
      out.notes.push_back(
          fmt::format("left out: '{}' in line {} is a command of its own, as the line before it "
                      "does not continue",
                      first_words(stray.words[0], stray.words),
                      machine.diagnostic(stray.place, "").where.line));
  return out;
}

std::vector<ScriptOption> script_options(std::string_view text,
                                         const ScriptSurroundings& surroundings) {
  return script_launch(text, "script", surroundings, [](const std::string&) { return true; })
      .options;
}

}  // namespace penstock
