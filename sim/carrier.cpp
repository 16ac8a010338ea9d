// SPDX-License-Identifier: Apache-2.0
#include "sim/carrier.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {

Carrier::Carrier(const SimulationInput& input, const Lockstep& lockstep, FlowNetwork& network,
                 const EventOptions& options, SimgridCounts& counts,
                 std::function<void(double, std::uint32_t, std::uint32_t)> continue_at,
                 std::function<void()> wake)
    : input_(input),
      lockstep_(lockstep),
      counts_(counts),
      continue_at_(std::move(continue_at)),
      flows_(input, lockstep, network, counts, std::move(wake)) {
  for (std::uint32_t t = 0; t < input.traffic.all().size(); ++t) {
    const Transfer& transfer = input.traffic[t];
    Carried& carried = carried_.emplace_back();
    if (!lockstep.leads(t) || !must_flow(transfer, options.every_message_a_flow)) continue;
    carried.first_lane = of_lane_.size();
    for (std::size_t phase = 0; phase < transfer.phases.size(); ++phase) {
      of_lane_.push_back(t);
      flows_.add_lane(lockstep.flows(t, phase));
    }
  }
  flows_.crosses = [this](const std::vector<int>& links) {
    if (crosses) crosses(links, now_);
  };
  flows_.started = [this](std::size_t lane, std::uint32_t tag) {
    const std::uint32_t transfer = of_lane_[lane];
    if (input_.traffic[transfer].kind == Transfer::Kind::message) started(transfer, tag, now_);
  };
  flows_.done = [this](std::size_t lane, std::uint32_t tag) {
    const std::uint32_t transfer = of_lane_[lane];
    const std::size_t phase = lane - carried_[transfer].first_lane;
    const Carried& carried = carried_[transfer];
    const Transfer::Phase& ended = input_.traffic[transfer].phases[phase];
    const double after_s =
        carried.after_s < 0 ? ended.after_s(carried.bytes, carried.calls) : carried.after_s;
    continue_at_(now_ + after_s, transfer, tag);
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
                   double now, double calls) {
  Carried& carried = carried_[number];
  carried.calls = calls;
  carried.after_s = -1;
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

void Carrier::resume(std::uint32_t number, double bytes, double end_s, std::uint32_t tag,
                     double now, double calls) {
  Carried& carried = carried_[number];
  carried.calls = calls;
  carried.phase = input_.traffic[number].phases.size() - 1;
  const Transfer::Phase& last = input_.traffic[number].phases.back();
  carried.after_s = last.join == 1 ? -1 : std::max(0.0, end_s - now - bytes * last.s_per_byte);
  if (!flows(number) || bytes <= 0) return continue_at_(end_s, number, tag);
  carried.bytes = bytes;
  now_ = now;
  flows_.send(carried.first_lane + carried.phase, bytes, tag);
}

/// Max-min: each of them crosses a full link on which none is faster. Who stands in line at a link
/// is never alone there.
bool Carrier::steady(std::uint32_t transfer) const {
  const auto& phases = input_.traffic[transfer].phases;
  if (phases.size() != 1) return false;
  constexpr double kNothing = 1e-12;
  const std::vector<LinkFlow>& flows = lockstep_.flows(transfer, 0);
  struct Load {
    double sum = 0, most = 0;
  };
  std::vector<Load> loads(lockstep_.links().size());
  const auto rate = [&](const LinkFlow& flow) { return flow.bytes / phases[0].s_per_byte; };
  for (const LinkFlow& flow : flows) {
    for (const int l : flow.links) {
      Load& load = loads[static_cast<std::size_t>(l)];
      load.sum += rate(flow);
      load.most = std::max(load.most, rate(flow));
    }
  }
  const auto fifo = [&](int link) {
    return lockstep_.links()[static_cast<std::size_t>(link)].fifo;
  };
  return std::ranges::all_of(flows, [&](const LinkFlow& flow) {
    return std::ranges::none_of(flow.links, fifo) && std::ranges::any_of(flow.links, [&](int link) {
             const auto l = static_cast<std::size_t>(link);
             return loads[l].sum >= lockstep_.links()[l].bytes_per_s * (1 - kNothing) &&
                    rate(flow) >= loads[l].most * (1 - kNothing);
           });
  });
}

std::vector<int> Carrier::links_of(std::uint32_t transfer) const {
  std::vector<int> links = crossed_by(lockstep_.flows(transfer, 0));
  std::erase_if(links, [&](int l) {
    return std::isinf(lockstep_.links()[static_cast<std::size_t>(l)].bytes_per_s);
  });
  return links;
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
