// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/activities.hpp"

#include "base/error.hpp"
#include "program/op_costs.hpp"
#include "program/walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace penstock {
namespace {

double flops(const StageCosts& c, OpKind kind) { return is_compute(kind) ? c[kind].flops : 0; }

}  // namespace

ActivityGraph::ActivityGraph(const Program& program, const DependencyTable& table,
                             const std::vector<StageCosts>& costs, OpSeconds seconds)
    : program_(program),
      table_(table),
      costs_(costs),
      seconds_(std::move(seconds)),
      norms_(program),
      tags_(program.ops.size(), 0) {
  if (program.asynchronous) {
    throw InputError("schedule", fmt::format("the replicas of '{}' update the weights of servers, "
                                             "which has no words in this form",
                                             program.schedule));
  }
  std::map<std::pair<int, int>, std::uint32_t> sent;
  for (int d = 0; d < program.ops.devices(); ++d) {
    for (std::uint32_t g = program.ops.begin(d); g < program.ops.end(d); ++g) {
      const Op& op = program.ops[g];
      if (op.has(Op::sends)) tags_[g] = sent[{d, table.consumer_device(op)}]++;
      norms_.for_each_taker(op, d, [&](std::uint32_t step, int taker) {
        tags_[step] = sent[{d, taker}]++;
      });
    }
  }
}

/// Builds the activities of one device.
class ActivityGraph::Device {
 public:
  Device(const ActivityGraph& graph, int device)
      : graph_(graph), device_(device), barriers_(graph.program_) {}

  std::vector<Activity> build() {
    const OpLists& ops = graph_.program_.ops;
    for (std::uint32_t g = ops.begin(device_); g < ops.end(device_);) {
      const std::uint32_t end = g + (ops[g].has(Op::paired) ? 2 : 1);
      if (ops[g].kind == OpKind::reduce_grad) {
        reduce(ops[g]);
      } else {
        compute(g, end);
      }
      g = end;
    }
    return std::move(out_);
  }

 private:
  using Needs = std::vector<std::uint32_t>;

  std::uint32_t add(Activity activity) {
    out_.push_back(std::move(activity));
    return static_cast<std::uint32_t>(out_.size() - 1);
  }

  /// Ops [g, end): one, or a pair.
  void compute(std::uint32_t g, std::uint32_t end) {
    const OpLists& ops = graph_.program_.ops;
    if (ops[g].kind == OpKind::step && barriers_.comes(ops[g])) meet(ops[g], "BARRIER", 0);
    Activity a;
    a.needs = std::exchange(after_, {});
    if (ops[g].kind == OpKind::step)
      std::ranges::move(std::exchange(detached_, {}), std::back_inserter(a.needs));
    if (graph_.norms_.takes(ops[g], device_)) a.needs.push_back(receive_norm(g));
    hand_norm(ops[g], a.needs);
    const Needs before = a.needs;
    for (std::uint32_t i = g; i < end; ++i) {
      if (ops[i].has(Op::receives)) a.needs.push_back(receive(ops[i], before));
      a.flops += flops(graph_.costs_[ops[i].stage], ops[i].kind);
    }
    a.name = end == g + 1
                 ? to_string(ops[g])
                 : fmt::format("({};{})OVERLAP_F_B", to_string(ops[g]), to_string(ops[g + 1]));
    a.seconds = graph_.seconds_(ops[g], device_, g);
    const std::uint32_t done = add(std::move(a));
    after_ = {done};
    for (std::uint32_t i = g; i < end; ++i) {
      if (!ops[i].has(Op::sends)) continue;
      const std::uint32_t sent = send(i, done);
      if (holds_sender(graph_.program_.transfers)) after_.push_back(sent);
    }
  }

  std::uint32_t send(std::uint32_t g, std::uint32_t made_by) {
    const Op& op = graph_.program_.ops[g];
    return add({.kind = Activity::Kind::send,
                .name = fmt::format("SEND {}", to_string(op)),
                .bytes = message_bytes(graph_.costs_, op),
                .peer = graph_.table_.consumer_device(op),
                .tag = graph_.tags_[g],
                .needs = {made_by}});
  }

  /// The message that `op` waits for.
  std::uint32_t receive(const Op& op, const Needs& before) {
    const std::uint32_t from = graph_.table_.producer(op);
    return add({.kind = Activity::Kind::receive,
                .name = fmt::format("RECV {}", to_string(graph_.program_.ops[from])),
                .bytes = message_bytes(graph_.costs_, graph_.program_.ops[from]),
                .peer = graph_.table_.producer_device(op),
                .tag = graph_.tags_[from],
                .needs = holds_sender(graph_.program_.transfers) ? before : Needs{}});
  }

  std::uint32_t receive_norm(std::uint32_t g) {
    const Op& step = graph_.program_.ops[g];
    const Op& giver = graph_.program_.ops[graph_.norms_.giver(step, device_)];
    return add({.kind = Activity::Kind::receive,
                .name = fmt::format("RECV norm {}", to_string(giver)),
                .bytes = kNormBytes,
                .peer = graph_.program_.placement.norm_from(device_),
                .tag = graph_.tags_[g]});
  }

  /// A STEP's, to those that wait for it.
  void hand_norm(const Op& step, const Needs& before) {
    graph_.norms_.for_each_taker(step, device_, [&](std::uint32_t to, int taker) {
      add({.kind = Activity::Kind::send,
           .name = fmt::format("SEND norm {}", to_string(step)),
           .bytes = kNormBytes,
           .peer = taker,
           .tag = graph_.tags_[to],
           .needs = before});
    });
  }

  void reduce(const Op& op) {
    const Placement& placement = graph_.program_.placement;
    const std::int64_t bytes = at_position(placement, graph_.costs_, placement.position_of(device_),
                                           &StageCosts::reduced_bytes);
    if (!op.has(Op::detached)) return meet(op, to_string(op), bytes);
    const Needs before = after_;
    meet(op, to_string(op), bytes);
    detached_ = std::exchange(after_, before);
  }

  /// With everybody who comes to the meeting of `op`; what follows waits for it.
  void meet(const Op& op, const std::string& name, std::int64_t bytes) {
    Activity a{.kind = Activity::Kind::reduce, .name = name, .bytes = bytes};
    a.meeting = barriers_.group(op, device_);
    barriers_.for_each_member(op, device_, [&](int d) { a.members.push_back(d); });
    std::ranges::sort(a.members);
    if (a.members.size() < 2) return;
    a.needs = std::exchange(after_, {});
    after_ = {add(std::move(a))};
  }

  const ActivityGraph& graph_;
  int device_;
  Barriers barriers_;
  std::vector<Activity> out_;
  Needs after_;     // what the next op waits for
  Needs detached_;  // what the next STEP waits for as well
};

std::vector<Activity> ActivityGraph::activities_of(int device) const {
  return Device(*this, device).build();
}

}  // namespace penstock
