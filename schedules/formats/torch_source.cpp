// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/torch_source.hpp"

#include "base/suggest.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace penstock {
namespace {

constexpr std::uint32_t kMostStages = 65535, kMostMicrobatches = 1U << 30;
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr std::string_view kBoth = "BW";

std::vector<std::string> kinds() { return {std::begin(kActionNames), std::end(kActionNames)}; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Takes a number from the front; none when it does not fit in `most`.
std::optional<std::uint32_t> take_number(std::string_view& text, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || value >= most) return std::nullopt;
  return value;
}

std::string_view take_while(std::string_view& text, bool (*wanted)(char)) {
  std::size_t n = 0;
  while (n < text.size() && wanted(text[n])) ++n;
  const std::string_view taken = text.substr(0, n);
  text.remove_prefix(n);
  return taken;
}

/// Without blanks around it, and without the quotes a spreadsheet puts there.
std::string_view unquoted(std::string_view text) {
  text = trimmed(text);
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return text;
  return trimmed(text.substr(1, text.size() - 2));
}

std::uint32_t characters(std::string_view text) {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool of_a_microbatch(ActionKind kind) {
  return is_compute(kind) || is_send(kind) || is_receive(kind);
}

std::uint64_t key(ActionKind kind, std::uint32_t stage, std::uint32_t microbatch) {
  const auto one = kind == ActionKind::backward_input ? ActionKind::backward : kind;
  return static_cast<std::uint64_t>(one) << 48 | std::uint64_t{stage} << 32 | microbatch;
}

}  // namespace

void TorchFindings::throw_if_any(const std::string& origin) {
  if (found_.empty()) return;
  std::ranges::stable_sort(
      found_, {}, [](const Diagnostic& d) { return std::pair(d.where.line, d.where.column); });
  if (count_ > found_.size())
    found_.push_back(
        {{origin, 0, 0}, fmt::format("and {} more", count_ - found_.size()), "", 1, 0});
  throw InputError(std::move(found_));
}

TorchSource::TorchSource(std::string_view text, std::string origin) : origin_(std::move(origin)) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a spreadsheet's byte order mark
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines_.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  for (std::uint32_t row = 0; row < lines_.size(); ++row) read_row(lines_[row], row);
  begin_.push_back(size());
  settle_words();
  index();
}

void TorchSource::settle_words() {
  const auto has = [&](ActionKind kind) {
    return std::ranges::find(actions_, kind, &Action::kind) != actions_.end();
  };
  if (has(ActionKind::backward_input)) {
    for (ActionId id = 0; id < size(); ++id)
      if (spots_[id].both)
        report(id, fmt::format("a whole backward is '{}' in a table whose input's halves are I",
                               name(id)));
    return;
  }
  older_ = has(ActionKind::backward_weight) ||
           std::ranges::find(spots_, true, &Spot::both) != spots_.end();
  if (!older_) return;
  ActionId id = 0;
  for (ActionRow& row : table_.rows) {
    for (Action& action : row) {
      if (action.kind == ActionKind::bubble) continue;
      if (action.kind == ActionKind::backward && !spots_[id].both)
        actions_[id].kind = action.kind = ActionKind::backward_input;
      ++id;
    }
  }
}

std::string TorchSource::name(const Action& action) const {
  if (!older_ || !is_backward(action.kind)) return to_string(action);
  return fmt::format("{}{}{}", action.stage, action.kind == ActionKind::backward ? kBoth : "B",
                     action.microbatch);
}

void TorchSource::read_row(std::string_view line, std::uint32_t row) {
  begin_.push_back(size());
  table_.rows.emplace_back();
  std::uint32_t column = 1;
  for (std::size_t from = 0; from <= line.size();) {
    const std::size_t end = std::min(line.find(',', from), line.size());
    const std::string_view cell = line.substr(from, end - from);
    const std::string_view word = unquoted(cell);
    const auto before = static_cast<std::size_t>(word.data() - cell.data());
    read_cell(word, {row, column + characters(cell.substr(0, before)), characters(word),
                     word.find(kBoth) != word.npos});
    column += characters(cell) + 1;
    from = end + 1;
  }
}

void TorchSource::read_cell(std::string_view cell, Spot at) {
  if (cell.empty()) {
    table_.rows.back().emplace_back();
  } else if (cell.front() == '(') {
    read_pair(cell, at);
  } else if (const auto action = read_action(cell, at)) {
    add_action(*action, at);
  }
}

void TorchSource::read_pair(std::string_view cell, Spot at) {
  const std::size_t middle = cell.find(';'), close = cell.find(')');
  const bool two = middle != std::string_view::npos && close != std::string_view::npos &&
                   middle < close && cell.substr(close + 1) == kOverlap;
  if (!two) {
    return report_at(at, fmt::format("'{}' is no pair; a forward and a backward that run together "
                                     "are written '(0F7;7B3)OVERLAP_F_B'",
                                     cell));
  }
  const auto part = [&](std::size_t from, std::size_t to) {
    const std::string_view word = unquoted(cell.substr(from, to - from));
    const auto before = static_cast<std::size_t>(word.data() - cell.data());
    return std::pair(word, Spot{at.row, at.column + characters(cell.substr(0, before)),
                                characters(word), word.find(kBoth) != word.npos});
  };
  const auto [first_word, first_at] = part(1, middle);
  const auto [second_word, second_at] = part(middle + 1, close);
  auto first = read_action(first_word, first_at);
  const auto second = read_action(second_word, second_at);
  if (!first || !second) return;
  const bool forward_first = first->kind == ActionKind::forward && is_backward(second->kind);
  const bool backward_first = is_backward(first->kind) && second->kind == ActionKind::forward;
  if (!forward_first && !backward_first)
    return report_at(at, fmt::format("'{}' must be one F and one B or I", cell));
  first->paired = true;
  add_action(*first, first_at);
  add_action(*second, second_at);
}

std::optional<Action> TorchSource::read_action(std::string_view word, Spot at) {
  const auto refuse = [&](const std::string& why) {
    report_at(at, fmt::format("'{}' {}", word, why));
    return std::nullopt;
  };
  std::string_view rest = word;
  if (rest.empty() || !is_digit(rest.front()))
    return refuse("is no action; expected <stage><kind><microbatch>, such as 2F0 or 1SEND_F3");
  Action action;
  const auto stage = take_number(rest, kMostStages);
  if (!stage) return refuse(fmt::format("has a stage beyond {}", kMostStages - 1));
  action.stage = *stage;
  const std::string_view kind = take_while(rest, is_word);
  const auto* known = std::ranges::find(kActionNames, kind == kBoth ? kActionNames[1] : kind);
  if (known == std::end(kActionNames)) {
    return refuse(fmt::format("has an unknown kind '{}'; one of {}{}", kind,
                              fmt::join(kActionNames, ", "), did_you_mean(kind, kinds())));
  }
  action.kind = static_cast<ActionKind>(known - std::begin(kActionNames));
  if (!rest.empty() && is_digit(rest.front())) {
    const auto microbatch = take_number(rest, kMostMicrobatches);
    if (!microbatch)
      return refuse(fmt::format("has a microbatch beyond {}", kMostMicrobatches - 1));
    action.microbatch = *microbatch;
  }
  if (!rest.empty()) {
    return refuse(fmt::format("goes on after the action '{}'; cells are separated by commas",
                              to_string(action)));
  }
  if (of_a_microbatch(action.kind) && action.microbatch == kNoMicrobatch)
    return refuse(fmt::format("has no microbatch; expected {}0 or the like", word));
  return action;
}

void TorchSource::add_action(const Action& action, Spot at) {
  table_.rows.back().push_back(action);
  actions_.push_back(action);
  spots_.push_back(at);
  if (is_compute(action.kind)) {
    stages_ = std::max(stages_, action.stage + 1);
    microbatches_ = std::max(microbatches_, action.microbatch + 1);
  }
  communicates_ = communicates_ || is_send(action.kind) || is_receive(action.kind);
}

void TorchSource::index() {
  for (ActionId id = 0; id < size(); ++id) {
    const Action& a = actions_[id];
    if (!of_a_microbatch(a.kind)) continue;
    const auto [first, added] = index_.try_emplace(key(a.kind, a.stage, a.microbatch), id);
    if (added) continue;
    report(
        id,
        name(id) == name(first->second)
            ? fmt::format("'{}' stands twice; the first is in {}", name(id), place(first->second))
            : fmt::format("'{}' stands beside '{}' of {}; a backward is either B, or I and W",
                          name(id), name(first->second), place(first->second)));
  }
}

ActionId TorchSource::find(ActionKind kind, std::uint32_t stage, std::uint32_t microbatch) const {
  const auto found = index_.find(key(kind, stage, microbatch));
  return found == index_.end() ? kNoAction : found->second;
}

std::optional<Action> TorchSource::producer(const Action& a) const {
  if (a.kind == ActionKind::forward && a.stage > 0)
    return Action{ActionKind::forward, false, a.stage - 1, a.microbatch};
  if (is_backward(a.kind) && a.stage + 1 < stages_)
    return Action{ActionKind::backward, false, a.stage + 1, a.microbatch};
  return std::nullopt;
}

std::string TorchSource::place(ActionId id) const {
  return fmt::format("line {}, column {}", spots_[id].row + 1, spots_[id].column);
}

void TorchSource::report(ActionId id, const std::string& message) {
  report_at(spots_[id], message);
}

void TorchSource::report_row(std::size_t row, const std::string& message) {
  report_at({static_cast<std::uint32_t>(row), 1, 1}, message);
}

void TorchSource::report_at(const Spot& at, const std::string& message) {
  // Lines are long: around the place, in bytes that are characters but for a stray one.
  constexpr std::uint32_t kAround = 60;
  const std::string_view line = lines_.empty() ? std::string_view() : lines_[at.row];
  const std::uint32_t from = at.column > kAround ? at.column - kAround : 0;
  std::string shown(line.substr(std::min<std::size_t>(from, line.size()), 2 * kAround));
  findings_.add_finding({{origin_, static_cast<int>(at.row) + 1, static_cast<int>(at.column)},
                         message,
                         std::move(shown),
                         static_cast<int>(at.length),
                         static_cast<int>(from)});
}

}  // namespace penstock
