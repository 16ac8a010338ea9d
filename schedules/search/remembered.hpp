// SPDX-License-Identifier: Apache-2.0
// Orders that were searched for lately. A search takes a second, and whatever looks at a plan (a
// simulation, what would help, tables for other programs) asks for its order again.
#pragma once

#include "schedules/search/problem.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace penstock {

class RememberedOrders {
 public:
  /// Valid until the next call. `search`: finds the order of the problem.
  template <typename Search>
  const std::vector<Pass>& word(const OrderProblem& problem, const Search& search) {
    constexpr std::size_t kMost = 8, kMostOps = 4'000'000;  // in all, but for the latest
    const auto known = std::ranges::find(orders_, problem, &Remembered::first);
    if (known != orders_.end()) return known->second;
    orders_.emplace_front(problem, search(problem).word);
    std::size_t ops = 0, kept = 0;
    while (kept < std::min(orders_.size(), kMost) &&
           (ops += orders_[kept].second.size()) <= kMostOps)
      ++kept;
    orders_.resize(std::max<std::size_t>(kept, 1));
    return orders_.front().second;
  }

 private:
  using Remembered = std::pair<OrderProblem, std::vector<Pass>>;
  std::deque<Remembered> orders_;  // the latest first
};

}  // namespace penstock
