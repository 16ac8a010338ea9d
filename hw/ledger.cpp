// SPDX-License-Identifier: Apache-2.0
#include "hw/ledger.hpp"

#include <algorithm>

namespace penstock {

void Ledger::add_bytes(Owner owner, std::int64_t bytes, const Event& when) {
  if (bytes != 0) entries_.push_back({when, owner, bytes, op_});
}

MemoryPeak Ledger::peak() const {
  struct Change {
    double time_s;
    const Entry* entry;
  };
  std::vector<Change> changes;
  for (const Entry& e : entries_) {
    if (!e.when) changes.push_back({0, &e});
    if (e.when && e.when->fired()) changes.push_back({e.when->time_s(), &e});
  }
  std::ranges::stable_sort(changes, [](const Change& a, const Change& b) {
    if (a.time_s != b.time_s) return a.time_s < b.time_s;
    return a.entry->bytes < 0 && b.entry->bytes > 0;
  });
  MemoryPeak peak;
  MemoryUse now;
  std::int64_t total = 0, most = 0;
  for (const Change& change : changes) {
    now[change.entry->owner] += change.entry->bytes;
    total += change.entry->bytes;
    if (total <= most) continue;
    most = total;
    peak = {now, change.time_s, change.entry->op};
  }
  return peak;
}

}  // namespace penstock
