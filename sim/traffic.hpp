// SPDX-License-Identifier: Apache-2.0
// Traffic: where everything that a Program sends, reduces and exchanges goes on a cluster.
//
// Transfers are numbered: first the messages (a FIFO from each device to each of its neighbours, of
// activations or of gradients), then what the replica groups of Barriers reduce, then the
// collectives inside of ops, by axis, kind and device, and the partial norms, by device that takes
// one.
#pragma once

#include "base/error.hpp"
#include "models/cluster.hpp"
#include "models/collectives.hpp"
#include "models/sharing.hpp"
#include "program/gradient_ends.hpp"
#include "program/mesh.hpp"
#include "program/program.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// Two of those who share a link, or one whose own flows stand in line at one.
struct Contention {
  std::string first, second;  ///< second: "" for one alone
  int link = 0;
};

/// Those that the recipes of these stages have, each once.
std::vector<AxisCollective> collectives_of(const std::vector<StageCosts>& costs);

class Traffic {
 public:
  /// `collectives`: those inside of ops.
  Traffic(const Program& program, const Cluster& cluster, const Mesh& mesh,
          const ReductionOptions& reductions = {.priced = true},
          const std::vector<AxisCollective>& collectives = {});

  const std::vector<Transfer>& all() const { return transfers_; }
  const Transfer& operator[](std::uint32_t transfer) const { return transfers_[transfer]; }
  const std::vector<NetworkLink>& links() const { return links_; }

  /// The first transfers, one per channel.
  std::span<const Transfer> messages() const { return std::span(transfers_).first(messages_); }
  /// Of the message that `op` sends.
  std::uint32_t message_of(const Op& op) const {
    const std::uint32_t route =
        mirrored_ ? placement_.route_of(op.microbatch) : op.microbatch % round_;
    return index_[((op.kind == OpKind::forward ? 0U : stages_) + op.stage) * width_ + route];
  }
  /// By replica group of Barriers: by position of the pipeline or, asynchronous, by device; without
  /// phases where there is nothing to reduce or it is priced.
  std::span<const Transfer> reductions() const {
    return std::span(transfers_).subspan(messages_, buckets_.size());
  }
  std::uint32_t reduction_of(std::uint32_t replica_group) const {
    return messages_ + replica_group;
  }
  /// The parts of a replica group's reduction, at least one, in the order in which its first device
  /// has them; their shares add up to 1.
  const std::vector<GradientBucket>& buckets(std::uint32_t replica_group) const {
    return buckets_[replica_group];
  }
  /// Which ops complete gradients of which some are reduced before the last backward has ended;
  /// empty where none are.
  const GradientEnds& gradient_ends() const { return gradient_ends_; }
  /// Returns who takes part in an exchange along an axis: one alone exchanges nothing.
  int ranks(Axis axis) const { return ranks_[static_cast<std::size_t>(axis)]; }
  /// Which there are inside of ops: along axes with more than one rank.
  const std::vector<AxisCollective>& collectives() const { return collectives_; }
  /// One of them.
  std::uint32_t collective_of(int device, const AxisCollective& collective) const {
    const std::uint32_t first = first_collective_[static_cast<std::size_t>(collective.axis)]
                                                 [static_cast<std::size_t>(collective.what)];
    invariant(first != kNoOp, "a collective that the traffic was not made with");
    return first + static_cast<std::uint32_t>(device);
  }
  std::uint32_t collective_of(int device, const Segment& segment) const {
    return collective_of(device, {segment.axis, segment.what});
  }
  /// Of the partial norm that a device takes (post-validation).
  std::uint32_t norm_of(int device) const { return norms_[static_cast<std::size_t>(device)]; }

  /// The most flows that any single transfer has on each link at once.
  std::vector<std::uint32_t> flows_of_one() const;
  /// Gives a message a cost of its own, measured instead of modelled, and takes it off its links.
  void set_private(std::uint32_t message, double latency_s, double bytes_per_s);
  /// Not with free transfers, when they use no link.
  bool messages_take_time() const { return messages_take_time_; }
  /// The first two users of one link; none when nothing is shared.
  std::optional<Contention> contention() const;

 private:
  void add_messages(const Program& program, const Mesh& mesh, Network& network);
  void add_reductions(const Program& program, const Cluster& cluster, const Mesh& mesh,
                      const ReductionOptions& options, Network& network);
  void add_reduction(std::uint32_t position, int replica,
                     const std::vector<CollectivePhase>& phases, const ReductionOptions& options,
                     Network& network);
  void order_buckets(const Program& program);
  void add_collectives(const AxisCollective& collective, const Program& program,
                       const Cluster& cluster, const Mesh& mesh, Network& network);
  void add_groups_of_positions(const AxisCollective& collective, const Program& program,
                               const Cluster& cluster, const Mesh& mesh, Network& network);
  void add_norms(const Program& program);
  /// The first two that may use a link at once.
  struct Users {
    const Transfer *first = nullptr, *second = nullptr;
  };
  std::vector<Users> users_of_links() const;
  /// Does the second, of the two that come in this order, never run while the first one does? A
  /// device does one thing after the other: collectives inside of its ops, and a reduction that
  /// holds all who take part until it has ended.
  bool in_turn(const Transfer& one, const Transfer& other) const;
  void find_contention();
  bool uses_links(const Transfer& transfer) const {
    return transfer.kind != Transfer::Kind::message || messages_take_time_;
  }

  bool messages_take_time_;
  bool reductions_hold_;  ///< their devices, while they run
  std::uint32_t stages_, round_;
  bool mirrored_;
  int shard_group_;
  std::uint32_t width_;  // routes
  Placement placement_;
  std::vector<Transfer> transfers_;
  std::uint32_t messages_ = 0;
  ByExchangeAxis<int> ranks_{};
  std::vector<AxisCollective> collectives_;
  ByExchangeAxis<ByCollective<std::uint32_t>> first_collective_{};
  std::vector<std::vector<GradientBucket>> buckets_;  // per replica group
  GradientEnds gradient_ends_;
  std::vector<NetworkLink> links_;
  std::vector<std::uint32_t> norms_;  // per device; empty: no post-validation
  std::vector<std::uint32_t> index_;  // [forward or backward][stage][route] -> message
};

}  // namespace penstock
