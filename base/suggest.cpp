// SPDX-License-Identifier: Apache-2.0
#include "base/suggest.hpp"

#include <algorithm>
#include <cctype>

namespace penstock {

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitution = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

namespace {

/// Without what people leave out or put between: "zbv", "ZB_V" and "zb-v" are one.
std::string letters_and_digits(std::string_view text) {
  std::string out = folded(text);
  std::erase_if(out, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return out;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > 64) return "";
  const std::string wanted = folded(word), bare = letters_and_digits(word);
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : known) {
    const std::string have = folded(candidate);
    int distance = edit_distance(wanted, have);
    const bool prefix = wanted.size() >= 3 && have.starts_with(wanted);
    if (prefix) distance = std::min(distance, 1);
    if (!bare.empty() && letters_and_digits(candidate) == bare) distance = 0;
    if (distance >= static_cast<int>(std::max(wanted.size(), have.size()))) continue;
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string guess = nearest(word, known);
  return guess.empty() ? "" : "; did you mean '" + guess + "'?";
}

}  // namespace penstock
