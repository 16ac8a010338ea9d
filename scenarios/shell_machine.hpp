// What bash would do with a script, as far as that can be told: commands are followed in their
// order over variables whose values are texts that may be unknown (shell_text.hpp). No program is
// started; one that bash would start is kept with its words, as a launch.
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

struct ShellVariable {
  enum class Kind : std::uint8_t { scalar, indexed, keyed, unset };  ///< unset: by the script
  Kind kind = Kind::scalar;
  ShellText value{};
  std::map<std::int64_t, ShellText> items{};
  std::map<std::string, ShellText> keyed{};
  bool counted = true;  ///< of an array: each item is one word
  bool fixed = false;   ///< --define
  bool integer = false, upper = false, lower = false, readonly = false, exported = false;
};

struct ShellStatus {
  Truth truth = Truth::yes;
  std::string shown{};  ///< where it is not known: of which command
  ShellNames names{};
};

struct ShellScope {
  std::vector<ShellText> arguments{};
  std::map<std::string, std::optional<ShellVariable>> shadowed{};  ///< by `local`
  bool given = false;  ///< the arguments are all there are
};

struct ShellState {
  std::map<std::string, ShellVariable> variables{};
  std::map<std::string, ShellTree> functions{};  ///< none: not known which
  std::vector<ShellScope> scopes = std::vector<ShellScope>(1);
  ShellStatus status{};
  ShellText folder{};
  bool reached = true;
  bool stops_on_failure = false;  ///< set -e
};

struct ShellLaunch {
  std::vector<ShellText> words;
  ShellPlace place;
  bool repeats = false;  ///< in a loop of which it is not known how often it runs
};

/// The words that a word becomes, while it is expanded.
struct ShellFields {
  std::vector<ShellText> done{};
  ShellText now{};
  bool started = false;
  bool splits = true;
  bool only_list = false;  ///< between quotes: "$@", which may be no word

  void add(ShellPiece piece) {
    started = true;
    now.add(std::move(piece));
  }
  void end_word() {
    if (started) done.push_back(std::move(now));
    now = {};
    started = false;
  }
};

/// Lines that end as in DOS are lines. Throws ShellError for a control character, which no script
/// has.
std::string ordinary_text(std::string text);

class ShellMachine : public ShellStore {
 public:
  explicit ShellMachine(const ScriptSurroundings& surroundings);

  /// Follows the script. Throws InputError.
  void follow(std::string_view text, const std::string& origin);

  const std::vector<ShellLaunch>& launches() const { return launches_; }
  const std::vector<ShellLaunch>& strays() const { return strays_; }
  const ShellState& state() const { return now_; }
  std::optional<ShellPlace> exited_at() const { return exited_at_; }
  /// A diagnostic at a place of a file that was read.
  Diagnostic diagnostic(const ShellPlace& place, const std::string& message) const;

  ShellText read_variable(const std::string& name,
                          const std::optional<std::string>& index) override;
  void write_variable(const std::string& name, const std::optional<std::string>& index,
                      const ShellNumber& number) override;
  const ShellPiece& unknown_piece(std::size_t number) const override { return unknown_.at(number); }

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

  // ---- shell_commands.cpp: the flow of commands
  void run(const Node& node);
  void run_kind(const Node& node);
  void run_sequence(const Node& node);
  void run_list(const Node& node, bool with_or);
  void run_pipeline(const Node& node);
  void run_apart(const std::function<void()>& commands);
  void run_branches(const Node& node, std::size_t at);
  void run_cases(const Node& node);
  void run_case(const Node& node, const ShellText& subject, std::size_t at);
  void run_bodies(const Node& node, const ShellText& subject, std::size_t at);
  ShellVerdict case_matches(const Node& node, const ShellText& subject, std::size_t at);
  void run_loop(const Node& node);
  void run_turns(const std::string& name, const std::vector<ShellText>& values, const Node& body);
  void run_counting(const Node& node);
  void run_repeat(const Node& node);
  void run_known_turns(const Node& node, const std::function<ShellStatus()>& goes_on,
                       const std::function<void()>& after, const Node& body);
  void run_unknown_turns(const std::function<void()>& turn);
  bool run_turn(const Node& body);
  void leave(std::size_t levels, bool goes_on);
  void fork(const ShellStatus& condition, const std::function<void()>& yes,
            const std::function<void()>& no);
  void join(const ShellState& other, const std::string& condition, const ShellNames& names,
            bool keeps_choices);
  ShellVariable joined(const std::string& name, const ShellVariable* yes, const ShellVariable* no,
                       const std::string& condition, const ShellNames& names, bool keeps) const;
  void set_status(const ShellVerdict& verdict, const Node& node);
  void set_status(bool succeeded) { now_.status = {truth_of(succeeded), {}, {}}; }
  void run_conditional(const Node& node);
  ShellVerdict conditional(const Node& node, std::size_t& at);
  ShellVerdict conditional_and(const Node& node, std::size_t& at);
  ShellVerdict conditional_one(const Node& node, std::size_t& at);
  ShellVerdict compared(const ShellWord& a, const std::string& sign, const ShellWord& b);
  void count_step(const ShellPlace& place);

  // ---- shell_builtins.cpp: simple commands
  void run_simple(const Node& node);
  void run_words(std::vector<ShellText> words, const Node& node);
  bool run_builtin(const std::string& name, const std::vector<ShellText>& words, const Node& node);
  bool run_flow(const std::string& name, const std::vector<ShellText>& words, const Node& node);
  void run_function(const ShellTree& body, const std::vector<ShellText>& words, const Node& node);
  void run_program(std::vector<ShellText> words, const Node& node);
  bool run_inner_shell(const std::vector<ShellText>& words, const Node& node);
  void run_text(const ShellText& text, const Node& node, bool own_shell,
                std::vector<ShellText> arguments, const std::vector<ShellText>& before);
  void run_source(const std::vector<ShellText>& words, const Node& node);
  std::optional<std::filesystem::path> way_to(const ShellText& path) const;
  std::filesystem::path place_of(const std::filesystem::path& way) const;
  std::optional<int> file_of(const ShellText& path, const Node& node);
  void run_file(int file, const std::vector<ShellText>& arguments, const Node& node);
  void declare(const Node& node);
  void declare_one(const ShellArgument& argument, const std::string& flags, const Node& node);
  void hide(const std::string& name);
  void assign_last(const ShellAssignment& assignment);
  void unset(const std::vector<ShellText>& words);
  void read(const std::vector<ShellText>& words, const Node& node);
  void print(const std::vector<ShellText>& words, const Node& node);
  ShellText formatted(const std::vector<ShellText>& words, std::size_t first);
  void echo(const std::vector<ShellText>& words);
  void put_out(const ShellText& text);
  void set_options(const std::vector<ShellText>& words);
  bool put_path(const std::string& name, const std::vector<ShellText>& words);
  void change_folder(const std::vector<ShellText>& words);
  bool is_there(const ShellText& folder) const;
  void add_environment(std::vector<ShellText>& words) const;
  std::optional<ShellText> input(const Node& node);
  void assign(const ShellAssignment& assignment, bool local = false);
  void assign_array(const ShellAssignment& assignment, ShellVariable& variable);
  void assign_text(const std::string& name, const std::optional<std::string>& index, ShellText text,
                   bool adds, const ShellPlace& place, bool may = false);
  void put_text(ShellVariable& variable, ShellText text, bool adds);
  bool may_assign(const std::string& name, bool from_itself, const ShellPlace& place);
  std::string index_text(const ShellWord& word);
  std::optional<std::int64_t> index_of(const std::string& text, const ShellPlace& place);

  // ---- shell_expansion.cpp: words
  std::vector<ShellText> expand_all(const std::vector<ShellWord>& words);
  void expand_fields(const ShellWord& word, std::vector<ShellText>& out);
  ShellText expand_one(const ShellWord& word, bool quoted = false);
  std::string encoded(const ShellText& text);
  ShellNumber arithmetic(const ShellWord& word);
  void expand(const ShellWord& word, bool quoted, ShellFields& out);
  std::size_t expand_quotes(const ShellSource& source, std::size_t at, ShellFields& out);
  std::size_t expand_dollar(const ShellSource& source, std::size_t at, bool quoted,
                            ShellFields& out);
  void expand_parameter(const ShellWord& inside, bool quoted, ShellFields& out);
  void expand_name(const std::string& name, const ShellPlace& place, bool quoted, ShellFields& out);
  void put(const ShellText& text, bool quoted, ShellFields& out);
  void put_list(const std::vector<ShellText>& list, bool one_word, bool quoted, ShellFields& out);
  ShellText captured(const ShellWord& commands);
  std::vector<std::string> braces(const std::string& word) const;
  std::optional<std::string> separators();
  std::vector<ShellText> all_of(const std::string& name, const ShellPlace& place);
  Truth is_set(const std::string& name);
  ShellText path_of(const File& file, const ShellPlace& place) const;
  ShellText read_name(const std::string& name, const ShellPlace& place);
  ShellText transformed(const ShellText& text, const ShellWord& inside, std::size_t operation,
                        bool quoted);
  ShellText cut(const ShellText& text, const std::string& pattern, bool suffix, bool longest,
                const std::string& shown);
  ShellText replaced(const ShellText& text, const ShellWord& inside, std::size_t operation,
                     bool quoted, const std::string& shown);
  ShellText part_of(const ShellText& text, const ShellWord& inside, std::size_t operation,
                    const std::string& shown);
  std::string pattern_of(const ShellText& text) const;
  ShellSource& keep(ShellSource source);

  const ScriptSurroundings& surroundings_;
  std::vector<File> files_;
  std::vector<std::unique_ptr<ShellSource>> sources_;
  std::vector<ShellTree> trees_;
  std::vector<ShellPiece> unknown_;
  ShellState now_;
  std::vector<Frame> frames_;
  std::vector<int> reading_;  ///< files that are being read
  std::vector<ShellLaunch> launches_, strays_;
  std::vector<Diagnostic> missing_;  ///< files to read that are not there
  Output* output_ = nullptr;
  std::optional<ShellPlace> exited_at_;
  ShellPlace here_;  ///< of the command that is run
  std::size_t steps_ = 0;
  int depth_ = 0;    ///< of functions, files and texts in one another
  int forks_ = 0;    ///< conditions that are not known around here
  int checked_ = 0;  ///< conditions around here, in which no failure ends the script
};

}  // namespace penstock
