// Whether a sanitizer looks on: tests do less of the same then, as they are slower many times over.
#pragma once

namespace penstock {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Of cases of a kind that differ only in their numbers.
constexpr int fewer(int cases) { return kSanitized ? (cases + 9) / 10 : cases; }

}  // namespace penstock
