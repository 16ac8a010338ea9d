// The flow of a script's commands: bash's manual, "Compound Commands" and "Lists of Commands".
#include "scenarios/shell_machine.hpp"

#include <fmt/format.h>
#include <regex.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t kMostSteps = 100'000;
constexpr std::size_t kMostTurns = 2'000;
constexpr int kMostForks = 24;  // within one another

/// In one line: of a condition that is not known.
std::string one_line(const ShellWord& word) {
  constexpr std::size_t kShown = 200;
  std::string out;
  for (const char c : word.text().substr(0, kShown))
    if (!is_blank(c) || (!out.empty() && out.back() != ' ')) out += is_blank(c) ? ' ' : c;
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
  const auto same_items = [](const auto& x, const auto& y) {
    return std::ranges::equal(x, y, [](const auto& i, const auto& j) {
      return i.first == j.first && same_text(i.second, j.second);
    });
  };
  return a.kind == b.kind && same_text(a.value, b.value) && same_items(a.items, b.items) &&
         same_items(a.keyed, b.keyed) && a.counted == b.counted;
}

bool same_variables(const ShellState& a, const ShellState& b) {
  return std::ranges::equal(a.variables, b.variables, [](const auto& x, const auto& y) {
    return x.first == y.first && same_variable(x.second, y.second);
  });
}

/// A scalar's text; empty where it is not set.
const ShellText& text_or_empty(const ShellVariable* variable) {
  static const ShellText kEmpty;
  return variable == nullptr || variable->kind == ShellVariable::Kind::unset ? kEmpty
                                                                             : variable->value;
}

bool is_scalar(const ShellVariable* variable) {
  return variable == nullptr || variable->kind == ShellVariable::Kind::scalar ||
         variable->kind == ShellVariable::Kind::unset;
}

bool is_list(const ShellVariable* variable) {
  return variable == nullptr || variable->kind == ShellVariable::Kind::indexed ||
         variable->kind == ShellVariable::Kind::unset;
}

/// Does bash's own regular expression hold? None where that takes too long to say.
std::optional<bool> matches_expression(const std::string& text, const std::string& expression) {
  if (expression.size() > 200 || text.size() > 1'000 || expression.find('{') != std::string::npos ||
      expression.find('\\') != std::string::npos)
    return {};
  regex_t compiled;
  if (regcomp(&compiled, expression.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return {};
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

}  // namespace

void ShellMachine::count_step(const ShellPlace& place) {
  here_ = place;
  if (++steps_ > kMostSteps)
    throw ShellError{place,
                     fmt::format("more than {} commands are run up to here: such a script is "
                                 "not followed",
                                 kMostSteps)};
}

void ShellMachine::run(const Node& node) {
  if (!now_.reached) return;
  count_step(node.all.place());
  for (const ShellRedirection& redirection : node.redirections)
    if (redirection.kind != ShellRedirection::Kind::document) expand_one(redirection.word);
  run_kind(node);
}

void ShellMachine::run_kind(const Node& node) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::simple: return run_simple(node);
    case Kind::sequence: return run_sequence(node);
    case Kind::and_list: return run_list(node, false);
    case Kind::or_list: return run_list(node, true);
    case Kind::pipeline: return run_pipeline(node);
    case Kind::background: run_apart([&] { run(*node.children[0]); }); return set_status(true);
    case Kind::subshell: return run_apart([&] { run(*node.children[0]); });
    case Kind::group: return run(*node.children[0]);
    case Kind::branches: return run_branches(node, 0);
    case Kind::cases: return run_cases(node);
    case Kind::loop: return run_loop(node);
    case Kind::counting: return run_counting(node);
    case Kind::repeat: return run_repeat(node);
    case Kind::function: now_.functions[node.name] = node.children[0]; return set_status(true);
    case Kind::arithmetic: {
      const ShellNumber number = arithmetic(node.words[0]);
      return set_status(
          {number.value ? truth_of(*number.value != 0) : Truth::unknown, number.names}, node);
    }
    case Kind::conditional: return run_conditional(node);
  }
}

void ShellMachine::run_sequence(const Node& node) {
  for (const ShellTree& child : node.children) run(*child);
}

void ShellMachine::run_list(const Node& node, bool with_or) {
  ++checked_;
  run(*node.children[0]);
  --checked_;
  if (!now_.reached) return;
  const ShellStatus left = now_.status;
  if (left.truth == (with_or ? Truth::yes : Truth::no)) return;
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
  }
  if (!node.negated) return;
  --checked_;
  now_.status.truth = negated(now_.status.truth);
  if (now_.status.truth == Truth::unknown) now_.status.shown = "! " + now_.status.shown;
}

/// In a shell of its own, which ends alone.
void ShellMachine::run_apart(const std::function<void()>& commands) {
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
    now_.status = {Truth::unknown, one_line(node.all), verdict.names};
}

void ShellMachine::run_branches(const Node& node, std::size_t at) {
  if (at + 1 == node.children.size()) return run(*node.children[at]);
  if (at >= node.children.size()) return set_status(true);
  ++checked_;
  run(*node.children[at]);
  --checked_;
  if (!now_.reached) return;
  ShellStatus condition = now_.status;
  if (condition.truth == Truth::yes) return run(*node.children[at + 1]);
  if (condition.truth == Truth::no) return run_branches(node, at + 2);
  fork(
      condition, [&] { run(*node.children[at + 1]); }, [&] { run_branches(node, at + 2); });
}

void ShellMachine::run_cases(const Node& node) { run_case(node, expand_one(node.words[0]), 0); }

ShellVerdict ShellMachine::case_matches(const Node& node, const ShellText& subject,
                                        std::size_t at) {
  ShellVerdict out;
  for (const ShellWord& word : node.patterns[at].patterns) {
    const ShellText pattern = expand_one(word);
    ShellVerdict one{Truth::unknown, subject.names()};
    add_names(one.names, pattern.names());
    if (pattern.known() &&
        std::ranges::all_of(pattern.pieces,
                            [](const ShellPiece& p) { return !p.quoted && p.text == "*"; }) &&
        !pattern.empty()) {
      one = {Truth::yes, {}};
    } else if ((subject.empty() || subject.absent()) && pattern.known() && pattern.empty()) {
      one = {Truth::yes, {}};
    } else if (subject.known() && pattern.known()) {
      const auto matches = matches_pattern(subject.shown(), pattern_of(pattern));
      if (matches) one = {truth_of(*matches), {}};
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
    if (matches.truth == Truth::yes) return run_bodies(node, subject, at);
    std::string patterns;
    for (const ShellWord& word : node.patterns[at].patterns)
      patterns += (patterns.empty() ? "" : "|") + word.text();
    const ShellStatus condition{Truth::unknown, one_line(node.words[1]) + " in " + patterns + ")",
                                matches.names};
    return fork(
        condition, [&] { run_bodies(node, subject, at); },
        [&] { run_case(node, subject, at + 1); });
  }
  set_status(true);
}

void ShellMachine::run_bodies(const Node& node, const ShellText& subject, std::size_t at) {
  set_status(true);
  run(*node.children[at]);
  const char then = node.patterns[at].then;
  if (then == '&' && at + 1 < node.children.size()) return run_bodies(node, subject, at + 1);
  if (then == '?') run_case(node, subject, at + 1);
}

// ---- [[ ]]

void ShellMachine::run_conditional(const Node& node) {
  std::size_t at = 0;
  const ShellVerdict verdict = conditional(node, at);
  if (at != node.words.size())
    throw ShellError{node.words[at].place(),
                     "'" + node.words[at].text() + "' is not expected between [[ and ]]"};
  set_status(verdict, node);
}

ShellVerdict ShellMachine::conditional(const Node& node, std::size_t& at) {
  ShellVerdict out = conditional_and(node, at);
  while (at < node.words.size() && node.words[at].text() == "||")
    out = either_holds(out, conditional_and(node, ++at));
  return out;
}

ShellVerdict ShellMachine::conditional_and(const Node& node, std::size_t& at) {
  ShellVerdict out = conditional_one(node, at);
  while (at < node.words.size() && node.words[at].text() == "&&")
    out = both_hold(out, conditional_one(node, ++at));
  return out;
}

ShellVerdict ShellMachine::conditional_one(const Node& node, std::size_t& at) {
  const auto word = [&](std::size_t ahead) {
    return at + ahead < node.words.size() ? node.words[at + ahead].text() : std::string();
  };
  if (at >= node.words.size())
    throw ShellError{node.all.place(), "a test is missing between [[ and ]]"};
  if (word(0) == "!") {
    ShellVerdict inner = conditional_one(node, ++at);
    inner.truth = negated(inner.truth);
    return inner;
  }
  if (word(0) == "(") {
    const ShellVerdict inner = conditional(node, ++at);
    if (word(0) != ")") throw ShellError{node.all.place(), "a ')' is missing between [[ and ]]"};
    ++at;
    return inner;
  }
  const std::string sign = word(1);
  if ((is_binary_test(sign) || sign == "=~") && at + 2 < node.words.size()) {
    at += 3;
    return compared(node.words[at - 3], sign, node.words[at - 1]);
  }
  if (is_unary_test(word(0)) && at + 1 < node.words.size()) {
    at += 2;
    const std::string test = node.words[at - 2].text();
    if ((test == "-f" || test == "-e" || test == "-r" || test == "-s") &&
        way_to(expand_one(node.words[at - 1])))
      return {Truth::yes, {}};
    const auto set = [this](const std::string& name) { return is_set(name); };
    return tested_text(node.words[at - 2].text(), expand_one(node.words[at - 1]), set);
  }
  const auto set = [this](const std::string& name) { return is_set(name); };
  return tested_text("-n", expand_one(node.words[at++]), set);
}

ShellVerdict ShellMachine::compared(const ShellWord& a, const std::string& sign,
                                    const ShellWord& b) {
  if (sign.starts_with('-') && sign != "-nt" && sign != "-ot" && sign != "-ef") {
    const ShellNumber x = arithmetic(a), y = arithmetic(b);
    ShellVerdict out{Truth::unknown, x.names};
    add_names(out.names, y.names);
    if (!x.value || !y.value) return out;
    const ShellText left = known_text(std::to_string(*x.value)),
                    right = known_text(std::to_string(*y.value));
    const std::vector<ShellText> words{left, known_text(sign), right};
    return truth_of_test(words, [](const std::string&) { return Truth::unknown; });
  }
  const ShellText left = expand_one(a), right = expand_one(b);
  ShellVerdict out{Truth::unknown, left.names()};
  add_names(out.names, right.names());
  const bool equality = sign == "=" || sign == "==" || sign == "!=";
  if (!left.known() || !right.known()) return compared_texts(left, equality ? sign : "-nt", right);
  if (equality) {
    const auto matches = matches_pattern(left.shown(), pattern_of(right));
    if (matches) out = {truth_of(*matches == (sign != "!=")), {}};
  } else if (sign == "=~") {
    const bool quoted = std::ranges::any_of(right.pieces, &ShellPiece::quoted);
    now_.variables["BASH_REMATCH"] = {};
    now_.variables["BASH_REMATCH"].value = unknown_text("$BASH_REMATCH", {});
    const auto matches = quoted ? std::nullopt : matches_expression(left.shown(), right.shown());
    if (matches) out = {truth_of(*matches), {}};
  }
  return out;
}

// ---- two ways, and where they meet

/// Follows both ways of a condition that is not known.
void ShellMachine::fork(const ShellStatus& condition, const std::function<void()>& yes,
                        const std::function<void()>& no) {
  if (++forks_ > kMostForks)
    throw ShellError{{}, "has too many conditions within one another that are not known"};
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
  steps_ += now_.variables.size() / 16;
  std::set<std::string> all;
  for (const auto& variable : now_.variables) all.insert(variable.first);
  for (const auto& variable : other.variables) all.insert(variable.first);
  for (const std::string& name : all) {
    const auto a = other.variables.find(name);
    const auto b = now_.variables.find(name);
    const ShellVariable* const yes = a == other.variables.end() ? nullptr : &a->second;
    const ShellVariable* const no = b == now_.variables.end() ? nullptr : &b->second;
    if (yes != nullptr && no != nullptr && same_variable(*yes, *no)) continue;
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
    if (!std::ranges::equal(mine.arguments, its.arguments, same_text)) {
      mine.arguments = {unknown_text("$@", {}, {})};
      mine.given = false;
    }
    for (const auto& [name, value] : its.shadowed)
      if (!mine.shadowed.contains(name))
        mine.shadowed[name] = joined(name, nullptr, nullptr, condition, names, false);
    for (auto& [name, value] : mine.shadowed)
      if (!its.shadowed.contains(name))
        value = joined(name, nullptr, nullptr, condition, names, false);
  }
  if (!same_text(now_.folder, other.folder)) now_.folder = unknown_text("$PWD", {});
  if (now_.status.truth != other.status.truth) now_.status = {Truth::unknown, condition, names};
  now_.stops_on_failure = now_.stops_on_failure && other.stops_on_failure;
}

ShellVariable ShellMachine::joined(const std::string& name, const ShellVariable* yes,
                                   const ShellVariable* no, const std::string& condition,
                                   const ShellNames& names, bool keeps) const {
  const ShellNames asked = names.empty() ? ShellNames{name} : names;
  ShellVariable out = no != nullptr ? *no : yes != nullptr ? *yes : ShellVariable{};
  out.readonly = false;
  const bool attributes =
      yes != nullptr && no != nullptr &&
      (yes->integer != no->integer || yes->upper != no->upper || yes->lower != no->lower);
  if (keeps && !attributes && is_scalar(yes) && is_scalar(no)) {
    out.kind = ShellVariable::Kind::scalar;
    out.value = chosen_text(text_or_empty(yes), text_or_empty(no), condition, "$" + name, asked);
    return out;
  }
  static const std::map<std::int64_t, ShellText> kNone;
  if (keeps && !attributes && is_list(yes) && is_list(no)) {
    const auto& a = yes == nullptr ? kNone : yes->items;
    const auto& b = no == nullptr ? kNone : no->items;
    auto i = a.begin(), j = b.begin();
    out = {};
    out.kind = ShellVariable::Kind::indexed;
    for (; i != a.end() && j != b.end() && i->first == j->first && same_text(i->second, j->second);
         ++i, ++j)
      out.items.insert(*i);
    ShellChoice choice{condition, {}, {}};
    const auto place =
        i != a.end() && !i->second.empty() ? i->second.pieces[0].place : ShellPlace{};
    const std::int64_t key = out.items.empty() ? 0 : out.items.rbegin()->first + 1;
    for (; i != a.end(); ++i) choice.yes.push_back(i->second);
    for (; j != b.end(); ++j) choice.no.push_back(j->second);
    out.counted = (yes == nullptr || yes->counted) && (no == nullptr || no->counted) &&
                  choice.yes.empty() && choice.no.empty();
    if (choice.yes.empty() && choice.no.empty()) return out;
    ShellText text = unknown_text("${" + name + "[@]}", asked, place);
    text.pieces[0].choice = std::make_shared<const ShellChoice>(std::move(choice));
    out.items[key] = std::move(text);
    return out;
  }
  out = {};
  out.value = unknown_text("$" + name, asked);
  return out;
}

// ---- loops

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
  (goes_on ? frame.next : frame.left).push_back(now_);
  now_.reached = false;
}

/// Runs the body once. Returns whether what comes next is reached by its end or by `continue`.
bool ShellMachine::run_turn(const Node& body) {
  frames_.back().next.clear();
  run(body);
  for (const ShellState& state : std::exchange(frames_.back().next, {})) join(state, "", {}, true);
  return now_.reached;
}

void ShellMachine::run_known_turns(const Node& node, const std::function<ShellStatus()>& goes_on,
                                   const std::function<void()>& after, const Node& body) {
  const ShellState before = now_;
  const std::size_t launches = launches_.size();
  frames_.push_back({true, {}, {}});
  ShellStatus status;
  bool told = true;
  for (std::size_t turn = 0; now_.reached; ++turn) {
    const ShellStatus condition = goes_on();
    if (!now_.reached || condition.truth == Truth::no) break;
    told = condition.truth == Truth::yes && turn < kMostTurns;
    if (!told) break;
    if (!run_turn(body)) break;
    status = now_.status;
    after();
  }
  const std::vector<ShellState> left = std::move(frames_.back().left);
  frames_.pop_back();
  if (!told) {
    now_ = before;
    launches_.resize(launches);
    if (output_ != nullptr) output_->known = false;
    run_unknown_turns([&] {
      goes_on();
      run_turn(body);
      if (now_.reached) after();
    });
    now_.status = {Truth::unknown, one_line(node.all), {}};
    return;
  }
  if (now_.reached) now_.status = status;
  for (const ShellState& state : left) join(state, "", {}, true);
}

/// Any number of turns: what they change is not known, whichever turn it is.
void ShellMachine::run_unknown_turns(const std::function<void()>& turn) {
  const std::size_t printed = output_ == nullptr ? 0 : output_->text.size();
  if (++forks_ > kMostForks)
    throw ShellError{{}, "has too many loops within one another that are not known"};
  ShellState base = now_;
  for (int round = 0;; ++round) {
    const std::size_t launches = launches_.size();
    frames_.push_back({true, {}, {}});
    now_ = base;
    turn();
    const std::vector<ShellState> left = std::move(frames_.back().left);
    frames_.pop_back();
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
}

void ShellMachine::run_loop(const Node& node) {
  const std::vector<ShellText> values =
      node.negated ? now_.scopes.back().arguments : expand_all(node.words);
  const bool told = std::ranges::all_of(values, [](const ShellText& value) {
    return value.known() || value.pieces.size() > 1 || value.pieces[0].quoted;
  });
  const Node& body = *node.children[0];
  if (told) return run_turns(node.name, values, body);
  ShellNames names;
  for (const ShellText& value : values) add_names(names, value.names());
  run_unknown_turns([&] {
    assign_text(node.name, {},
                unknown_text("$" + node.name, names.empty() ? ShellNames{node.name} : names), false,
                {});
    run_turn(body);
  });
  now_.status = {Truth::unknown, one_line(node.all), {}};
}

void ShellMachine::run_turns(const std::string& name, const std::vector<ShellText>& values,
                             const Node& body) {
  frames_.push_back({true, {}, {}});
  set_status(true);
  for (const ShellText& value : values) {
    count_step(body.all.place());
    assign_text(name, {}, value, false, body.all.place());
    if (!run_turn(body)) break;
  }
  const std::vector<ShellState> left = std::move(frames_.back().left);
  frames_.pop_back();
  for (const ShellState& state : left) join(state, "", {}, true);
}

void ShellMachine::run_counting(const Node& node) {
  const auto number = [&](const ShellWord& word) {
    return word.text().find_first_not_of(" \t\n") == std::string::npos ? ShellNumber{1, {}}
                                                                       : arithmetic(word);
  };
  number(node.words[0]);
  run_known_turns(
      node,
      [&] {
        count_step(node.all.place());
        const ShellNumber goes_on = number(node.words[1]);
        return ShellStatus{goes_on.value ? truth_of(*goes_on.value != 0) : Truth::unknown, "", {}};
      },
      [&] { number(node.words[2]); }, *node.children[0]);
}

void ShellMachine::run_repeat(const Node& node) {
  run_known_turns(
      node,
      [&] {
        ++checked_;
        run(*node.children[0]);
        --checked_;
        ShellStatus status = now_.status;
        if (node.negated) status.truth = negated(status.truth);
        return status;
      },
      [] {}, *node.children[1]);
}

}  // namespace penstock
