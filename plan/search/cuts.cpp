// SPDX-License-Identifier: Apache-2.0
#include "plan/search/cuts.hpp"

namespace penstock {

std::size_t count_cuts(int layers, int stages, std::size_t most) {
  double count = 1;  // layers - 1 over stages - 1
  for (int i = 1; i < stages; ++i) {
    count = count * (layers - i) / i;
    if (count > static_cast<double>(most) * 1e6) return most + 1;
  }
  return count > static_cast<double>(most) ? most + 1 : static_cast<std::size_t>(count + 0.5);
}

void for_each_cut(int layers, int stages,
                  const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> cut;
  const std::function<void(int)> extend = [&](int rest) {
    const int behind = stages - static_cast<int>(cut.size()) - 1;
    if (behind == 0) {
      cut.push_back(rest);
      visit(cut);
      cut.pop_back();
      return;
    }
    for (int n = 1; n <= rest - behind; ++n) {
      cut.push_back(n);
      extend(rest - n);
      cut.pop_back();
    }
  };
  extend(layers);
}

}  // namespace penstock
