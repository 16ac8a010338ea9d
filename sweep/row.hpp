// One row of a sweep: a point and what became of it. The columns are those of `simulate --format
// csv`, which is tested.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// Columns of numbers; a NaN is an empty cell. Units are in the names.
inline constexpr std::array<std::string_view, 32> kMeasures = {
    "stages",
    "tensor",
    "microbatches",
    "samples_per_update",
    "microbatch_size",
    "batches",
    "makespan_s",
    "iteration_time_s",
    "throughput_samples_per_s",
    "throughput_microbatches_per_s",
    "tokens_per_s_per_device",
    "tflops_per_device",
    "mfu",
    "hfu",
    "epoch_s",
    "bubble_fraction",
    "stage_bubble_fraction",
    "bubble_warmup",
    "bubble_imbalance",
    "bubble_transfer_wait",
    "bubble_drain",
    "bubble_gradient_reduction",
    "ops",
    "peak_memory_bytes",
    "capacity_bytes",
    "stash_peak",
    "weight_versions_peak",
    "staleness_max",
    "devices",
    "gpus",
    "optimistic",
    "chunks",
};

/// Text of the user's or of an error for a cell: without line feeds and what else moves a cursor.
std::string one_line(std::string text);

/// Does a column have whole numbers only?
bool is_count(std::string_view measure);

struct Row {
  enum class Status : std::uint8_t {
    ok,
    infeasible,  ///< simulated, and does not fit or never ends
    refused,     ///< the scenario cannot be simulated: what `simulate` calls an error
    failed,      ///< its worker crashed or ran out of time
  };

  std::uint64_t point = 0;
  Status status = Status::ok;
  std::string why;  ///< one line; empty when ok
  std::string scenario, engine, schedule, transfers, width, replication;
  std::array<double, kMeasures.size()> measures{};
};

/// As bytes, for pipes and messages between ranks; `decode` reads back exactly what was encoded.
std::string encode(const Row& row);
Row decode(std::string_view bytes);

}  // namespace penstock
