// SPDX-License-Identifier: Apache-2.0
#include "schedules/checked_program.hpp"

#include "program/check.hpp"

#include <algorithm>

namespace penstock {

CheckedProgram::CheckedProgram(const Schedule& schedule, const ScheduleShape& shape,
                               const LoweringOptions& options)
    : program(lower(schedule, shape, options)),
      table(program.ops, program.placement, program.microbatches()),
      problems(check_order(program, table)) {
  if (!problems.empty()) return;
  for (int d = 0; d < program.ops.devices(); ++d) facts.push_back(order_facts(program, d));
}

const std::vector<std::string>& CheckedProgram::deadlock() const {
  std::call_once(walked_, [&] { deadlock_ = check_deadlock(program, table); });
  return deadlock_;
}

std::shared_ptr<const CheckedProgram> ProgramCache::get(const Schedule& schedule,
                                                        const ScheduleShape& shape,
                                                        const LoweringOptions& options) {
  if (auto known = find(schedule, shape, options)) return known;
  auto made = std::make_shared<const CheckedProgram>(schedule, shape, options);
  keep({&schedule, shape, options, made});
  return made;
}

std::shared_ptr<const CheckedProgram> ProgramCache::find(const Schedule& schedule,
                                                         const ScheduleShape& shape,
                                                         const LoweringOptions& options) {
  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find_if(entries_, [&](const Entry& e) {
    return e.schedule == &schedule && e.shape == shape && e.options == options;
  });
  if (entry == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->made;
}

void ProgramCache::keep(Entry entry) {
  if (entry.made->program.ops.size() > kMostOps) return;
  const std::lock_guard lock(mutex_);
  ops_ += entry.made->program.ops.size();
  entries_.push_front(std::move(entry));
  while (ops_ > kMostOps || entries_.size() > kMostPrograms) {
    ops_ -= entries_.back().made->program.ops.size();
    entries_.pop_back();
  }
}

}  // namespace penstock
