// A Recipe: what an op of a stage consists of, as segments on lanes of its device.
//
// A lane is an in-order queue: one computes, on another the ranks of the device exchange. `after`
// crosses lanes. The list is gone through `times` times, each time with an equal part of every
// segment's work. A segment computes a share of the op's seconds, or all-reduces bytes among the
// ranks along an axis; other collectives count as the all-reduce that moves as much.
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
enum class Axis : std::uint8_t { tensor, context, data };
inline constexpr std::array kInnerAxes{Axis::tensor, Axis::context};
template <class T>
using ByInnerAxis = std::array<T, kInnerAxes.size()>;

/// What is to be known of an inner axis, whoever asks.
struct AxisTraits {
  std::string_view name, degree;  ///< key of `pipeline` and what counts it: "tensor", "tp"
  std::string_view shares;        ///< what its size says, as a field of a result
  std::string_view traffic;       ///< what its ranks exchange
  bool same_weights;  ///< its ranks have the same weights and other tokens: they reduce gradients
  bool by_rank;       ///< its rings go from rank to rank, whatever else a node has
};
inline constexpr ByInnerAxis<AxisTraits> kAxisTraits{{
    {"tensor", "tp", "t: GPUs that share a layer's matrices", "tensor-parallel all-reduces", false,
     false},
    {"context", "cp", "c: groups of t that share its sequences", "rings of keys and values", true,
     true},
}};
constexpr const AxisTraits& traits(Axis inner) {
  return kAxisTraits[static_cast<std::size_t>(inner)];
}

enum class Lane : std::uint8_t { compute, exchange };
inline constexpr std::size_t kLanes = 2;

struct Segment {
  static constexpr std::int8_t kNone = -1;

  Lane lane = Lane::compute;
  Axis axis = Axis::tensor;   ///< exchange: among whom
  std::int8_t after = kNone;  ///< a segment of another lane, earlier in the list
  double share = 0;           ///< compute: of the op's seconds
  std::int64_t bytes = 0;     ///< exchange: of each rank, over all times

  bool operator==(const Segment&) const = default;
};

struct Recipe {
  std::vector<Segment> segments{};  ///< empty: all of it is computed at once
  int times = 0;

  bool operator==(const Recipe&) const = default;
  /// Exchanged along an axis, over all times.
  std::int64_t bytes(Axis axis) const;
  /// Does each segment wait for the one before?
  bool serial() const;
  /// Computes and all-reduces among the tensor ranks in turns, or nothing but computes.
  bool in_turns() const;
};

/// Computes and then all-reduces among the tensor ranks, so often. Nothing when never.
Recipe all_reduces(std::int64_t bytes, int calls);

/// Of two ops that run together: each time one after the other, `share` of what is computed being
/// a's; where both all-reduce in turns, all in turn. Of recipes that are gone through differently
/// often, as often as the one that is more.
Recipe joined(const Recipe& a, double share, const Recipe& b);

/// Seconds of an exchange of so many bytes in so many calls, its links for itself.
using ExchangeTime = std::function<double(Axis axis, double bytes, int calls)>;

/// What an op takes longer than its computing, its links for itself.
double exposed_s(const Recipe& recipe, double compute_s, const ExchangeTime& exchange_s);

}  // namespace penstock
