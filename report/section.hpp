// SPDX-License-Identifier: Apache-2.0
// A section of a report: its heading, a note, and data for one chart, as JSON text.
//
// It is text because sections are made where the data is (in a child process or a rank) and put
// into a page elsewhere. Each kind of section has a header of its own. The page draws a section by
// its `kind` (page/*.js), and always adds a table of the same data.
#pragma once

#include "base/json.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {

/// The heading of a section. It has a constructor because GCC 12 destroys the texts of nested
/// braces twice when there is no memory for what comes after them.
struct SectionText {
  SectionText(std::string heading_ = {}, std::string note_ = {}, bool sub_ = false)
      : heading(std::move(heading_)), note(std::move(note_)), sub(sub_) {}

  std::string heading;
  std::string note;  ///< the text below the heading; may be empty
  /// whether it belongs to the section before: its heading is smaller and not in the page's list
  bool sub;
};

/// Returns a section of this kind that has its heading and no data.
Json section_json(std::string_view kind, const SectionText& text);

/// Returns the section as text, in which bytes that are not UTF-8 are replaced.
std::string to_text(const Json& section);

/// Returns a number, or null for NaN and infinity, which JSON lacks.
Json number_json(double value);

/// Returns bytes as base64.
std::string base64(std::span<const std::uint8_t> bytes);
/// Returns numbers as base64 of their little-endian bytes, a third of the text that digits take.
template <class T>
std::string packed(std::span<const T> values) {
  return base64({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()});
}

/// Writes values from 0 to `most` as 32-bit multiples of most / (2^32 - 2), which is exact to 2e-10
/// of `most`. The number 2^32 - 1 stands for "none".
class Ticks {
 public:
  explicit Ticks(double most) : step_(most > 0 ? most / kMost : 1) {}
  double step() const { return step_; }
  /// Returns the multiple of step() that is nearest to a value, or `none` for NaN.
  std::uint32_t tick_of(double value) const;
  static constexpr std::uint32_t none = 0xffffffffU;

 private:
  static constexpr double kMost = 4294967294.0;
  double step_;
};

}  // namespace penstock
