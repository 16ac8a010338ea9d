// SPDX-License-Identifier: Apache-2.0
// Axes as people give them: `stages=2,4,8`, `microbatch_size=1:32:*2`,
// `model.forward=1ms:9ms:+1ms`, `split=[1,2],[2,1]`, several of them zipped.
//
// A range a:b counts up by one, by `+STEP` or by `*FACTOR`; its end belongs to it when it is hit.
// Ranges are exact in decimal and keep their unit.
#pragma once

#include "sweep/points.hpp"

namespace penstock {

/// Of one `--over KEY=VALUES`; the key by its full path. Throws InputError.
SweepAxis parse_axis(const std::string& text);

/// The axes of a sweep, those that a `--zip KEY,KEY...` names made one. Throws InputError with
/// everything that is wrong: keys given twice (also by `changes`), unequal lengths.
std::vector<SweepAxis> parse_axes(const std::vector<std::string>& over,
                                  const std::vector<std::string>& zips,
                                  const std::vector<Override>& changes);

/// Text cut at the commas outside of brackets, braces and quotes. Throws InputError about `origin`.
std::vector<std::string> split_values(const std::string& text, const std::string& origin);

}  // namespace penstock
