// SPDX-License-Identifier: Apache-2.0
#include "schedules/search/run.hpp"

#include <algorithm>
#include <bit>

namespace penstock {

DeviceRun::DeviceRun(const OrderProblem& problem)
    : problem_(problem),
      microbatches_(problem.microbatches),
      lines_(pass_lines(problem)),
      there_(problem.message_rows() * microbatches_),
      weights_(std::size_t{problem.devices} * problem.chunks * microbatches_),
      word_(problem.ops()) {
  reset();
}

void DeviceRun::reset() {
  devices_.assign(problem_.devices, Device{});
  done_.assign(lines_.size() + 1, 0);
  done_.back() = microbatches_;
}

void DeviceRun::append(std::uint32_t d, Pass pass, double time) {
  Device& x = devices_[d];
  const PassLine& line = lines_[at(d, pass)];
  if (x.length == 0) x.begin = time;
  x.busy += line.duration;
  x.free_at = time + line.duration;
  x.held += line.change;
  if (chunk_of(pass) == 0) x.held_lower += line.change;
  ++done_[at(d, pass)];
  word_[std::size_t{d} * problem_.word_length() + x.length++] = pass;
}

DeviceRun::Arrival DeviceRun::start(std::uint32_t d, Pass pass, double time) {
  const PassLine& line = lines_[at(d, pass)];
  const std::uint32_t k = done_[at(d, pass)];
  append(d, pass, time);
  Device& x = devices_[d];
  if (!is_forward(pass)) weights_[at_weight(d, x.queued++)] = pass == kI1 ? kW1 : kW0;
  const double there = x.free_at + line.message;
  there_[line.output * microbatches_ + k] = there;
  if (line.to == lines_.size()) return {d, kNever};
  return {static_cast<std::uint32_t>(line.to / kPasses), there};
}

void DeviceRun::start_weight(std::uint32_t d, double time) {
  const Pass pass = next_weight(d);
  ++devices_[d].drawn;
  append(d, pass, time);
}

OrderCost DeviceRun::cost() const {
  OrderCost cost{0, 0, 0};
  for (const Device& x : devices_) {
    if (x.length != problem_.word_length()) return {};
    cost.add_device(x.begin, x.free_at, problem_.devices);
  }
  return cost;
}

WakeTimes::WakeTimes(std::uint32_t devices)
    : time_(std::max(2U, std::bit_ceil(devices)), kNever), tree_(2 * time_.size()) {
  const auto leaves = static_cast<std::uint32_t>(time_.size());
  for (std::uint32_t d = 0; d < leaves; ++d) tree_[leaves + d] = d;
  for (std::uint32_t i = leaves; --i > 0;) tree_[i] = tree_[2 * std::size_t{i}];
}

void WakeTimes::set(std::uint32_t d, double time) {
  time_[d] = time;
  for (std::size_t i = time_.size() + d; i > 1; i /= 2) {
    const std::uint32_t other = tree_[i ^ 1];
    const bool is_right = i % 2 == 1;  // of two at the same time the left one is the first
    if (time_[other] < time || (is_right && time_[other] == time)) {
      d = other;
      time = time_[other];
    }
    tree_[i / 2] = d;
  }
}

}  // namespace penstock
