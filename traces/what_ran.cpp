#include "traces/what_ran.hpp"

#include "program/iterations.hpp"

namespace penstock {

WhatRan::WhatRan(const Program& program, const DependencyTable& table, const RecordedTimeline& run)
    : program_(program) {
  constexpr std::uint8_t kNoReceive = 0xff ^ Op::receives, kNoSend = 0xff ^ Op::sends;
  program_.ops = {};
  const auto known = [&](std::uint32_t g) { return g != kNoOp && happened(run.timeline, g); };
  std::vector<std::uint32_t> from;
  for (const auto& order : run.order) {
    for (const std::uint32_t g : order) {
      Op op = program.ops[g];
      if (op.has(Op::receives) && !known(table.producer(op))) op.flags &= kNoReceive;
      if (op.has(Op::sends) && !known(table.consumer(op))) op.flags &= kNoSend;
      program_.ops.add(op);
      from.push_back(g);
    }
    program_.ops.end_device();
  }
  table_ =
      std::make_unique<DependencyTable>(program_.ops, program_.placement, program_.microbatches());
  timeline_ = std::make_unique<Timeline>(program_.ops.size());
  timeline_->makespan_s = run.timeline.makespan_s;
  for (std::uint32_t i = 0; i < program_.ops.size(); ++i) {
    timeline_->op(i) = run.timeline.op(from[i]);
    timeline_->message(i) = run.timeline.message(from[i]);
  }
}

}  // namespace penstock
