// Tables of measured iteration times of Megatron-style training: tensor x data x pipeline
// parallelism, one configuration per line, as published with vTrain (Bang et al., MICRO'24).
//
// The header names the columns, in any order: "# GPUs, global batch, micro batch, hidden size,
// attention heads, # layers, sequence length, tensor parallelism, data parallelism, pipeline
// parallelism, iteration time (ms)". Other columns are left alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// One configuration: a transformer's shape, how it was spread, and how long an iteration took.
struct TrainingRun {
  int line = 0;  ///< of the file
  int gpus = 0, global_batch = 0, micro_batch = 0;
  int hidden = 0, heads = 0, layers = 0, sequence = 0;
  int tensor = 0, data = 0, pipeline = 0;
  double measured_s = 0;

  /// Per pipeline and update.
  int microbatches() const { return global_batch / (micro_batch * data); }
  /// "line 12: 8 GPUs, h 1024, 24 layers, b 4, t 2, d 2, p 2, 8 microbatches".
  std::string name() const;
  /// Of what was run and how long it took, not of its line; for recognising a row.
  std::uint32_t fingerprint() const;
};

/// Throws InputError naming every cell that is wrong: `file:line:column`.
std::vector<TrainingRun> parse_training_runs(const std::string& text, const std::string& origin);

}  // namespace penstock
