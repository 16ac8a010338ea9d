// SPDX-License-Identifier: Apache-2.0
// The flow of a script's commands: bash's manual, "Compound Commands" and "Lists of Commands".
#include "scenarios/shell_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t kMostSteps = 25'000;
constexpr std::size_t kBytesOfAStep = 64;
constexpr std::size_t kMostTurns = 2'000;
constexpr int kMostForks = 24;  // within one another
constexpr int kMostParentheses = 50;

/// Returns a condition that is not known in one line.
std::string condition_of(const ShellWord& word) {
  std::string out = one_line(word);
  while (out.ends_with(' ') || out.ends_with(';')) out.pop_back();
  return out;
}

ShellStatus both(const ShellStatus& a, const ShellStatus& b, bool with_or) {
  const ShellVerdict x{a.truth, a.names}, y{b.truth, b.names};
  const ShellVerdict verdict = with_or ? either_holds(x, y) : both_hold(x, y);
  ShellStatus out{verdict.truth, "", verdict.names};
  if (a.truth == Truth::unknown && b.truth == Truth::unknown)
    out.shown = a.shown + (with_or ? " || " : " && ") + b.shown;
  else if (verdict.truth == Truth::unknown)
    out.shown = a.truth == Truth::unknown ? a.shown : b.shown;
  return out;
}

bool same_variable(const ShellVariable& a, const ShellVariable& b) {
  return a.kind == b.kind && same_text(a.value, b.value) && a.counted == b.counted &&
         a.never == b.never && std::ranges::equal(a.items, b.items, same_text) &&
         std::ranges::equal(a.keyed, b.keyed, [](const auto& x, const auto& y) {
           return x.first == y.first && same_text(x.second, y.second);
         });
}

bool same_variables(const ShellState& a, const ShellState& b) {
  return a.lost == b.lost &&
         std::ranges::equal(a.variables, b.variables, [](const auto& x, const auto& y) {
           return x.first == y.first && same_variable(x.second, y.second);
         });
}

bool is_of_kind(const ShellVariable* variable, ShellVariable::Kind kind) {
  return variable == nullptr || variable->kind == kind ||
         variable->kind == ShellVariable::Kind::unset;
}

/// Returns the list of either way: common words, and what the condition decides.
ShellVariable joined_list(const std::string& name, const ShellVariable* yes,
                          const ShellVariable* no, const std::string& condition,
                          const ShellNames& names) {
  const ShellWords none;
  const ShellWords& a = yes == nullptr ? none : yes->items;
  const ShellWords& b = no == nullptr ? none : no->items;
  ShellVariable out;
  out.kind = ShellVariable::Kind::list;
  const auto [i, j] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same_text);
  out.items.assign(a.begin(), i);
  ShellChoice choice{condition, {i, a.end()}, {j, b.end()}};
  out.counted = (yes == nullptr || yes->counted) && (no == nullptr || no->counted);
  if (i == a.end() && j == b.end()) return out;
  ShellPiece piece{"${" + name + "[@]}", {}};
  if (i != a.end() && !i->empty()) piece.place = i->pieces[0].place;
  piece.names = names;
  out.items.push_back({{chosen_piece(std::move(choice), std::move(piece))}});
  out.counted = false;
  return out;
}

}  // namespace

void ShellMachine::count_step(const ShellPlace& place, std::size_t bytes) {
  here_ = place;
  steps_ += bytes / kBytesOfAStep;
  if (steps_ > kMostSteps)
    throw ShellError{place, fmt::format("more than {} commands are run up to here: such a script "
                                        "is not followed",
                                        kMostSteps)};
}

/// Counts a copy of the state.
void ShellMachine::count_state() {
  std::size_t size = now_.scopes.back().arguments.size();
  for (const auto& [name, variable] : now_.variables)
    size += 2 + variable.items.size() + variable.keyed.size() + variable.value.pieces.size();
  count_step(here_, 4 * kBytesOfAStep + 2 * size);
}

void ShellMachine::run(const Node& node) {
  using Kind = Node::Kind;
  if (!now_.reached) return;
  const bool simple = node.kind == Kind::simple;
  count_step(node.all.place(), kBytesOfAStep + (simple ? node.all.end - node.all.begin : 0));
  auto around = std::exchange(input_, input(node));
  run_kind(node);
  input_ = std::move(around);
  const bool fails = simple || node.kind == Kind::arithmetic || node.kind == Kind::conditional ||
                     node.kind == Kind::subshell;
  if (fails && now_.reached && now_.stops_on_failure && checked_ == 0 &&
      now_.status.truth == Truth::no) {
    exited_at_ = node.all.place();
    now_.reached = false;
  }
}

void ShellMachine::run_kind(const Node& node) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::simple: return run_simple(node);
    case Kind::sequence:
      for (const ShellTree& child : node.children) run(*child);
      return;
    case Kind::and_list: return run_list(node, false);
    case Kind::or_list: return run_list(node, true);
    case Kind::pipeline: return run_pipeline(node);
    case Kind::background: run_apart([&] { run(*node.children[0]); }); return set_status(true);
    case Kind::subshell: return run_apart([&] { run(*node.children[0]); });
    case Kind::group: return run(*node.children[0]);
    case Kind::branches: return run_branches(node, 0);
    case Kind::cases:
      if (node.falls) return run_falling_case(node);
      return run_case(node, expand_one(node.words[0]), 0);
    case Kind::loop: return run_loop(node);
    case Kind::counting: return run_counting(node);
    case Kind::repeat: return run_repeat(node);
    case Kind::function: now_.functions[node.name] = node.children[0]; return set_status(true);
    case Kind::arithmetic: {
      const ShellNumber number = arithmetic(node.words[0]);
      return set_status(
          {number.value ? truth_of(*number.value != 0) : Truth::unknown, number.names}, node);
    }
    case Kind::conditional: {
      std::size_t at = 0;
      const auto opens = [](const ShellWord& word) { return word.text() == "("; };
      if (std::ranges::count_if(node.words, opens) > kMostParentheses)
        throw ShellError{node.all.place(), "is nested too deeply"};
      const ShellVerdict verdict = conditional(node, at, true);
      if (at != node.words.size())
        throw ShellError{node.words[at].place(),
                         "'" + node.words[at].text() + "' is not expected between [[ and ]]"};
      return set_status(verdict, node);
    }
  }
}

void ShellMachine::run_list(const Node& node, bool with_or) {
  ++checked_;
  run(*node.children[0]);
  --checked_;
  if (!now_.reached) return;
  const ShellStatus left = now_.status;
  if (left.truth == (with_or ? Truth::yes : Truth::no)) return pass_over(*node.children[1]);
  if (left.truth != Truth::unknown) return run(*node.children[1]);
  ShellStatus condition = left;
  if (with_or) condition.shown = "! " + condition.shown;
  ShellStatus after = left;
  fork(
      condition,
      [&] {
        run(*node.children[1]);
        if (now_.reached) after = both(left, now_.status, with_or);
      },
      [] {});
  now_.status = after;
}

void ShellMachine::run_pipeline(const Node& node) {
  if (node.negated) ++checked_;
  if (node.children.size() == 1) {
    run(*node.children[0]);
  } else {
    Output* const output = output_;
    for (const ShellTree& child : node.children) {
      Output aside;
      output_ = output == nullptr ? nullptr : &aside;  // what goes into the pipe
      run_apart([&] { run(*child); });
    }
    output_ = output;
    if (output != nullptr) output->known = false;
    now_.status = {Truth::unknown, condition_of(node.all), {}};  // see pipefail
  }
  if (!node.negated) return;
  --checked_;
  now_.status.truth = negated(now_.status.truth);
  if (now_.status.truth == Truth::unknown) now_.status.shown = "! " + now_.status.shown;
}

/// Runs commands in a shell of their own, which ends alone.
void ShellMachine::run_apart(const std::function<void()>& commands) {
  count_state();
  ShellState before = now_;
  std::vector<Frame> frames = std::exchange(frames_, {});
  frames_.emplace_back();
  commands();
  frames_ = std::move(frames);
  before.status = now_.reached ? now_.status : ShellStatus{Truth::unknown, "exit", {}};
  now_ = std::move(before);
}

// ---- conditions

void ShellMachine::set_status(const ShellVerdict& verdict, const Node& node) {
  now_.status = {verdict.truth, "", {}};
  if (verdict.truth == Truth::unknown)
    now_.status = {Truth::unknown, condition_of(node.all), verdict.names};
}

void ShellMachine::pass_over(const Node& node) {
  count_step(node.all.place(), 1);
  for (const ShellArgument& argument : node.arguments)
    if (argument.assignment) passed_over_.insert(argument.assignment->name);
  for (const auto& child : node.children)
    if (child) pass_over(*child);
}

void ShellMachine::run_branches(const Node& node, std::size_t at) {
  for (; at + 1 < node.children.size(); at += 2) {
    ++checked_;
    run(*node.children[at]);
    --checked_;
    if (!now_.reached) return;
    const ShellStatus condition = now_.status;
    if (condition.truth == Truth::no) {
      pass_over(*node.children[at + 1]);
      continue;
    }
    if (condition.truth == Truth::yes) {
      for (std::size_t i = at + 2; i < node.children.size(); ++i) pass_over(*node.children[i]);
      return run(*node.children[at + 1]);
    }
    return fork(
        condition, [&] { run(*node.children[at + 1]); }, [&] { run_branches(node, at + 2); });
  }
  if (at < node.children.size()) return run(*node.children[at]);
  set_status(true);
}

ShellVerdict ShellMachine::case_matches(const Node& node, const ShellText& subject,
                                        std::size_t at) {
  ShellVerdict out;
  for (const ShellWord& word : node.patterns[at].patterns) {
    const ShellText pattern = expand_one(word);
    ShellVerdict one{Truth::unknown, subject.names()};
    add_names(one.names, pattern.names());
    if ((pattern.known() && pattern_of(pattern) == "*") ||
        ((subject.empty() || subject.absent()) && pattern.empty())) {
      one = {Truth::yes, {}};
    } else if (subject.known() && pattern.known()) {
      const std::string text = subject.shown(), signs = pattern_of(pattern);
      count_step(here_, text.size() * signs.size() / 16);
      if (const auto matches = matches_pattern(text, signs)) one = {truth_of(*matches), {}};
    }
    out = either_holds(out, one);
    if (out.truth == Truth::yes) break;
  }
  return out;
}

void ShellMachine::run_case(const Node& node, const ShellText& subject, std::size_t at) {
  for (; at < node.children.size(); ++at) {
    const ShellVerdict matches = case_matches(node, subject, at);
    if (matches.truth == Truth::no) continue;
    const auto body = [&] {
      set_status(true);
      run(*node.children[at]);
    };
    if (matches.truth == Truth::yes) return body();
    std::string patterns;
    for (const ShellWord& word : node.patterns[at].patterns)
      patterns += (patterns.empty() ? "" : "|") + one_line(word);
    const ShellStatus condition{
        Truth::unknown, condition_of(node.words[1]) + " in " + patterns + ")", matches.names};
    return fork(condition, body, [&] { run_case(node, subject, at + 1); });
  }
  set_status(true);
}

/// Runs a `case` with `;&` or `;;&`: any of its bodies may be run, in their order.
void ShellMachine::run_falling_case(const Node& node) {
  expand_one(node.words[0]);
  const ShellStatus condition{Truth::unknown, condition_of(node.words[1]), {}};
  for (const ShellTree& body : node.children)
    if (now_.reached)
      fork(
          condition, [&] { run(*body); }, [] {});
  now_.status = condition;
}

// ---- [[ ]]

/// Reads tests with && between them, or with || between such.
ShellVerdict ShellMachine::conditional(const Node& node, std::size_t& at, bool with_or) {
  const auto one = [&] {
    return with_or ? conditional(node, at, false) : conditional_one(node, at);
  };
  ShellVerdict out = one();
  while (at < node.words.size() && node.words[at].text() == (with_or ? "||" : "&&")) {
    ++at;
    const ShellVerdict next = one();
    out = with_or ? either_holds(out, next) : both_hold(out, next);
  }
  return out;
}

ShellVerdict ShellMachine::conditional_one(const Node& node, std::size_t& at) {
  const auto word = [&](std::size_t ahead) {
    return at + ahead < node.words.size() ? node.words[at + ahead].text() : std::string();
  };
  bool inverts = false;
  for (; word(0) == "!"; ++at) inverts = !inverts;
  ShellVerdict out = conditional_test(node, at);
  if (inverts) out.truth = negated(out.truth);
  return out;
}

ShellVerdict ShellMachine::conditional_test(const Node& node, std::size_t& at) {
  const auto word = [&](std::size_t ahead) {
    return at + ahead < node.words.size() ? node.words[at + ahead].text() : std::string();
  };
  if (word(0) == "(") {
    const ShellVerdict inner = conditional(node, ++at, true);
    if (word(0) != ")") throw ShellError{node.all.place(), "a ')' is missing between [[ and ]]"};
    ++at;
    return inner;
  }
  const std::string first = word(0), sign = word(1);
  if ((is_binary_test(sign) || sign == "=~") && at + 2 < node.words.size()) {
    at += 3;
    return compared(node.words[at - 3], sign, node.words[at - 1]);
  }
  if (at >= node.words.size())
    throw ShellError{node.all.place(), "a test is missing between [[ and ]]"};
  if (!is_unary_test(first) || at + 1 >= node.words.size())
    return tested_text("-n", expand_one(node.words[at++]));
  at += 2;
  const ShellText text = expand_one(node.words[at - 1]);
  const bool there = (first == "-f" || first == "-e" || first == "-r" || first == "-s");
  if (there && way_to(text)) return {Truth::yes, {}};
  return tested_text(first, text);
}

ShellVerdict ShellMachine::compared(const ShellWord& a, const std::string& sign,
                                    const ShellWord& b) {
  const bool equality = sign == "=" || sign == "==" || sign == "!=";
  if (sign.starts_with('-') && sign != "-nt" && sign != "-ot" && sign != "-ef") {
    const ShellNumber x = arithmetic(a), y = arithmetic(b);
    ShellVerdict out{Truth::unknown, x.names};
    add_names(out.names, y.names);
    if (!x.value || !y.value) return out;
    return compared_texts(known_text(std::to_string(*x.value)), sign,
                          known_text(std::to_string(*y.value)));
  }
  const ShellText left = expand_one(a), right = expand_one(b);
  if (!left.known() || !right.known()) return compared_texts(left, equality ? sign : "-nt", right);
  const std::string text = left.shown(), signs = pattern_of(right);
  count_step(here_, text.size() * signs.size() / 16);
  const auto matches = equality ? matches_pattern(text, signs) : std::nullopt;
  return {matches ? truth_of(*matches == (sign != "!=")) : Truth::unknown, {}};
}

// ---- two ways, and where they meet

/// Follows both ways of a condition that is not known.
void ShellMachine::fork(const ShellStatus& condition, const std::function<void()>& yes,
                        const std::function<void()>& no) {
  if (++forks_ > kMostForks)
    throw ShellError{{}, "has too many conditions within one another that are not known"};
  count_state();
  const ShellState before = now_;
  const std::size_t printed = output_ == nullptr ? 0 : output_->text.size();
  now_.status = {};
  yes();
  ShellState one = std::exchange(now_, before);
  no();
  if (output_ != nullptr && output_->text.size() != printed) output_->known = false;
  join(one, condition.shown, condition.names, true);
  --forks_;
}

/// Joins the way that was followed while the condition held.
void ShellMachine::join(const ShellState& other, const std::string& condition,
                        const ShellNames& names, bool keeps_choices) {
  if (!other.reached) return;
  if (!now_.reached) {
    now_ = other;
    return;
  }
  count_state();
  std::set<std::string> all;
  for (const auto& variable : now_.variables) all.insert(variable.first);
  for (const auto& variable : other.variables) all.insert(variable.first);
  for (const std::string& name : all) {
    const auto a = other.variables.find(name);
    const auto b = now_.variables.find(name);
    const ShellVariable* const yes = a == other.variables.end() ? nullptr : &a->second;
    const ShellVariable* const no = b == now_.variables.end() ? nullptr : &b->second;
    if (yes != nullptr && no != nullptr && same_variable(*yes, *no)) continue;
    if ((yes == nullptr && other.lost) || (no == nullptr && now_.lost))
      now_.variables.erase(name);
    else
      now_.variables[name] = joined(name, yes, no, condition, names, keeps_choices);
  }
  for (const auto& [name, body] : other.functions)
    if (!now_.functions.contains(name) || now_.functions[name] != body)
      now_.functions[name] = nullptr;
  for (auto& [name, body] : now_.functions)
    if (!other.functions.contains(name)) body = nullptr;
  for (std::size_t i = 0; i < now_.scopes.size() && i < other.scopes.size(); ++i) {
    ShellScope& mine = now_.scopes[i];
    const ShellScope& its = other.scopes[i];
    if (!std::ranges::equal(mine.arguments, its.arguments, same_text) || !its.counted)
      mine.counted = false;
    const auto differs = [&](const auto& one) { return !its.shadowed.contains(one.first); };
    for (const auto& [name, value] : its.shadowed)
      if (!mine.shadowed.contains(name))
        mine.shadowed[name] = joined(name, nullptr, nullptr, "", {}, false);
    for (auto& one : mine.shadowed)
      if (differs(one)) one.second = joined(one.first, nullptr, nullptr, "", {}, false);
  }
  if (!same_text(now_.folder, other.folder)) now_.folder = unknown_text("$PWD", {});
  if (now_.status.truth != other.status.truth) now_.status = {Truth::unknown, condition, names};
  now_.stops_on_failure = now_.stops_on_failure && other.stops_on_failure;
  now_.exports_all = now_.exports_all || other.exports_all;
  now_.lost = now_.lost || other.lost;
}

ShellVariable ShellMachine::joined(const std::string& name, const ShellVariable* yes,
                                   const ShellVariable* no, const std::string& condition,
                                   const ShellNames& names, bool keeps) const {
  using Kind = ShellVariable::Kind;
  const ShellNames asked = names.empty() ? ShellNames{name} : names;
  ShellVariable out;
  const auto is_unset = [](const ShellVariable* one) {
    return one == nullptr || one->kind == Kind::unset;
  };
  const auto text = [&](const ShellVariable* one) {
    return is_unset(one) ? ShellText{} : one->value;
  };
  if (keeps && is_of_kind(yes, Kind::scalar) && is_of_kind(no, Kind::scalar))
    out.value = chosen_text(text(yes), text(no), condition, "$" + name, asked);
  else if (keeps && is_of_kind(yes, Kind::list) && is_of_kind(no, Kind::list))
    out = joined_list(name, yes, no, condition, asked);
  else
    out.value = unknown_text("$" + name, asked);
  // An empty text counts as one word, an unset variable as none.
  if ((is_unset(yes) || is_unset(no)) && out.kind == Kind::scalar && out.value.known())
    out.value = unknown_text("$" + name, asked);
  for (const ShellVariable* one : {yes, no}) {
    if (one == nullptr) continue;
    out.fixed = out.fixed || one->fixed;
    out.never = out.never || one->never;
    out.exported = out.exported || one->exported;
  }
  return out;
}

// ---- loops

void ShellMachine::join_all(const std::vector<ShellState>& states) {
  for (const ShellState& state : states) join(state, "", {}, true);
}

/// Ends the innermost frame. Returns the states that left it.
std::vector<ShellState> ShellMachine::close_frame() {
  std::vector<ShellState> left = std::move(frames_.back().left);
  frames_.pop_back();
  return left;
}

void ShellMachine::leave(std::size_t levels, bool goes_on) {
  std::size_t at = frames_.size();
  for (std::size_t left = levels; at > 0 && frames_[at - 1].is_loop; --at)
    if (--left == 0) break;
  if (at == 0 || !frames_[at - 1].is_loop) {
    if (at == frames_.size()) return set_status(true);  // in no loop
    ++at;                                               // the outermost
  }
  set_status(true);
  Frame& frame = frames_[at - 1];
  count_state();
  (goes_on ? frame.next : frame.left).push_back(now_);
  now_.reached = false;
}

/// Runs the body once. Returns whether what comes next is reached by its end or by `continue`.
bool ShellMachine::run_turn(const Node& body) {
  frames_.back().next.clear();
  run(body);
  join_all(std::exchange(frames_.back().next, {}));
  return now_.reached;
}

/// Runs any number of turns: what they change is not known, whichever turn it is.
void ShellMachine::run_unknown_turns(const Node& node, const std::function<void()>& turn) {
  const std::size_t printed = output_ == nullptr ? 0 : output_->text.size();
  if (++forks_ > kMostForks)
    throw ShellError{{}, "has too many loops within one another that are not known"};
  ShellState base = now_;
  for (int round = 0;; ++round) {
    const std::size_t launches = launches_.size();
    frames_.push_back({true, {}, {}});
    count_state();
    now_ = base;
    turn();
    const std::vector<ShellState> left = close_frame();
    const ShellState end = std::exchange(now_, base);
    join(end, "", {}, false);
    for (const ShellState& state : left) join(state, "", {}, false);
    for (std::size_t i = launches; i < launches_.size(); ++i) launches_[i].repeats = true;
    if (round > 0 && same_variables(now_, base)) break;
    if (round > 8) throw ShellError{{}, "has a loop that cannot be followed"};
    launches_.resize(launches);
    base = now_;
  }
  if (output_ != nullptr && output_->text.size() != printed) output_->known = false;
  --forks_;
  now_.status = {Truth::unknown, condition_of(node.all), {}};
}

void ShellMachine::run_loop(const Node& node) {
  const ShellScope& scope = now_.scopes.back();
  const ShellWords values = node.negated ? scope.arguments : expand_all(node.words);
  const bool told = node.asks      ? false
                    : node.negated ? scope.counted
                                   : std::ranges::all_of(values, is_one_word);
  const Node& body = *node.children[0];
  if (!told) {
    ShellNames names;
    for (const ShellText& value : values) add_names(names, value.names());
    if (names.empty()) names = {node.name};
    if (node.asks) lose("REPLY");
    return run_unknown_turns(node, [&] {
      if (may_assign(node.name, false, node.all.place()))
        assign_text(node.name, unknown_text("$" + node.name, names), false);
      run_turn(body);
    });
  }
  frames_.push_back({true, {}, {}});
  set_status(true);
  for (const ShellText& value : values) {
    if (may_assign(node.name, false, body.all.place())) assign_text(node.name, value, false);
    if (!run_turn(body)) break;
  }
  join_all(close_frame());
}

void ShellMachine::run_repeat(const Node& node) {
  const auto condition = [&] {
    ++checked_;
    run(*node.children[0]);
    --checked_;
    return node.negated ? negated(now_.status.truth) : now_.status.truth;
  };
  run_known_turns(
      node, condition, [] {}, *node.children[1]);
}

void ShellMachine::run_counting(const Node& node) {
  const auto number = [&](const ShellWord& word) {
    return one_line(word).find_first_not_of(' ') == std::string::npos ? ShellNumber{1, {}}
                                                                      : arithmetic(word);
  };
  number(node.words[0]);
  const auto condition = [&] {
    const ShellNumber goes_on = number(node.words[1]);
    return goes_on.value ? truth_of(*goes_on.value != 0) : Truth::unknown;
  };
  run_known_turns(
      node, condition, [&] { number(node.words[2]); }, *node.children[0]);
}

/// Runs a loop turn by turn as long as its condition is known.
void ShellMachine::run_known_turns(const Node& node, const std::function<Truth()>& goes_on,
                                   const std::function<void()>& after, const Node& body) {
  const ShellState before = now_;
  const std::size_t launches = launches_.size();
  frames_.push_back({true, {}, {}});
  ShellStatus status;
  bool told = true;
  for (std::size_t turn = 0; now_.reached; ++turn) {
    const Truth condition = goes_on();
    if (!now_.reached || condition == Truth::no) break;
    told = condition == Truth::yes && turn < kMostTurns;
    if (!told || !run_turn(body)) break;
    status = now_.status;
    after();
  }
  const std::vector<ShellState> left = close_frame();
  if (told) {
    if (now_.reached) now_.status = status;
    return join_all(left);
  }
  now_ = before;
  launches_.resize(launches);
  if (output_ != nullptr) output_->known = false;
  run_unknown_turns(node, [&] {
    goes_on();
    if (run_turn(body)) after();
  });
  // It ended behind its condition, or at a `break`.
  const ShellState ended = now_;
  const std::size_t launches_of_turns = launches_.size();
  goes_on();
  launches_.resize(launches_of_turns);
  join(ended, "", {}, false);
  now_.status = ended.status;
}

}  // namespace penstock
