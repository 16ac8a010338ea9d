// SPDX-License-Identifier: Apache-2.0
// A Transfer: whatever moves while a Program runs, in one form.
//   message     of a microbatch, from one device to the next, rank to rank; a FIFO
//   norm        a partial norm of gradients (norm_chain.hpp): a latency, no bytes
//   reduction   of the gradients of a position over its replicas, part by part; or what an
//               asynchronous replica exchanges with the parameter servers
//   collective  among the ranks of a device along an inner axis of the mesh, inside of an op
// It goes phase by phase: the flows of a phase start together, each with a share of the bytes, and
// the phase is over its latency after the last of them. Latency never occupies a link.
#pragma once

#include "program/recipe.hpp"

#include <cmath>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// Bytes that cross these links, all of them at one rate.
struct LinkFlow {
  std::vector<int> links;  ///< indices into the network's links
  double bytes = 0;        ///< in a Transfer: the share of what moves
};

/// The links that any of these flows crosses, each once.
std::vector<int> crossed_by(const std::vector<LinkFlow>& flows);

/// What a collective takes while its links carry nothing else: so much a call and a byte, joined as
/// (call^join + bytes^join)^(1/join). 1 is their sum; measured libraries have less, as the
/// protocols of middle sizes reach neither the latency of small ones nor the rate of large ones.
struct CollectivePrice {
  double call_s = 0, s_per_byte = 0, join = 1;
  auto operator<=>(const CollectivePrice&) const = default;

  double seconds(double bytes, double calls = 1) const {
    if (join == 1 || bytes <= 0 || calls <= 0) return calls * call_s + bytes * s_per_byte;
    const double flow_s = bytes / calls * s_per_byte;
    return calls * std::pow(std::pow(call_s, join) + std::pow(flow_s, join), 1 / join);
  }
  /// Returns the seconds of a segment that exchanges, over all times.
  double seconds(const Segment& segment) const {
    return seconds(static_cast<double>(segment.bytes), segment.calls);
  }
};

struct Transfer {
  enum class Kind : std::uint8_t { message, norm, reduction, collective };
  static constexpr std::size_t kKinds = 4;
  struct Phase {
    std::vector<LinkFlow> flows;
    double latency_s = 0;
    double s_per_byte = 0;  ///< of the bytes of the Transfer, its links for itself
    double join = 1;        ///< of latency and bytes (CollectivePrice)
    /// The bytes of its flows have been multiplied by it, so that they take what was measured:
    /// divided by it they are those that move.
    double pace = 1;

    CollectivePrice price() const { return {latency_s, s_per_byte, join}; }
    /// Returns the seconds from its last flow's end to its own.
    double after_s(double bytes, double calls) const {
      return join == 1 ? calls * latency_s : price().seconds(bytes, calls) - bytes * s_per_byte;
    }
  };

  Kind kind = Kind::message;
  int source = 0;            ///< a device; of a reduction the position, of a collective its device
  int destination = 0;       ///< of messages and norms
  bool backward = false;     ///< of messages: gradients
  Axis axis = Axis::tensor;  ///< of collectives
  Collective what = Collective::all_reduce;
  int replica = -1;  ///< of reductions: this one alone (asynchronous); -1: of all

  std::vector<Phase> phases;  ///< a message has one; none: a latency alone, or priced by others
  double latency_s = 0;       ///< of a message or norm: from its last byte to its arrival
  double bytes_per_s = 0;     ///< of a message that has its links for itself
  double sent_per_byte = 0;   ///< over all flows; also where they are not made because it is priced
  bool contended = false;     ///< shares a link with something else, or stands in line with itself

  /// Seconds of so many bytes, in one call, that have their links for themselves.
  double alone_s(double bytes) const {
    if (kind == Kind::message) return bytes / bytes_per_s + latency_s;
    if (kind == Kind::norm) return latency_s;
    double seconds = 0;
    for (const Phase& phase : phases) seconds += bytes * phase.s_per_byte + phase.after_s(bytes, 1);
    return seconds;
  }
  /// Returns the price of a collective, phase after phase; of several that are joined otherwise
  /// than as a sum no more than they take.
  CollectivePrice price() const {
    if (phases.size() == 1) return phases[0].price();
    CollectivePrice sum;
    for (const Phase& phase : phases) {
      sum.call_s += phase.latency_s;
      sum.s_per_byte += phase.s_per_byte;
    }
    return sum;
  }
  /// Of all phases together.
  std::vector<int> crossed_links() const;
  /// "channel 0->1 F", "the gradient reduction of stage 3", "the update of replica 2",
  /// "the tensor-parallel all-reduces of device 5".
  std::string describe() const;
};

}  // namespace penstock
