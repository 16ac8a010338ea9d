// SPDX-License-Identifier: Apache-2.0
// How many cases of one kind tests go through: all of them in `./check --all` (PENSTOCK_THOROUGH),
// fewer when a person waits (it is not set, or empty), and under a sanitizer, where each takes many
// times as long.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace penstock {

// tests/meson.build says so: not all compilers do, nor where only what is tested has the sanitizer.
#ifdef PENSTOCK_ADDRESS_SANITIZED
inline constexpr bool kAddressSanitized = true;
#else
inline constexpr bool kAddressSanitized = false;
#endif
#ifdef PENSTOCK_THREAD_SANITIZED
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
inline constexpr bool kSanitized = kAddressSanitized || kThreadSanitized;

/// Whether a sanitizer leaves out the case with this number of a kind that executes: threads wait
/// for each other there, which takes most of its time. The thread sanitizer takes one in `every`,
/// and the address sanitizer, which sees the same code, a fourth of them.
inline bool is_left_out(std::size_t number, std::size_t every = 2) {
  if (kThreadSanitized) return number % every != every - 1;
  return kAddressSanitized && number % (4 * every) != 0;
}

inline bool is_thorough() {
  const char* set = std::getenv("PENSTOCK_THOROUGH");
  return set != nullptr && *set != '\0' && !kSanitized;
}
inline const bool kBrief = !is_thorough();

/// Of cases of a kind that differ only in their numbers.
inline int fewer(int cases) { return kBrief ? (cases + 9) / 10 : cases; }

}  // namespace penstock
