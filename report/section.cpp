// SPDX-License-Identifier: Apache-2.0
#include "report/section.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {

static_assert(std::endian::native == std::endian::little, "pages read little-endian numbers");

Json section_json(std::string_view kind, const SectionText& text) {
  return {{"kind", kind}, {"heading", text.heading}, {"note", text.note}, {"sub", text.sub}};
}

std::string to_text(const Json& section) { return section.dump(); }

Json number_json(double value) {
  if (!std::isfinite(value)) return nullptr;
  // Whole numbers without ".0", as columns of ten thousand of them are common.
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
  return value;
}

std::string base64(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t there = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < there ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= there ? kDigits[group >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

std::uint32_t Ticks::tick_of(double value) const {
  return static_cast<std::uint32_t>(std::clamp(std::round(value / step_), 0.0, kMost));
}

}  // namespace penstock
