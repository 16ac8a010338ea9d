// SPDX-License-Identifier: Apache-2.0
#include "scenarios/import_notes.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "scenarios/document.hpp"
#include "scenarios/shell_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace penstock {
namespace {

constexpr std::int64_t kMostOfAnOption = 1'000'000;
constexpr std::int64_t kMostOfAProduct = 1'000'000'000;
constexpr int kMostSuggested = 200;  // each is compared with all names known

std::optional<std::int64_t> whole_number(const std::string& text) {
  const auto value = parse_number<std::int64_t>(text);
  return value && *value > 0 && *value <= kMostOfAnOption ? value : std::nullopt;
}

/// Returns whether it is a number, or what somebody takes for one: "-24", "2.4e1", "24x".
bool is_numeric(const std::string& text) {
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.size() > sign && std::isdigit(static_cast<unsigned char>(text[sign])) != 0 &&
         text.find(':') == text.npos;  // torchrun's "1:4" nodes
}

/// Files of YAML list every switch that they do not turn.
bool is_absent(std::string text) {
  text = lower_case(std::move(text));
  return text == "null" || text == "false" || text == "~";
}

/// Returns whether it depends on what only a run of the script tells.
bool is_untold(const std::string& value) { return value.find_first_of("$`") != value.npos; }

/// Returns the longest known name that is the given one without one of its words, as `num-experts`
/// is `num-moe-experts`; "" where there is none. Names of one word are too general.
std::string with_a_word_less(const std::string& name, const std::set<std::string>& known) {
  std::string found;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('-', begin), name.size());
    std::string rest = name.substr(0, begin) + name.substr(std::min(end + 1, name.size()));
    if (rest.ends_with('-')) rest.pop_back();
    if (rest.find('-') != rest.npos && known.contains(rest) && rest.size() > found.size())
      found = rest;
    begin = end + 1;
  }
  return found;
}

}  // namespace

std::string as_comment(const std::string& text) {
  constexpr std::size_t kLongest = 100;
  std::string line = printable(text);
  if (constexpr std::string_view kCut = "…"; line.ends_with(kCut))
    line.replace(line.size() - kCut.size(), kCut.size(), "...");
  for (char& c : line)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';  // whatever its encoding
  return line.size() <= kLongest ? line : line.substr(0, kLongest) + "...";
}

ImportNotes::ImportNotes(std::vector<ScriptOption> options, std::string dashes, KnownOptions known)
    : options_(std::move(options)), dashes_(std::move(dashes)), known_(std::move(known)) {
  for (std::size_t i = 0; i < options_.size(); ++i) last_[options_[i].name] = i;
  kinds_.assign(options_.size(), Kind::open);
}

bool ImportNotes::is_off(std::size_t option) const {
  const std::vector<std::string>& values = options_[option].values;
  return values.size() == 1 && is_absent(values.front());
}

bool ImportNotes::mentions(const std::string& name) const {
  known_names_.insert(name);
  const auto at = last_.find(name);
  return at != last_.end() && !is_off(at->second);
}

bool ImportNotes::denies(const std::string& name, const std::string& meaning) {
  const auto at = last_.find(name);
  if (at == last_.end() || !is_off(at->second) || options_[at->second].values[0] == "null")
    return false;
  kinds_[at->second] = Kind::understood;
  meanings_[at->second] = meaning;
  return true;
}

ScriptOption* ImportNotes::find(const std::string& name, const std::string& meaning) {
  if (!mentions(name)) return nullptr;
  const std::size_t at = last_.at(name);
  for (std::size_t i = 0; i < options_.size(); ++i)
    if (options_[i].name == name) kinds_[i] = Kind::understood;
  meanings_[at] = meaning;
  return &options_[at];
}

bool ImportNotes::has(const std::string& name, const std::string& meaning) {
  const ScriptOption* option = find(name, meaning);
  if (option == nullptr) return false;
  // A switch has no value: a word behind it that nobody knows may be further options.
  const auto word = std::ranges::find_if(option->values, is_untold);
  if (word != option->values.end()) untold_[name] = *word;
  return true;
}

std::string ImportNotes::word(const std::string& name, const std::string& meaning) {
  ScriptOption* option = find(name, meaning);
  if (option == nullptr || option->values.empty()) return "";
  option->values.resize(1);  // what follows is not its own
  const std::string& value = option->values.front();
  if (is_untold(value)) unreadable(name);
  if (is_untold(value) && (name.starts_with("recompute-") || name.starts_with("pipeline-")))
    untold_[name] = value;
  return value;
}

std::vector<std::string> ImportNotes::words(const std::string& name, const std::string& meaning) {
  const ScriptOption* option = find(name, meaning);
  if (option == nullptr) return {};
  const auto unknown = std::ranges::find_if(option->values, is_untold);
  if (unknown != option->values.end()) untold_[name] = *unknown;
  return option->values;
}

std::optional<std::int64_t> ImportNotes::number(const std::string& name,
                                                const std::string& meaning) {
  if (!mentions(name)) return std::nullopt;
  const std::string text = word(name, meaning);
  const auto value = whole_number(text);
  if (value) return value;
  unreadable(name);
  if (text == "0") ignore(name);
  if (is_untold(text)) untold_[name] = text;
  const bool strict = numbers_ && name.find('.') != name.npos && !is_untold(text);
  if (strict || (text != "0" && is_numeric(text)))
    fault(name, fmt::format("{} must be an integer from 1 to {}, got '{}'",
                            printable(shown(last_.at(name))), kMostOfAnOption, printable(text)));
  return std::nullopt;
}

std::string ImportNotes::choice(const std::string& name, const std::string& meaning,
                                const std::vector<std::string>& allowed) {
  const std::string value = word(name, meaning);
  if (value.empty() || is_untold(value)) return "";
  for (const std::string& one : allowed)
    if (lower_case(one) == lower_case(value)) return one;
  const std::string meant = nearest(value, allowed);
  fault(name, fmt::format("{} must be one of {}, got '{}'{}", printable(shown(last_.at(name))),
                          fmt::join(allowed, ", "), printable(value),
                          meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  return "";
}

void ImportNotes::fault(const std::string& name, std::string message) {
  faults_.try_emplace(name, std::move(message));
}

std::optional<std::int64_t> ImportNotes::number(std::initializer_list<std::string> names,
                                                const std::string& meaning) {
  std::optional<std::int64_t> found;
  for (const std::string& name : names)
    if (const auto value = number(name, meaning); value && !found) found = value;
  if (found) not_asked(names);
  return found;
}

std::int64_t ImportNotes::needed(const std::string& name, const std::string& meaning) {
  const auto value = number(name, meaning);
  if (!value) ask(name);
  return value.value_or(1);
}

std::int64_t ImportNotes::product_of(std::initializer_list<std::int64_t> factors,
                                     const std::string& what) {
  std::int64_t out = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(out, factor, &out) || out > kMostOfAProduct) {
      too_many_.insert(fmt::format("{} {}", fmt::join(factors, " x "), what));
      return kMostOfAProduct;
    }
  return out;
}

void ImportNotes::ask(const std::string& name, std::string how) {
  if (untold_.contains(name) || faults_.contains(name)) return;  // which says it already
  if (std::ranges::find(asked_, name, [](const auto& a) { return a.first; }) == asked_.end())
    asked_.emplace_back(name, std::move(how));
}

void ImportNotes::unless_one(const std::string& name, std::int64_t degree) {
  const auto at = last_.find(name);
  if (at == last_.end() || kinds_[at->second] == Kind::unreadable) return;
  kinds_[at->second] = degree > 1 ? Kind::open : Kind::ignored;
}

void ImportNotes::unreadable(const std::string& name) { kinds_[last_.at(name)] = Kind::unreadable; }

void ImportNotes::ignore(const std::string& name) {
  if (const auto at = last_.find(name); at != last_.end()) kinds_[at->second] = Kind::ignored;
}

void ImportNotes::unmodelled(const std::string& name, std::string why) {
  const auto at = last_.find(name);
  if (at == last_.end()) return;
  kinds_[at->second] = Kind::unmodelled;
  meanings_[at->second] = std::move(why);
}

void ImportNotes::leave_out(const std::string& what, Leaves leaves) {
  std::vector<std::string>& all = leaves == Leaves::less ? needs_less_ : needs_more_;
  if (leaves != Leaves::nothing && std::ranges::find(all, what) == all.end()) all.push_back(what);
}

/// Returns the row of an option; null where it is none of them.
const UnmodelledOption* ImportNotes::unmodelled_row(const std::string& name) const {
  const auto row = std::ranges::find_if(
      known_.unmodelled, [&](const UnmodelledOption& u) { return name.starts_with(u.beginning); });
  return row == known_.unmodelled.end() ? nullptr : &*row;
}

void ImportNotes::sort_out() {
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (kinds_[i] != Kind::open) continue;
    const std::string& name = options_[i].name;
    const auto begins = [&](const std::string& with) { return name.starts_with(with); };
    const std::string value = options_[i].values.empty() ? "" : options_[i].values.front();
    const UnmodelledOption* row = unmodelled_row(name);
    const bool ignored =
        is_off(i) || std::ranges::find(known_.ignored, name) != known_.ignored.end();
    const bool begins_alike =
        !ignored && row != nullptr && row->beginning != name && !known_names_.contains(name);
    if (const std::string slip = begins_alike ? suggestion(name, true) : ""; !slip.empty()) {
      kinds_[i] = Kind::unknown;
      meanings_[i] = slip;
    } else if (ignored ||
               (row != nullptr && (value == row->neutral || value == "0" || value == "none" ||
                                   (!row->with.empty() && !is_on(row->with))))) {
      kinds_[i] = Kind::ignored;
    } else if (row != nullptr) {
      kinds_[i] = Kind::unmodelled;
      meanings_[i] = row->why;
      if (!row->left_out.empty() && last_.at(name) == i) leave_out(row->left_out, row->leaves);
    } else {
      const bool harmless = std::ranges::any_of(known_.ignored_beginnings, begins);
      const std::string meant = suggestion(name, harmless);
      kinds_[i] = harmless && meant.empty() ? Kind::ignored : Kind::unknown;
      meanings_[i] = meant;
    }
  }
}

bool ImportNotes::is_on(const std::string& name) const {
  if (!mentions(name)) return false;
  const std::vector<std::string>& values = options_[last_.at(name)].values;
  return values.empty() || (values[0] != "0" && values[0] != "1" && values[0] != "none");
}

/// Returns a neighbour in spelling; of what looks harmless, only among options that have a meaning
/// here.
std::string ImportNotes::suggestion(const std::string& name, bool harmless) {
  if (++suggested_ > kMostSuggested) return "";
  std::vector<std::string> names(known_names_.begin(), known_names_.end());
  if (!harmless) names.insert(names.end(), known_.ignored.begin(), known_.ignored.end());
  for (const UnmodelledOption& u : known_.unmodelled)
    if (!u.beginning.ends_with('-')) names.emplace_back(u.beginning);
  // Keys with a dot are compared within their section: what two sections share is no likeness.
  const std::string section = name.substr(0, name.rfind('.') + 1);
  const std::string key = name.substr(section.size());
  std::vector<std::string> keys;
  for (const std::string& other : names)
    if (other.starts_with(section) && other.find('.', section.size()) == other.npos)
      keys.push_back(other.substr(section.size()));
  std::string meant = nearest(key, keys);
  constexpr std::size_t kSlips = 2, kLettersOfASlip = 4;  // more is another word
  const std::size_t slips = std::min(kSlips, key.size() / kLettersOfASlip);
  if (meant.empty() || meant == folded(key) ||
      edit_distance(folded(key), folded(meant)) > static_cast<int>(slips)) {
    constexpr std::size_t kLettersOfAStem = 7;  // of a name that is cut short: "seq-len"
    const auto whole = std::ranges::find_if(
        keys, [&](const std::string& k) { return k.starts_with(key) && k.size() > key.size(); });
    meant = key.size() < kLettersOfAStem || whole == keys.end() ? "" : *whole;
  }
  // A flag of a group without one of its words ("moe-ffn-hidden-size") is another flag.
  if (meant.empty() && section.empty() && !harmless) meant = with_a_word_less(key, known_names_);
  return meant.empty() ? "" : fmt::format("did you mean {}{}{}?", dashes_, section, meant);
}

/// Returns the place of an option, still without a message.
Diagnostic ImportNotes::at(const ScriptOption& option, const std::string& origin) {
  Diagnostic error = option.place;
  if (error.where.origin.empty()) error.where = {origin, option.line, option.line > 0 ? 1 : 0};
  return error;
}

/// Returns what `option` would need to be told, as an error where it stands.
Diagnostic ImportNotes::untold(const ScriptOption& option, const std::string& what,
                               const std::string& origin) const {
  Diagnostic error = at(option, origin);
  std::vector<std::string> defines;
  for (const std::string& name : option.asked)
    defines.push_back(printable(fmt::format("--define {}=VALUE", name)));
  error.message = fmt::format(
      "{}; give {}", what,
      defines.empty() ? "what it is in its place" : fmt::format("{}", fmt::join(defines, " ")));
  return error;
}

/// Returns errors for what a run of the script would tell: values, words that may be options,
/// conditions.
std::vector<Diagnostic> ImportNotes::untold_options(const std::string& origin) const {
  std::vector<Diagnostic> errors;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    const ScriptOption& option = options_[i];
    const std::string words = fmt::format("{}{}{}", shown(i), option.values.empty() ? "" : " ",
                                          fmt::join(option.values, " "));
    const bool last = last_.at(option.name) == i;
    if (option.bundle) {
      errors.push_back(untold(option,
                              fmt::format("'{}' may hold any flags, and its value is not known",
                                          printable(option.name)),
                              origin));
    } else if (last && untold_.contains(option.name)) {
      errors.push_back(untold(
          option, fmt::format("'{}' cannot be told without running the script", printable(words)),
          origin));
    } else if (is_in_question(i)) {
      errors.push_back(untold(option,
                              fmt::format("'{}' stands under a condition that is not known, {}",
                                          printable(words), printable(option.condition)),
                              origin));
    }
  }
  return errors;
}

/// Returns whether a condition that is not known decides if an option counts that means something
/// here.
bool ImportNotes::is_in_question(std::size_t i) const {
  const ScriptOption& option = options_[i];
  if (option.condition.empty() || settled_.contains(option.name)) return false;
  const std::size_t last = last_.at(option.name);
  for (std::size_t k = i; k <= last; ++k)
    if (options_[k].name == option.name && options_[k].condition.empty()) return false;
  return kinds_[last] == Kind::understood || kinds_[last] == Kind::unmodelled;
}

std::string ImportNotes::asked_text() const {
  std::vector<std::string> names, defines, hints;
  std::vector<std::string> unknown;
  for (std::size_t i = 0; i < options_.size(); ++i)
    if (kinds_[i] == Kind::unknown) unknown.push_back(options_[i].name);
  for (const auto& [name, how] : asked_) {
    const std::string typo = nearest(name, unknown);
    names.push_back(printable(
        dashes_ + name + (typo.empty() ? "" : fmt::format(" ({}{} is not known)", dashes_, typo))));
    defines.push_back(printable(fmt::format("--define {}=N", name)));
    if (!how.empty() && std::ranges::find(hints, how) == hints.end()) hints.push_back(how);
  }
  return fmt::format(
      "it does not say {}, without which it would be another job; {}{}{}", fmt::join(names, ", "),
      in_file_ ? fmt::format("put {} into the file", names.size() > 1 ? "them" : "it")
               : fmt::format("give {}", fmt::join(defines, " ")),
      hints.empty() ? "" : ", or ", fmt::join(hints, ", or "));
}

void ImportNotes::refuse(const std::string& origin) const {
  std::vector<Diagnostic> errors;
  const auto add = [&](const std::string& text) {
    errors.push_back({{origin, 0, 0}, text, "", 1, 0});
  };
  errors = untold_options(origin);
  const bool may_say = std::ranges::any_of(options_, &ScriptOption::bundle);
  if (!asked_.empty() && !may_say) add(asked_text());
  for (const std::string& product : too_many_)
    add(fmt::format("{} are more than {}, the most that are predicted", product, kMostOfAProduct));
  for (const auto& [name, message] : faults_) {
    const auto option = last_.find(name);
    if (option == last_.end()) {
      add(message);
      continue;
    }
    errors.push_back(at(options_[option->second], origin));
    errors.back().message = message;
  }
  if (!errors.empty()) throw InputError(std::move(errors));
}

std::string ImportNotes::missing(const std::string& indent) {
  sort_out();
  std::string out;
  for (const auto& [key, all] :
       {std::pair{"missing", &needs_more_}, std::pair{"missing_saves", &needs_less_}})
    if (!all->empty())
      out += fmt::format("{}{}: {}\n", indent, key,
                         Json(fmt::format("{}", fmt::join(*all, ", "))).dump());
  return out;
}

std::string ImportNotes::head(const std::string& origin) {
  sort_out();
  refuse(origin);
  return comments() + fmt::format("name: {}\n", Json(name(origin)).dump());
}

std::string ImportNotes::name(const std::string& origin) const {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < options_.size(); ++i)
    if (kinds_[i] == Kind::unmodelled && last_.at(options_[i].name) == i)
      missing.push_back(as_comment(shown(i)));
  const std::string file = origin.substr(origin.rfind('/') + 1);
  if (missing.empty()) return as_comment(file);
  const std::size_t more = missing.size() - std::min(missing.size(), kNamed);
  missing.resize(missing.size() - more);
  return as_comment(file) + fmt::format(", without {}{}", fmt::join(missing, ", "),
                                        more == 0 ? "" : fmt::format(" and {} more", more));
}

std::string ImportNotes::shown(std::size_t i) const {
  return options_[i].shown.empty() ? dashes_ + options_[i].name : options_[i].shown;
}

std::string ImportNotes::line(std::size_t i) const {
  const auto meaning = meanings_.find(i);
  std::string option = shown(i);
  if (!options_[i].values.empty()) option += fmt::format(" {}", fmt::join(options_[i].values, " "));
  const bool meant = meaning != meanings_.end() && !meaning->second.empty() &&
                     kinds_[i] != Kind::unreadable && kinds_[i] != Kind::ignored;
  const std::string& condition = options_[i].condition;
  return fmt::format("#   {}{}{}\n", as_comment(option),
                     meant ? fmt::format(": {}", meaning->second) : "",
                     condition.empty() ? "" : fmt::format(" (if {})", as_comment(condition)));
}

std::string ImportNotes::comments() const {
  std::string out;
  for (const auto& [kind, title] :
       {std::pair{Kind::understood, "understood"},
        {Kind::unmodelled, "cannot be modelled"},
        {Kind::unreadable, "has no value that can be told without running the script"},
        {Kind::unknown, "not known here"},
        {Kind::ignored, "changes nothing that is predicted"}}) {
    std::string lines;
    for (std::size_t i = 0; i < options_.size(); ++i) {
      if (kinds_[i] != kind || last_.at(options_[i].name) != i) continue;
      lines += line(i);
    }
    if (!lines.empty()) out += fmt::format("# {}:\n{}", title, lines);
  }
  if (!assumed_.empty()) out += "# assumed, as it does not say:\n";
  for (const std::string& line : assumed_) out += fmt::format("#   {}\n", line);
  return out;
}

}  // namespace penstock
