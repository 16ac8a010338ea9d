// SPDX-License-Identifier: Apache-2.0
// What else of C++20 the standard library of Debian's emscripten does not have yet.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace std {

template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

template <class T>
unique_ptr<T> make_unique_for_overwrite(size_t count) {
  return unique_ptr<T>(new remove_extent_t<T>[count]);
}

}  // namespace std
