// One worker process: answers the points that rank 0 hands it, in their order, one at a time.
#pragma once

#include "sweep/supervisor.hpp"

namespace penstock {

/// Until rank 0 has ended or wants no more; returns the process's exit status. `in_hand` is the
/// point it is at.
int work(const Team& team, const Door& door, int number, std::atomic<std::uint64_t>& in_hand);

/// Of a point that could not be evaluated.
Row failed_row(std::uint64_t point, const std::string& why);

/// "took more than 60 s", "worker ended by signal 11 (Segmentation fault)".
std::string why_failed(int status, double point_limit_s);

}  // namespace penstock
