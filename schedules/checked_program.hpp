// SPDX-License-Identifier: Apache-2.0
// A Program and what follows from it alone, whatever its ops cost: where each op stands, what the
// checker says, what the order of a device means. Points of a sweep that differ in costs only
// (recomputation, microbatch size, cluster) share one.
#pragma once

#include "program/dependencies.hpp"
#include "program/order_facts.hpp"
#include "schedules/lowering.hpp"

#include <list>
#include <memory>
#include <mutex>

namespace penstock {

struct CheckedProgram {
  /// Generates, lowers and checks the order. Precondition and exceptions: see `lower`.
  CheckedProgram(const Schedule& schedule, const ScheduleShape& shape,
                 const LoweringOptions& options);
  CheckedProgram(const CheckedProgram&) = delete;  // the table points into the program
  CheckedProgram& operator=(const CheckedProgram&) = delete;

  Program program;
  DependencyTable table;
  std::vector<std::string> problems;  ///< see `check_order`; empty: it means what it should
  std::vector<OrderFacts> facts;      ///< per device; empty where there are problems

  /// See `check_deadlock`; walked when first asked for. Precondition: no problems. Thread-safe.
  const std::vector<std::string>& deadlock() const;

 private:
  mutable std::once_flag walked_;
  mutable std::vector<std::string> deadlock_;
};

/// The programs that were asked for last: few, and never more than so many ops together. Schedules
/// are told apart by their address. Thread-safe.
class ProgramCache {
 public:
  std::shared_ptr<const CheckedProgram> get(const Schedule& schedule, const ScheduleShape& shape,
                                            const LoweringOptions& options);
  /// Keeps one that was made elsewhere, as `get` would have made it.
  void keep(const Schedule& schedule, const ScheduleShape& shape, const LoweringOptions& options,
            std::shared_ptr<const CheckedProgram> made) {
    keep({&schedule, shape, options, std::move(made)});
  }

 private:
  struct Entry {
    const Schedule* schedule;
    ScheduleShape shape;
    LoweringOptions options;
    std::shared_ptr<const CheckedProgram> made;
  };
  static constexpr std::size_t kMostPrograms = 16;
  static constexpr std::size_t kMostOps = 200'000;  // about 20 bytes each

  std::shared_ptr<const CheckedProgram> find(const Schedule& schedule, const ScheduleShape& shape,
                                             const LoweringOptions& options);
  void keep(Entry entry);

  std::mutex mutex_;
  std::list<Entry> entries_;  // the last one asked for is the first
  std::size_t ops_ = 0;
};

}  // namespace penstock
