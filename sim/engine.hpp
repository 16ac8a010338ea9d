// One interface for every engine that predicts: Program + costs + cluster in, Timeline out.
#pragma once

#include "base/error.hpp"
#include "models/cluster.hpp"
#include "models/collectives.hpp"
#include "models/perturbation.hpp"
#include "models/sharing.hpp"
#include "program/dependencies.hpp"
#include "program/program.hpp"
#include "program/timeline.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Which GPUs each device of a Program stands for: the replicas among which its microbatches are
/// split, one after the other, and of each replica its tensor ranks.
struct Seats {
  Seats(const std::vector<int>& one_gpu_each) {  // NOLINT(google-explicit-constructor)
    for (const int gpu : one_gpu_each) gpus.push_back({gpu});
  }
  Seats(std::vector<std::vector<int>> gpus_of_device, int tensor_degree)
      : gpus(std::move(gpus_of_device)), tensor(tensor_degree) {}

  std::vector<std::vector<int>> gpus;  ///< per device
  int tensor = 1;                      ///< ranks of a replica
};

/// Who reduces the gradients of a position: one group of replicas for each tensor rank.
std::vector<std::vector<int>> reduction_groups(const Placement& placement, const Seats& seats,
                                               std::uint32_t position);

/// A FIFO of messages from one device to another, of activations (F) or of gradients (B). The
/// GPUs of the two ends send side by side, rank to rank; the next message leaves when all have.
struct Channel {
  int source = 0;
  int destination = 0;
  bool backward = false;
  std::vector<LinkFlow> flows;  ///< of a message; `bytes` is a share of StageCosts::output_bytes
  double latency_s = 0;         ///< of the slowest
  double bytes_per_s = 0;       ///< of a message that has its links for itself
  bool contended = false;       ///< shares a link with something else, or is `in_line`
};

/// Flows that start together, `bytes` being a share of what moves in all; done `latency_s` after
/// the last one.
struct FlowGroup {
  std::vector<LinkFlow> flows;
  double latency_s = 0;
};

/// The all-reduce of one position's replicas, or what one asynchronous replica exchanges with the
/// parameter servers.
struct Reduction {
  std::uint32_t position = 0;
  int replica = -1;  ///< of this replica alone (asynchronous); -1: of all
  std::vector<FlowGroup> phases;
  double sent = 0;  ///< over all flows, of the reduced bytes; also where it is priced
  std::vector<GradientBucket> buckets;  ///< at least one; their shares add up to 1
  bool contended = false;               ///< shares a link with something else

  /// "the gradient reduction of stage 3", "the update of replica 2".
  std::string describe() const;
};

/// What the tensor ranks of a device all-reduce during its ops, as rings.
struct Exchange {
  FlowGroup ring;         ///< without flows: one rank
  double s_per_byte = 0;  ///< alone
  bool contended = false;

  /// Seconds of an op's traffic that has its links for itself.
  double alone_s(const TensorTraffic& traffic) const {
    return traffic.calls * ring.latency_s + static_cast<double>(traffic.bytes) * s_per_byte;
  }
};

/// Two of those who share a link, or one whose own flows stand in line at one.
struct Contention {
  std::string first, second;  ///< second: "" for one alone
  int link = 0;
};

/// Where everything that moves goes: what a Program sends, reduces and exchanges on a cluster.
class Channels {
 public:
  Channels(const Program& program, const Cluster& cluster, const Seats& seats,
           const ReductionOptions& reductions = {.priced = true});

  const std::vector<Channel>& all() const { return channels_; }
  const std::vector<NetworkLink>& links() const { return links_; }
  /// Channel of the message that `op` sends.
  std::uint32_t of_send(const Op& op) const {
    const std::uint32_t way = mirrored_ ? placement_.way_of(op.microbatch) : op.microbatch % round_;
    return index_[((op.kind == OpKind::forward ? 0U : stages_) + op.stage) * width_ + way];
  }
  /// What the partial norm that a device takes is on its way (post-validation): the latency of the
  /// channel that it comes by; 0 where messages take no time.
  double norm_latency_s(int device) const {
    if (!messages_take_time_) return 0;
    return channels_[norm_channels_[static_cast<std::size_t>(device)]].latency_s;
  }
  /// By party of Barriers: by position of the pipeline or, asynchronous, by device; without phases
  /// where there is nothing to reduce or it is priced.
  const std::vector<Reduction>& reductions() const { return reductions_; }
  /// Seconds of a part of a reduction that has its links for itself.
  double alone_s(const Reduction& reduction, double bytes) const;
  /// By device.
  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  /// The most flows that any single channel, reduction or exchange has on each link at once.
  std::vector<std::uint32_t> flows_of_one() const;
  /// Gives a channel a cost of its own, measured instead of modelled, and takes it off its links.
  void set_private(std::uint32_t channel, double latency_s, double bytes_per_s) {
    channels_[channel].latency_s = latency_s;
    channels_[channel].bytes_per_s = bytes_per_s;
    channels_[channel].flows.clear();
    channels_[channel].contended = false;
  }
  /// Not with free transfers, when they use no link.
  bool messages_take_time() const { return messages_take_time_; }
  /// The first two users of one link; none when nothing is shared.
  std::optional<Contention> contention() const;

 private:
  void add_channels(const Program& program, const Seats& seats, Network& network);
  void add_reductions(const Program& program, const Cluster& cluster, const Seats& seats,
                      const ReductionOptions& options, Network& network);
  void add_reduction(std::uint32_t position, int replica,
                     const std::vector<CollectivePhase>& phases, const ReductionOptions& options,
                     Network& network);
  void add_exchanges(const Seats& seats, Network& network);
  void find_norm_channels(const Program& program);
  void find_contention();

  bool messages_take_time_;
  std::uint32_t stages_, round_;
  bool mirrored_;
  std::uint32_t width_;  // ways
  Placement placement_;
  std::vector<Channel> channels_;
  std::vector<Reduction> reductions_;
  std::vector<Exchange> exchanges_;
  std::vector<NetworkLink> links_;
  std::vector<std::uint32_t> norm_channels_;  // per device; empty: no post-validation
  std::vector<std::uint32_t> index_;          // [forward or backward][stage][way] -> channel
};

/// Times of ops where not all devices are alike: `costs[kind[d]][stage]` are those on device d.
struct UnlikeDevices {
  std::vector<std::size_t> kind;
  std::vector<std::vector<StageCosts>> costs;
};

struct SimulationInput {
  const Program& program;
  const DependencyTable& table;
  const std::vector<StageCosts>& costs;  ///< per virtual stage
  const Channels& channels;
  const Perturbation* perturbation = nullptr;  ///< none: undisturbed
  const UnlikeDevices* unlike = nullptr;       ///< none: op times as in `costs`
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

/// SimGrid drives the clock and shares the links. Its engine cannot be created twice in a process,
/// so each call forks one, which writes its spans into memory that both share. Throws SystemError
/// when the module cannot be loaded or that process ends without a result.
Timeline simulate_simgrid(const SimulationInput& input, const SimgridOptions& options = {},
                          SimgridCounts* counts = nullptr);

/// Why the SimGrid module cannot be loaded; "" when it can.
std::string why_no_simgrid();

}  // namespace penstock
