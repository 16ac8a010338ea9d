// SPDX-License-Identifier: Apache-2.0
#include "hw/rank_exchange.hpp"

#include "base/error.hpp"

#include <deque>
#include <map>
#include <thread>
#include <utility>

namespace penstock {

void take_step(Math& math, const StageExchange& own, const CollectiveStep& step, Tensor from) {
  const std::int64_t n = step.end - step.first, bytes = exchanged_bytes(own, math);
  const Tensor to = own.data.at(step.first * bytes);
  if (n == 0) return;
  if (step.kind == CollectiveStep::Kind::take) return math.copy(n * bytes, from, to);
  switch (own.numbers) {
    case StageExchange::Numbers::working: return math.add_tensors(n, to, from, to);
    case StageExchange::Numbers::fp32: return math.accumulate(n, from, to);
    case StageExchange::Numbers::largest: return math.maximum(n, from, to);
  }
}

void RanksInTurn::run(const std::function<void(int place, const Exchange& exchange)>& work) {
  const auto ranks = static_cast<int>(asked_.size());
  if (plan_.division.tensor == 1) {  // nobody exchanges
    for (int place = 0; place < ranks; ++place) work(place, {});
    return;
  }
  std::vector<std::jthread> threads;
  for (int place = 0; place < ranks; ++place) {
    threads.emplace_back([&, place] {
      try {
        wait_for_turn(place);
        work(place, [&, place](const StageExchange& exchange) { ask(place, exchange); });
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failed_) failed_ = std::current_exception();
      }
      end_turn(place);
    });
  }
  threads.clear();
  if (failed_) std::rethrow_exception(failed_);
}

void RanksInTurn::wait_for_turn(int place) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == place || failed_; });
  if (failed_) throw InternalBug("another rank of the stage has failed");
}

void RanksInTurn::end_turn(int place) {
  const std::lock_guard lock(mutex_);
  turn_ = (place + 1) % static_cast<int>(asked_.size());
  changed_.notify_all();
}

/// The last one that comes carries it out for all.
void RanksInTurn::ask(int place, const StageExchange& exchange) {
  asked_[static_cast<std::size_t>(place)] = exchange;
  if (place + 1 == static_cast<int>(asked_.size())) carry_out();
  end_turn(place);
  wait_for_turn(place);
}

void RanksInTurn::carry_out() {
  Math& math = device_.math();
  std::map<std::pair<int, int>, std::deque<Block*>> sent;  // from, to
  const StageExchange& first = asked_.front();
  for (const StageExchange& one : asked_)
    invariant(one.what == first.what && one.elements == first.elements,
              "ranks of a stage exchange different things");
  const std::int64_t bytes = exchanged_bytes(first, math);
  std::vector<CollectiveStep> steps;
  for (std::size_t place = 0; place < asked_.size(); place += std::size_t(plan_.division.tensor)) {
    const int rank = rank_at(plan_, number_, static_cast<int>(place));
    const auto more = exchange_steps(plan_, rank, first.what, first.elements);
    steps.insert(steps.end(), more.begin(), more.end());
  }
  for (const CollectiveStep& step : steps) {
    const int place = place_of_rank(plan_, step.gpu).place;
    const StageExchange& own = asked_[static_cast<std::size_t>(place)];
    const std::int64_t n = (step.end - step.first) * bytes;
    if (step.kind == CollectiveStep::Kind::send) {
      Block* block = device_.allocate(kComputeQueue, n);
      if (n > 0) math.copy(n, own.data.at(step.first * bytes), {block});
      sent[{step.gpu, step.peer}].push_back(block);
      continue;
    }
    auto& wire = sent.at({step.peer, step.gpu});
    take_step(math, own, step, {wire.front()});
    device_.release(kComputeQueue, wire.front());
    wire.pop_front();
  }
}

}  // namespace penstock
