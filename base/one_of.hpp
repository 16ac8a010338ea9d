// SPDX-License-Identifier: Apache-2.0
// A variant that can be copied when there is no memory left. That of GCC's library (12) believes
// that one whose alternatives are texts and lists always holds a value; so where a copy of one
// cannot be made, it destroys what was not made.
#pragma once

#include <utility>
#include <variant>

namespace penstock {

template <class First, class... Rest>
struct OneOf : std::variant<First, Rest...> {
  using Base = std::variant<First, Rest...>;
  using Base::Base;
  using Base::operator=;
  OneOf() = default;
  /// The copy is made outside, and moved in.
  OneOf(const OneOf& other) : Base() {
    std::visit([this](auto held) { this->template emplace<decltype(held)>(std::move(held)); },
               static_cast<const Base&>(other));
  }
  OneOf(OneOf&& other) noexcept = default;
  OneOf& operator=(const OneOf& other) { return *this = OneOf(other); }
  OneOf& operator=(OneOf&& other) noexcept = default;
  ~OneOf() = default;
};

}  // namespace penstock
