// One interface for every engine that predicts: Program + costs + cluster in, Timeline out.
#pragma once

#include "base/dependencies.hpp"
#include "base/error.hpp"
#include "models/cluster.hpp"
#include "models/collectives.hpp"
#include "models/perturbation.hpp"
#include "models/sharing.hpp"
#include "schedules/program.hpp"
#include "traces/timeline.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A FIFO of messages from one device to another, of activations (F) or of gradients (B).
struct Channel {
  int source = 0;
  int destination = 0;
  bool backward = false;
  std::vector<int> links;  ///< indices into Channels::links
  double latency_s = 0;
  double bytes_per_s = 0;  ///< of the narrowest link
  bool contended = false;  ///< shares a link with another channel or with a reduction
};

/// The all-reduce of one position's replicas, or the exchange of one of them with the parameter
/// servers.
struct Reduction {
  struct Phase {
    std::vector<LinkFlow> flows;  ///< `bytes` is a share of the reduced bytes
    double latency_s = 0;         ///< from the end of the flows to the end of the phase
  };
  std::uint32_t position = 0;
  int replica = -1;  ///< of this replica alone (asynchronous); -1: of all
  std::vector<Phase> phases;
  std::vector<GradientBucket> buckets;  ///< at least one; their shares add up to 1
  bool contended = false;               ///< shares a link with a channel or another reduction

  /// "the gradient reduction of stage 3", "the update of replica 2".
  std::string describe() const;
};

/// Where everything that moves goes: the channels and reductions of a Program on a cluster.
class Channels {
 public:
  /// `gpu_of_device[d]` is where device d of the Program runs.
  Channels(const Program& program, const Cluster& cluster, const std::vector<int>& gpu_of_device,
           const ReductionOptions& reductions = {.priced = true});

  const std::vector<Channel>& all() const { return channels_; }
  const std::vector<NetworkLink>& links() const { return links_; }
  /// Channel of the message that `op` sends.
  std::uint32_t of_send(const Op& op) const {
    return index_[((op.kind == OpKind::forward ? 0U : stages_) + op.stage) * width_ +
                  op.microbatch % width_];
  }
  /// By party of Barriers: the position of the pipeline, or the device where replicas do not wait
  /// for others. Without phases where there is nothing to reduce or it is priced.
  const std::vector<Reduction>& reductions() const { return reductions_; }
  /// Seconds of a part of a reduction that has its links for itself.
  double alone_s(const Reduction& reduction, double bytes) const;
  /// Gives a channel a cost of its own, measured instead of modelled, and takes it off its links.
  void set_private(std::uint32_t channel, double latency_s, double bytes_per_s) {
    channels_[channel].latency_s = latency_s;
    channels_[channel].bytes_per_s = bytes_per_s;
    channels_[channel].links.clear();
    channels_[channel].contended = false;
  }
  /// The first two users of one link, for messages; empty when nothing is shared.
  std::string contention() const;

 private:
  void add_channels(const Program& program, const std::vector<int>& gpus, Network& network);
  void add_reductions(const Program& program, const Cluster& cluster, const std::vector<int>& gpus,
                      const ReductionOptions& options, Network& network);
  void add_reduction(std::uint32_t position, int replica,
                     const std::vector<CollectivePhase>& phases, const ReductionOptions& options,
                     Network& network);
  void find_contention();

  std::uint32_t stages_, width_;
  std::vector<Channel> channels_;
  std::vector<Reduction> reductions_;
  std::vector<NetworkLink> links_;
  std::vector<std::uint32_t> index_;  // [forward or backward][stage][replica] -> channel
};

struct SimulationInput {
  const Program& program;
  const DependencyTable& table;
  const std::vector<StageCosts>& costs;  ///< per virtual stage
  const Channels& channels;
  const Perturbation* perturbation = nullptr;  ///< none: undisturbed
};

/// What disturbs a run on these channels. Throws InputError for links that there are not, or whose
/// bandwidth is unlimited; names what there is.
Perturbation perturbation_of(const PerturbationSpec& spec, int devices, const Channels& channels);

/// Fixed order per device and FIFO per channel as a (max,+) recurrence in one pass. Thread-safe.
/// Precondition: `why_not_exact` is empty and the Program passed its check.
Timeline simulate_exact(const SimulationInput& input);

/// Why `exact` cannot represent this: which links are shared, by whom, and that `simgrid` can; ""
/// when it can.
std::string why_not_exact(const SimulationInput& input);

struct SimgridOptions {
  bool every_message_a_flow = false;  ///< also those that share no link (else: a timer each)
};

struct SimgridCounts {
  std::uint64_t timers = 0;  ///< activities of known duration, on a timer
  std::uint64_t flows = 0;   ///< messages simulated as SimGrid communications
};

/// SimGrid drives the clock and shares the links; one call per process (SimGrid's engine cannot be
/// created twice). Throws SystemError when the module or SimGrid cannot be loaded.
Timeline simulate_simgrid(const SimulationInput& input, const SimgridOptions& options = {},
                          SimgridCounts* counts = nullptr);

/// Why the SimGrid module cannot be loaded; "" when it can.
std::string why_no_simgrid();

}  // namespace penstock
