// SPDX-License-Identifier: Apache-2.0
#include "hw/interference.hpp"

#include "hw/calibration_scope.hpp"
#include "hw/math.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 26;  // of a matrix or vector here
constexpr int kMostAhead = 256;                                // of a neighbour, issued at once

/// The operands of one kind of work on a device, and its issue.
class Worker {
 public:
  Worker(Device& device, const CalibrationRequest& request, DeviceWork kind)
      : device_(device), request_(request), kind_(kind) {
    const TransformerSpec& m = request.model;
    rows_ = std::ranges::max(request.microbatch_sizes) * m.seq_length;
    const std::int64_t e = device.math().element_bytes();
    switch (kind) {
      case DeviceWork::idle: break;
      case DeviceWork::multiply:
        for (const std::int64_t n :
             {rows_ * m.hidden_size, m.hidden_size * m.ffn_hidden_size, rows_ * m.ffn_hidden_size})
          make(n, e);
        break;
      case DeviceWork::step:
        for (int i = 0; i < 4; ++i) make(parameters(), 4);
        break;
      case DeviceWork::softmax: make(score_rows() * m.seq_length, e); break;
      case DeviceWork::stream:
        for (int i = 0; i < 3; ++i) make(stream_length(), e);
        break;
    }
  }
  ~Worker() {
    for (Block* block : blocks_) device_.release(kComputeQueue, block);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void issue() {
    const TransformerSpec& m = request_.model;
    Math& math = device_.math();
    switch (kind_) {
      case DeviceWork::idle: return;
      case DeviceWork::multiply: {
        Gemm g{rows_, m.ffn_hidden_size, m.hidden_size, false, true};
        g.lda = g.ldb = m.hidden_size, g.ldc = m.ffn_hidden_size;
        return math.gemm(g, at(0), at(1), at(2));
      }
      case DeviceWork::step:
        return math.adamw_step(parameters(), {at(0), at(0), {}, at(1), at(2), at(3)}, {}, 1);
      case DeviceWork::softmax:
        return math.attention_softmax({score_rows(), m.seq_length, true, 1}, at(0));
      case DeviceWork::stream: return math.add_tensors(stream_length(), at(0), at(1), at(2));
    }
  }
  Device& device() { return device_; }

 private:
  void make(std::int64_t elements, std::int64_t element_bytes) {
    blocks_.push_back(device_.allocate(kComputeQueue, elements * element_bytes));
    const Tensor all{blocks_.back()};
    if (kind_ != DeviceWork::step) {
      device_.math().fill_uniform(elements, 1, blocks_.size(), all);
    } else {
      device_.math().zero(elements * element_bytes, all);
    }
  }
  Tensor at(std::size_t i) const { return {blocks_[i]}; }
  std::int64_t parameters() const {
    return std::min(request_.model.layer_parameters(), kMostElements);
  }
  /// Where the model is no toy, more than caches hold.
  std::int64_t stream_length() const {
    return std::min(16 * rows_ * request_.model.ffn_hidden_size, kMostElements / 4);
  }
  std::int64_t score_rows() const {
    const std::int64_t s = request_.model.seq_length;
    return std::clamp(kMostElements / s / s, std::int64_t{1},
                      rows_ / s * request_.model.num_attention_heads) *
           s;
  }

  Device& device_;
  const CalibrationRequest& request_;
  DeviceWork kind_;
  std::int64_t rows_ = 0;
  std::vector<Block*> blocks_;
};

class Interference {
 public:
  Interference(const CalibrationRequest& request, Backend& backend, RunControl& control)
      : request_(request), backend_(backend), control_(control) {}

  Sample measure(DeviceWork work, DeviceWork others,
                 const std::vector<InterferenceMeasurement>& done) {
    Worker own(backend_.device(0), request_, work);
    std::vector<std::unique_ptr<Worker>> beside;
    for (int d = 1; others != DeviceWork::idle && d < request_.workers; ++d)
      beside.push_back(std::make_unique<Worker>(backend_.device(d), request_, others));
    int ahead = 1;
    if (others != DeviceWork::idle) {
      // Until the last of them ends, the first device should have ended, though it is slower now.
      const double once_s = alone_s(others, done);
      const double length_s = request_.rotation * alone_s(work, done);
      ahead =
          once_s > 0 ? static_cast<int>(std::min<double>(kMostAhead, 4 * length_s / once_s)) : 1;
    }
    std::vector<double> times;
    for (int i = -request_.warmup; !enough(times); ++i) {
      const auto lengths = round(own, beside, std::max(ahead, 1));
      if (i >= 0) times.insert(times.end(), lengths.begin(), lengths.end());
      control_.progress();
    }
    return summarize_times(times);
  }

 private:
  static double alone_s(DeviceWork work, const std::vector<InterferenceMeasurement>& done) {
    for (const InterferenceMeasurement& m : done)
      if (m.work == work && m.others == DeviceWork::idle) return m.time.median_s;
    return 0;
  }

  bool enough(const std::vector<double>& times) const {
    const int n = static_cast<int>(times.size());
    if (n < request_.min_repetitions) return false;
    return n >= request_.max_repetitions || summarize_times(times).spread() <= request_.spread;
  }

  /// Lengths of the first device's work, while the others have something to do.
  std::vector<double> round(Worker& own, std::vector<std::unique_ptr<Worker>>& beside, int ahead) {
    for (int d = 0; d < request_.workers; ++d) backend_.device(d).finish();
    const Event ready = backend_.device(0).record(kComputeQueue);
    for (const auto& worker : beside) {
      worker->device().wait(kComputeQueue, ready);
      for (int i = 0; i < ahead; ++i) worker->issue();
    }
    std::vector<Event> events{own.device().record(kComputeQueue)};
    for (int i = 0; i < request_.rotation; ++i) {
      own.issue();
      events.push_back(own.device().record(kComputeQueue));
    }
    std::vector<double> lengths;
    for (std::size_t i = 1; i < events.size(); ++i)
      lengths.push_back(events[i]->time_s() - events[i - 1]->time_s());
    return lengths;
  }

  const CalibrationRequest& request_;
  Backend& backend_;
  RunControl& control_;
};

}  // namespace

void measure_interference(const CalibrationRequest& request, Backend& backend, RunControl& control,
                          std::vector<InterferenceMeasurement>& done,
                          const std::function<bool()>& keep) {
  Interference interference(request, backend, control);
  for (const auto& [work, others] : scope::interference(request)) {
    if (scope::has_interference(done, work, others)) continue;
    done.push_back({work, others, interference.measure(work, others, done)});
    if (!keep()) return;
  }
}

}  // namespace penstock
