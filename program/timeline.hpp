// When everything happened: what every engine returns, predicted or measured.
//
// Arrays parallel to the Program's ops, 32 bytes per op: the span of the op itself, and the span of
// the message the op waited for (from the moment it occupies the link until it has arrived).
#pragma once

#include "program/op_lists.hpp"

#include <string>

namespace penstock {

struct Span {
  double start_s;
  double end_s;
  double length_s() const { return end_s - start_s; }
};

class Timeline {
 public:
  /// Spans of `ops` ops, not yet known: nothing has run, no message was sent.
  explicit Timeline(std::uint32_t ops) : ops_(ops), messages_(ops, Span{kUnknown, kUnknown}) {}

  std::uint32_t size() const { return static_cast<std::uint32_t>(ops_.size()); }
  Span& op(std::uint32_t g) { return ops_[g]; }
  const Span& op(std::uint32_t g) const { return ops_[g]; }
  /// The message op g waits for; `has_message` tells whether there is one.
  Span& message(std::uint32_t g) { return messages_[g]; }
  const Span& message(std::uint32_t g) const { return messages_[g]; }
  bool has_message(std::uint32_t g) const { return messages_[g].end_s >= 0; }

  bool never_ran(std::uint32_t g) const {
    return !stalled_because.empty() && ops_[g].start_s == makespan_s && ops_[g].length_s() == 0;
  }

  double makespan_s = 0;  ///< end of the last op
  /// Not empty: why the run stood still for ever. What had not happened by then stands at
  /// `makespan_s`, without length.
  std::string stalled_because;
  /// Per link of the cluster, predicted: flows on it at the same time, at most; empty when nothing
  /// takes time to travel.
  std::vector<std::uint32_t> peak_flows;

 private:
  static constexpr double kUnknown = -1;
  LargeVector<Span> ops_;
  LargeVector<Span> messages_;
};

}  // namespace penstock
