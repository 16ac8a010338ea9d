// SPDX-License-Identifier: Apache-2.0
// What a script or configuration of another framework says, option by option, and what becomes of
// each in a scenario: a key of ours, nothing that is predicted, something that cannot be modelled,
// or something that is not known. No option is an error.
#pragma once

#include "scenarios/shell_words.hpp"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// What the memory of the real job has to do with that of one that leaves something out.
enum class Leaves : std::uint8_t {
  nothing,  ///< as much
  more,     ///< it needs more
  less,     ///< it needs less
};

struct UnmodelledOption {
  std::string beginning, why;
  std::string left_out;  ///< how model.missing names it, where memory depends on it
  Leaves leaves = Leaves::nothing;
  std::string neutral = "0";  ///< a value that means nothing, beside none
  std::string with;           ///< an option without which it means nothing
};

/// Options that become no key: `ignored` change nothing that is predicted.
struct KnownOptions {
  std::vector<std::string> ignored, ignored_beginnings;
  std::vector<UnmodelledOption> unmodelled;
};

/// Returns text of the user's for a comment of ours.
std::string as_comment(const std::string& text);

class ImportNotes {
 public:
  /// `dashes`: what stands before an option's name where it comes from.
  ImportNotes(std::vector<ScriptOption> options, std::string dashes, KnownOptions known);

  /// Returns the value of an option, which is understood from then on, as `meaning`; of several the
  /// last one counts. One whose value is null or false is not there. None: it is not there, or has
  /// no value of that kind (which is noted; a number that is none of a degree's or size's is an
  /// error of head()).
  std::optional<std::int64_t> number(const std::string& name, const std::string& meaning);
  std::optional<std::int64_t> number(std::initializer_list<std::string> names,
                                     const std::string& meaning);
  std::string word(const std::string& name, const std::string& meaning);
  /// Returns the value of an option that is one of `allowed`, in any case, as it stands there; ""
  /// where the option is not there, or has another value, which is an error of head().
  std::string choice(const std::string& name, const std::string& meaning,
                     const std::vector<std::string>& allowed);
  /// Returns the values of an option that takes several.
  std::vector<std::string> words(const std::string& name, const std::string& meaning);
  bool has(const std::string& name, const std::string& meaning);
  bool mentions(const std::string& name) const;
  /// Returns whether a switch is turned off where it stands, which is understood as `meaning`.
  bool denies(const std::string& name, const std::string& meaning);
  /// Returns what number() does; where it is not there, or has no such value, head() asks for it.
  std::int64_t needed(const std::string& name, const std::string& meaning);
  /// Returns a product, at most 10^9: head() throws where it is more. `what` it counts: "GPUs".
  std::int64_t product_of(std::initializer_list<std::int64_t> factors, const std::string& what);
  /// Makes head() ask for an option; `how` says how it can be given.
  void ask(const std::string& name, std::string how = {});
  /// Notes a degree that means nothing where it is 1, and is not modelled otherwise.
  void unless_one(const std::string& name, std::int64_t degree);
  void unreadable(const std::string& name);
  /// Makes an option an error of head(); where it is not there, the message has no place.
  void fault(const std::string& name, std::string message);
  /// Makes every value of number() that is no positive integer an error: a file in which options
  /// have sections ("training.seq_len") holds no words in their place.
  void expect_numbers() { numbers_ = true; }
  /// Says that nothing but the file itself gives what is asked for.
  void ask_in_file() { in_file_ = true; }
  /// Notes that an option changes nothing that is predicted.
  void ignore(const std::string& name);
  /// Notes that an option cannot be modelled.
  void unmodelled(const std::string& name, std::string why);
  /// Notes that something which memory depends on is left out: a part of model.missing.
  void leave_out(const std::string& what, Leaves leaves);
  void assume(std::string line) { assumed_.push_back(std::move(line)); }
  /// Notes that something else says what these options do.
  void not_asked(std::initializer_list<std::string> names) {
    for (const std::string& name : names) {
      untold_.erase(name);
      settled_.insert(name);
    }
  }

  /// Returns comment lines of YAML, one for each option and one for each assumption, and the
  /// scenario's name, that of `origin` with what cannot be modelled, which every result then says.
  /// Throws InputError with all numbers that depend on variables which are not known, all that are
  /// asked for, with the --define that gives them, and all that are no numbers.
  std::string head(const std::string& origin);

  /// Returns the lines of a scenario's model that say what is left out of it. Call it last.
  std::string missing(const std::string& indent);

 private:
  enum class Kind : std::uint8_t { open, understood, ignored, unmodelled, unreadable, unknown };

  /// Finds an option and marks every occurrence.
  ScriptOption* find(const std::string& name, const std::string& meaning);
  bool is_off(std::size_t option) const;
  void refuse(const std::string& origin) const;
  static Diagnostic at(const ScriptOption& option, const std::string& origin);
  Diagnostic untold(const ScriptOption& option, const std::string& what,
                    const std::string& origin) const;
  std::vector<Diagnostic> untold_options(const std::string& origin) const;
  bool is_in_question(std::size_t option) const;
  std::string asked_text() const;
  void sort_out();
  const UnmodelledOption* unmodelled_row(const std::string& name) const;
  bool is_on(const std::string& name) const;
  std::string suggestion(const std::string& name, bool harmless);
  std::string comments() const;
  std::string shown(std::size_t option) const;
  std::string line(std::size_t option) const;
  std::string name(const std::string& origin) const;

  std::vector<ScriptOption> options_;
  std::string dashes_;
  KnownOptions known_;
  std::vector<Kind> kinds_;
  std::map<std::string, std::size_t> last_;
  std::map<std::size_t, std::string> meanings_;
  std::vector<std::string> assumed_;
  std::map<std::string, std::string> untold_;  ///< numbers by variables that are not known
  std::vector<std::pair<std::string, std::string>> asked_;  ///< and how they can be given
  std::map<std::string, std::string> faults_;               ///< by name: what is wrong there
  bool numbers_ = false, in_file_ = false;
  std::set<std::string> too_many_;             ///< what there is too much of
  int suggested_ = 0;                          ///< names that were looked for
  std::set<std::string> settled_;              ///< said by something else
  mutable std::set<std::string> known_names_;  ///< whose meaning was asked for
  std::vector<std::string> needs_more_, needs_less_;
};

}  // namespace penstock
