// SPDX-License-Identifier: Apache-2.0
// When everything happened: what every engine returns, predicted or measured.
//
// Arrays parallel to the Program's ops, 32 bytes per op: the span of the op itself, and the span of
// the message the op waited for (from the moment it occupies the link until it has arrived).
#pragma once

#include "program/op_lists.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <new>
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
  explicit Timeline(std::uint32_t ops)
      : size_(ops), own_(2 * std::size_t{ops}), ops_(own_.data()), messages_(ops_ + ops) {
    no_messages();
  }
  /// The same in memory that what this process forks shares with it, not even initialised: one of
  /// them calls `no_messages`. Throws std::bad_alloc.
  static Timeline shared(std::uint32_t ops) { return Timeline(ops, Shared()); }
  /// Of shared memory: has this process's pages of it there at once, where the kernel can, instead
  /// of one fault a page.
  void map_all() {
    if (shared_) ::madvise(shared_.get(), shared_.get_deleter().bytes, kPopulate);
  }

  void no_messages() { std::fill(messages_, messages_ + size_, Span{kUnknown, kUnknown}); }
  std::uint32_t size() const { return size_; }
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
  static constexpr int kPopulate = 23;  // MADV_POPULATE_WRITE, which old headers lack (Linux 5.14)
  struct Shared {};
  struct Unmap {
    std::size_t bytes;
    void operator()(void* memory) const { ::munmap(memory, bytes); }
  };

  Timeline(std::uint32_t ops, Shared)
      : size_(ops), shared_(nullptr, Unmap{std::max<std::size_t>(1, 2 * ops * sizeof(Span))}) {
    void* const memory = ::mmap(nullptr, shared_.get_deleter().bytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    shared_.reset(memory);
    ops_ = static_cast<Span*>(memory);
    messages_ = ops_ + ops;
  }

  std::uint32_t size_;
  LargeVector<Span> own_;
  std::unique_ptr<void, Unmap> shared_{nullptr, Unmap{0}};
  Span* ops_ = nullptr;
  Span* messages_ = nullptr;
};

}  // namespace penstock
