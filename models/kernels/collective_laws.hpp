// SPDX-License-Identifier: Apache-2.0
// What a library's collectives inside a node were measured to take, as laws of three numbers: the
// latency of the smallest size, the rate of the largest one, and how they join (CollectivePrice).
#pragma once

#include "program/recipe.hpp"
#include "program/transfer.hpp"

#include <optional>
#include <vector>

namespace penstock {

struct KernelTimes;

/// What a collective among so many GPUs of a node takes, by the bytes of its whole buffer.
struct MeasuredCollective {
  Collective what = Collective::all_reduce;
  int ranks = 2;
  CollectivePrice price;
};

/// Returns laws of what was measured of NCCL, on links by which a GPU sends so many bytes per
/// second to the others: rates grow with those of the links, latencies do not. `join` is fitted to
/// sizes from 1 MiB on. Empty where nothing was measured, or not on which links.
std::vector<MeasuredCollective> collective_laws(const KernelTimes& times, double bytes_per_s);

/// Returns the price among other numbers of ranks than those measured: by the rate at which bytes
/// leave a GPU of the nearest number, and a latency that is linear in the ranks. None where nothing
/// of the kind was measured.
std::optional<CollectivePrice> measured_price(const std::vector<MeasuredCollective>& measured,
                                              Collective what, int ranks);

}  // namespace penstock
