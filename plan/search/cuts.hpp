// SPDX-License-Identifier: Apache-2.0
// Enumerates all ways to cut layers into stages of at least one layer.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace penstock {

/// Returns the number of ways to cut so many layers into stages, but at most `most` + 1.
std::size_t count_cuts(int layers, int stages, std::size_t most);

/// Calls `visit` with every cut, in lexical order.
void for_each_cut(int layers, int stages,
                  const std::function<void(const std::vector<int>&)>& visit);

}  // namespace penstock
