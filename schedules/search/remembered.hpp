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
    constexpr std::size_t kMost = 8;
    const auto known = std::ranges::find(orders_, problem, &Remembered::first);
    if (known != orders_.end()) return known->second;
    orders_.emplace_front(problem, search(problem).word);
    if (orders_.size() > kMost) orders_.pop_back();
    return orders_.front().second;
  }

 private:
  using Remembered = std::pair<OrderProblem, std::vector<Pass>>;
  std::deque<Remembered> orders_;  // the latest first
};

}  // namespace penstock
