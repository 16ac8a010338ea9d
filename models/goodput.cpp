// SPDX-License-Identifier: Apache-2.0
#include "models/goodput.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// When the job fails, one time after the other.
class Failures {
 public:
  explicit Failures(const Reliability& r) : r_(r) { draw(); }
  double next() const { return next_s_; }
  void pass() { draw(); }

 private:
  void draw() {
    if (r_.mtbf_s) {
      next_s_ += -*r_.mtbf_s * std::log1p(-uniform_hash(r_.seed, 0, count_));
    } else {
      next_s_ = count_ < r_.failures.size() ? r_.failures[count_].at_s : kForever;
    }
    ++count_;
  }

  const Reliability& r_;
  std::size_t count_ = 0;
  double next_s_ = 0;
};

/// How many whole parts fit, those that end at the very end included.
std::int64_t whole(double length_s, double part_s) {
  return static_cast<std::int64_t>(std::floor(length_s / part_s * (1 + 1e-12)));
}

class Job {
 public:
  Job(const Reliability& r, double batch_s) : r_(r), failures_(r) {
    out_.horizon_s = r.horizon_s;
    out_.batch_s = batch_s;
  }

  Goodput run() {
    double now_s = 0;
    for (;;) {
      const double stop_s = std::min(failures_.next(), r_.horizon_s);
      const bool fails = failures_.next() < r_.horizon_s;
      compute(stop_s - now_s, fails);
      if (!fails) break;
      now_s = restart(stop_s);
      if (now_s >= r_.horizon_s) break;
    }
    out_.useful_s = static_cast<double>(out_.useful_batches) * out_.batch_s;
    out_.fraction = out_.useful_s / out_.horizon_s;
    return out_;
  }

 private:
  /// A stretch without failures, from a checkpoint (or the beginning) on.
  void compute(double length_s, bool fails) {
    const double cycle_s = r_.checkpoint_every * out_.batch_s + r_.save_s;
    const std::int64_t cycles = whole(length_s, cycle_s);
    const double rest_s = std::max(0.0, length_s - static_cast<double>(cycles) * cycle_s);
    const auto batches = std::min<std::int64_t>(r_.checkpoint_every, whole(rest_s, out_.batch_s));
    const double cut_s = std::max(0.0, rest_s - static_cast<double>(batches) * out_.batch_s);
    out_.useful_batches += cycles * r_.checkpoint_every;
    out_.checkpoint_s += static_cast<double>(cycles) * r_.save_s;
    (batches == r_.checkpoint_every ? out_.checkpoint_s
     : fails                        ? out_.lost_s
                                    : out_.unfinished_s) += cut_s;
    if (!fails) {
      out_.useful_batches += batches;
    } else {
      out_.lost_batches += batches;
      out_.lost_s += static_cast<double>(batches) * out_.batch_s;
    }
  }

  /// When the job runs again after the failure that comes now.
  double restart(double now_s) {
    for (;;) {
      ++out_.failures;
      failures_.pass();
      const double stop_s = std::min({now_s + r_.restart_s, failures_.next(), r_.horizon_s});
      out_.restart_s += stop_s - now_s;
      now_s = stop_s;
      if (failures_.next() > now_s || now_s >= r_.horizon_s) return now_s;
    }
  }

  const Reliability& r_;
  Failures failures_;
  Goodput out_;
};

double daly_s(double save_s, double mtbf_s) {
  if (save_s >= 2 * mtbf_s) return mtbf_s;
  const double ratio = save_s / (2 * mtbf_s);
  return std::sqrt(2 * save_s * mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save_s;
}

void advise(const Reliability& r, Goodput& g) {
  const auto listed = std::ranges::count_if(
      r.failures, [&](const DeviceFailure& f) { return f.at_s < r.horizon_s; });
  if (!r.mtbf_s && listed == 0) return;
  const double mtbf = r.mtbf_s ? *r.mtbf_s : r.horizon_s / static_cast<double>(listed);
  g.mtbf_s = mtbf;
  g.young_s = std::sqrt(2 * r.save_s * mtbf);
  g.daly_s = daly_s(r.save_s, mtbf);
  g.best_every = std::max<std::int64_t>(1, std::llround(std::min(*g.daly_s / g.batch_s, 1e15)));
  const auto expected = [&](double batches) {
    return expected_goodput(batches * g.batch_s, r.save_s, r.restart_s, mtbf);
  };
  g.expected_now = expected(r.checkpoint_every);
  g.expected_best = expected(static_cast<double>(*g.best_every));
}

}  // namespace

double expected_goodput(double interval_s, double save_s, double restart_s, double mtbf_s) {
  return interval_s /
         (mtbf_s * std::exp(restart_s / mtbf_s) * std::expm1((interval_s + save_s) / mtbf_s));
}

Goodput goodput(const Reliability& reliability, double batch_s) {
  Goodput g = Job(reliability, batch_s).run();
  advise(reliability, g);
  return g;
}

}  // namespace penstock
