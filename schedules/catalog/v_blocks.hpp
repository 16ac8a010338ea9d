// SPDX-License-Identifier: Apache-2.0
// The building blocks of the V-shaped schedules in the catalog, for p devices.
#pragma once

#include "schedules/blocks.hpp"

namespace penstock {

BuildingBlock v_min_block(std::uint32_t depth);
BuildingBlock v_half_block(std::uint32_t depth);
BuildingBlock v_zb_block(std::uint32_t depth);
BuildingBlock one_f_one_b_v_block(std::uint32_t depth);

}  // namespace penstock
