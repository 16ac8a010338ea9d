// SPDX-License-Identifier: Apache-2.0
// What the ranks that share a stage exchange inside of its ops, by the steps of a ring: between
// executors as messages, in the sequential run one step after the other.
#pragma once

#include "hw/math.hpp"
#include "hw/run_plan.hpp"
#include "hw/stage.hpp"

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace penstock {

/// Bytes of an element of what is exchanged.
inline int exchanged_bytes(const StageExchange& e, const Math& math) {
  return e.numbers == StageExchange::Numbers::working ? math.element_bytes() : 4;
}
/// Issues what a rank does with what has come for a step: it is added to its own, or replaces it.
void take_step(Math& math, const StageExchange& own, const CollectiveStep& step, Tensor from);

/// Runs the ranks of a stage on one device, each from exchange to exchange in its turn. Issues no
/// work from two threads at once.
class RanksInTurn {
 public:
  using Exchange = std::function<void(const StageExchange&)>;
  /// `device_number`: the device of the plan whose ranks they are.
  RanksInTurn(const RunPlan& plan, Device& device, int device_number)
      : plan_(plan),
        device_(device),
        number_(device_number),
        asked_(static_cast<std::size_t>(ranks_of_device(plan, device_number))) {}

  /// Calls `work(place, exchange)` for each rank. Throws what one of them throws.
  void run(const std::function<void(int place, const Exchange& exchange)>& work);

 private:
  void wait_for_turn(int place);
  void end_turn(int place);
  void ask(int place, const StageExchange& exchange);
  void carry_out();

  const RunPlan& plan_;
  Device& device_;
  int number_;
  std::vector<StageExchange> asked_;  // by place
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  std::exception_ptr failed_;
};

}  // namespace penstock
