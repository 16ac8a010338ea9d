// Words of a script and what they become: bash's manual, "Shell Expansions".
#include "base/numbers.hpp"
#include "scenarios/shell_machine.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

namespace penstock {
namespace {

constexpr std::size_t kMostWords = 20'000;
constexpr std::string_view kSpecials = "@*#?$!-";

/// Variables that every shell has: their defaults in a script never count.
constexpr std::string_view kAlwaysSet[] = {
    "HOME",         "PATH",     "PWD",           "OLDPWD",        "USER",
    "LOGNAME",      "SHELL",    "HOSTNAME",      "UID",           "EUID",
    "PPID",         "BASHPID",  "RANDOM",        "SRANDOM",       "SECONDS",
    "EPOCHSECONDS", "LINENO",   "BASH",          "BASH_VERSION",  "BASH_SOURCE",
    "FUNCNAME",     "OSTYPE",   "HOSTTYPE",      "MACHTYPE",      "SHLVL",
    "SHELLOPTS",    "BASHOPTS", "OPTIND",        "OPTERR",        "GROUPS",
    "PIPESTATUS",   "DIRSTACK", "BASH_VERSINFO", "EPOCHREALTIME", "TERM",
    "LANG",         "_"};

bool is_number_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_plain_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// In one line, of a few words.
std::string shown_source(const ShellWord& word) {
  constexpr std::size_t kShown = 120;
  std::string out;
  for (const char c : word.text().substr(0, kShown)) out += c == '\n' || c == '\t' ? ' ' : c;
  return out;
}

/// Behind the name at the beginning of what stands in ${...}.
std::size_t end_of_name(const std::string& text) {
  if (text.empty()) return 0;
  if (kSpecials.find(text[0]) != std::string_view::npos) return 1;
  std::size_t end = 0;
  const bool number = text[0] >= '0' && text[0] <= '9';
  while (end < text.size() && is_name(text[end]) &&
         (!number || (text[end] >= '0' && text[end] <= '9')))
    ++end;
  return end;
}

std::size_t end_of_index(const std::string& text, std::size_t at) {
  int open = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    open += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (open == 0) return i;
  }
  return at;
}

std::string in_case(std::string text, char operation, const std::string& pattern, bool all,
                    bool& known) {
  for (std::size_t i = 0; i < text.size() && (all || i == 0); ++i) {
    const auto matches =
        pattern.empty() ? std::optional(true) : matches_pattern(std::string(1, text[i]), pattern);
    if (!matches) known = false;
    if (!matches.value_or(false)) continue;
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(operation == '^' ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

}  // namespace

// ---- whole words

std::vector<ShellText> ShellMachine::expand_all(const std::vector<ShellWord>& words) {
  std::vector<ShellText> out;
  for (const ShellWord& word : words) expand_fields(word, out);
  return out;
}

void ShellMachine::expand_fields(const ShellWord& word, std::vector<ShellText>& out) {
  const std::vector<std::string> alternatives = braces(word.text());
  for (const std::string& one : alternatives) {
    ShellFields fields;
    if (alternatives.size() == 1) {
      expand(word, false, fields);
    } else {
      const ShellSource& source = keep({one, {{0, word.place()}}});
      expand({&source, 0, source.text.size()}, false, fields);
    }
    fields.end_word();
    std::ranges::move(fields.done, std::back_inserter(out));
    if (out.size() > kMostWords) throw ShellError{word.place(), "becomes too many words"};
  }
}

ShellText ShellMachine::expand_one(const ShellWord& word, bool quoted) {
  ShellFields fields;
  fields.splits = false;
  if (word.source != nullptr) expand(word, quoted, fields);
  return fields.now;
}

ShellSource& ShellMachine::keep(ShellSource source) {
  sources_.push_back(std::make_unique<ShellSource>(std::move(source)));
  return *sources_.back();
}

/// Text to be read again as script or arithmetic: unknown pieces are \x01 NUMBER \x02 in it.
std::string ShellMachine::encoded(const ShellText& text) {
  std::string out;
  for (const ShellPiece& piece : text.pieces) {
    if (piece.known) {
      out += piece.text;
      continue;
    }
    out += '\x01' + std::to_string(unknown_.size()) + '\x02';
    unknown_.push_back(piece);
  }
  return out;
}

void ShellMachine::expand(const ShellWord& word, bool quoted, ShellFields& out) {
  const ShellSource& source = *word.source;
  const std::string& text = source.text;
  for (std::size_t at = word.begin; at < word.end;) {
    const char c = text[at];
    const bool escapes =
        !quoted || (at + 1 < word.end &&
                    std::string_view("$`\"\\\n").find(text[at + 1]) != std::string_view::npos);
    if (c == '\\' && escapes && at + 1 < word.end) {
      if (text[at + 1] != '\n') out.add({text.substr(at + 1, 1), source.place(at), true, true});
      at += 2;
    } else if (c == '\'' && !quoted) {
      const std::size_t end = end_of_quotes(source, at);
      out.add({text.substr(at + 1, end - at - 2), source.place(at + 1), true, true});
      at = end;
    } else if (c == '"' && !quoted) {
      at = expand_quotes(source, at, out);
    } else if (c == '"') {  // within ${...} within quotes
      ++at;
    } else if (c == '$') {
      at = expand_dollar(source, at, quoted, out);
    } else if (c == '`') {
      const std::size_t end = end_of_quotes(source, at);
      const ShellWord inside{&source, at + 1, end - 1};
      put(inside.text().find('\\') == std::string::npos
              ? captured(inside)
              : unknown_text(shown_source({&source, at, end}), {}, source.place(at)),
          quoted, out);
      at = end;
    } else if (c == '\x01') {
      const std::size_t end = text.find('\x02', at);
      ShellPiece piece =
          unknown_.at(parse_number<std::size_t>(std::string_view(text).substr(at + 1, end - at - 1))
                          .value_or(0));
      piece.quoted = quoted;
      out.add(std::move(piece));
      at = end + 1;
    } else if (c == '~' && !quoted && at == word.begin) {
      out.add({"~", source.place(at), false});
      ++at;
    } else if ((c == '<' || c == '>') && !quoted && at + 1 < word.end && text[at + 1] == '(') {
      out.add({shown_source(word), source.place(at), false, true});
      at = word.end;
    } else {
      const std::size_t begin = at++;
      while (at < word.end &&
             std::string_view("\\'\"$`\x01~<>").find(text[at]) == std::string_view::npos)
        ++at;
      out.add({text.substr(begin, at - begin), source.place(begin), true, quoted});
    }
  }
}

std::size_t ShellMachine::expand_quotes(const ShellSource& source, std::size_t at,
                                        ShellFields& out) {
  const std::size_t end = end_of_quotes(source, at);
  const bool before = std::exchange(out.only_list, false);
  expand({&source, at + 1, end - 1}, true, out);
  if (!out.only_list) out.started = true;  // "$@" may be no word at all, "" is one
  out.only_list = before;
  return end;
}

std::size_t ShellMachine::expand_dollar(const ShellSource& source, std::size_t at, bool quoted,
                                        ShellFields& out) {
  const std::size_t end = end_of_dollar(source, at, quoted);
  const char next = at + 1 < source.text.size() ? source.text[at + 1] : '\0';
  if (next == '(' && is_arithmetic(source, at + 1, end - 1)) {
    const ShellWord inside{&source, at + 3, end - 2};
    const ShellNumber number = arithmetic(inside);
    put(number.value
            ? known_text(std::to_string(*number.value), source.place(at))
            : unknown_text(shown_source({&source, at, end}), number.names, source.place(at)),
        quoted, out);
  } else if (next == '(') {
    put(captured({&source, at + 2, end - 1}), quoted, out);
  } else if (next == '{') {
    expand_parameter({&source, at + 2, end - 1}, quoted, out);
  } else if (next == '\'' && !quoted) {
    const std::string inside = source.text.substr(at + 2, end - at - 3);
    if (inside.find('\\') == std::string::npos)
      out.add({inside, source.place(at), true, true});
    else
      out.add({shown_source({&source, at, end}), source.place(at), false, true});
  } else if (end > at + 1) {
    expand_name(source.text.substr(at + 1, end - at - 1), source.place(at), quoted, out);
  } else if (next != '"' || quoted) {
    out.add({"$", source.place(at), true, quoted});
  }
  return end;
}

/// Adds what an expansion came to: in quotes as it is, otherwise cut into words at its blanks.
void ShellMachine::put(const ShellText& text, bool quoted, ShellFields& out) {
  if (quoted || !out.splits) {
    if (quoted) out.started = true;
    for (ShellPiece piece : text.pieces) {
      piece.quoted = quoted;
      out.add(std::move(piece));
    }
    return;
  }
  const auto cuts = separators();
  for (ShellPiece piece : text.pieces) {
    piece.quoted = false;
    if (!piece.known || !cuts) {
      piece.known = false;
      const bool whole =
          piece.choice && piece.choice->yes.size() == 1 && piece.choice->no.size() == 1;
      const bool before = whole && is_cut_before(piece), behind = whole && is_cut_behind(piece);
      if (before) out.end_word();
      out.add(std::move(piece));
      if (behind) out.end_word();
      continue;
    }
    std::string word;
    ShellPlace place = piece.place, begin = place;
    const auto flush = [&] {
      if (!word.empty()) out.add({std::exchange(word, ""), begin});
    };
    for (const char c : piece.text) {
      if (cuts->find(c) == std::string::npos) {
        if (word.empty()) begin = place;
        word += c;
      } else {
        flush();
        if (!is_blank(c)) out.started = true;
        out.end_word();
      }
      place.line += c == '\n' ? 1 : 0;
      place.column = c == '\n' ? 1 : place.column + 1;
    }
    flush();
  }
}

std::optional<std::string> ShellMachine::separators() {
  const auto at = now_.variables.find("IFS");
  if (at == now_.variables.end() || at->second.kind == ShellVariable::Kind::unset) return " \t\n";
  if (!at->second.value.known()) return {};
  return at->second.value.shown();
}

void ShellMachine::put_list(const std::vector<ShellText>& list, bool one_word, bool quoted,
                            ShellFields& out) {
  const bool joins = (one_word && quoted) || !out.splits;
  out.only_list = out.only_list || !one_word;
  std::string separator = " ";
  if (one_word && joins) separator = separators().value_or(" ").substr(0, 1);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0 && joins) out.add({separator, {}, true, quoted});
    if (i > 0 && !joins) out.end_word();
    const bool whole = list[i].pieces.size() == 1 && !list[i].pieces[0].known &&
                       (list[i].pieces[0].choice || list[i].pieces[0].absent);
    put(list[i], quoted && !(whole && !joins), out);
    if (quoted && !joins && whole) out.started = true;
  }
  if (one_word && quoted) out.started = true;
}

// ---- variables

/// The script's folder, which is not known but can be read in, and the way from there.
ShellText ShellMachine::path_of(const File& file, const ShellPlace& place) const {
  ShellText out;
  ShellPiece folder{".", place, false};
  folder.folder = true;
  out.add(std::move(folder));
  out.add({"/" + file.inside, place});
  return out;
}

ShellText ShellMachine::read_name(const std::string& name, const ShellPlace& place) {
  const ShellScope& scope = now_.scopes.back();
  if (is_number_name(name)) {
    const auto number = parse_number<std::size_t>(name).value_or(0);
    if (number == 0) return path_of(files_.front(), place);
    if (number <= scope.arguments.size()) return scope.arguments[number - 1];
    if (scope.given) return {};
  }
  if (name == "?") return unknown_text("$?", {}, place);
  if (name == "#") return known_text(std::to_string(scope.arguments.size()), place);
  const auto at = now_.variables.find(name);
  if (at != now_.variables.end()) {
    const ShellVariable& variable = at->second;
    switch (variable.kind) {
      case ShellVariable::Kind::scalar: return variable.value;
      case ShellVariable::Kind::unset: return {};
      case ShellVariable::Kind::indexed:
        if (const auto item = variable.items.find(0); item != variable.items.end())
          return item->second;
        return {};
      case ShellVariable::Kind::keyed:
        if (const auto item = variable.keyed.find("0"); item != variable.keyed.end())
          return item->second;
        return {};
    }
  }
  if (name == "PWD") return now_.folder;
  if (name == "BASH_SOURCE")
    return path_of(files_[static_cast<std::size_t>(reading_.back())], place);
  ShellText out = unknown_text("$" + name, {name}, place);
  if (kSpecials.find(name) != std::string_view::npos)
    out.pieces[0].names.clear();
  else
    out.pieces[0].absent = is_set(name) == Truth::no;
  return out;
}

Truth ShellMachine::is_set(const std::string& name) {
  if (is_number_name(name)) {
    const auto number = parse_number<std::size_t>(name).value_or(0);
    return truth_of(number == 0 || number <= now_.scopes.back().arguments.size());
  }
  const auto at = now_.variables.find(name);
  if (at == now_.variables.end()) {
    if (name.starts_with("BASH_") ||
        (name.size() == 1 && kSpecials.find(name[0]) != std::string_view::npos))
      return Truth::unknown;
    return std::ranges::find(kAlwaysSet, name) != std::end(kAlwaysSet) ? Truth::yes : Truth::no;
  }
  const ShellVariable& variable = at->second;
  if (variable.kind == ShellVariable::Kind::indexed) return truth_of(variable.items.contains(0));
  if (variable.kind == ShellVariable::Kind::keyed) return truth_of(variable.keyed.contains("0"));
  if (variable.kind == ShellVariable::Kind::unset) return Truth::no;
  const bool told = variable.value.pieces.size() != 1 || variable.value.pieces[0].known;
  return told || !variable.value.pieces[0].choice ? Truth::yes : Truth::unknown;
}

/// All words of an array, or of the script's arguments.
std::vector<ShellText> ShellMachine::all_of(const std::string& name, const ShellPlace& place) {
  if (name == "@" || name == "*") return now_.scopes.back().arguments;
  const auto at = now_.variables.find(name);
  if (name == "BASH_SOURCE")
    return {path_of(files_[static_cast<std::size_t>(reading_.back())], place)};
  if (at == now_.variables.end()) {
    ShellText text = unknown_text("${" + name + "[@]}", {name}, place);
    text.pieces[0].absent = is_set(name) == Truth::no;
    return {text};
  }
  const ShellVariable& variable = at->second;
  std::vector<ShellText> out;
  if (variable.kind == ShellVariable::Kind::scalar && variable.fixed) {
    ShellFields words;
    put(variable.value, false, words);
    words.end_word();
    return words.done;
  }
  if (variable.kind == ShellVariable::Kind::scalar) out = {variable.value};
  for (const auto& [index, item] : variable.items) out.push_back(item);
  if (variable.keyed.size() == 1) out.push_back(variable.keyed.begin()->second);
  if (variable.keyed.size() > 1)  // in an order of bash's own
    out = {unknown_text("${" + name + "[@]}", {}, place)};
  return out;
}

void ShellMachine::expand_name(const std::string& name, const ShellPlace& place, bool quoted,
                               ShellFields& out) {
  if (name == "@" || name == "*") return put_list(all_of(name, place), name == "*", quoted, out);
  put(read_name(name, place), quoted, out);
}

ShellText ShellMachine::read_variable(const std::string& name,
                                      const std::optional<std::string>& index) {
  if (!index) return read_name(name, {});
  const auto at = now_.variables.find(name);
  if (name == "BASH_SOURCE" && *index == "0") return read_name(name, {});
  if (at == now_.variables.end()) return unknown_text("${" + name + "[" + *index + "]}", {name});
  const ShellVariable& variable = at->second;
  if (variable.kind == ShellVariable::Kind::keyed) {
    const ShellSource& source = keep({*index, {{0, {}}}});
    const ShellText key = expand_one({&source, 0, source.text.size()});
    if (!key.known()) return unknown_text("${" + name + "[" + *index + "]}", key.names());
    const auto item = variable.keyed.find(key.shown());
    return item == variable.keyed.end() ? ShellText{} : item->second;
  }
  const ShellSource& source = keep({*index, {{0, {}}}});
  const ShellNumber number = arithmetic({&source, 0, source.text.size()});
  if (!number.value || !variable.counted)
    return unknown_text("${" + name + "[" + *index + "]}", number.names);
  std::int64_t place = *number.value;
  if (variable.kind != ShellVariable::Kind::indexed)
    return place == 0 ? read_name(name, {}) : ShellText{};
  if (place < 0 && !variable.items.empty()) place += variable.items.rbegin()->first + 1;
  const auto item = variable.items.find(place);
  return item == variable.items.end() ? ShellText{} : item->second;
}

void ShellMachine::write_variable(const std::string& name, const std::optional<std::string>& index,
                                  const ShellNumber& number) {
  ShellText text = number.value ? known_text(std::to_string(*number.value))
                                : unknown_text("$" + name, number.names.empty() ? ShellNames{name}
                                                                                : number.names);
  assign_text(name, index, std::move(text), false, {});
}

ShellNumber ShellMachine::arithmetic(const ShellWord& word) {
  try {
    return arithmetic_value(encoded(expand_one(word, true)), *this);
  } catch (const ArithmeticFailure& failure) {
    throw ShellError{word.place(), failure.message};
  }
}

// ---- ${...}

void ShellMachine::expand_parameter(const ShellWord& inside, bool quoted, ShellFields& out) {
  const std::string text = inside.text();
  const ShellPlace place = inside.place();
  const std::string shown = "${" + shown_source(inside) + "}";
  const bool counts =
      text.size() > 1 && text[0] == '#' && (is_name(text[1]) || text[1] == '@' || text[1] == '*');
  const bool indirect = text.size() > 1 && text[0] == '!';
  const std::size_t sign = counts || indirect ? 1 : 0;
  const std::size_t name_end = sign + end_of_name(text.substr(sign));
  std::string name = text.substr(sign, name_end - sign);
  if (name.empty()) throw ShellError{place, "'" + shown + "' is no expansion of bash"};
  std::size_t operation = name_end;
  std::optional<std::string> index;
  if (operation < text.size() && text[operation] == '[') {
    const std::size_t close = end_of_index(text, operation);
    if (close == operation) throw ShellError{place, "'" + shown + "' is no expansion of bash"};
    index = text.substr(operation + 1, close - operation - 1);
    operation = close + 1;
  }
  const bool all = name == "@" || name == "*" || (index && (*index == "@" || *index == "*"));
  const bool one_word = name == "*" || (index && *index == "*");
  if (index && !all) {
    const ShellSource& source = keep({*index, {{0, place}}});
    index = encoded(expand_one({&source, 0, source.text.size()}, true));
  }
  if (indirect) {
    if (all && operation == text.size() && name != "@" && name != "*") {  // the indices
      std::vector<ShellText> keys;
      const auto at = now_.variables.find(name);
      const bool told = at != now_.variables.end() && at->second.counted &&
                        at->second.kind == ShellVariable::Kind::indexed;
      if (told)
        for (const auto& item : at->second.items)
          keys.push_back(known_text(std::to_string(item.first), place));
      else
        keys = {unknown_text(shown, {name}, place)};
      return put_list(keys, one_word, quoted, out);
    }
    const ShellText pointed = index ? read_variable(name, index) : read_name(name, place);
    const bool usable = !all && pointed.known() && !pointed.empty() &&
                        std::ranges::all_of(pointed.shown(), is_name) &&
                        text.find_first_of("*@", name_end) == std::string::npos;
    if (!usable) return put(unknown_text(shown, pointed.names(), place), quoted, out);
    name = pointed.shown();
    index.reset();
  }
  std::vector<ShellText> list;
  ShellText value;
  Truth set = Truth::yes;
  if (all) {
    list = all_of(name, place);
    const auto at = now_.variables.find(name);
    const bool uncounted = at != now_.variables.end() && !at->second.counted;
    const bool untold = uncounted || (list.size() == 1 && !list[0].known());
    const bool exists = at != now_.variables.end() || name == "@" || name == "*";
    set = list.empty() || (!exists && list[0].absent()) ? Truth::no : Truth::yes;
    if (counts) {
      return put(untold ? unknown_text(shown, list[0].names(), place)
                        : known_text(std::to_string(list.size()), place),
                 quoted, out);
    }
    if (uncounted && operation < text.size() && text.compare(operation, 1, ":") == 0 &&
        text.compare(operation, 2, ":-") != 0 && text.compare(operation, 2, ":+") != 0)
      return put(unknown_text(shown, {name}, place), quoted, out);
  } else if (index) {
    value = read_variable(name, index);
    const auto at = now_.variables.find(name);
    if (at == now_.variables.end())
      set = Truth::no;
    else if (value.empty())
      set = at->second.kind == ShellVariable::Kind::scalar ? is_set(name) : Truth::unknown;
    if (value.empty() && set == Truth::unknown) {  // is there such an item?
      set = Truth::no;
      if (at->second.kind == ShellVariable::Kind::indexed)
        for (const auto& item : at->second.items)
          if (std::to_string(item.first) == *index) set = Truth::yes;
      if (at->second.kind == ShellVariable::Kind::keyed)
        set = truth_of(at->second.keyed.contains(*index));
    }
    if (set == Truth::no && at == now_.variables.end()) value.pieces[0].absent = true;
  } else {
    value = read_name(name, place);
    set = is_set(name);
  }
  if (counts) {
    const bool told = value.known() && is_plain_ascii(value.shown());
    return put(told ? known_text(std::to_string(value.shown().size()), place)
                    : unknown_text(shown, value.names(), place),
               quoted, out);
  }
  if (operation == text.size()) {
    if (all) return put_list(list, one_word, quoted, out);
    return put(value, quoted, out);
  }
  const bool colon = text[operation] == ':' && operation + 1 < text.size() &&
                     std::string_view("-=?+").find(text[operation + 1]) != std::string_view::npos;
  const char what = text[operation + (colon ? 1 : 0)];
  if (colon || std::string_view("-=?+").find(what) != std::string_view::npos) {
    const ShellWord word{inside.source, inside.begin + operation + (colon ? 2 : 1), inside.end};
    const bool gone = !all && value.absent() && (colon || !now_.variables.contains(name));
    Truth given = gone ? Truth::no : set;
    if (colon && !all && given == Truth::yes && value.known())
      given = truth_of(!value.shown().empty());
    else if (colon && !all && given == Truth::yes &&
             std::ranges::none_of(value.pieces, &ShellPiece::known))
      given = Truth::unknown;
    if (all && colon && list.size() == 1 && list[0].empty()) given = Truth::no;
    if (given == Truth::unknown) return put(unknown_text(shown, value.names(), place), quoted, out);
    if (what == '+') {
      out.only_list = out.only_list || (all && !one_word);
      if (given == Truth::yes) expand(word, quoted, out);
      return;
    }
    if (given == Truth::yes)
      return all ? put_list(list, one_word, quoted, out) : put(value, quoted, out);
    if (what == '?') {
      ShellText asked = unknown_text("$" + name, {name}, place);
      return put(asked, quoted, out);
    }
    if (what == '=' && !all) {
      ShellText text_of_word = expand_one(word, quoted);
      assign_text(name, index, text_of_word, false, place);
      return put(text_of_word, quoted, out);
    }
    return expand(word, quoted, out);
  }
  if (what == ':' && all) {  // some of the words
    const std::size_t begin = inside.begin + operation + 1;
    std::size_t colon_at = begin;
    while (colon_at < inside.end && inside.source->text[colon_at] != ':') ++colon_at;
    const ShellNumber first = arithmetic({inside.source, begin, colon_at});
    const ShellNumber count = colon_at < inside.end
                                  ? arithmetic({inside.source, colon_at + 1, inside.end})
                                  : ShellNumber{std::numeric_limits<std::int32_t>::max(), {}};
    const auto at = now_.variables.find(name);
    const bool sparse =
        at != now_.variables.end() && !at->second.items.empty() &&
        at->second.items.rbegin()->first + 1 != static_cast<std::int64_t>(at->second.items.size());
    const bool of_arguments = name == "@" || name == "*";
    const bool told = first.value && count.value && *count.value >= 0 &&
                      *first.value >= (of_arguments ? 1 : 0) && !sparse;
    if (!told || (list.size() == 1 && !list[0].known()))
      return put(unknown_text(shown, {name}, place), quoted, out);
    std::vector<ShellText> some;
    for (std::int64_t i = *first.value - (of_arguments ? 1 : 0), left = *count.value;
         left > 0 && i < static_cast<std::int64_t>(list.size()); ++i, --left)
      some.push_back(list[static_cast<std::size_t>(i)]);
    return put_list(some, one_word, quoted, out);
  }
  if (!all) return put(transformed(value, inside, operation, quoted), quoted, out);
  for (ShellText& one : list) one = transformed(one, inside, operation, quoted);
  put_list(list, one_word, quoted, out);
}

/// Of one text, what stands at `operation` in ${...}.
ShellText ShellMachine::transformed(const ShellText& text, const ShellWord& inside,
                                    std::size_t operation, bool quoted) {
  const std::string all = inside.text();
  const std::string shown = "${" + shown_source(inside) + "}";
  const char sign = all[operation];
  ShellText unknown = unknown_text(shown, text.names(), inside.place());
  if (text.absent()) {
    unknown.pieces[0].absent = true;
    return unknown;
  }
  if (!text.known() && text.pieces.size() == 2 && text.pieces[0].folder && text.pieces[1].known) {
    if (all.substr(operation) == "%/*" && text.pieces[1].text.rfind('/') == 0)
      return {{text.pieces[0]}};
    if (all.substr(operation) == "##*/")
      return known_text(text.pieces[1].text.substr(text.pieces[1].text.rfind('/') + 1),
                        inside.place());
  }
  if (!text.known() || (quoted && all.find('\'') != std::string::npos)) return unknown;
  if (sign == '/') return replaced(text, inside, operation, quoted, shown);
  if (sign == ':') return part_of(text, inside, operation, shown);
  const bool twice = operation + 1 < all.size() && all[operation + 1] == sign;
  const ShellWord word{inside.source, inside.begin + operation + (twice ? 2 : 1), inside.end};
  if (sign == '#' || sign == '%' || sign == '^' || sign == ',') {
    const ShellText pattern = expand_one(word);
    add_names(unknown.pieces[0].names, pattern.names());
    if (!pattern.known() || !is_plain_ascii(text.shown())) return unknown;
    if (sign == '#' || sign == '%') {
      ShellText out = cut(text, pattern_of(pattern), sign == '%', twice, shown);
      if (!out.known()) add_names(out.pieces[0].names, unknown.pieces[0].names);
      return out;
    }
    bool known = true;
    ShellText out =
        known_text(in_case(text.shown(), sign, pattern_of(pattern), twice, known), inside.place());
    return known ? out : unknown;
  }
  if (sign == '@' && is_plain_ascii(text.shown())) {
    const std::string how = all.substr(operation + 1);
    bool known = true;
    if (how == "U" || how == "u")
      return known_text(in_case(text.shown(), '^', "", how == "U", known), inside.place());
    if (how == "L") return known_text(in_case(text.shown(), ',', "", true, known), inside.place());
    return unknown;
  }
  throw ShellError{inside.place(), "'" + shown + "' is no expansion of bash"};
}

std::string ShellMachine::pattern_of(const ShellText& text) const {
  std::string out;
  for (const ShellPiece& piece : text.pieces)
    for (const char c : piece.text) {
      if (piece.quoted && !is_name(c)) out += '\\';
      out += c;
    }
  return out;
}

ShellText ShellMachine::cut(const ShellText& text, const std::string& pattern, bool suffix,
                            bool longest, const std::string& shown) {
  const std::string value = text.shown();
  const ShellPlace place = text.empty() ? ShellPlace{} : text.pieces[0].place;
  if (value.size() * value.size() * (pattern.size() + 1) > 4'000'000)
    return unknown_text(shown, {}, place);
  steps_ += value.size() * value.size() * (pattern.size() + 1) / 4'096;
  for (std::size_t i = 0; i <= value.size(); ++i) {
    const std::size_t length = longest ? value.size() - i : i;
    const std::string_view part = suffix ? std::string_view(value).substr(value.size() - length)
                                         : std::string_view(value).substr(0, length);
    const auto matches = matches_pattern(part, pattern);
    if (!matches) return unknown_text(shown, {}, place);
    if (*matches)
      return known_text(suffix ? value.substr(0, value.size() - length) : value.substr(length),
                        place);
  }
  return text;
}

ShellText ShellMachine::replaced(const ShellText& text, const ShellWord& inside,
                                 std::size_t operation, bool, const std::string& shown) {
  const ShellSource& source = *inside.source;
  std::size_t begin = inside.begin + operation + 1;
  const char mode = begin < inside.end ? source.text[begin] : '\0';
  if (mode == '/' || mode == '#' || mode == '%') ++begin;
  std::size_t slash = begin;
  while (slash < inside.end && (source.text[slash] != '/' || (slash == begin && mode == '/'))) {
    const char c = source.text[slash];
    if (c == '\\')
      slash += 2;
    else if (c == '$')
      slash = end_of_dollar(source, slash, false);
    else if (c == '"' || c == '\'' || c == '`')
      slash = end_of_quotes(source, slash);
    else
      ++slash;
  }
  slash = std::min(slash, inside.end);
  const ShellText pattern_text = expand_one({&source, begin, slash});
  const ShellText by = expand_one({&source, std::min(slash + 1, inside.end), inside.end});
  const ShellPlace place = inside.place();
  ShellText unknown = unknown_text(shown, pattern_text.names(), place);
  add_names(unknown.pieces[0].names, by.names());
  const std::string value = text.shown(), replacement = by.shown();
  if (!pattern_text.known() || !by.known() || replacement.find_first_of("&\\") != std::string::npos)
    return unknown;
  const std::string pattern = pattern_of(pattern_text);
  if (value.size() * value.size() * (pattern.size() + 1) > 4'000'000 || !is_plain_ascii(value))
    return unknown;
  if (pattern.empty() && mode != '#' && mode != '%') return text;
  steps_ += value.size() * value.size() * (pattern.size() + 1) / 4'096;
  std::string out;
  bool done = false;
  for (std::size_t at = 0; at <= value.size();) {
    std::size_t length = std::string::npos;
    const bool here =
        !done && (mode != '#' || at == 0) && (at < value.size() || value.empty() || mode == '%');
    for (std::size_t n = value.size() - at + 1; here && n-- > 0;) {
      if (mode == '%' && n != value.size() - at) break;
      const auto matches = matches_pattern(std::string_view(value).substr(at, n), pattern);
      if (!matches) return unknown;
      if (!*matches) continue;
      length = n;
      break;
    }
    if (length != std::string::npos) {
      out += replacement;
      at += length;
      done = mode != '/';
    }
    if (length == std::string::npos || length == 0) {
      if (at < value.size()) out += value[at];
      ++at;
    }
  }
  return known_text(out, place);
}

ShellText ShellMachine::part_of(const ShellText& text, const ShellWord& inside,
                                std::size_t operation, const std::string& shown) {
  const ShellSource& source = *inside.source;
  const std::size_t begin = inside.begin + operation + 1;
  std::size_t colon = begin;
  for (int open = 0; colon < inside.end && (open > 0 || source.text[colon] != ':');) {
    const char c = source.text[colon];
    open += c == '(' || c == '?' ? 1 : c == ')' || (c == ':' && open > 0) ? -1 : 0;
    colon = c == '$' ? end_of_dollar(source, colon, false) : colon + 1;
  }
  const ShellNumber first = arithmetic({&source, begin, std::min(colon, inside.end)});
  const bool has_length = colon < inside.end;
  const ShellNumber length =
      has_length ? arithmetic({&source, colon + 1, inside.end}) : ShellNumber{0, {}};
  ShellText unknown = unknown_text(shown, first.names, inside.place());
  add_names(unknown.pieces[0].names, length.names);
  const std::string value = text.shown();
  if (!first.value || !length.value || !is_plain_ascii(value)) return unknown;
  const auto size = static_cast<std::int64_t>(value.size());
  std::int64_t from = *first.value;
  if (from < 0) from += size;
  if (from < 0 || from > size) return {};
  std::int64_t to = size;
  if (has_length)
    to = *length.value < 0 ? size + *length.value : from + std::min(*length.value, size - from);
  if (to < from) throw ShellError{inside.place(), "'" + shown + "' ends before it begins"};
  return known_text(
      value.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)),
      inside.place());
}

// ---- $(...)

/// What commands print, of those whose output can be told.
ShellText ShellMachine::captured(const ShellWord& commands) {
  const std::string shown = "$(" + shown_source(commands) + ")";
  if (commands.text().starts_with("<")) return unknown_text(shown, {}, commands.place());
  trees_.push_back(read_shell(commands));
  const ShellTree tree = trees_.back();
  Output output;
  Output* const before = std::exchange(output_, &output);
  run_apart([&] { run(*tree); });
  output_ = before;
  if (!output.known) return unknown_text(shown, {}, commands.place());
  auto& pieces = output.text.pieces;
  while (!pieces.empty() && pieces.back().known) {
    while (pieces.back().text.ends_with('\n')) pieces.back().text.pop_back();
    if (!pieces.back().text.empty()) break;
    pieces.pop_back();
  }
  return output.text;
}

// ---- {a,b} and {1..4}

namespace {

struct Brace {
  std::size_t open = std::string::npos, close = 0;
  std::vector<std::size_t> commas{};
};

std::size_t behind_quoted(const ShellSource& source, std::size_t at) {
  const char c = source.text[at];
  if (c == '\\') return at + 2;
  if (c == '\'' || c == '"' || c == '`') return end_of_quotes(source, at);
  if (c == '$') return end_of_dollar(source, at, false);
  return at;
}

/// The first brace that is one: with a comma or ".." in it.
Brace first_brace(const ShellSource& source) {
  const std::string& text = source.text;
  for (std::size_t open = 0; open < text.size();) {
    if (const std::size_t behind = behind_quoted(source, open); behind > open) {
      open = behind;
      continue;
    }
    if (text[open] != '{') {
      ++open;
      continue;
    }
    Brace out{open, 0, {}};
    int depth = 0;
    for (std::size_t i = open; i < text.size();) {
      if (const std::size_t behind = behind_quoted(source, i); behind > i) {
        i = behind;
        continue;
      }
      if (text[i] == '{') ++depth;
      if (text[i] == ',' && depth == 1) out.commas.push_back(i);
      if (text[i] == '}' && --depth == 0) {
        out.close = i;
        break;
      }
      ++i;
    }
    const std::string inside = out.close > open ? text.substr(open + 1, out.close - open - 1) : "";
    if (out.close > open && (!out.commas.empty() || inside.find("..") != std::string::npos))
      return out;
    ++open;
  }
  return {};
}

/// Of `1..8` or `a..e`, with a step; nothing where it is no range.
std::vector<std::string> range_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find("..", at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  if (parts.size() < 2 || parts.size() > 3) return {};
  const auto number = [](const std::string& part) { return parse_number<std::int64_t>(part); };
  const bool letters = parts[0].size() == 1 && parts[1].size() == 1 &&
                       std::isalpha(static_cast<unsigned char>(parts[0][0])) != 0 &&
                       std::isalpha(static_cast<unsigned char>(parts[1][0])) != 0;
  const auto first = letters ? std::optional<std::int64_t>(parts[0][0]) : number(parts[0]);
  const auto last = letters ? std::optional<std::int64_t>(parts[1][0]) : number(parts[1]);
  const auto step = parts.size() == 3 ? number(parts[2]) : std::optional<std::int64_t>(1);
  if (!first || !last || !step) return {};
  constexpr std::int64_t kFar = 1'000'000'000;
  const bool mixed = letters && (std::islower(static_cast<int>(*first)) != 0) !=
                                    (std::islower(static_cast<int>(*last)) != 0);
  if (mixed || std::abs(*first) > kFar || std::abs(*last) > kFar || std::abs(*step) > kFar)
    throw ShellError{{}, "has a range {..} that is not followed"};
  const std::int64_t by = std::max<std::int64_t>(1, std::abs(*step)) * (*first <= *last ? 1 : -1);
  if (std::abs(*last - *first) / std::abs(by) > 10'000)
    throw ShellError{{}, "becomes too many words by {..}"};
  const auto padded = [](const std::string& part) {
    const std::string digits = part.substr(part.starts_with('-') ? 1 : 0);
    return digits.size() > 1 && digits[0] == '0';
  };
  const std::size_t width = !letters && (padded(parts[0]) || padded(parts[1]))
                                ? std::max(parts[0].size(), parts[1].size())
                                : 0;
  std::vector<std::string> out;
  for (std::int64_t i = *first; by > 0 ? i <= *last : i >= *last; i += by) {
    std::string one = letters ? std::string(1, static_cast<char>(i)) : std::to_string(std::abs(i));
    const std::size_t sign = !letters && i < 0 ? 1 : 0;
    if (one.size() + sign < width) one.insert(0, width - one.size() - sign, '0');
    out.push_back((sign > 0 ? "-" : "") + one);
  }
  return out;
}

}  // namespace

std::vector<std::string> ShellMachine::braces(const std::string& word) const {
  constexpr std::size_t kMostAlternatives = 10'000;
  if (word.find('{') == std::string::npos) return {word};
  const ShellSource source{word, {{0, {}}}};
  const Brace brace = first_brace(source);
  if (brace.open == std::string::npos) return {word};
  std::vector<std::string> parts;
  const std::string inside = word.substr(brace.open + 1, brace.close - brace.open - 1);
  if (brace.commas.empty()) {
    parts = range_of(inside);
    if (parts.empty()) {
      std::vector<std::string> rest = braces(word.substr(brace.close + 1));
      for (std::string& one : rest) one.insert(0, word.substr(0, brace.close + 1));
      return rest;
    }
  } else {
    std::size_t begin = brace.open + 1;
    for (std::size_t i = 0; i <= brace.commas.size(); ++i) {
      const std::size_t end = i < brace.commas.size() ? brace.commas[i] : brace.close;
      const std::vector<std::string> inner = braces(word.substr(begin, end - begin));
      parts.insert(parts.end(), inner.begin(), inner.end());
      begin = end + 1;
      if (parts.size() > kMostAlternatives) throw ShellError{{}, "becomes too many words by {...}"};
    }
  }
  const std::vector<std::string> rest = braces(word.substr(brace.close + 1));
  if (rest.size() * parts.size() > kMostAlternatives)
    throw ShellError{{}, "becomes too many words by {...}"};
  std::vector<std::string> out;
  for (const std::string& part : parts)
    for (const std::string& behind : rest) {
      std::string one = word.substr(0, brace.open);
      one += part;
      one += behind;
      out.push_back(std::move(one));
    }
  return out;
}

}  // namespace penstock
