// SPDX-License-Identifier: Apache-2.0
#include "scenarios/not_modelled.hpp"

#include <algorithm>
#include <string>

namespace penstock {
namespace {

constexpr std::string_view kContextParallel = "context parallelism is pipeline.context, its degree";
constexpr std::string_view kUlysses =
    "DeepSpeed-Ulysses is pipeline.ulysses, its degree; a ring of context ranks is "
    "pipeline.context";
constexpr std::string_view kExpertParallel = "expert parallelism is pipeline.expert, its degree";
constexpr std::string_view kExpertsOfModel =
    "experts are the model's: give model.num_experts and experts_per_token";
constexpr std::string_view kZero =
    "ZeRO and FSDP are pipeline.shard: optimizer (ZeRO-1), gradients (ZeRO-2) or weights (ZeRO-3, "
    "FSDP)";

constexpr std::string_view kInterleaved =
    "give pipeline.chunks, the number of virtual stages per device";

constexpr std::string_view kFp8 =
    "give model.precision: fp8 (or fp8-current, fp8-block, mxfp8, nvfp4)";

constexpr NotModelled kAll[] = {
    {"fp8", 1, kFp8},
    {"context_parallel", 2, kContextParallel},
    {"context_parallel_size", 2, kContextParallel},
    {"sequence_parallel_size", 2, kUlysses},
    {"expert_parallel", 2, kExpertParallel},
    {"expert_parallel_size", 2, kExpertParallel},
    {"expert_model_parallel_size", 2, kExpertParallel},
    {"expert_tensor_parallel_size", 2, kExpertParallel},
    {"num_experts", 1, kExpertsOfModel},
    {"num_local_experts", 1, kExpertsOfModel},
    {"moe", 1, kExpertsOfModel},
    {"zero", 2, kZero},
    {"zero_stage", 2, kZero},
    {"zero_optimization", 2, kZero},
    {"fsdp", 1, kZero},
    {"use_fsdp", 1, kZero},
    {"use_torch_fsdp2", 1, kZero},
    {"use_custom_fsdp", 1, kZero},
    {"use_megatron_fsdp", 1, kZero},
    {"num_layers_per_virtual_pipeline_stage", 1, kInterleaved},
    {"num_virtual_stages_per_pipeline_rank", 2, kInterleaved},
};

}  // namespace

const NotModelled* find_not_modelled(std::string_view key) {
  std::string plain(key);
  std::ranges::replace(plain, '-', '_');
  plain.erase(0, std::min(plain.find_first_not_of('_'), plain.size()));
  const auto found = std::ranges::find(kAll, plain, &NotModelled::key);
  return found == std::end(kAll) ? nullptr : &*found;
}

}  // namespace penstock
