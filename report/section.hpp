// SPDX-License-Identifier: Apache-2.0
// A section of a report: its heading, a note, and data for one chart, as JSON text.
//
// Text, because sections are made where the data is (a child process, a rank) and put into a page
// somewhere else. Each kind has a header of its own; the page draws it by its `kind`
// (page/*.js), always with a table of the same data.
#pragma once

#include "base/json.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {

/// What every section says of itself. With a constructor: of braces within the braces of a section
/// GCC 12 destroys the texts twice when there is no memory for what comes after them.
struct SectionText {
  SectionText(std::string heading_ = {}, std::string note_ = {}, bool sub_ = false)
      : heading(std::move(heading_)), note(std::move(note_)), sub(sub_) {}

  std::string heading;
  std::string note;  ///< below the heading; may be empty
  bool sub;          ///< part of the section before: a smaller heading, not in the page's list
};

/// An empty section of this kind.
Json section_json(std::string_view kind, const SectionText& text);

/// As text; what is no UTF-8 in it is replaced.
std::string to_text(const Json& section);

/// Numbers that are none (NaN, infinite) are null.
Json number_json(double value);

/// Little-endian 32-bit numbers as base64: a third of the text that digits take.
std::string base64(std::span<const std::uint8_t> bytes);
template <class T>
std::string packed(std::span<const T> values) {
  return base64({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()});
}

/// Values from 0 to `most` in steps of most / (2^32 - 2): four bytes each, exact to 2e-10 of the
/// whole. 2^32 - 1 stands for "none".
class Ticks {
 public:
  explicit Ticks(double most) : step_(most > 0 ? most / kMost : 1) {}
  double step() const { return step_; }
  std::uint32_t tick_of(double value) const;
  static constexpr std::uint32_t none = 0xffffffffU;

 private:
  static constexpr double kMost = 4294967294.0;
  double step_;
};

}  // namespace penstock
