// How many cases of one kind tests go through: all of them in `./check --all` (PENSTOCK_THOROUGH),
// fewer when a person waits, and under a sanitizer, where each takes many times as long.
#pragma once

#include <cstdlib>

namespace penstock {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline const bool kBrief = kSanitized || std::getenv("PENSTOCK_THOROUGH") == nullptr;

/// Of cases of a kind that differ only in their numbers.
inline int fewer(int cases) { return kBrief ? (cases + 9) / 10 : cases; }

}  // namespace penstock
