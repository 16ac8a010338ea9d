// SPDX-License-Identifier: Apache-2.0
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
constexpr std::size_t kShownSource = 120;
constexpr std::string_view kSpecials = "@*#?$!-";
constexpr std::string_view kBlanks = " \t\n";  // between words, as IFS has it

bool is_plain_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool has_glob(const ShellPiece& piece) {
  return !piece.quoted && piece.text.find_first_of("*?[") != std::string::npos;
}

/// Returns the length of the name at the beginning of what stands in ${...}.
std::size_t length_of_name(std::string_view text) {
  if (text.empty()) return 0;
  if (kSpecials.find(text[0]) != std::string_view::npos) return 1;
  const bool number = std::isdigit(static_cast<unsigned char>(text[0])) != 0;
  const auto ends = [&](char c) {
    return number ? std::isdigit(static_cast<unsigned char>(c)) == 0 : !is_name(c);
  };
  return static_cast<std::size_t>(std::ranges::find_if(text, ends) - text.begin());
}

std::size_t end_of_index(const std::string& text, std::size_t at) {
  int open = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    open += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (open == 0) return i;
  }
  return at;
}

/// Returns whether an expansion that is not evaluated may assign a variable: ${A:=1}, $((A++)).
bool may_assign_within(const std::string& text) {
  const bool expands =
      text.find("${") != text.npos || text.find("((") != text.npos || text.find("$[") != text.npos;
  return expands && (text.find('=') != text.npos || text.find("++") != text.npos ||
                     text.find("--") != text.npos);
}

std::string in_case(std::string text, bool upper, bool all) {
  for (std::size_t i = 0; i < text.size() && (all || i == 0); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

}  // namespace

bool may_have_braces(const ShellWord& word) {
  // bash looks for them before anything else: quotes are what they seem to be from left to right
  const std::string& text = word.source->text;
  bool quoted = false, open = false, several = false;
  for (std::size_t i = word.begin; i < word.end; ++i) {
    const char c = text[i];
    const char next = i + 1 < word.end ? text[i + 1] : '\0';
    if (c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == '\'' && !quoted) {
      i = std::min(text.find('\'', i + 1), word.end);
    } else if (quoted) {
      continue;
    } else if (c == '$' && next == '{') {
      ++i;
    } else if (c == '{') {
      open = true;
    } else if (open && (c == ',' || (c == '.' && next == '.'))) {
      several = true;
    } else if (several && c == '}') {
      return true;
    }
  }
  return false;
}

bool is_one_word(const ShellText& text) {
  return std::ranges::all_of(text.pieces, [](const ShellPiece& piece) {
    return piece.quoted || (piece.known && !has_glob(piece));
  });
}

std::string one_line(const ShellWord& word, std::size_t most) {
  std::string out;
  const std::string& text = word.source->text;
  for (std::size_t i = word.begin; i < std::min(word.end, word.begin + most); ++i)
    if (!is_blank(text[i]) || (!out.empty() && out.back() != ' '))
      out += is_blank(text[i]) ? ' ' : text[i];
  return out;
}

void ShellFields::add(ShellPiece piece) {
  started = true;
  now.add(std::move(piece));
}

void ShellFields::end_word() {
  if (started) done.push_back(std::move(now));
  now = {};
  started = false;
}

// ---- whole words

ShellWords ShellMachine::expand_all(const std::vector<ShellWord>& words) {
  ShellWords out;
  for (const ShellWord& word : words) expand_fields(word, out);
  return out;
}

void ShellMachine::expand_fields(const ShellWord& word, ShellWords& out) {
  if (may_have_braces(word)) return out.push_back(untold(word, one_line(word, kShownSource)));
  ShellFields fields;
  expand(word, false, fields);
  fields.end_word();
  std::ranges::move(fields.done, std::back_inserter(out));
  if (out.size() > kMostWords) throw ShellError{word.place(), "becomes too many words"};
}

ShellText ShellMachine::expand_one(const ShellWord& word, bool quoted) {
  ShellFields fields;
  fields.splits = false;
  if (word.source != nullptr) expand(word, quoted, fields);
  return fields.now;
}

ShellText ShellMachine::expand_document(const ShellWord& lines) {
  ShellFields fields;
  fields.splits = false;
  fields.document = true;
  expand(lines, true, fields);
  return fields.now.unquoted();
}

/// Returns what is not evaluated, and forgets what it may assign.
ShellText ShellMachine::untold(const ShellWord& word, const std::string& shown, ShellNames names) {
  const std::string text = word.text();
  if (may_assign_within(text)) lose_names_in(text);
  return unknown_text(shown, std::move(names), word.place());
}

ShellSource& ShellMachine::keep(ShellSource source) {
  sources_.push_back(std::make_unique<ShellSource>(std::move(source)));
  return *sources_.back();
}

/// Returns text to be read again as script: unknown pieces are \x01 NUMBER \x02 in it.
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
  const std::string_view escaped = out.document ? "$`\\\n" : "$`\"\\\n";
  for (std::size_t at = word.begin; at < word.end;) {
    const char c = text[at];
    const bool more = at + 1 < word.end;
    if (c == '\\' && more && (!quoted || escaped.find(text[at + 1]) != escaped.npos)) {
      if (text[at + 1] != '\n') out.add({text.substr(at + 1, 1), source.place(at), true, true});
      at += 2;
    } else if (c == '\'' && !quoted) {
      const std::size_t end = end_of_quotes(source, at);
      out.add({text.substr(at + 1, end - at - 2), source.place(at + 1), true, true});
      at = end;
    } else if (c == '"' && !quoted) {
      at = expand_quotes(source, at, out);
    } else if (c == '"' && !out.document) {  // within ${...} within quotes
      ++at;
    } else if (c == '$') {
      at = expand_dollar(source, at, quoted, out);
    } else if (c == '`') {
      const std::size_t end = end_of_quotes(source, at);
      const ShellWord inside{&source, at + 1, end - 1};
      const bool plain = inside.text().find_first_of("\\\"") == std::string::npos;
      put(plain ? captured(inside) : untold(inside, one_line({&source, at, end}, kShownSource)),
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
    } else if (c == '~' && !quoted &&
               (at == word.begin || text[at - 1] == ':' || text[at - 1] == '=')) {
      out.add({"~", source.place(at), false});
      ++at;
    } else if ((c == '<' || c == '>') && !quoted && more && text[at + 1] == '(') {
      out.add({one_line(word, kShownSource), source.place(at), false, true});
      at = word.end;
    } else {
      const std::size_t begin = at++;
      while (at < word.end &&
             std::string_view("\\'\"$`\x01~<>").find(text[at]) == std::string_view::npos)
        ++at;
      const ShellPiece piece{text.substr(begin, at - begin), source.place(begin), true, quoted};
      if (out.cuts && !quoted)
        put({{piece}}, false, out);
      else
        out.add(piece);
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
  const ShellWord whole{&source, at, end};
  if (next == '(' && is_arithmetic(source, at + 1, end - 1)) {
    const ShellNumber number = arithmetic({&source, at + 3, end - 2});
    put(number.value ? known_text(std::to_string(*number.value), source.place(at))
                     : unknown_text(one_line(whole, kShownSource), number.names, source.place(at)),
        quoted, out);
  } else if (next == '(') {
    put(captured({&source, at + 2, end - 1}), quoted, out);
  } else if (next == '[') {  // arithmetic of old shells
    lose_names_in(whole.text());
    put(unknown_text(one_line(whole, kShownSource), {}, source.place(at)), quoted, out);
  } else if (next == '{') {
    expand_parameter({&source, at + 2, end - 1}, quoted, out);
  } else if (next == '\'' && !quoted) {
    const std::string inside = source.text.substr(at + 2, end - at - 3);
    const bool plain = inside.find('\\') == std::string::npos;
    out.add({plain ? inside : one_line(whole, kShownSource), source.place(at), plain, true});
  } else if (end > at + 1) {
    const std::string name = source.text.substr(at + 1, end - at - 1);
    bool counted = true;
    if (name != "@" && name != "*") {
      put(read_name(name, source.place(at)).text, quoted, out);
    } else {
      const ShellWords list = all_of(name, source.place(at), counted);
      put_list(list, counted, name == "*", quoted, out);
    }
  } else if (next != '"' || quoted) {
    out.add({"$", source.place(at), true, quoted});
  }
  return end;
}

/// Adds what an expansion came to: in quotes as it is, otherwise cut into words at its blanks.
void ShellMachine::put(const ShellText& text, bool quoted, ShellFields& out) {
  count_step(here_, text.size() / 4 + 8 * text.pieces.size());
  if (quoted) out.started = true;
  const bool splits = !quoted && out.splits;
  const bool usual = !now_.lost && !now_.variables.contains("IFS");
  for (ShellPiece piece : text.pieces) {
    piece.quoted = quoted;
    if (splits && !usual) piece.known = false;
    if (!splits || !piece.known) {
      const bool whole =
          splits && piece.choice && piece.choice->yes.size() == 1 && piece.choice->no.size() == 1;
      const bool before = whole && is_cut_before(piece), behind = whole && is_cut_behind(piece);
      if (before) out.end_word();
      out.add(std::move(piece));
      if (behind) out.end_word();
      continue;
    }
    ShellPlace place = piece.place;
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t end = std::min(piece.text.find_first_of(kBlanks, at), piece.text.size());
      if (end > at) out.add({piece.text.substr(at, end - at), place});
      place.column += static_cast<int>(end - at);
      for (at = end; at < piece.text.size() && kBlanks.find(piece.text[at]) < 3; ++at) {
        out.end_word();
        place.line += piece.text[at] == '\n' ? 1 : 0;
        place.column = piece.text[at] == '\n' ? 1 : place.column + 1;
      }
    }
  }
}

void ShellMachine::put_list(const ShellWords& list, bool counted, bool one_word, bool quoted,
                            ShellFields& out) {
  const bool joins = (one_word && quoted) || !out.splits;
  out.only_list = out.only_list || !one_word;
  const bool usual = !now_.lost && !now_.variables.contains("IFS");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0 && joins) out.add({" ", {}, usual || !one_word, quoted});
    if (i > 0 && !joins) out.end_word();
    if (counted || joins || !quoted || list[i].known()) {
      put(list[i], quoted, out);
      continue;
    }
    out.started = true;  // it may be several words, or none
    for (const ShellPiece& piece : list[i].pieces) out.add(piece);
  }
  if (one_word && quoted) out.started = true;
}

// ---- ${...}

/// What stands in ${...}: a name, an index, and from `operation` on what is done with the value.
struct ShellMachine::Parameter {
  std::string name, shown;
  ShellWord index{};
  bool counts = false, all = false, one_word = false, counted = true;
  std::size_t operation = 0;
  ShellWords list{};
  Value value{};
};

ShellMachine::Parameter ShellMachine::parameter_in(const ShellWord& inside) {
  const std::string text = inside.text();
  Parameter out;
  out.shown = "${" + one_line(inside, kShownSource) + "}";
  out.counts =
      text.size() > 1 && text[0] == '#' && (is_name(text[1]) || text[1] == '@' || text[1] == '*');
  const std::size_t begin = out.counts ? 1 : 0;
  out.operation = begin + length_of_name(std::string_view(text).substr(begin));
  out.name = text.substr(begin, out.operation - begin);
  out.all = out.name == "@" || out.name == "*";
  out.one_word = out.name == "*";
  const ShellError error{inside.place(), "'" + out.shown + "' is no expansion of bash"};
  if (out.name.empty()) throw error;
  if (out.operation < text.size() && text[out.operation] == '[') {
    const std::size_t close = end_of_index(text, out.operation);
    if (close == out.operation) throw error;
    const std::string index = text.substr(out.operation + 1, close - out.operation - 1);
    out.all = index == "@" || index == "*";
    out.one_word = index == "*";
    if (!out.all)
      out.index = {inside.source, inside.begin + out.operation + 1, inside.begin + close};
    out.operation = close + 1;
  }
  if (out.index.source != nullptr) {
    out.value = read_item(out.name, out.index, out.shown);
  } else if (!out.all) {
    out.value = read_name(out.name, inside.place());
  } else {
    out.list = all_of(out.name, inside.place(), out.counted);
    const bool some_known = std::ranges::any_of(out.list, &ShellText::known);
    const bool nothing = out.list.empty() || (!now_.variables.contains(out.name) &&
                                              out.list.size() == 1 && out.list[0].absent());
    out.value.set = nothing ? Truth::no : out.counted || some_known ? Truth::yes : Truth::unknown;
  }
  return out;
}

void ShellMachine::expand_parameter(const ShellWord& inside, bool quoted, ShellFields& out) {
  const std::string text = inside.text();
  const bool document = std::exchange(out.document, false);
  const auto not_known = [&](const std::string& shown, ShellNames names) {
    const ShellText piece = untold(inside, shown, std::move(names));
    const bool several = text.find('@') != text.npos;
    put_list({piece}, !several, !several, quoted, out);
    out.document = document;
  };
  if ((text.size() > 1 && text[0] == '!') || (document && text.find('"') != text.npos)) {
    if (text.find('=') != text.npos) lose_all();
    const std::string name = text.substr(1, length_of_name(std::string_view(text).substr(1)));
    return not_known("${" + one_line(inside, kShownSource) + "}", {name});
  }
  const Parameter of = parameter_in(inside);
  const ShellText& value = of.value.text;
  const char sign = of.operation < text.size() ? text[of.operation] : '\0';
  const char next = of.operation + 1 < text.size() ? text[of.operation + 1] : '\0';
  const bool colon = sign == ':' && next != '\0' && std::string_view("-=?+").find(next) < 4;
  if (of.counts) {
    const bool told = of.all ? of.counted : value.known() && is_plain_ascii(value.shown());
    if (!told || sign != '\0')
      return not_known(of.shown, of.all ? ShellNames{of.name} : value.names());
    const std::size_t count = of.all ? of.list.size() : value.shown().size();
    put(known_text(std::to_string(count), inside.place()), quoted, out);
  } else if (colon || (sign != '\0' && std::string_view("-=?+").find(sign) < 4)) {
    expand_default(of, inside, quoted, out);
  } else if (of.all && sign == '\0') {
    put_list(of.list, of.counted, of.one_word, quoted, out);
  } else if (of.all) {
    const bool arguments = of.name == "@" || of.name == "*";
    const ShellWord range{inside.source, inside.begin + of.operation + 1, inside.end};
    const auto size = static_cast<std::int64_t>(of.list.size() + (arguments ? 1 : 0));
    std::int64_t first = 0, count = 0;
    if (sign != ':' || !of.counted || !range_of(range, size, first, count) ||
        (arguments && --first < 0))
      return not_known(of.shown, {of.name});
    const std::int64_t all = std::ssize(of.list);
    const auto begin = of.list.begin() + std::min(first, all);
    const auto end = begin + std::min<std::int64_t>(count, of.list.end() - begin);
    put_list({begin, end}, true, of.one_word, quoted, out);
  } else {
    put(sign == '\0' ? value : transformed(value, inside, of.operation, quoted), quoted, out);
  }
  out.document = document;
}

/// Expands ${A-b}, ${A:=b} and the like.
void ShellMachine::expand_default(const Parameter& of, const ShellWord& inside, bool quoted,
                                  ShellFields& out) {
  const std::string text = inside.text();
  const bool colon = text[of.operation] == ':';
  const char what = text[of.operation + (colon ? 1 : 0)];
  const ShellWord word{inside.source, inside.begin + of.operation + (colon ? 2 : 1), inside.end};
  const ShellText& value = of.value.text;
  Truth given = of.value.set;
  if (colon && of.all && given != Truth::no) {
    const auto is_some = [](const ShellText& one) { return one.known() && !one.empty(); };
    given = std::ranges::any_of(of.list, is_some)       ? Truth::yes
            : of.list.size() == 1 && of.list[0].empty() ? Truth::no
                                                        : Truth::unknown;
  } else if (colon && value.absent()) {
    given = Truth::no;
  } else if (colon && given != Truth::no) {
    const bool some = std::ranges::any_of(value.pieces, &ShellPiece::known);
    given = some ? Truth::yes : value.empty() ? Truth::no : Truth::unknown;
  }
  const bool assigns = what == '=' && given != Truth::yes;
  const std::string said = word.text();
  const bool odd = quoted && (said.find("[@]") != said.npos || said.find("$@") != said.npos ||
                              said.find('\'') != said.npos || said.find("{@") != said.npos);
  if (given == Truth::unknown || odd || (assigns && !is_variable_name(of.name)) ||
      (assigns && (of.all || of.index.source != nullptr))) {
    if (assigns) lose(of.name);
    const ShellText piece = untold(inside, of.shown, value.names());
    const bool one = !odd && (!of.all || (of.one_word && quoted));
    return put_list({piece}, one, one, quoted, out);
  }
  if (what == '+' ? given == Truth::no : given == Truth::yes) {
    out.only_list = out.only_list || (of.all && !of.one_word);
    if (what == '+') return;
    return of.all ? put_list(of.list, of.counted, of.one_word, quoted, out)
                  : put(value, quoted, out);
  }
  if (what == '?') return put(unknown_text("$" + of.name, {of.name}, inside.place()), quoted, out);
  if (what == '=') {
    const ShellText made = expand_one(word, quoted);
    if (may_assign(of.name, false, inside.place())) assign_text(of.name, made, false);
    return put(made.unquoted(), quoted, out);
  }
  out.only_list = out.only_list || (of.all && !of.one_word);
  const bool before = std::exchange(out.cuts, true);
  expand(word, quoted, out);
  out.cuts = before;
}

/// Returns one text with what stands at `operation` in ${...} done to it.
ShellText ShellMachine::transformed(const ShellText& text, const ShellWord& inside,
                                    std::size_t operation, bool quoted) {
  constexpr std::size_t kLongestValue = 256;
  const std::string all = inside.text(), what = all.substr(operation);
  const std::string shown = "${" + one_line(inside, kShownSource) + "}";
  if (text.pieces.size() == 2 && text.pieces[0].folder && text.pieces[1].known) {
    const std::string& way = text.pieces[1].text;
    if (what == "%/*" && way.rfind('/') == 0) return {{text.pieces[0]}};
    if (what == "##*/") return known_text(way.substr(way.rfind('/') + 1), inside.place());
  }
  const std::string value = text.known() ? text.shown() : "";
  const bool plain = text.known() && is_plain_ascii(value) && value.size() <= kLongestValue &&
                     (!quoted || all.find_first_of("'\"") == std::string::npos);
  const bool twice = what.size() > 1 && what[1] == what[0];
  const ShellWord behind{inside.source, inside.begin + operation + 1, inside.end};
  const ShellWord word{inside.source, behind.begin + (twice ? 1 : 0), inside.end};
  std::optional<std::string> out;
  switch (plain ? what[0] : '\0') {
    case '#':
    case '%': out = cut(value, word, what[0] == '%', twice); break;
    case '/': out = replaced(value, inside, behind.begin); break;
    case ':': out = part_of(value, behind); break;
    case '^':
    case ',':
      if (word.begin == word.end) out = in_case(value, what[0] == '^', twice);
      break;
    default: break;
  }
  if (out) return known_text(*out, inside.place());
  if (std::string_view("#%/:^,@~").find(what[0]) == std::string_view::npos)
    throw ShellError{inside.place(), "'" + shown + "' is no expansion of bash"};
  ShellNames names = text.names();
  if (!text.absent()) add_names(names, expand_one(word).names());
  ShellText unknown = untold(inside, shown, names);
  unknown.pieces[0].absent = text.absent();
  return unknown;
}

std::optional<std::string> ShellMachine::cut(const std::string& text, const ShellWord& word,
                                             bool suffix, bool longest) {
  const ShellText pattern = expand_one(word);
  const std::string signs = pattern_of(pattern);
  if (!pattern.known() || signs.size() > 64) return {};
  count_step(here_, text.size() * text.size());
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const std::size_t length = longest ? text.size() - i : i;
    const std::size_t begin = suffix ? text.size() - length : 0;
    const auto matches = matches_pattern(std::string_view(text).substr(begin, length), signs);
    if (!matches) return {};
    if (*matches) return suffix ? text.substr(0, begin) : text.substr(length);
  }
  return text;
}

/// Replaces a plain text, at its first place or, with `//`, everywhere.
std::optional<std::string> ShellMachine::replaced(const std::string& text, const ShellWord& inside,
                                                  std::size_t begin) {
  const ShellSource& source = *inside.source;
  const bool all = begin < inside.end && source.text[begin] == '/';
  begin += all ? 1 : 0;
  std::size_t slash = begin;
  while (slash < inside.end && source.text[slash] != '/') {
    if (source.text[slash] == '$' || source.text[slash] == '`') return {};
    const bool quote = source.text[slash] == '"' || source.text[slash] == '\'';
    slash = quote ? end_of_quotes(source, slash) : slash + (source.text[slash] == '\\' ? 2 : 1);
  }
  if (begin < inside.end && std::string_view("#%/").find(source.text[begin]) < 3) return {};
  const ShellText pattern = expand_one({&source, begin, std::min(slash, inside.end)});
  const ShellText by = expand_one({&source, std::min(slash + 1, inside.end), inside.end});
  const std::string from = pattern.shown(), to = by.shown();
  if (!pattern.known() || !by.known() || to.find_first_of("&\\") != to.npos ||
      from.find_first_of("*?[(\\") != from.npos)
    return {};
  std::string out;
  std::size_t at = 0;
  for (std::size_t found = from.empty() ? text.npos : text.find(from); found != text.npos;
       found = all ? text.find(from, at) : text.npos) {
    out += text.substr(at, found - at) + to;
    at = found + from.size();
  }
  return out + text.substr(at);
}

/// Reads `first` or `first:count`, counted from the end where it is negative.
bool ShellMachine::range_of(const ShellWord& range, std::int64_t size, std::int64_t& first,
                            std::int64_t& count) {
  const ShellSource& source = *range.source;
  std::size_t colon = range.begin;
  while (colon < range.end && source.text[colon] != ':') {
    if (source.text[colon] == '?') return false;
    colon = source.text[colon] == '$' ? end_of_dollar(source, colon, false) : colon + 1;
  }
  const ShellNumber from = arithmetic({&source, range.begin, std::min(colon, range.end)});
  const ShellNumber number = colon < range.end ? arithmetic({&source, colon + 1, range.end})
                                               : ShellNumber{std::numeric_limits<int>::max(), {}};
  if (!from.value || !number.value || *number.value < 0) return false;
  first = *from.value < 0 ? *from.value + size : *from.value;
  count = *number.value;
  return first >= 0;
}

std::optional<std::string> ShellMachine::part_of(const std::string& text, const ShellWord& range) {
  const auto size = static_cast<std::int64_t>(text.size());
  std::int64_t first = 0, count = 0;
  if (!range_of(range, size, first, count)) return {};
  if (first > size) return "";
  return text.substr(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

// ---- $((...)) and $(...)

ShellNumber ShellMachine::arithmetic(const ShellWord& word) {
  return arithmetic_of(expand_one(word, true));
}

/// Evaluates expressions with commas between them. Returns the last one's value.
ShellNumber ShellMachine::arithmetic_of(const ShellText& text) {
  std::string all;
  for (const ShellPiece& piece : text.pieces) all += piece.known ? piece.text : "0";
  count_step(here_, all.size());
  ShellNumber out{0, {}};
  std::size_t begin = 0;
  int open = 0;
  for (std::size_t i = 0; i <= all.size(); ++i) {
    const char c = i < all.size() ? all[i] : ',';
    open += c == '(' || c == '?' ? 1 : c == ')' || c == ':' ? -1 : 0;
    if (i < all.size() && (c != ',' || open > 0)) continue;
    out = statement(std::string_view(all).substr(begin, i - begin), text);
    begin = i + 1;
  }
  return out;
}

/// Evaluates `A = expression`, `A += expression`, `A++` or an expression that assigns nothing.
ShellNumber ShellMachine::statement(std::string_view part, const ShellText& of) {
  constexpr std::string_view kBlank = " \t\n";
  part.remove_prefix(std::min(part.find_first_not_of(kBlank), part.size()));
  part = part.substr(0, part.find_last_not_of(kBlank) + 1);
  const bool first = part.starts_with("++") || part.starts_with("--");
  std::string_view rest = part.substr(first ? 2 : 0);
  const auto name_end =
      static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_name) - rest.begin());
  const std::string name(rest.substr(0, name_end));
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlank, name_end), rest.size()));
  const std::size_t sign = rest.empty() || rest[0] == '=' ? 0 : 1;
  const bool assigns = is_variable_name(name) && rest.substr(sign).starts_with('=') &&
                       !rest.substr(sign).starts_with("==") &&
                       (sign == 0 || std::string_view("+-*/%").find(rest[0]) < 5);
  const bool counts =
      is_variable_name(name) && (first ? rest.empty() : rest == "++" || rest == "--");
  std::string expression(part);
  if (assigns) expression = rest.substr(sign + 1);
  if (assigns && sign == 1) expression = name + rest[0] + "(" + expression + ")";
  if (counts) expression = name + part[first ? 0 : part.size() - 1] + "1";
  if (assigns_in_arithmetic(expression)) {
    lose_names_in(part);
    return {};
  }
  ShellNumber number = evaluated(expression, of);
  if (!assigns && !counts) return number;
  const ShellNumber before = counts && !first ? evaluated(name, of) : number;
  if (may_assign(name, assigns && sign == 1, here_))
    assign_text(name,
                number.value ? known_text(std::to_string(*number.value), here_)
                             : unknown_text("$" + name, number.names),
                false);
  return before;
}

/// Returns the value of an expression that assigns nothing, and is of a text.
ShellNumber ShellMachine::evaluated(const std::string& expression, const ShellText& of) {
  ShellNumber out;
  bool assigns = false;
  const auto read = [&](const std::string& name) {
    ShellText value = read_name(name, here_).text;
    assigns = assigns || (value.known() && assigns_in_arithmetic(value.shown()));
    add_names(out.names, value.names());
    return value;
  };
  const ShellNumber number = arithmetic_value(expression, read);
  if (assigns) lose_all();
  if (of.known() && number.value) return number;
  add_names(out.names, of.names());
  return out;
}

/// Returns what commands print, of those whose output can be told.
ShellText ShellMachine::captured(const ShellWord& commands) {
  const std::string shown = "$(" + one_line(commands, kShownSource) + ")";
  if (commands.begin < commands.end && commands.source->text[commands.begin] == '<')
    return unknown_text(shown, {}, commands.place());
  count_step(commands.place(), commands.end - commands.begin);
  const ShellTree tree = read_shell(commands);
  Output output;
  Output* const before = std::exchange(output_, &output);
  run_apart([&] {
    now_.stops_on_failure = false;
    run(*tree);
  });
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

}  // namespace penstock
