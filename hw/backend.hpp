// SPDX-License-Identifier: Apache-2.0
// A backend: the devices of this process and the ends of their channels, behind one interface.
//
// `host` is always built. `cuda` is a module that is loaded when asked for, so that penstock starts
// where there is no driver; it exports `penstock_cuda_backend` (see below).
#pragma once

#include "hw/group.hpp"
#include "hw/link.hpp"
#include "hw/run_control.hpp"
#include "hw/run_plan.hpp"

#include <map>

namespace penstock {

enum class Clock : std::uint8_t {
  wall,           ///< measured
  virtual_clock,  ///< real work and messages, logical time: the simulator's, exactly
};
enum class Precision : std::uint8_t { fp32, bf16 };

struct RunSettings {
  Clock clock = Clock::wall;
  bool threads = true;                    ///< host: a device computes in a thread of its own
  bool pace = false;                      ///< every op lasts at least its stated duration
  double deadline_s = 60;                 ///< without progress; then the run ends with a report
  Precision precision = Precision::fp32;  ///< bf16: activations and working weights, fp32 masters
  std::string link;    ///< cuda: how stages of one GPU are joined: d2d, pinned or paced
  int partitions = 0;  ///< cuda: stages as SM partitions of one GPU; 0: as many as needed
  int sms = 0;         ///< cuda: for which algorithms are chosen, instead of those a stage may use
  bool must_partition = false;  ///< cuda: partitions that cannot be made are an error, not a note
};

struct BackendRequest {
  const RunPlan& plan;
  const RunSettings& settings;
  RunControl& control;
  Group& group;
  std::vector<int> devices;  ///< ranks of the run: those of this process
};

/// What was used, for the recording: "cpu", "blas", "gpu", "driver" ... -> text.
using Description = std::map<std::string, std::string>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device(int device) = 0;
  /// Queues of their own beside a device's, for work that its ops must not hold up; same bits.
  /// Blocks of either may be used on both. Asked for before start(); the same one every time.
  virtual Device& beside(int device) = 0;
  /// Queues for times alone, which neither of these may hold up; may be those of beside().
  virtual Device& pacing(int device) { return beside(device); }
  /// Ends of `plan.channels[channel]`; only on the process that owns the device.
  virtual SendingEnd& sending(int channel) = 0;
  virtual ReceivingEnd& receiving(int channel) = 0;
  /// Connects and warms up every channel, then sets time 0 of the run's clock on all processes.
  virtual void start() = 0;
  virtual Description describe() const = 0;
  /// These settings, so that a backend which opens one device with them computes the same bits.
  virtual RunSettings same_bits(RunSettings settings) const { return settings; }
};

/// Threads (one process) or gloo TCP (several). Throws InputError when the plan cannot run here.
std::unique_ptr<Backend> open_host_backend(const BackendRequest& request);

/// Thrown when the hardware asked for is not there; ends a program with exit_no_hardware.
class NoHardware : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Loads the CUDA module. Throws NoHardware with one line: no module, no driver, no GPU.
std::unique_ptr<Backend> open_cuda_backend(const BackendRequest& request);

}  // namespace penstock
