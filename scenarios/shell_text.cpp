// SPDX-License-Identifier: Apache-2.0
#include "scenarios/shell_text.hpp"

#include "scenarios/shell_values.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::size_t kLongestText = 32'768;
constexpr std::size_t kMostPieces = 1'024;
constexpr std::size_t kLargePiece = 4'096;
constexpr std::size_t kMostNames = 100;
constexpr std::size_t kFarthest = 256;  // from a place that is known, in a long line
constexpr std::size_t kHeaviestChoice = 200;

bool same_piece(const ShellPiece& a, const ShellPiece& b) {
  return a.text == b.text && a.known == b.known && a.choice == b.choice && a.names == b.names;
}

bool begins_a_word(const std::vector<ShellPiece>& pieces, std::size_t at) {
  return at == pieces.size() || (pieces[at].known && is_blank(pieces[at].text.front()));
}

bool ends_a_word(const std::vector<ShellPiece>& pieces, std::size_t at) {
  return at == 0 || (pieces[at - 1].known && is_blank(pieces[at - 1].text.back()));
}

ShellText from_piece(const ShellText& text, std::size_t first) {
  return {{text.pieces.begin() + static_cast<std::ptrdiff_t>(first), text.pieces.end()}};
}

}  // namespace

ShellPlace ShellSource::place(std::size_t at) const {
  const auto behind =
      std::ranges::upper_bound(origins, at, {}, [](const auto& o) { return o.first; });
  const auto& [begin, origin] = *std::prev(behind);
  ShellPlace place = origin;
  for (std::size_t i = begin; i < std::min({at, text.size(), begin + 2 * kFarthest}); ++i) {
    const bool line = text[i] == '\n';
    place.line += line ? 1 : 0;
    place.column = line ? 1 : place.column + 1;
  }
  return place;
}

ShellSource shell_source(std::string text, int file) {
  ShellSource source{std::move(text), {{0, {file, 1, 1}}}};
  for (std::size_t i = 0; i < source.text.size(); ++i) {
    const auto [begin, origin] = source.origins.back();
    if (source.text[i] == '\n')
      source.origins.emplace_back(i + 1, ShellPlace{file, origin.line + 1, 1});
    else if (i + 1 - begin == kFarthest)
      source.origins.emplace_back(
          i + 1, ShellPlace{file, origin.line, origin.column + static_cast<int>(kFarthest)});
  }
  return source;
}

void add_names(ShellNames& to, const ShellNames& names) {
  for (const std::string& name : names)
    if (to.size() < kMostNames && std::ranges::find(to, name) == to.end()) to.push_back(name);
}

bool ShellText::known() const {
  return std::ranges::all_of(pieces, [](const ShellPiece& p) { return p.known; });
}

bool ShellText::absent() const {
  return !empty() && std::ranges::all_of(pieces, [](const ShellPiece& p) { return p.absent; });
}

std::string ShellText::shown() const {
  std::string out;
  for (const ShellPiece& piece : pieces) out += piece.text;
  return out;
}

ShellNames ShellText::names() const {
  ShellNames out;
  for (const ShellPiece& piece : pieces) add_names(out, piece.names);
  return out;
}

ShellText ShellText::unquoted() const {
  ShellText out = *this;
  for (ShellPiece& piece : out.pieces) piece.quoted = false;
  return out;
}

std::size_t ShellText::size() const {
  std::size_t size = 0;
  for (const ShellPiece& piece : pieces) size += piece.text.size();
  return size;
}

void ShellText::add(ShellPiece piece) {
  if (piece.known && piece.text.empty()) return;
  const bool counts = piece.text.size() > kLargePiece || pieces.size() % 64 == 63;
  if (pieces.size() > kMostPieces || (counts && size() > kLongestText)) {
    if (pieces.back().text != "$TOO_LONG") pieces.push_back({"$TOO_LONG", piece.place, false});
    return;
  }
  pieces.push_back(std::move(piece));
}

void ShellText::add(const ShellText& text) {
  for (const ShellPiece& piece : text.pieces) add(piece);
}

ShellText known_text(std::string text, ShellPlace place) {
  ShellText out;
  out.add({std::move(text), place});
  return out;
}

ShellText unknown_text(std::string shown, ShellNames names, ShellPlace place) {
  ShellPiece piece{std::move(shown), place, false};
  piece.names = std::move(names);
  return {{std::move(piece)}};
}

bool same_text(const ShellText& a, const ShellText& b) {
  if (std::ranges::equal(a.pieces, b.pieces, same_piece)) return true;
  return a.known() && b.known() && a.shown() == b.shown();
}

ShellPiece chosen_piece(ShellChoice choice, ShellPiece piece) {
  choice.weight = 1;
  for (const auto* way : {&choice.yes, &choice.no})
    for (const ShellText& text : *way)
      for (const ShellPiece& one : text.pieces)
        if (one.choice) choice.weight += one.choice->weight;
  piece.known = false;
  if (choice.weight <= kHeaviestChoice)
    piece.choice = std::make_shared<const ShellChoice>(std::move(choice));
  return piece;
}

bool is_cut_before(const ShellPiece& piece) {
  return piece.choice && begins_a_word(piece.choice->yes[0].pieces, 0) &&
         begins_a_word(piece.choice->no[0].pieces, 0);
}

bool is_cut_behind(const ShellPiece& piece) {
  const auto ends = [](const ShellText& text) {
    return ends_a_word(text.pieces, text.pieces.size());
  };
  return piece.choice && ends(piece.choice->yes[0]) && ends(piece.choice->no[0]);
}

ShellText chosen_text(const ShellText& yes, const ShellText& no, const std::string& condition,
                      const std::string& shown, const ShellNames& names) {
  if (same_text(yes, no)) return yes;
  std::size_t common = 0;
  while (common < std::min(yes.pieces.size(), no.pieces.size()) &&
         same_piece(yes.pieces[common], no.pieces[common]))
    ++common;
  const bool between_words =
      ends_a_word(yes.pieces, common) ||
      (begins_a_word(yes.pieces, common) && begins_a_word(no.pieces, common));
  if (!between_words) common = 0;
  ShellText out{{yes.pieces.begin(), yes.pieces.begin() + static_cast<std::ptrdiff_t>(common)}};
  const ShellText a = from_piece(yes, common), b = from_piece(no, common);
  ShellPiece piece{shown, a.empty() ? b.pieces.front().place : a.pieces.front().place, false};
  piece.names = names;
  out.pieces.push_back(chosen_piece({condition, {a}, {b}}, std::move(piece)));
  return out;
}

}  // namespace penstock
