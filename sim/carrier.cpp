#include "sim/carrier.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

Carrier::Carrier(const SimulationInput& input, FlowNetwork& network, const SimgridOptions& options,
                 SimgridCounts& counts,
                 std::function<void(double, std::uint32_t, std::uint32_t)> continue_at,
                 std::function<void()> wake)
    : input_(input),
      counts_(counts),
      continue_at_(std::move(continue_at)),
      flows_(input, network, counts, std::move(wake)) {
  for (const Transfer& transfer : input.traffic.all()) {
    Carried& carried = carried_.emplace_back();
    if (!must_flow(transfer, options.every_message_a_flow)) continue;
    carried.first_lane = of_lane_.size();
    for (const Transfer::Phase& phase : transfer.phases) {
      of_lane_.push_back(static_cast<std::uint32_t>(carried_.size() - 1));
      flows_.add_lane(phase.flows);
    }
  }
  flows_.started = [this](std::size_t lane, std::uint32_t tag) {
    const std::uint32_t transfer = of_lane_[lane];
    if (input_.traffic[transfer].kind == Transfer::Kind::message) started(transfer, tag, now_);
  };
  flows_.done = [this](std::size_t lane, std::uint32_t tag) {
    const std::uint32_t transfer = of_lane_[lane];
    const std::size_t phase = lane - carried_[transfer].first_lane;
    continue_at_(now_ + input_.traffic[transfer].phases[phase].latency_s, transfer, tag);
  };
}

/// All phases are flows, or none.
bool Carrier::must_flow(const Transfer& transfer, bool always) {
  switch (transfer.kind) {
    case Transfer::Kind::norm: return false;
    case Transfer::Kind::message:
      if (!input_.traffic.messages_take_time() || std::isinf(transfer.bytes_per_s)) return false;
      break;
    case Transfer::Kind::collective:
      if (transfer.phases[0].s_per_byte == 0) return false;
      break;
    case Transfer::Kind::reduction: break;
  }
  const std::vector<int> links = transfer.crossed_links();
  const bool moves =
      std::ranges::any_of(transfer.phases, [](const auto& phase) { return !phase.flows.empty(); });
  return moves && (always || transfer.contended || flows_.link_shares().concern(links));
}

void Carrier::send(std::uint32_t number, double bytes, double occupied_s, std::uint32_t tag,
                   double now) {
  Carried& carried = carried_[number];
  const Transfer& transfer = input_.traffic[number];
  const bool message = transfer.kind == Transfer::Kind::message;
  if (flows(number)) {
    carried.phase = 0;
    carried.bytes = bytes;
    now_ = now;
    return flows_.send(carried.first_lane, bytes, tag);
  }
  const bool in_line = message && input_.program.transfers != Transfers::coupled;
  const double start = in_line ? std::max(now, carried.free_at) : now;
  carried.free_at = start + occupied_s;
  carried.phase = transfer.phases.empty() ? 0 : transfer.phases.size() - 1;
  if (message) started(number, tag, start);
  ++counts_.timers;
  continue_at_(start + occupied_s + transfer.latency_s, number, tag);
}

bool Carrier::continue_transfer(std::uint32_t number, std::uint32_t tag, double now) {
  Carried& carried = carried_[number];
  now_ = now;
  if (carried.phase + 1 >= input_.traffic[number].phases.size()) return true;
  flows_.send(carried.first_lane + ++carried.phase, carried.bytes, tag);
  return false;
}

void Carrier::settle(double now) {
  now_ = now;
  flows_.settle();
}

std::pair<std::uint32_t, std::string> Carrier::stalled() const {
  const auto found = flows_.stalled();
  if (found.empty()) return {kNoOp, ""};
  return {of_lane_[found.front().first], found.front().second};
}

}  // namespace penstock
