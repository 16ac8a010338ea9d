#include "schedules/evaluate.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr double kNotYet = -1;

class Evaluator {
 public:
  Evaluator(const OpLists& order, const Placement& where, const ScheduleShape& shape)
      : order_(order),
        where_(where),
        transfer_(shape.transfer),
        m_(shape.microbatches_per_update),
        stages_(static_cast<std::uint32_t>(where.stages())),
        forward_end_(std::size_t{stages_} * m_, kNotYet),
        backward_end_(std::size_t{stages_} * m_, kNotYet) {
    for (std::uint32_t s = 0; s < stages_; ++s) times_.push_back(shape.time(s));
  }

  Evaluation run() {
    const int devices = order_.devices();
    std::vector<std::uint32_t> cursor;
    std::vector<double> free_at(static_cast<std::size_t>(devices), 0);
    std::vector<double> begin(free_at.size(), kNotYet);
    for (int d = 0; d < devices; ++d) cursor.push_back(order_.begin(d));
    for (bool moved = true; moved;) {
      moved = false;
      for (int d = 0; d < devices; ++d) {
        const auto i = static_cast<std::size_t>(d);
        const std::uint32_t before = cursor[i];
        cursor[i] = advance(d, cursor[i], free_at[i], begin[i]);
        moved = moved || cursor[i] != before;
      }
    }
    Evaluation out;
    for (int d = 0; d < devices; ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (cursor[i] != order_.end(d)) out.stuck.push_back(order_[cursor[i]]);
      out.stage_times.push_back(free_at[i] - std::max(begin[i], 0.0));
      out.makespan = std::max(out.makespan, free_at[i]);
      out.stage_time = std::max(out.stage_time, out.stage_times.back());
      out.peaks.push_back(peak(d));
    }
    return out;
  }

 private:
  std::size_t at(std::uint32_t stage, std::uint32_t k) const { return std::size_t{stage} * m_ + k; }

  /// When what an op waits for is there; kNotYet when it is not known yet.
  double ready(const Op& op, int device) const {
    if (op.kind == OpKind::backward_weight) return backward_end_[at(op.stage, op.microbatch)];
    const bool forward = op.kind == OpKind::forward;
    if (forward && op.stage == 0) return 0;
    double own = 0;
    if (!forward) {
      own = forward_end_[at(op.stage, op.microbatch)];
      if (own == kNotYet || op.stage + 1U == stages_) return own;
    }
    const std::uint32_t from = forward ? op.stage - 1U : op.stage + 1U;
    const double end = (forward ? forward_end_ : backward_end_)[at(from, op.microbatch)];
    if (end == kNotYet) return kNotYet;
    const bool here = where_.device_of(from, op.microbatch) == device;
    return std::max(own, end + (here ? 0 : transfer_));
  }

  double duration(const Op& op) const {
    const StageTimes& t = times_[op.stage];
    switch (op.kind) {
      case OpKind::forward: return t.forward;
      case OpKind::backward: return t.backward();
      case OpKind::backward_input: return t.backward_input;
      case OpKind::backward_weight: return t.backward_weight;
      default: return 0;
    }
  }

  void set_end(const Op& op, double end) {
    if (op.kind == OpKind::forward) forward_end_[at(op.stage, op.microbatch)] = end;
    if (is_backward(op.kind)) backward_end_[at(op.stage, op.microbatch)] = end;
  }

  std::uint32_t advance(int device, std::uint32_t g, double& free_at, double& begin) {
    const std::uint32_t end = order_.end(device);
    while (g < end) {
      const std::uint32_t count = order_[g].has(Op::paired) ? 2 : 1;
      double start = free_at, seconds = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const double there = ready(order_[g + i], device);
        if (there == kNotYet) return g;
        start = std::max(start, there);
        seconds += duration(order_[g + i]);
      }
      if (begin == kNotYet) begin = start;
      free_at = start + seconds;
      for (std::uint32_t i = 0; i < count; ++i) set_end(order_[g + i], free_at);
      g += count;
    }
    return g;
  }

  double peak(int device) const {
    double held = 0, most = 0;
    for (const Op& op : order_.of(device)) {
      const StageTimes& t = times_[op.stage];
      switch (op.kind) {
        case OpKind::forward: most = std::max(most, held += t.activation); break;
        case OpKind::backward: held -= t.activation; break;
        case OpKind::backward_input: held -= t.activation - t.activation_after_input; break;
        case OpKind::backward_weight: held -= t.activation_after_input; break;
        default: break;
      }
    }
    return most;
  }

  const OpLists& order_;
  const Placement& where_;
  double transfer_;
  std::uint32_t m_, stages_;
  std::vector<StageTimes> times_;
  std::vector<double> forward_end_, backward_end_;  // [stage][microbatch]
};

}  // namespace

Evaluation evaluate(const OpLists& order, const Placement& where, const ScheduleShape& shape) {
  return Evaluator(order, where, shape).run();
}

}  // namespace penstock
