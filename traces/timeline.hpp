// When everything happened: what every engine returns, predicted or measured.
//
// Arrays parallel to the Program's ops, 32 bytes per op: the span of the op itself, and the span of
// the message the op waited for (from the moment it occupies the link until it has arrived).
#pragma once

#include "base/op_lists.hpp"

#include <cmath>
#include <memory>

namespace penstock {

struct Span {
  double start_s;
  double end_s;
  double length_s() const { return end_s - start_s; }
};

class Timeline {
 public:
  /// Spans of `ops` ops, not yet known: nothing has run, no message was sent.
  explicit Timeline(std::uint32_t ops)
      : size_(ops),
        ops_(std::make_unique_for_overwrite<Span[]>(ops)),
        messages_(std::make_unique_for_overwrite<Span[]>(ops)) {
    for (std::uint32_t g = 0; g < ops; ++g) messages_[g] = {kUnknown, kUnknown};
  }

  std::uint32_t size() const { return size_; }
  Span& op(std::uint32_t g) { return ops_[g]; }
  const Span& op(std::uint32_t g) const { return ops_[g]; }
  /// The message op g waits for; `has_message` tells whether there is one.
  Span& message(std::uint32_t g) { return messages_[g]; }
  const Span& message(std::uint32_t g) const { return messages_[g]; }
  bool has_message(std::uint32_t g) const { return messages_[g].end_s >= 0; }

  double makespan_s = 0;  ///< end of the last op or message

 private:
  static constexpr double kUnknown = -1;
  std::uint32_t size_;
  std::unique_ptr<Span[]> ops_;
  std::unique_ptr<Span[]> messages_;
};

}  // namespace penstock
