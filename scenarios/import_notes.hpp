// What a script or configuration of another framework says, option by option, and what becomes of
// each in a scenario: a key of ours, nothing that is predicted, something that cannot be modelled,
// or something that is not known. No option is an error.
#pragma once

#include "scenarios/shell_words.hpp"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct UnmodelledOption {
  std::string_view beginning;
  const char* why;
};

/// Options that become no key: `ignored` change nothing that is predicted.
struct KnownOptions {
  std::span<const std::string_view> ignored, ignored_beginnings;
  std::span<const UnmodelledOption> unmodelled;
};

/// Text of the user's in a comment of ours.
std::string as_comment(const std::string& text);

class ImportNotes {
 public:
  /// `dashes`: what stands before an option's name where it comes from.
  ImportNotes(std::vector<ScriptOption> options, std::string dashes, const KnownOptions& known);

  /// Whoever asks for an option understands it, as `meaning`; of several the last one counts.
  /// None: it is not there, or has no value of that kind (which is noted).
  std::optional<std::int64_t> number(const std::string& name, const std::string& meaning);
  std::optional<std::int64_t> number(std::initializer_list<std::string> names,
                                     const std::string& meaning);
  std::string word(const std::string& name, const std::string& meaning);
  bool has(const std::string& name, const std::string& meaning);
  bool mentions(const std::string& name) const { return last_.contains(name); }
  /// Of a degree that means nothing where it is 1, and is not modelled otherwise.
  void unless_one(const std::string& name, std::int64_t degree);
  void unreadable(const std::string& name);
  /// It means nothing as it stands; otherwise it cannot be modelled.
  void unmodelled(const std::string& name, std::string why);
  void assume(std::string line) { assumed_.push_back(std::move(line)); }
  /// Something else says it.
  void not_asked(std::initializer_list<std::string> names) {
    for (const std::string& name : names) untold_.erase(name);
  }

  /// Comment lines of YAML: one for each option, and one for each assumption; and the scenario's
  /// name, that of `origin` with what cannot be modelled, which every result then says. Throws
  /// InputError where numbers depend on variables that are not known: all of them, and the --define
  /// that gives them.
  std::string head(const std::string& origin);

 private:
  enum class Kind : std::uint8_t { open, understood, ignored, unmodelled, unreadable, unknown };

  /// Marks every occurrence.
  ScriptOption* find(const std::string& name, const std::string& meaning);
  void refuse_untold(const std::string& origin) const;
  void sort_out();
  std::string comments() const;
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
};

}  // namespace penstock
