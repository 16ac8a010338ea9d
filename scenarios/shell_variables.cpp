// SPDX-License-Identifier: Apache-2.0
// What the variables of a script hold, and what is not known of them.
#include "base/numbers.hpp"
#include "scenarios/shell_machine.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace penstock {
namespace {

/// Variables that bash changes itself: what a script assigns to them is not what they have later.
constexpr std::string_view kBashs[] = {
    "RANDOM",     "SRANDOM",  "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "LINENO",     "FUNCNAME",
    "PIPESTATUS", "GROUPS",   "UID",     "EUID",         "PPID",          "DIRSTACK",   "HISTCMD",
    "SHELLOPTS",  "BASHOPTS", "OPTIND",  "OPTARG",       "COPROC",        "COPROC_PID", "_"};

/// Variables that every shell may have: whether they are set is not known.
constexpr std::string_view kEverywhere[] = {
    "HOME",     "PATH",     "OLDPWD", "USER",   "LOGNAME", "SHELL", "HOSTNAME", "BASH", "OSTYPE",
    "HOSTTYPE", "MACHTYPE", "SHLVL",  "OPTERR", "IFS",     "PS4",   "TERM",     "LANG"};

bool is_bashs(std::string_view name) {
  return std::ranges::find(kBashs, name) != std::end(kBashs) ||
         (name.starts_with("BASH_") && name != "BASH_SOURCE");
}

bool names_itself(const ShellAssignment& assignment) {
  if (assignment.adds) return true;
  const auto names = [&](const std::string& text) {
    for (std::size_t at = 0; (at = text.find(assignment.name, at)) != std::string::npos; ++at) {
      const std::size_t end = at + assignment.name.size();
      if ((at == 0 || !is_name(text[at - 1])) && (end >= text.size() || !is_name(text[end])))
        return true;
    }
    return false;
  };
  return (assignment.value.source != nullptr && names(assignment.value.text())) ||
         std::ranges::any_of(assignment.elements,
                             [&](const auto& element) { return names(element.value.text()); });
}

/// Adds the names in the text, and those in the functions that it may call.
void collect_names(std::string_view text, const std::map<std::string, ShellTree>& functions,
                   std::set<std::string>& out) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_name(text[end])) ++end;
    const std::string name(text.substr(at, end - at));
    at = end + 1;
    if (!is_variable_name(name) || !out.insert(name).second) continue;
    if (const auto f = functions.find(name); f != functions.end() && f->second)
      collect_names(f->second->all.text(), functions, out);
  }
}

}  // namespace

// ---- what is not known

void ShellMachine::lose(const std::string& name, bool for_good) {
  if (!is_variable_name(name)) return lose_all();
  ShellVariable& variable = now_.variables[name];
  if (variable.fixed || variable.readonly) return;
  const bool list = variable.kind == ShellVariable::Kind::list;
  const bool never = variable.never || for_good;
  const bool exported = variable.exported, odd = variable.odd;
  variable = {};
  variable.value = unknown_text(list ? "${" + name + "[@]}" : "$" + name, {name});
  variable.never = never;
  variable.exported = exported;
  variable.odd = odd;
}

void ShellMachine::lose_names_in(std::string_view text, bool for_good) {
  count_step(here_, text.size());
  std::set<std::string> names;
  collect_names(text, now_.functions, names);
  count_step(here_, 16 * names.size());
  for (const std::string& name : names) lose(name, for_good);
}

void ShellMachine::lose_all() {
  std::erase_if(now_.variables, [](const auto& one) {
    return !one.second.fixed && !one.second.never && !one.second.readonly;
  });
  for (ShellScope& scope : now_.scopes)
    for (auto& [name, variable] : scope.shadowed)
      if (!variable || !variable->fixed) variable = std::nullopt;
  now_.scopes.back().counted = false;
  now_.lost = true;
}

// ---- what is read

/// Returns the script's folder, which is not known but can be read in, and the way from there.
ShellText ShellMachine::path_of(const File& file, const ShellPlace& place) const {
  ShellText out;
  ShellPiece folder{".", place, false};
  folder.folder = true;
  out.add(std::move(folder));
  out.add({"/" + file.inside, place});
  return out;
}

ShellMachine::Value ShellMachine::read_name(const std::string& name, const ShellPlace& place) {
  const ShellScope& scope = now_.scopes.back();
  Value unknown{unknown_text("$" + name, {name}, place), Truth::unknown};
  if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
    const auto number = parse_number<std::size_t>(name).value_or(0);
    if (number == 0) return {path_of(files_.front(), place)};
    if (!scope.counted) return unknown;
    if (number <= scope.arguments.size()) return {scope.arguments[number - 1]};
    if (scope.given) return {{}, Truth::no};
    unknown.text.pieces[0].absent = true;
    return {unknown.text, Truth::no};
  }
  if (name == "#" && scope.counted)
    return {known_text(std::to_string(scope.arguments.size()), place)};
  if (!is_variable_name(name)) return {unknown_text("$" + name, {}, place), Truth::unknown};
  const auto at = now_.variables.find(name);
  if (at == now_.variables.end()) {
    if (name == "BASH_SOURCE")
      return {path_of(files_[static_cast<std::size_t>(reading_.back())], place)};
    if (name == "PWD" && !now_.lost) return {now_.folder};
    if (now_.lost || is_bashs(name) ||
        std::ranges::find(kEverywhere, name) != std::end(kEverywhere))
      return unknown;
    if (passed_over_.contains(name)) return {{}, Truth::no};
    unknown.text.pieces[0].absent = true;
    return {unknown.text, Truth::no};
  }
  const ShellVariable& variable = at->second;
  switch (variable.kind) {
    case ShellVariable::Kind::unset: return {{}, Truth::no};
    case ShellVariable::Kind::keyed: {
      const auto item = variable.keyed.find("0");
      return item == variable.keyed.end() ? Value{{}, Truth::no} : Value{item->second};
    }
    case ShellVariable::Kind::list:
      if (variable.items.empty()) return {{}, Truth::no};
      if (variable.counted || is_one_word(variable.items[0])) return {variable.items[0]};
      return {unknown_text("$" + name, variable.items[0].names(), place), Truth::unknown};
    case ShellVariable::Kind::scalar: break;
  }
  const auto& pieces = variable.value.pieces;
  const bool told = pieces.size() != 1 || pieces[0].known || pieces[0].absent;
  return {variable.value, told ? Truth::yes : Truth::unknown};
}

ShellMachine::Value ShellMachine::read_item(const std::string& name, const ShellWord& index,
                                            const std::string& shown) {
  const auto at = now_.variables.find(name);
  const bool keyed = at != now_.variables.end() && at->second.kind == ShellVariable::Kind::keyed;
  if (keyed) {
    const ShellText key = expand_one(index);
    if (!key.known()) return {unknown_text(shown, key.names(), index.place()), Truth::unknown};
    const auto item = at->second.keyed.find(key.shown());
    return item == at->second.keyed.end() ? Value{{}, Truth::no} : Value{item->second};
  }
  const ShellNumber number = arithmetic(index);
  const auto found = now_.variables.find(name);  // the index may have made variables
  ShellNames names = number.names;
  if (found == now_.variables.end()) {
    Value all = read_name(name, index.place());
    if (number.value == 0 || name == "BASH_SOURCE") return all;
    add_names(names, {name});
    all.text = unknown_text(shown, names, index.place());
    all.text.pieces[0].absent = all.set == Truth::no;
    return all;
  }
  const ShellVariable& variable = found->second;
  const bool list = variable.kind == ShellVariable::Kind::list;
  if (!list && number.value == 0) return read_name(name, index.place());
  const std::int64_t size = list ? std::ssize(variable.items) : variable.value.empty() ? 0 : 1;
  if (!number.value || *number.value < -size || !variable.counted ||
      (!list && !variable.value.known())) {
    add_names(names, {name});
    return {unknown_text(shown, names, index.place()), Truth::unknown};
  }
  const std::int64_t place = *number.value + (*number.value < 0 ? size : 0);
  if (place >= size) return {{}, Truth::no};
  return {list ? variable.items[static_cast<std::size_t>(place)] : variable.value};
}

/// Returns all words of a list, or of the script's arguments.
ShellWords ShellMachine::all_of(const std::string& name, const ShellPlace& place, bool& counted) {
  if (name == "@" || name == "*") {
    counted = now_.scopes.back().counted;
    return counted ? now_.scopes.back().arguments : ShellWords{unknown_text("$@", {}, place)};
  }
  const auto at = now_.variables.find(name);
  if (at == now_.variables.end()) {
    const Value value = read_name(name, place);
    if (name == "BASH_SOURCE") return {value.text};
    counted = false;
    ShellText text = unknown_text("${" + name + "[@]}", {name}, place);
    text.pieces[0].absent = value.set == Truth::no;
    return {text};
  }
  const ShellVariable& variable = at->second;
  if (variable.kind == ShellVariable::Kind::scalar && variable.fixed) {
    ShellFields words;
    put(variable.value, false, words);
    words.end_word();
    return words.done;
  }
  counted = variable.counted;
  switch (variable.kind) {
    case ShellVariable::Kind::unset: return {};
    case ShellVariable::Kind::list: return variable.items;
    case ShellVariable::Kind::scalar:
      counted = variable.value.known() || variable.value.pieces.size() > 1;
      return {variable.value};
    case ShellVariable::Kind::keyed: break;
  }
  if (variable.keyed.empty()) return {};
  if (variable.keyed.size() == 1) return {variable.keyed.begin()->second};
  counted = false;  // in an order of bash's own
  return {unknown_text("${" + name + "[@]}", {}, place)};
}

// ---- assignments

/// Returns whether what is assigned counts. Throws where bash refuses it.
bool ShellMachine::may_assign(const std::string& name, bool from_itself, const ShellPlace& place) {
  if (!is_variable_name(name)) throw ShellError{place, "'" + name + "' is no name of a variable"};
  if (is_bashs(name)) return false;
  const auto at = now_.variables.find(name);
  if (at == now_.variables.end()) return true;
  if (at->second.readonly && forks_ > 0) return false;
  if (at->second.readonly) throw ShellError{place, "'" + name + "' is assigned, which is readonly"};
  return !at->second.never && (!at->second.fixed || from_itself);
}

void ShellMachine::assign(const ShellAssignment& assignment) {
  if (assignment.is_array) return assign_list(assignment);
  assign_value(assignment, expand_one(assignment.value).unquoted());
}

void ShellMachine::assign_value(const ShellAssignment& assignment, ShellText text) {
  const ShellPlace place =
      assignment.value.source != nullptr ? assignment.value.place() : ShellPlace{};
  // of what nothing sets, the script's own variable begins empty
  std::erase_if(text.pieces, [&](const ShellPiece& piece) {
    return piece.absent && piece.names == ShellNames{assignment.name} && text.pieces.size() > 1;
  });
  if (!may_assign(assignment.name, names_itself(assignment), place)) return;
  if (assignment.index.source != nullptr) return assign_item(assignment, std::move(text));
  assign_text(assignment.name, std::move(text), assignment.adds);
}

void ShellMachine::assign_text(const std::string& name, ShellText text, bool adds) {
  count_step(here_, text.size() / 4 + 8 * text.pieces.size());
  const bool only = text.pieces.size() == 1;
  for (ShellPiece& piece : text.pieces) {
    piece.quoted = false;
    if (piece.known || !piece.names.empty()) continue;
    piece.names = {name};
    if (only && !piece.folder && !piece.choice) piece.text = "$" + name;
  }
  if (adds && !now_.variables.contains(name) && now_.lost) return;
  ShellVariable& variable = now_.variables[name];
  variable.exported = variable.exported || now_.exports_all;
  if (variable.odd) return lose(name);
  if (variable.kind == ShellVariable::Kind::unset) variable.kind = ShellVariable::Kind::scalar;
  ShellText* to = &variable.value;
  if (variable.kind == ShellVariable::Kind::keyed) to = &variable.keyed["0"];
  if (variable.kind == ShellVariable::Kind::list) {
    if (!variable.counted) return lose(name);
    if (variable.items.empty()) variable.items.emplace_back();
    to = &variable.items[0];
  }
  if (adds)
    to->add(text);
  else
    *to = std::move(text);
}

void ShellMachine::assign_item(const ShellAssignment& assignment, ShellText text) {
  const std::string& name = assignment.name;
  const auto at = now_.variables.find(name);
  if (at != now_.variables.end() && at->second.kind == ShellVariable::Kind::keyed) {
    const ShellText key = expand_one(assignment.index);
    if (!key.known()) return lose(name);
    ShellText& item = now_.variables[name].keyed[key.shown()];
    if (!assignment.adds) item = {};
    return item.add(text);
  }
  const ShellNumber index = arithmetic(assignment.index);
  if (!index.value || (now_.lost && !now_.variables.contains(name))) return lose(name);
  ShellVariable& variable = now_.variables[name];
  if (variable.kind != ShellVariable::Kind::list) {
    if (!variable.value.known()) return lose(name);
    if (!variable.value.empty()) variable.items = {variable.value};
    variable.value = {};
    variable.kind = ShellVariable::Kind::list;
  }
  const auto number = static_cast<std::size_t>(*index.value);
  if (*index.value < 0 || number > variable.items.size() || !variable.counted) return lose(name);
  if (number == variable.items.size()) variable.items.emplace_back();
  if (!assignment.adds) variable.items[number] = {};
  variable.items[number].add(text);
}

void ShellMachine::assign_list(const ShellAssignment& assignment) {
  const std::string& name = assignment.name;
  const ShellPlace place = here_;
  ShellVariable variable;
  if (const auto at = now_.variables.find(name); at != now_.variables.end()) variable = at->second;
  const bool keyed = variable.kind == ShellVariable::Kind::keyed;
  bool told = !assignment.adds || keyed || variable.kind == ShellVariable::Kind::list ||
              (variable.value.known() && (!now_.lost || now_.variables.contains(name)));
  if (!assignment.adds) {
    variable.items.clear();
    variable.keyed.clear();
    variable.counted = true;
  } else if (variable.kind == ShellVariable::Kind::scalar && now_.variables.contains(name)) {
    variable.items = {variable.value};
  }
  variable.value = {};
  if (!keyed) variable.kind = ShellVariable::Kind::list;
  for (const ShellAssignment::Element& element : assignment.elements) {
    const bool indexed = element.index.source != nullptr;
    if (keyed && indexed && !element.adds) {
      const ShellText key = expand_one(element.index);
      told = told && key.known();
      variable.keyed[key.shown()] = expand_one(element.value).unquoted();
      continue;
    }
    told = told && !keyed && !indexed;
    ShellWords words;
    expand_fields(element.value, words);
    for (ShellText& word : words) {
      const bool single = is_one_word(word);
      variable.counted = variable.counted && single;
      variable.items.push_back(single ? word.unquoted() : std::move(word));
    }
  }
  count_step(here_, 64 * variable.items.size());
  if (!may_assign(name, names_itself(assignment), place)) return;
  variable.exported = variable.exported || now_.exports_all;
  now_.variables[name] = std::move(variable);
  if (!told) lose(name);
}

// ---- declarations

void ShellMachine::declare(const Node& node, std::size_t first) {
  const std::string command = node.arguments[first].word.text();
  std::string flags = command == "export" ? "x" : command == "readonly" ? "r" : "";
  const bool local = command == "local";
  if (local || (now_.scopes.size() > 1 && flags.empty())) flags = "@";
  set_status(true);
  for (std::size_t i = first + 1; i < node.arguments.size(); ++i) {
    const ShellArgument& argument = node.arguments[i];
    if (!argument.assignment) {
      declare_word(argument.word, flags, node.all.place());
      continue;
    }
    const ShellAssignment& assignment = *argument.assignment;
    if (flags.find('n') != flags.npos && flags.find('x') == flags.npos) {
      const ShellText of = expand_one(assignment.value);  // neither name is known from here
      lose(of.known() ? of.shown() : "", true);
      lose(assignment.name, true);
      continue;
    }
    const bool several = assignment.value.source != nullptr && may_have_braces(assignment.value);
    // `local A=$A` reads the variable of the same name around the function
    const bool own = flags.find('@') != flags.npos;
    const ShellText text =
        assignment.is_array ? ShellText{} : expand_one(assignment.value).unquoted();
    declare_one(assignment.name, flags, node.all.place(), [&] {
      if (assignment.is_array)
        assign_list(assignment);
      else
        assign_value(assignment, text);
      if (own && (assignment.adds || (assignment.is_array && names_itself(assignment))))
        lose(assignment.name);
      if (several || (assignment.adds && flags.find('i') != flags.npos)) lose(assignment.name);
    });
    if (local && now_.scopes.size() < 2) lose(assignment.name);  // bash refuses it
  }
}

/// Declares what a word says: flags, `NAME` or `NAME=VALUE`.
void ShellMachine::declare_word(const ShellWord& word, std::string& flags,
                                const ShellPlace& place) {
  ShellWords words;
  expand_fields(word, words);
  for (const ShellText& one : words) {
    const std::string begin = one.empty() || !one.pieces[0].known ? "" : one.pieces[0].text;
    if (begin.starts_with("-") || begin.starts_with("+")) {
      if (begin[0] == '-') flags += one.shown().substr(1);
      continue;
    }
    const std::size_t equals = one.shown().find('=');
    const std::string name = one.shown().substr(0, equals);
    if (!is_one_word(one) || !is_variable_name(name) ||
        (equals != std::string::npos && !one.known())) {
      if (is_variable_name(begin.substr(0, begin.find('='))) && is_one_word(one))
        lose(begin.substr(0, begin.find('=')));
      else
        lose_all();
      continue;
    }
    std::function<void()> assigns;
    if (equals != std::string::npos)
      assigns = [&] {
        if (may_assign(name, false, place))
          assign_text(name, known_text(one.shown().substr(equals + 1), word.place()), false);
      };
    declare_one(name, flags, place, assigns);
  }
}

void ShellMachine::declare_one(const std::string& name, const std::string& flags,
                               const ShellPlace& place, const std::function<void()>& assign) {
  const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
  if (has('f') || has('p') || has('F')) return;
  if (has('n') && !has('x'))
    throw ShellError{place, "declares '" + name + "' as another name, which is not followed"};
  const auto shadows = [&](const ShellScope& scope) { return scope.shadowed.contains(name); };
  if (has('g') && std::ranges::any_of(now_.scopes, shadows)) return lose_all();
  if (has('@') && !has('g')) hide(name);
  if (is_bashs(name)) return;
  const bool list = has('a') || has('A'), odd = has('i') || has('u') || has('l');
  using Kind = ShellVariable::Kind;
  if ((list || odd || has('r') || has('x')) && !now_.lost && !now_.variables.contains(name))
    now_.variables[name].kind = Kind::unset;
  if (list && now_.lost && !now_.variables.contains(name)) return lose(name);
  if (const auto at = now_.variables.find(name); at != now_.variables.end()) {
    ShellVariable& variable = at->second;
    const Kind kind = has('A') ? Kind::keyed : Kind::list;
    if (list && variable.kind == Kind::unset)
      variable.kind = kind;
    else if (list && variable.kind != kind)
      return lose(name);
    variable.exported = variable.exported || (has('x') && !has('n'));
  }
  if (assign) assign();
  const auto at = now_.variables.find(name);
  if (at == now_.variables.end()) return;
  if (odd && assign) {
    const ShellNumber number =
        has('i') && !at->second.odd ? arithmetic_of(at->second.value) : ShellNumber{};
    lose(name);
    ShellVariable& variable = now_.variables[name];
    if (number.value && !variable.fixed) variable.value = known_text(std::to_string(*number.value));
  }
  at->second.odd = at->second.odd || odd;
  at->second.exported = at->second.exported || has('x');
  at->second.readonly = at->second.readonly || has('r');
}

/// Makes a variable the function's own until it returns.
void ShellMachine::hide(const std::string& name) {
  ShellScope& scope = now_.scopes.back();
  if (now_.scopes.size() < 2 || scope.shadowed.contains(name)) return;
  if (std::ranges::find(before_, name) != before_.end()) lose(name);  // it keeps what it has
  const auto at = now_.variables.find(name);
  scope.shadowed[name] = at == now_.variables.end() ? std::nullopt : std::optional(at->second);
  if (at != now_.variables.end() && (at->second.fixed || at->second.never)) return;
  if (at != now_.variables.end() && at->second.readonly) return;
  if (std::ranges::find(before_, name) != before_.end()) return;
  now_.variables[name] = {};
  now_.variables[name].kind = ShellVariable::Kind::unset;
}

void ShellMachine::unset(const ShellWords& words) {
  set_status(true);
  bool functions = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].shown();
    if (!words[i].known()) return lose_all();
    if (name == "-f") functions = true;
    if (name.starts_with("-")) continue;
    const std::size_t open = name.find('[');
    if (functions || (!now_.variables.contains(name) && now_.functions.contains(name))) {
      now_.functions.erase(name);
    } else if (open != std::string::npos) {
      lose(name.substr(0, open));
    } else if (may_assign(name, false, here_)) {
      bool appears = std::ranges::find(before_, name) != before_.end();
      for (ShellScope& scope : now_.scopes)
        if (&scope != &now_.scopes.back() && scope.shadowed.contains(name)) {
          scope.shadowed[name] = joined(name, nullptr, nullptr, "", {}, false);
          appears = true;
        }
      if (appears) {  // one of the same name
        lose(name, true);
        continue;
      }
      now_.variables[name] = {};
      now_.variables[name].kind = ShellVariable::Kind::unset;
    }
  }
}

}  // namespace penstock
