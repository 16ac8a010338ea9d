// SPDX-License-Identifier: Apache-2.0
// What bash would do with a script, as far as that can be told: commands are followed in their
// order over variables whose values are texts that may be unknown (shell_text.hpp). No program is
// started; one that bash would start is kept with its words, as a launch.
//
// Only a part of bash is evaluated, the one that launch scripts compute their flags with. Whatever
// else may assign a variable (`read`, `printf -v`, `((i++))`, `eval` of what is not known) makes it
// unknown: the variables that its text names, or all.
//
// Where a condition is not known, both ways are followed, each with its own copy of the state, and
// joined: a variable that differs then has a value that the condition decides. A way that leaves
// (exit, return, break) is joined where it arrives, if it arrives anywhere. So what is known is
// what bash has on every way; the tests compare random scripts with bash itself.
#pragma once

#include "scenarios/shell_syntax.hpp"
#include "scenarios/shell_text.hpp"
#include "scenarios/shell_values.hpp"
#include "scenarios/shell_words.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock {

using ShellWords = std::vector<ShellText>;

/// Returns whether the text, as it stands in a command, is one word and no other number of them.
bool is_one_word(const ShellText& text);

struct ShellVariable {
  enum class Kind : std::uint8_t { scalar, list, keyed, unset };  ///< unset: by the script
  Kind kind = Kind::scalar;
  ShellText value{};
  ShellWords items{};
  std::map<std::string, ShellText> keyed{};
  bool counted = true;  ///< of a list: each item is one word
  bool fixed = false;   ///< --define
  bool never = false;   ///< not known, whatever the script assigns
  bool odd = false;     ///< declare -i and the like: not known once it is assigned
  bool readonly = false, exported = false;
};

struct ShellStatus {
  Truth truth = Truth::yes;
  std::string shown{};  ///< where it is not known: of which command
  ShellNames names{};
};

struct ShellScope {
  ShellWords arguments{};
  std::map<std::string, std::optional<ShellVariable>> shadowed{};  ///< by `local`
  bool given = false;   ///< the arguments are all there are
  bool counted = true;  ///< each is one word
};

struct ShellState {
  std::map<std::string, ShellVariable> variables{};
  std::map<std::string, ShellTree> functions{};  ///< none: not known which
  std::vector<ShellScope> scopes = std::vector<ShellScope>(1);
  ShellStatus status{};
  ShellText folder{};
  bool reached = true;
  bool lost = false;              ///< variables that are not there may have been set
  bool stops_on_failure = false;  ///< set -e
  bool exports_all = false;       ///< set -a
};

struct ShellLaunch {
  ShellWords words;
  ShellPlace place;
  bool repeats = false;  ///< in a loop of which it is not known how often it runs
  std::map<std::string, std::string> environment{};  ///< Transformer Engine's variables (NVTE_*)
};

/// The words that a word becomes, while it is expanded.
struct ShellFields {
  ShellWords done{};
  ShellText now{};
  bool started = false;
  bool splits = true;
  bool cuts = false;       ///< in ${A:-...}: what is written is cut into words, too
  bool document = false;   ///< the lines of `<<`, in which a quote is a plain character
  bool only_list = false;  ///< between quotes: "$@", which may be no word

  void add(ShellPiece piece);
  void end_word();
};

/// Returns the text, its lines that end as in DOS made lines. Throws ShellError for a control
/// character, which no script has.
std::string ordinary_text(std::string text);

/// Returns whether bash may make several words of {a,b} or {1..3} in it.
bool may_have_braces(const ShellWord& word);

/// Returns a word in one line, cut where it is long.
std::string one_line(const ShellWord& word, std::size_t most = 200);

class ShellMachine {
 public:
  explicit ShellMachine(const ScriptSurroundings& surroundings);

  /// Follows the script. Throws InputError.
  void follow(std::string_view text, const std::string& origin);

  const std::vector<ShellLaunch>& launches() const { return launches_; }
  const std::vector<ShellLaunch>& strays() const { return strays_; }
  const ShellState& state() const { return now_; }
  std::optional<ShellPlace> exited_at() const { return exited_at_; }
  /// Returns the options of #SBATCH lines, of all scripts that are given to Slurm.
  const std::vector<ScriptOption>& batch() const { return batch_; }
  /// Returns the files that the script writes itself, by the names that it gives them.
  const std::map<std::string, ShellText>& written() const { return written_; }
  /// Returns a diagnostic at a place of a file that was read.
  Diagnostic diagnostic(const ShellPlace& place, const std::string& message) const;

 private:
  using Node = ShellNode;

  struct File {
    std::string name, text;
    std::string inside;  ///< its way from the script's folder
  };
  struct Frame {
    bool is_loop = false;
    std::vector<ShellState> left{}, next{};  ///< by break or return; by continue
  };
  struct Output {
    ShellText text{};
    bool known = true;
  };
  struct Value {
    ShellText text{};
    Truth set = Truth::yes;
  };
  struct Parameter;

  // ---- shell_commands.cpp: the flow of commands
  void run(const Node& node);
  void run_kind(const Node& node);
  void run_list(const Node& node, bool with_or);
  void run_pipeline(const Node& node);
  void run_apart(const std::function<void()>& commands);
  void run_branches(const Node& node, std::size_t at);
  /// Notes what commands that are known not to run would assign.
  void pass_over(const Node& node);
  void run_case(const Node& node, const ShellText& subject, std::size_t at);
  void run_falling_case(const Node& node);
  ShellVerdict case_matches(const Node& node, const ShellText& subject, std::size_t at);
  void run_loop(const Node& node);
  void run_counting(const Node& node);
  void run_repeat(const Node& node);
  void run_known_turns(const Node& node, const std::function<Truth()>& goes_on,
                       const std::function<void()>& after, const Node& body);
  void run_unknown_turns(const Node& node, const std::function<void()>& turn);
  bool run_turn(const Node& body);
  void join_all(const std::vector<ShellState>& states);
  std::vector<ShellState> close_frame();
  void leave(std::size_t levels, bool goes_on);
  void fork(const ShellStatus& condition, const std::function<void()>& yes,
            const std::function<void()>& no);
  void join(const ShellState& other, const std::string& condition, const ShellNames& names,
            bool keeps_choices);
  ShellVariable joined(const std::string& name, const ShellVariable* yes, const ShellVariable* no,
                       const std::string& condition, const ShellNames& names, bool keeps) const;
  void set_status(const ShellVerdict& verdict, const Node& node);
  void set_status(bool succeeded) { now_.status = {truth_of(succeeded), {}, {}}; }
  ShellVerdict conditional(const Node& node, std::size_t& at, bool with_or);
  ShellVerdict conditional_one(const Node& node, std::size_t& at);
  ShellVerdict conditional_test(const Node& node, std::size_t& at);
  ShellVerdict compared(const ShellWord& a, const std::string& sign, const ShellWord& b);
  void count_step(const ShellPlace& place, std::size_t bytes);
  void count_state();

  // ---- shell_builtins.cpp: simple commands
  void run_simple(const Node& node);
  void run_words(const ShellWords& words, const Node& node);
  bool run_builtin(const std::string& name, const ShellWords& words, const Node& node);
  bool run_assigning(const std::string& name, const ShellWords& words, const Node& node);
  bool run_flow(const std::string& name, const ShellWords& words, const Node& node);
  void run_function(const ShellTree& body, const ShellWords& words, const Node& node);
  void set_trap(const ShellWords& words);
  bool read(const ShellWords& words, const Node& node);
  void set_arguments(const ShellWords& words, std::size_t first);
  void set_options(const ShellWords& words, const Node& node);
  bool put_out(const std::string& name, const ShellWords& words, const Node& node);
  bool put_path(const std::string& name, const ShellWords& words);
  void change_folder(const ShellWords& words);
  bool is_there(const ShellText& folder) const;
  std::optional<ShellText> input(const Node& node);

  // ---- shell_programs.cpp: programs, texts and files, which are scripts
  void run_program(const ShellWords& words, const Node& node);
  bool run_inner_shell(const ShellWords& words, const Node& node);
  bool run_script(const ShellWords& words, std::size_t program, std::size_t at, const Node& node);
  void take_batch(const std::string& script);
  static std::string written_name(const ShellText& path);
  void run_own_shell(const ShellWords& arguments, const ShellWords& before,
                     const std::function<void()>& commands);
  void run_text(const ShellText& text, const Node& node);
  void run_file(int file, const ShellWords& arguments, const Node& node);
  void run_source(const ShellWords& words, const Node& node);
  std::map<std::string, std::string> exported(const std::string& beginning) const;
  void add_environment(ShellWords& words) const;
  std::optional<std::filesystem::path> way_to(const ShellText& path) const;
  std::filesystem::path place_of(const std::filesystem::path& way) const;
  std::optional<int> file_of(const ShellText& path, const Node& node);

  // ---- shell_variables.cpp: what variables hold
  void assign(const ShellAssignment& assignment);
  void assign_value(const ShellAssignment& assignment, ShellText text);
  void assign_list(const ShellAssignment& assignment);
  void assign_item(const ShellAssignment& assignment, ShellText text);
  void assign_text(const std::string& name, ShellText text, bool adds);
  bool may_assign(const std::string& name, bool from_itself, const ShellPlace& place);
  void declare(const Node& node, std::size_t first);
  void declare_word(const ShellWord& word, std::string& flags, const ShellPlace& place);
  void declare_one(const std::string& name, const std::string& flags, const ShellPlace& place,
                   const std::function<void()>& assign);
  void hide(const std::string& name);
  void unset(const ShellWords& words);
  void lose(const std::string& name, bool for_good = false);
  void lose_names_in(std::string_view text, bool for_good = false);
  void lose_all();
  Value read_name(const std::string& name, const ShellPlace& place);
  Value read_item(const std::string& name, const ShellWord& index, const std::string& shown);
  ShellWords all_of(const std::string& name, const ShellPlace& place, bool& counted);
  ShellText path_of(const File& file, const ShellPlace& place) const;

  // ---- shell_expansion.cpp: words
  ShellWords expand_all(const std::vector<ShellWord>& words);
  void expand_fields(const ShellWord& word, ShellWords& out);
  ShellText expand_one(const ShellWord& word, bool quoted = false);
  ShellText expand_document(const ShellWord& lines);
  void expand(const ShellWord& word, bool quoted, ShellFields& out);
  std::size_t expand_quotes(const ShellSource& source, std::size_t at, ShellFields& out);
  std::size_t expand_dollar(const ShellSource& source, std::size_t at, bool quoted,
                            ShellFields& out);
  void expand_parameter(const ShellWord& inside, bool quoted, ShellFields& out);
  Parameter parameter_in(const ShellWord& inside);
  void expand_default(const Parameter& of, const ShellWord& inside, bool quoted, ShellFields& out);
  void put(const ShellText& text, bool quoted, ShellFields& out);
  void put_list(const ShellWords& list, bool counted, bool one_word, bool quoted, ShellFields& out);
  ShellText captured(const ShellWord& commands);
  ShellNumber arithmetic(const ShellWord& word);
  ShellNumber arithmetic_of(const ShellText& text);
  ShellNumber statement(std::string_view part, const ShellText& of);
  ShellNumber evaluated(const std::string& expression, const ShellText& of);
  ShellText untold(const ShellWord& word, const std::string& shown, ShellNames names = {});
  ShellText transformed(const ShellText& text, const ShellWord& inside, std::size_t operation,
                        bool quoted);
  std::optional<std::string> cut(const std::string& text, const ShellWord& word, bool suffix,
                                 bool longest);
  std::optional<std::string> replaced(const std::string& text, const ShellWord& inside,
                                      std::size_t begin);
  std::optional<std::string> part_of(const std::string& text, const ShellWord& range);
  bool range_of(const ShellWord& range, std::int64_t size, std::int64_t& first,
                std::int64_t& count);
  std::string encoded(const ShellText& text);
  ShellSource& keep(ShellSource source);

  const ScriptSurroundings& surroundings_;
  std::vector<File> files_;
  std::vector<std::unique_ptr<ShellSource>> sources_;
  std::vector<ShellPiece> unknown_;  ///< that a text holds which is read again, by its number
  ShellState now_;
  std::vector<Frame> frames_;
  std::vector<int> reading_;         ///< files that are being read
  std::vector<std::string> before_;  ///< variables that commands around have in front of them
  std::vector<ShellLaunch> launches_, strays_;
  std::vector<ScriptOption> batch_;
  std::map<std::string, ShellText> written_;
  std::vector<Diagnostic> missing_;  ///< files to read that are not there
  Output* output_ = nullptr;
  std::optional<ShellText> input_;  ///< of the command that is run, where the script has it
  std::optional<ShellPlace> exited_at_;
  ShellPlace here_;  ///< of the command that is run
  std::size_t steps_ = 0;
  int depth_ = 0;                      ///< of functions, files and texts in one another
  int forks_ = 0;                      ///< conditions that are not known around here
  std::set<std::string> passed_over_;  ///< the script's own variables, though nothing sets them
  int checked_ = 0;  ///< conditions around here, in which no failure ends the script
};

}  // namespace penstock
