// SPDX-License-Identifier: Apache-2.0
// Random schedules in shapes that they admit.
#pragma once

#include "schedules/generator.hpp"

#include <random>

namespace penstock {

inline std::uint32_t random_between(std::mt19937_64& random, std::uint32_t low,
                                    std::uint32_t high) {
  return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
}

inline const Schedule& random_schedule(std::mt19937_64& random) {
  const auto all = schedules();
  return all[random_between(random, 0, static_cast<std::uint32_t>(all.size() - 1))];
}

/// Up to so many devices and microbatches per update; one replica, or as many of every stage.
inline ScheduleShape random_shape(const Schedule& schedule, std::mt19937_64& random,
                                  std::uint32_t most_devices, std::uint32_t most_microbatches) {
  const auto pick = [&](std::uint32_t low, std::uint32_t high) {
    return random_between(random, low, high);
  };
  const bool each = schedule.update == UpdateRule::stash;
  ScheduleShape shape;
  do {
    shape.depth = schedule.whole_model ? 1 : pick(1, most_devices);
    shape.microbatches_per_update = each ? 1 : pick(1, most_microbatches);
    shape.chunks = pick(0, 2) == 0 ? pick(1, 4) : schedule.chunks.usual;
  } while (!schedule.refuse(shape).empty());
  shape.batches = pick(1, 4);
  return shape;
}

inline std::uint32_t stages_of(const Schedule& schedule, const ScheduleShape& shape) {
  return schedule.layout == Layout::mirrored ? shape.depth : shape.stages();
}

/// Any transfer rule that is no deadlock: a rendezvous is one for many schedules of several chunks
/// or with a W between what is sent and what is received next.
inline Transfers random_transfers(const Schedule& schedule, const ScheduleShape& shape,
                                  std::mt19937_64& random) {
  const bool rendezvous = schedule.layout == Layout::loop && shape.chunks == 1 &&
                          !schedule.splits_backward && !schedule.pairs;
  Transfers transfers = Transfers::overlapped;
  do {
    transfers = static_cast<Transfers>(random_between(random, 0, 3));
  } while (transfers == Transfers::coupled && !rendezvous);
  return transfers;
}

}  // namespace penstock
