// SPDX-License-Identifier: Apache-2.0
#include "hw/run_plan.hpp"

#include "base/error.hpp"

#include "program/op_costs.hpp"
#include "program/walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace penstock {

double duration_s(const RunPlan& plan, std::uint32_t g) {
  const Program& p = plan.program;
  if (p.ops[g].kind != OpKind::reduce_grad) return computing_s(p.ops, p.placement, plan.costs, g);
  return plan.reduce_s.empty() ? 0 : plan.reduce_s[p.placement.positions()[p.ops[g].stage]];
}

std::vector<std::uint32_t> stages_on(const RunPlan& plan, int device) {
  const Placement& placement = plan.program.placement;
  return placement.stages_at(placement.position_of(device));
}

std::vector<int> adders_of(const RunPlan& plan, int device) {
  const Barriers replica_groups(plan.program);
  const std::uint32_t replica_group = replica_groups.replica_group_of(device);
  std::vector<int> devices;
  for (std::uint32_t i = 0; i < replica_groups.replica_group_size(replica_group); ++i)
    devices.push_back(replica_groups.replica_group_member(replica_group, i));
  return devices;
}

namespace {

void add_norm_channels(RunPlan& plan) {
  for (int d = 0; d < plan.program.placement.devices(); ++d) {
    const int from = plan.program.placement.norm_from(d);
    const auto forward = std::ranges::find_if(plan.channels, [&](const Channel& c) {
      return c.source == from && c.destination == d && !c.backward &&
             c.kind == Transfer::Kind::message;
    });
    if (forward == plan.channels.end()) continue;  // the norm begins here
    Channel norms = *forward;
    norms.kind = Transfer::Kind::norm;
    norms.bytes_per_s = std::numeric_limits<double>::infinity();
    plan.channels.push_back(norms);
  }
}

/// Of gradients, or what takes as little time in the plan.
void add_gradient_channel(RunPlan& plan, int source, int destination) {
  plan.channels.push_back({.source = source,
                           .destination = destination,
                           .bytes_per_s = std::numeric_limits<double>::infinity(),
                           .kind = Transfer::Kind::reduction});
}

}  // namespace

RunPlan with_server_channels(RunPlan plan, const std::vector<int>& devices) {
  for (const int d : devices) {
    add_gradient_channel(plan, d, 0);
    add_gradient_channel(plan, 0, d);
  }
  return plan;
}

int channel_between(const RunPlan& plan, int from, int to, bool backward, Transfer::Kind kind) {
  const auto found = std::ranges::find_if(plan.channels, [&](const Channel& c) {
    return c.source == from && c.destination == to && c.backward == backward && c.kind == kind;
  });
  invariant(found != plan.channels.end(), "the plan lacks a channel its program uses");
  return static_cast<int>(found - plan.channels.begin());
}

RunPlan with_update_channels(RunPlan plan) {
  if (plan.program.step_sync == StepSync::post_validation) add_norm_channels(plan);
  for (int d = 0; d < plan.program.placement.devices(); ++d) {
    for (const int other : adders_of(plan, d)) {
      if (other != d) add_gradient_channel(plan, d, other);
    }
  }
  return plan;
}

std::string why_too_large(const TransformerSpec& m, std::int64_t microbatch_size,
                          std::int64_t layers) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // so that no product below overflows
  for (const std::int64_t n :
       {std::int64_t{m.num_layers}, m.hidden_size, m.num_attention_heads, m.num_query_groups,
        m.ffn_hidden_size, m.vocab_size, m.seq_length, microbatch_size}) {
    if (n < 1 || n > kMost) return fmt::format("a size of the model is {}, not 1 to {}", n, kMost);
  }
  constexpr double kMostBytes = 0x1p44;
  const double rows = static_cast<double>(microbatch_size * m.seq_length);
  const double widest =
      static_cast<double>(std::max({3 * m.hidden_size, m.ffn_hidden_size, m.vocab_size}));
  const double scores = rows * static_cast<double>(m.seq_length * m.num_attention_heads);
  const double matrix = widest * static_cast<double>(m.hidden_size);
  const double bytes = std::max({rows * widest, scores, matrix}) * 16;
  const bool fits = layers <= 65536 && bytes * static_cast<double>(layers) <= kMostBytes;
  return fits ? "" : "the model is larger than any machine";
}

}  // namespace penstock
