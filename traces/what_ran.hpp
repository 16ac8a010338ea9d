// What was recorded of a run, as a program of its own in the order in which it happened, whole or
// stopped: ops that did not run are left out, and so are messages whose other end did not run.
#pragma once

#include "traces/metrics.hpp"
#include "traces/recording.hpp"

#include <memory>

namespace penstock {

class WhatRan {
 public:
  /// Of the program that `run` was laid beside, whose dependencies are `table`.
  WhatRan(const Program& program, const DependencyTable& table, const RecordedTimeline& run);
  WhatRan(const WhatRan&) = delete;
  WhatRan& operator=(const WhatRan&) = delete;

  TimelineView view() const { return {program_, *table_, *timeline_}; }

 private:
  Program program_;
  std::unique_ptr<DependencyTable> table_;
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace penstock
