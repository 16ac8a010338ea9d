// SPDX-License-Identifier: Apache-2.0
// What configurations of other frameworks say of how a model is divided, and the parts of a
// scenario that follow from it.
#pragma once

#include "models/transformer.hpp"
#include "scenarios/import_notes.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

constexpr std::int64_t kGpusPerNode = 8;  ///< where a job does not say it

struct Division {
  std::int64_t stages = 1, width = 1, tensor = 1, context = 1, chunks = 1;
  std::int64_t microbatch_size = 1, batch = 1, accumulation_steps = 1;
  bool sequence_parallel = false, tensor_overlap = false, distributed_optimizer = false;
  std::string shard{};           ///< where it is more than a distributed optimizer
  std::int64_t shard_group = 0;  ///< where not all replicas are one
  std::string reshard_after_forward{}, context_exchange{};
  std::string schedule = "1f1b", recompute = "none", stack{};
  std::int64_t recomputed_layers = 0;  ///< of a stage, where not all are
  std::string recompute_modules{};     ///< of a layer, where recomputation is selective
  std::vector<std::int64_t> split{};   ///< layers per virtual stage, where it is said
  bool balanced = false;
};

/// Returns how many GPUs it takes; see ImportNotes::product_of.
std::int64_t gpus_of(const Division& division, ImportNotes& notes);

/// Returns all of a scenario but its name and its model; `cluster` as text of YAML.
std::string division_text(const Division& division, const std::string& cluster);

/// Returns the comments that a scenario begins with, and its name; `command`: of penstock import.
std::string job_head(const std::string& origin, const char* command, ImportNotes& notes);

/// What a job trains: keys of a model, a line each, and how many layers these make.
struct NamedModel {
  std::string keys;
  std::int64_t layers = 1;
  std::string missing{};
};

/// Returns a shipped model, or that of a config.json (the nearest dense one), without the length of
/// its sequences and its number type.
NamedModel model_of_name(const std::string& name);

/// Returns the model of keys as a scenario's lines have them, with sequences of one token where
/// these do not say it; an empty one where they are not enough.
TransformerSpec model_of_keys(const std::string& lines);

}  // namespace penstock
