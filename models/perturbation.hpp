// SPDX-License-Identifier: Apache-2.0
// What disturbs a run: noise of single ops, slow and throttled devices, links whose bandwidth
// changes. Plain data and functions of time, the same for every engine.
//   duration(op)    = cost * slowdown(device) * jitter(seed, run, device, op)
//   end(op)         = t with  integral of speed(device) from start to t = duration(op)
//   capacity(link)  = bandwidth * share(link, t)
// The noise is a hash of a counter (Salmon et al., SC'11), not a stream: no order of evaluation
// changes it. Gradient reductions are communication and have neither noise nor speed.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

/// A share that is piecewise constant over time, 1 where nothing was said.
class PiecewiseRate {
 public:
  struct Step {
    double from_s, share;
  };
  /// Multiplies the share in [from_s, until_s). Precondition: 0 <= from_s < until_s, share >= 0.
  void scale(double from_s, double until_s, double share);
  double at(double time_s) const;
  /// When work that takes `work_s` at a share of 1 ends; kForever when it never does.
  double end_of(double start_s, double work_s) const;
  bool constant() const { return steps_.size() == 1 && steps_[0].share == 1; }
  /// Ascending in time; the first begins at 0, the last never ends.
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::size_t index_at(double time_s) const;
  void cut(double time_s);
  std::vector<Step> steps_{{0, 1}};
};

/// Noise of durations: independent factors with mean 1 and standard deviation `spread`.
struct Jitter {
  enum class Distribution : std::uint8_t {
    normal,     ///< cut off at 0
    lognormal,  ///< exp(sigma z - sigma^2 / 2), sigma^2 = ln(1 + spread^2)
    uniform,    ///< 1 +- sqrt(3) spread
  };
  double spread = 0;
  Distribution distribution = Distribution::normal;
  std::uint64_t seed = 1;
  int runs = 1;

  /// Of the op at position `op` in the list of a device.
  double factor(std::uint32_t run, std::uint32_t device, std::uint32_t op) const;
};
inline constexpr const char* kDistributions = "normal|lognormal|uniform";
/// Largest spreads: a normal factor is cut off once in 2000, a uniform one not below 0.
inline constexpr double kMostNormalSpread = 0.3;
inline constexpr double kMostUniformSpread = 0.57;

/// A number in [0, 1), the same for the same arguments on every machine.
double uniform_hash(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter);

// What a scenario asks for
// -------------------------------------------------------------------------

struct SlowDevice {
  int device;
  double factor;  ///< of its times
};

struct Throttle {
  int device;
  double from_s, until_s;
  double speed;  ///< share of its speed
};

struct LinkChange {
  std::string link;        ///< a name; empty: all links between two ends
  std::string between[2];  ///< names of devices or switches, as in the links' names
  double from_s = 0, until_s = kForever;
  double share = 0;  ///< of its bandwidth; 0: nothing moves
  Diagnostic where;  ///< of the name, for messages: names are known once the links are
};

struct DeviceFailure {
  int device;
  double at_s;
};

/// Failures of devices, each of which stops the whole job, and what guards against them.
struct Reliability {
  std::vector<DeviceFailure> failures;  ///< in order of time
  std::optional<double> mtbf_s;         ///< of the job; failures are then drawn, exponentially
  std::uint64_t seed = 1;
  double horizon_s = 86'400;
  int checkpoint_every = 1;  ///< batches
  double save_s = 0;         ///< the job stands still
  double restart_s = 0;      ///< from the failure until the first batch runs again
};

struct PerturbationSpec {
  std::optional<Jitter> jitter{};
  std::vector<SlowDevice> slow_devices{};
  std::vector<Throttle> throttle{};
  std::vector<LinkChange> links{};
  std::optional<Reliability> reliability{};

  /// Does it change when the ops of a run happen?
  bool changes_times() const {
    return jitter || !slow_devices.empty() || !throttle.empty() || !links.empty();
  }
  /// No run that takes this long undisturbed takes longer with it, but for links that never
  /// recover.
  double at_most_s(double undisturbed_s) const;
};

// What an engine needs of it
// -----------------------------------------------------------------------

struct Perturbation {
  std::optional<Jitter> jitter;
  std::uint32_t run = 0;                  ///< of the jitter's runs
  std::vector<double> slowdown;           ///< per device
  std::vector<PiecewiseRate> speed;       ///< per device
  std::vector<PiecewiseRate> link_share;  ///< per link; empty: none changes

  double end_of(double start_s, double cost_s, std::uint32_t device, std::uint32_t op) const {
    const double noise = jitter ? jitter->factor(run, device, op) : 1;
    return speed[device].end_of(start_s, cost_s * slowdown[device] * noise);
  }
};

/// All of it but the links, which are known once there are channels: see sim/engine.hpp.
Perturbation perturbation_of(const PerturbationSpec& spec, int devices);

}  // namespace penstock
