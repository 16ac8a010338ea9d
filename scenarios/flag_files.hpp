// SPDX-License-Identifier: Apache-2.0
// Megatron's flags as YAML or JSON instead of a script: the same options, under other names.
//
//   Megatron-LM's tests     MODEL_ARGS: {--num-layers: 12, ...}; its own --yaml-cfg
//   Primus                  modules: {pre_trainer: {model: FILE, overrides: {num_layers: ...}}}
//   NeMo 1 and 2            trainer: {devices, num_nodes}, model: {...}; Megatron-Bridge: model:,
//   train: GPT-NeoX                {"pipe-parallel-size": 4, "num-layers": 44, ...} DeepSpeed's
//   config      a part of a job, which a script's --deepspeed_config names
//
// Every key becomes an option of Megatron-LM (or Megatron-DeepSpeed) by a table of other names;
// what a key means is said once, where options are read (megatron_import.cpp).
#pragma once

#include "scenarios/shell_words.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A job of Megatron's family, wherever it comes from.
struct MegatronJob {
  std::vector<ScriptOption> options;
  std::string origin, cluster, model;   ///< as scenario_of_megatron has them
  std::vector<std::string> programs{};  ///< names of Python programs in it, without ".py"
  std::vector<std::string> notes{};     ///< what was assumed
  bool is_script = true, by_deepspeed = false;
  ScriptSurroundings defined{};
  std::map<std::string, std::string> written{};  ///< files that the script writes
};

/// Returns whether a file of JSON or YAML has keys of a job's, rather than a model's alone.
bool has_keys_of_job(const std::string& text, const std::string& origin);

/// Returns whether it is YAML or JSON, rather than a script.
bool is_flag_file(std::string_view text, const std::string& origin);

/// Adds the options that a file of YAML or JSON has. Throws InputError where it is none of the
/// kinds above, and where a file that it names is not there.
void read_flag_file(const std::string& text, MegatronJob& job);

/// Adds what the file of --yaml-cfg says. Throws InputError where it is not beside the script.
void read_yaml_cfg(MegatronJob& job);

/// Adds how many hosts and GPUs DeepSpeed's --hostfile names, where it lies beside the script and
/// no flag says it. Throws InputError where a line is none of "HOST slots=GPUS".
void read_hostfile(MegatronJob& job);

/// Adds what the file of --deepspeed-config says, where the script writes it or it lies beside it:
/// it counts before flags that say the same.
void read_deepspeed_config(MegatronJob& job);

}  // namespace penstock
