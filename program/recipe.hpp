// SPDX-License-Identifier: Apache-2.0
// A Recipe: what an op of a stage consists of, as segments on lanes of its device.
//
// A lane is an in-order queue: one computes, on another the ranks of the device exchange, on a
// third its GPUs copy to and from the memory of their host, on a fourth those that divide the
// weights gather them and reduce their gradients. `after` crosses lanes. The list is gone through
// `times` times, each time with an equal part of every segment's work; what is exchanged before the
// first time and after the last one, nothing hides. A segment computes a share of the op's seconds,
// or is a collective of the ranks along an axis, in so many calls.
//
// Where no link is shared a recipe folds to one duration (`exposed_s` beside the computing); where
// links are, its segments are played (sim/simgrid).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace penstock {

/// Along which the work of a job is divided (program/mesh.hpp). The ranks of the inner axes
/// exchange inside of ops; a replica consists of them, those of the first axis neighbours.
enum class Axis : std::uint8_t { tensor, ulysses, context, host, data, expert };
inline constexpr std::array kInnerAxes{Axis::tensor, Axis::ulysses, Axis::context};
template <class T>
using ByInnerAxis = std::array<T, kInnerAxes.size()>;
/// Along which a device exchanges inside of its ops: its ranks with one another, each of its GPUs
/// with the memory of its host, with the other GPUs that divide the same weights, and with those
/// that have the other experts of a layer.
inline constexpr std::array kExchangeAxes{Axis::tensor, Axis::ulysses, Axis::context,
                                          Axis::host,   Axis::data,    Axis::expert};
template <class T>
using ByExchangeAxis = std::array<T, kExchangeAxes.size()>;

/// What is to be known of an axis along which a device exchanges, whoever asks.
struct AxisTraits {
  std::string_view name, degree;  ///< key of `pipeline` and what counts it: "tensor", "tp"
  std::string_view shares;        ///< what its size says, as a field of a result
  std::string_view adjective;     ///< of what its ranks exchange
  bool same_weights;  ///< its ranks have the same weights and other tokens: they reduce gradients
  bool by_rank;       ///< its rings go from rank to rank, whatever else a node has
};
inline constexpr ByExchangeAxis<AxisTraits> kAxisTraits{{
    {"tensor", "tp", "t: GPUs that share a layer's matrices", "tensor-parallel", false, false},
    {"ulysses", "up", "u: groups of t that share its sequences and exchange heads", "Ulysses", true,
     false},
    {"context", "cp", "c: groups of t that share its sequences", "context-parallel", true, true},
    {"host", "host", "", "offloading", false, true},
    {"shard", "shard", "", "sharded-weight", true, false},
    {"expert", "ep", "", "expert-parallel", false, false},
}};
constexpr const AxisTraits& traits(Axis exchange) {
  return kAxisTraits[static_cast<std::size_t>(exchange)];
}

/// What the members of a group do together. `bytes` are those of the whole result (all-gather), of
/// what is summed (reduce-scatter, all-reduce), or of what each member has for all (all-to-all).
/// A GPU and its host make copies, each of all `bytes`.
enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  copy_out,
  copy_in
};
inline constexpr std::array kCollectives{Collective::all_reduce,     Collective::all_gather,
                                         Collective::reduce_scatter, Collective::all_to_all,
                                         Collective::copy_out,       Collective::copy_in};
template <class T>
using ByCollective = std::array<T, kCollectives.size()>;
inline constexpr ByCollective<std::string_view> kCollectiveNames{
    "all-reduce", "all-gather",       "reduce-scatter",
    "all-to-all", "copy to the host", "copy from the host"};
/// What the members of a group make together.
inline constexpr std::array kOfRanks{Collective::all_reduce, Collective::all_gather,
                                     Collective::reduce_scatter, Collective::all_to_all};

/// What is exchanged along an axis.
struct AxisCollective {
  Axis axis;
  Collective what;
  bool operator==(const AxisCollective&) const = default;
};

enum class Lane : std::uint8_t { compute, exchange, host, weights };
inline constexpr std::size_t kLanes = 4;
constexpr Lane lane_of(Axis exchange) {
  if (exchange == Axis::data) return Lane::weights;
  return exchange == Axis::host ? Lane::host : Lane::exchange;
}

struct Segment {
  static constexpr std::int8_t kNone = -1;

  Lane lane = Lane::compute;
  Axis axis = Axis::tensor;  ///< exchange: among whom
  Collective what = Collective::all_reduce;
  std::int8_t after = kNone;  ///< a segment of another lane, earlier in the list
  std::int32_t calls = 0;     ///< exchange: over all times
  double share = 0;           ///< compute: of the op's seconds
  std::int64_t bytes = 0;     ///< exchange: over all times
  double occupies = 0;        ///< exchange: of the multiprocessors, which compute less meanwhile

  bool exchanges() const { return lane != Lane::compute; }
  bool operator==(const Segment&) const = default;
};

struct Recipe {
  static constexpr std::size_t kMostSegments = 31;  ///< engines have a bit for each, and one more

  std::vector<Segment> segments{};  ///< empty: all of it is computed at once
  int times = 0;
  /// Exchanges before the first time and after the last one, one after the other.
  std::vector<Segment> before{}, after{};

  bool operator==(const Recipe&) const = default;
  /// Calls `visit(segment)` for all that it consists of.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto* part : {&before, &segments, &after})
      for (const Segment& segment : *part) visit(segment);
  }
  /// Of collectives along an axis, over all times.
  std::int64_t bytes(Axis axis, Collective what) const;
  bool exchanges(Axis axis) const;
  /// Does each segment of a time wait for the one before?
  bool serial() const;
  /// Computes and all-reduces among the tensor ranks in turns, or nothing but computes.
  bool in_turns() const;
};

/// Computes and then all-reduces among the tensor ranks, so often. Nothing when never.
Recipe all_reduces(std::int64_t bytes, int calls);

/// Of two ops that run together: each time one after the other, `share` of what is computed being
/// a's; where both all-reduce in turns, all in turn; where tokens go to experts, segment by segment
/// in turns, so that one computes while the other one exchanges (DualPipe; Megatron-LM's combined
/// 1F1B). Of recipes that are gone through differently often, as often as the one that is more.
Recipe joined(const Recipe& a, double share, const Recipe& b);

/// Seconds of an exchange over all times, its links for itself.
using ExchangeTime = std::function<double(const Segment&)>;

/// Returns the seconds that an op computes whose exchanges occupy multiprocessors beside it, their
/// links for themselves; `compute_s`: were all of them free.
double beside_exchanges_s(const Recipe& recipe, double compute_s, const ExchangeTime& exchange_s);

/// What an op takes longer than its computing, its links for itself.
double exposed_s(const Recipe& recipe, double compute_s, const ExchangeTime& exchange_s);

}  // namespace penstock
