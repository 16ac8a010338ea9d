// SPDX-License-Identifier: Apache-2.0
// Reads axes as people write them: `stages=2,4,8`, `microbatch_size=1:32:*2`,
// `model.forward=1ms:9ms:+1ms`, `split=[1,2],[2,1]`, several of them zipped.
//
// A range a:b counts up by one, by `+STEP` or by `*FACTOR`; its end belongs to it when it is hit.
// Ranges are exact in decimal and keep their unit.
#pragma once

#include "sweep/points.hpp"

namespace penstock {

/// Returns the axis of one `--over KEY=VALUES`, its key as a full path. Throws InputError.
SweepAxis parse_axis(const std::string& text);

/// Returns the axes of a sweep; those that a `--zip KEY,KEY...` names are one axis. Throws
/// InputError with everything that is wrong, such as keys given twice (also by `changes`) and
/// zipped axes of unequal lengths.
std::vector<SweepAxis> parse_axes(const std::vector<std::string>& over,
                                  const std::vector<std::string>& zips,
                                  const std::vector<Override>& changes);

/// Returns the parts of a text between the commas that are outside of brackets, braces and quotes.
/// Throws InputError that names `origin`.
std::vector<std::string> split_values(const std::string& text, const std::string& origin);

}  // namespace penstock
