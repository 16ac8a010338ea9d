// SPDX-License-Identifier: Apache-2.0
// Published training runs as a table, one per line: the shape of a model, how it was divided, how
// long an iteration took and how much memory it needed. A row is a scenario and what was measured.
// Its scenario is written as a person would write it, and what `simulate` says of that text is the
// prediction.
//
// Columns (others are named and ignored; those in brackets may be missing or empty): id, model,
// [family], layers, hidden, heads, [kv_heads, intermediate], vocab, [tied], seq, [flash, precision,
// grad_bytes or bytes_json], gpu or cluster_json, [nodes], dp, tp, [cp], pp, microbatch,
// microbatches, [zero], [sequence_parallel or tp_mode], [schedule, transfers, chunks, recompute,
// split, reduction, overlap_grad_reduce, stack, source, flags (what they say of CUDA graphs)],
// [iteration_s, samples_per_s or tflops_per_gpu, peak_gib, peak_of, finished, class], [left_out:
// why a row is none, by whoever made the table; unsupported: why it cannot be predicted, which
// leaves it out, too, but as an error], [note: what a report says of the row].
//
// Or `scenario_json`, a whole scenario, with id, [model], pp and what was measured.
//
// Or those of vTrain's tables (Bang et al., MICRO'24), known by "iteration time (ms)": # GPUs,
// global batch, micro batch, hidden size, attention heads, # layers, sequence length, tensor, data
// and pipeline parallelism. Or JSON of SimuMax (validate/simumax.hpp), or a summary
// (validate/published_summaries.hpp).
#pragma once

#include "base/csv.hpp"

#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Which memory was measured.
enum class PeakOf {
  fullest_stage,  ///< of the GPU that has the most
  first_stage,    ///< of rank 0
};

struct RunRow {
  std::string id;
  int line = 0;  ///< in the file
  int pipeline_depth = 1;
  std::string row_class;     ///< of its column `class`; may be empty
  std::string model;         ///< of its column `model`; may be empty
  std::string note;          ///< of its column `note`: what a report says of it; may be empty
  std::string left_out;      ///< why there is no scenario; empty: there is one
  bool unsupported = false;  ///< it is left out because it cannot be predicted, not as asked for
  std::string scenario;      ///< as YAML
  std::optional<double> measured_s, measured_bytes;
  /// TFLOP/s per GPU of the model's FLOPs, where no time was measured: `simulate` counts those
  /// (docs/metrics.md), and the time follows.
  std::optional<double> measured_tflops;
  bool attention_by_half = false;  ///< those FLOPs count attention as a causal mask leaves it
  PeakOf peak_of = PeakOf::fullest_stage;
  /// As nvidia-smi shows it: with the CUDA context and what the allocator keeps unused.
  bool of_whole_gpu = false;
  std::optional<bool> finished;  ///< did it run at all
};

/// Returns whether a header names the columns of such a table, all or all but two.
bool is_run_table(const std::vector<std::string>& columns);

/// Returns the columns that nothing is made of, in quotes, with what they may mean; "" where there
/// are none.
std::string unknown_columns(const std::string& text, const std::string& origin);

/// Returns the rows of a table, with `op_times` as its columns of op times say instead of its
/// shapes. Throws InputError with everything that is wrong.
std::vector<RunRow> parse_run_table(const std::string& text, const std::string& origin,
                                    bool op_times = false);

}  // namespace penstock
