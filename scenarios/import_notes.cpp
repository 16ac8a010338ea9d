#include "scenarios/import_notes.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "scenarios/document.hpp"
#include "scenarios/shell_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr std::int64_t kMostOfAnOption = 1'000'000;  // products of three fit 63 bits

std::optional<std::int64_t> whole_number(const std::string& text) {
  const auto value = parse_number<std::int64_t>(text);
  return value && *value > 0 && *value <= kMostOfAnOption ? value : std::nullopt;
}

/// Does it depend on what only a run of the script tells?
bool is_untold(const std::string& value) { return value.find_first_of("$`") != value.npos; }

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

ImportNotes::ImportNotes(std::vector<ScriptOption> options, std::string dashes,
                         const KnownOptions& known)
    : options_(std::move(options)), dashes_(std::move(dashes)), known_(known) {
  for (std::size_t i = 0; i < options_.size(); ++i) last_[options_[i].name] = i;
  kinds_.assign(options_.size(), Kind::open);
}

ScriptOption* ImportNotes::find(const std::string& name, const std::string& meaning) {
  const auto at = last_.find(name);
  if (at == last_.end()) return nullptr;
  for (std::size_t i = 0; i < options_.size(); ++i)
    if (options_[i].name == name) kinds_[i] = Kind::understood;
  meanings_[at->second] = meaning;
  return &options_[at->second];
}

bool ImportNotes::has(const std::string& name, const std::string& meaning) {
  return find(name, meaning) != nullptr;
}

std::string ImportNotes::word(const std::string& name, const std::string& meaning) {
  ScriptOption* option = find(name, meaning);
  if (option == nullptr || option->values.empty()) return "";
  option->values.resize(1);  // what follows is not its own
  if (is_untold(option->values.front())) unreadable(name);
  return option->values.front();
}

std::optional<std::int64_t> ImportNotes::number(const std::string& name,
                                                const std::string& meaning) {
  if (!mentions(name)) return std::nullopt;
  const std::string text = word(name, meaning);
  const auto value = whole_number(text);
  if (value) return value;
  unreadable(name);
  if (is_untold(text)) untold_[name] = text;
  return std::nullopt;
}

std::optional<std::int64_t> ImportNotes::number(std::initializer_list<std::string> names,
                                                const std::string& meaning) {
  std::optional<std::int64_t> found;
  for (const std::string& name : names)
    if (const auto value = number(name, meaning); value && !found) found = value;
  if (found) not_asked(names);
  return found;
}

void ImportNotes::unless_one(const std::string& name, std::int64_t degree) {
  const auto at = last_.find(name);
  if (at == last_.end() || kinds_[at->second] == Kind::unreadable) return;
  kinds_[at->second] = degree > 1 ? Kind::open : Kind::ignored;
}

void ImportNotes::unreadable(const std::string& name) { kinds_[last_.at(name)] = Kind::unreadable; }

void ImportNotes::unmodelled(const std::string& name, std::string why) {
  const auto at = last_.find(name);
  if (at == last_.end()) return;
  kinds_[at->second] = Kind::unmodelled;
  meanings_[at->second] = std::move(why);
}

void ImportNotes::sort_out() {
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (kinds_[i] != Kind::open) continue;
    const std::string& name = options_[i].name;
    const auto begins = [&](std::string_view with) { return name.starts_with(with); };
    const auto unmodelled = std::ranges::find_if(
        known_.unmodelled, [&](const UnmodelledOption& u) { return begins(u.beginning); });
    const bool ignored = std::ranges::find(known_.ignored, name) != known_.ignored.end() ||
                         std::ranges::any_of(known_.ignored_beginnings, begins);
    if (unmodelled != known_.unmodelled.end()) {
      kinds_[i] = Kind::unmodelled;
      meanings_[i] = unmodelled->why;
    } else {
      kinds_[i] = ignored ? Kind::ignored : Kind::unknown;
    }
  }
}

void ImportNotes::refuse_untold(const std::string& origin) const {
  if (untold_.empty()) return;
  std::vector<std::string> values, defines;
  for (const auto& [name, value] : untold_) {
    values.push_back(printable(fmt::format("{}{} {}", dashes_, name, value)));
    for (const std::string& variable : variables_in(value)) {
      const std::string define = printable(fmt::format("--define {}=N", variable));
      if (std::ranges::find(defines, define) == defines.end()) defines.push_back(define);
    }
  }
  throw InputError(
      origin, fmt::format("{} cannot be told without running it; give {}", fmt::join(values, ", "),
                          defines.empty() ? "numbers in their place"
                                          : fmt::format("{}", fmt::join(defines, " "))));
}

std::string ImportNotes::head(const std::string& origin) {
  refuse_untold(origin);
  sort_out();
  return comments() + fmt::format("name: {}\n", Json(name(origin)).dump());
}

std::string ImportNotes::name(const std::string& origin) const {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < options_.size(); ++i)
    if (kinds_[i] == Kind::unmodelled && last_.at(options_[i].name) == i)
      missing.push_back(as_comment(dashes_ + options_[i].name));
  const std::string file = origin.substr(origin.rfind('/') + 1);
  if (missing.empty()) return as_comment(file);
  const std::size_t more = missing.size() - std::min(missing.size(), kNamed);
  missing.resize(missing.size() - more);
  return as_comment(file) + fmt::format(", without {}{}", fmt::join(missing, ", "),
                                        more == 0 ? "" : fmt::format(" and {} more", more));
}

std::string ImportNotes::line(std::size_t i) const {
  const auto meaning = meanings_.find(i);
  std::string option = dashes_ + options_[i].name;
  if (!options_[i].values.empty()) option += fmt::format(" {}", fmt::join(options_[i].values, " "));
  const bool meant =
      meaning != meanings_.end() && !meaning->second.empty() && kinds_[i] != Kind::unreadable;
  const std::string& condition = options_[i].condition;
  return fmt::format("#   {}{}{}\n", as_comment(option),
                     meant ? fmt::format(": {}", meaning->second) : "",
                     condition.empty() ? "" : fmt::format(" (if {})", as_comment(condition)));
}

std::string ImportNotes::comments() const {
  std::string out, conditional;
  for (const auto& [kind, title] :
       {std::pair{Kind::understood, "understood"},
        {Kind::unmodelled, "cannot be modelled"},
        {Kind::unreadable, "has no value that can be told without running the script"},
        {Kind::unknown, "not known here"},
        {Kind::ignored, "changes nothing that is predicted"}}) {
    std::string lines;
    for (std::size_t i = 0; i < options_.size(); ++i) {
      if (kinds_[i] != kind || last_.at(options_[i].name) != i) continue;
      const bool taken = kind == Kind::understood && !options_[i].condition.empty();
      (taken ? conditional : lines) += line(i);
    }
    if (!lines.empty()) out += fmt::format("# {}:\n{}", title, lines);
    if (!conditional.empty() && kind == Kind::understood)
      out += fmt::format("# under a condition, taken as true (--define NAME=VALUE decides):\n{}",
                         conditional);
  }
  if (!assumed_.empty()) out += "# assumed, as it does not say:\n";
  for (const std::string& line : assumed_) out += fmt::format("#   {}\n", line);
  return out;
}

}  // namespace penstock
