#include "schedules/search/pair_run.hpp"

#include <algorithm>

namespace penstock {

PairRun::PairRun(const PairProblem& problem)
    : problem_(problem), microbatches_(problem.microbatches), durations_(problem.devices) {
  for (std::uint32_t d = 0; d < problem.devices; ++d) {
    for (std::uint32_t i = 0; i < kPasses; ++i)
      durations_[d][i] = problem.duration(d, static_cast<Pass>(i));
  }
  weights_.resize(std::size_t{problem.devices} * 2 * microbatches_);
  word_.resize(problem.ops());
  reset();
}

void PairRun::reset() {
  const std::size_t inputs = std::size_t{problem_.stage_count()} * microbatches_;
  devices_.assign(problem_.devices, Device{});
  forward_in_.assign(inputs, kNever);
  backward_in_.assign(inputs, kNever);
  std::fill_n(forward_in_.begin(), microbatches_, 0.0);
}

void PairRun::append(std::uint32_t d, Pass pass, double time) {
  Device& x = devices_[d];
  if (x.begin == kNever) x.begin = time;
  x.busy += duration(d, pass);
  x.free_at = time + duration(d, pass);
  ++x.next[index(pass)];
  word_[std::size_t{d} * problem_.word_length() + x.length++] = pass;
}

void PairRun::hold(std::uint32_t d, Pass pass, double change) {
  devices_[d].held += change;
  if (chunk_of(pass) == 0) devices_[d].held_lower += change;
}

PairRun::Arrival PairRun::start(std::uint32_t d, Pass pass, double time) {
  Device& x = devices_[d];
  const std::uint32_t k = x.next[index(pass)], s = problem_.stage(d, pass);
  const StageTimes& t = problem_.times[s];
  append(d, pass, time);
  if (is_forward(pass)) {
    hold(d, pass, t.activation);
    const bool last = s + 1 == problem_.stage_count();
    const std::uint32_t to = last ? d : problem_.device[s + 1];
    const double there = x.free_at + problem_.message(d, to);
    (last ? backward_in_[at(s, k)] : forward_in_[at(s + 1, k)]) = there;
    return {to, there};
  }
  hold(d, pass, t.activation_after_input - t.activation);
  weights_[at_weight(d, x.queued++)] = pass == Pass::i_upper ? Pass::w_upper : Pass::w_lower;
  if (s == 0) return {d, kNever};
  const std::uint32_t to = problem_.device[s - 1];
  return {to, backward_in_[at(s - 1, k)] = x.free_at + problem_.message(d, to)};
}

void PairRun::start_weight(std::uint32_t d, double time) {
  const Pass pass = next_weight(d);
  ++devices_[d].drawn;
  append(d, pass, time);
  hold(d, pass, -problem_.times[problem_.stage(d, pass)].activation_after_input);
}

PairOrder PairRun::outcome() const {
  PairOrder order{.makespan = 0, .stage_time = 0, .word = {}};
  for (const Device& x : devices_) {
    if (x.length != problem_.word_length()) return {};
    order.makespan = std::max(order.makespan, x.free_at);
    order.stage_time = std::max(order.stage_time, x.free_at - x.begin);
  }
  return order;
}

}  // namespace penstock
