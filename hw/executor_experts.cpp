// SPDX-License-Identifier: Apache-2.0
// What ranks that have other experts of a layer exchange inside of ops: rows of tokens, as many as
// their routers chose. Where ops are paced on a wall clock, each layer computes for its part of the
// op's stated time before and between its exchanges, and these take what the links take.
#include "hw/executor_state.hpp"
#include "hw/math.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock {

/// Issues this rank's part of an exchange with those that have other experts: receives are posted,
/// then rows leave for the ranks behind it, in turn.
void DeviceExecutor::exchange_rows(std::uint32_t g, const RowExchange& e) {
  pace_exchange(e);
  constexpr auto kKind = Transfer::Kind::reduction;
  Math& math = device_.math();
  const std::vector<int> group = expert_group(in_.plan, rank_);
  const auto own = static_cast<std::size_t>(std::ranges::find(group, rank_) - group.begin());
  std::vector<std::int64_t> from{0}, to{0};  // bytes before each rank's rows
  for (const std::int64_t rows : e.sent) from.push_back(from.back() + rows * e.row_bytes);
  for (const std::int64_t rows : e.received) to.push_back(to.back() + rows * e.row_bytes);
  ExchangeRecord happened{
      e.name, Collective::all_to_all, from.back(), device_.record(kComputeQueue), {}};
  const std::size_t n = group.size();
  std::vector<std::pair<Block*, Event>> coming(n);
  for (std::size_t i = 1; i < n; ++i) {
    const std::size_t peer = (own + n - i) % n;
    const std::int64_t bytes = to[peer + 1] - to[peer];
    if (bytes == 0) continue;
    ReceivingEnd& end = in_.backend.receiving(channel_between(group[peer], rank_, true, kKind));
    Op op = ops_[g];
    const int device = place_of_rank(in_.plan, group[peer]).device;
    const Placement& placement = in_.plan.program.placement;
    op.microbatch += placement.replica_of(device) - placement.replica_of(number_);
    Block* block = device_.allocate(end.queue(), bytes);
    coming[peer] = {block, end.receive(nullptr, block, bytes, op).arrived};
  }
  for (std::size_t i = 1; i < n; ++i) {
    const std::size_t peer = (own + i) % n;
    const std::int64_t bytes = from[peer + 1] - from[peer];
    if (bytes == 0) continue;
    SendingEnd& end = in_.backend.sending(channel_between(rank_, group[peer], true, kKind));
    Block* block = device_.allocate(kComputeQueue, bytes);
    math.copy(bytes, e.from.at(from[peer]), {block});
    end.send(device_.record(kComputeQueue), block, bytes, ops_[g]);
    device_.release(end.queue(), block);
  }
  if (const std::int64_t bytes = to[own + 1] - to[own]; bytes > 0)
    math.copy(bytes, e.from.at(from[own]), e.to.at(to[own]));
  for (std::size_t peer = 0; peer < n; ++peer) {
    const auto& [block, arrived] = coming[peer];
    if (block == nullptr) continue;
    device_.wait(kComputeQueue, arrived);
    math.copy(block->bytes, {block}, e.to.at(to[peer]));
    device_.release(kComputeQueue, block);
  }
  happened.end = device_.record(kComputeQueue);
  if (expert_pace_ && e.what != RowExchange::What::counts) expert_pace_->begin = happened.end;
  record(g).exchanges.push_back(std::move(happened));
}

/// Returns what is stated of an op that is paced between its exchanges with other experts, each of
/// which takes what the links take; null of others. Recomputed and paired ones last as long as
/// stated.
const ExchangeSeconds* DeviceExecutor::paces_experts(std::uint32_t g) const {
  const Op& op = ops_[g];
  const RunPlan& plan = in_.plan;
  if (!in_.settings.pace || in_.settings.clock == Clock::virtual_clock) return nullptr;
  if (plan.division.expert == 1 || !is_compute(op.kind) || op.kind == OpKind::backward_weight ||
      plan.recompute.at(op.stage).granularity != Recompute::none || ops_.together(g) > 1)
    return nullptr;
  const auto stated = std::ranges::find_if(plan.exchange_s, [&](const ExchangeSeconds& e) {
    return e.device == number_ && e.stage == op.stage && e.stored == op.has(Op::stored);
  });
  return stated == plan.exchange_s.end() || stated->experts_forward == 0 ? nullptr : &*stated;
}

/// Begins to pace op g layer by layer, where the plan states what its experts take.
void DeviceExecutor::begin_expert_pace(std::uint32_t g) {
  expert_pace_.reset();
  const ExchangeSeconds* stated = paces_experts(g);
  if (stated == nullptr) return;
  const Op& op = ops_[g];
  const int first = std::accumulate(in_.plan.layers.begin(), in_.plan.layers.begin() + op.stage, 0);
  const int layers = in_.plan.model.expert_layers(first, first + in_.plan.layers[op.stage]);
  const double experts_s = op.kind == OpKind::forward    ? stated->experts_forward
                           : op.kind == OpKind::backward ? stated->experts_backward
                                                         : stated->experts_backward_input;
  expert_pace_ = {device_.record(kComputeQueue), (duration_s(in_.plan, g) - experts_s) / layers,
                  experts_s / layers, op.kind == OpKind::forward};
}

/// Waits until what is before an exchange has computed for its time. That of experts is stated for
/// as many rows as a rank has copies, and in proportion to the rows that came.
void DeviceExecutor::pace_exchange(const RowExchange& e) {
  if (!expert_pace_ || e.what == RowExchange::What::counts) return;
  ExpertPace& pace = *expert_pace_;
  const auto sum = [](const std::vector<std::int64_t>& rows) {
    return static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  };
  double seconds = 0;
  if (e.what == RowExchange::What::back)
    seconds = pace.experts_s * sum(e.sent) / sum(e.received);
  else if (std::exchange(pace.others_first, true))
    seconds = pace.others_s;
  device_.pace(kComputeQueue, pace.begin, seconds);
}

/// Waits for what an op computes after its last exchange: of a forward nothing.
void DeviceExecutor::end_expert_pace(std::uint32_t g) {
  if (expert_pace_ && ops_[g].kind != OpKind::forward)
    device_.pace(kComputeQueue, expert_pace_->begin, expert_pace_->others_s);
  expert_pace_.reset();
}

/// Returns where the tokens of a microbatch are; none of a model without experts.
TokenRoutes* DeviceExecutor::routes_of(InFlight& f, const StageState& s) {
  if (in_.plan.compute != Compute::transformer || !in_.plan.model.experts) return nullptr;
  if (!f.routes)
    f.routes = std::make_unique<DeviceTokenRoutes>(
        device_, static_cast<std::size_t>(in_.plan.layers[s.number]), [this](std::int64_t bytes) {
          ledger_.add_bytes(Owner::activations, bytes, device_.record(kComputeQueue));
        });
  return f.routes.get();
}

}  // namespace penstock
