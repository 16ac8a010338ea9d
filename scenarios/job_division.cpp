// SPDX-License-Identifier: Apache-2.0
#include "scenarios/job_division.hpp"

#include "base/error.hpp"
#include "models/shape_keys.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

namespace penstock {

std::int64_t gpus_of(const Division& d, ImportNotes& notes) {
  return notes.product_of({d.stages, d.width, d.tensor, d.context}, "GPUs");
}

std::string division_text(const Division& d, const std::string& cluster) {
  std::string out =
      fmt::format("cluster: {}\n{}schedule: {}\npipeline:\n  stages: {}\n", cluster,
                  d.stack.empty() ? "" : fmt::format("stack: {}\n", d.stack), d.schedule, d.stages);
  if (d.chunks > 1) out += fmt::format("  chunks: {}\n", d.chunks);
  out += fmt::format("  width: {}\n", d.width);
  if (d.tensor > 1) out += fmt::format("  tensor: {}\n", d.tensor);
  if (d.context > 1) out += fmt::format("  context: {}\n", d.context);
  if (d.context > 1 && !d.context_exchange.empty())
    out += fmt::format("  context_exchange: {}\n", d.context_exchange);
  if (d.tensor > 1 && d.sequence_parallel) out += "  sequence_parallel: true\n";
  if (d.tensor > 1 && d.tensor_overlap) out += "  tensor_overlap: true\n";
  if (d.width * d.context > 1 && !d.shard.empty())
    out += fmt::format("  shard: {}\n", d.shard);
  else if (d.width > 1 && d.distributed_optimizer)
    out += "  distributed_optimizer: true\n";
  if (d.width * d.context > 1 && !d.reshard_after_forward.empty())
    out += fmt::format("  reshard_after_forward: {}\n", d.reshard_after_forward);
  if (d.width * d.context > 1 && d.shard_group > 0)
    out += fmt::format("  shard_group: {}\n", d.shard_group);
  out += fmt::format("  microbatch_size: {}\n  global_batch_size: {}\n  recompute: {}\n",
                     d.microbatch_size, d.batch, d.recompute);
  if (!d.recompute_modules.empty())
    out += fmt::format("  recompute_modules: [{}]\n", d.recompute_modules);
  if (d.recomputed_layers > 0)
    out += fmt::format("  recompute_method: block\n  recompute_layers: {}\n", d.recomputed_layers);
  if (d.accumulation_steps > 1)
    out += fmt::format("  accumulation_steps: {}\n", d.accumulation_steps);
  if (!d.split.empty()) return out + fmt::format("  split: [{}]\n", fmt::join(d.split, ", "));
  return d.balanced && d.stages > 1 ? out + "  split: balanced\n" : out;
}

std::string job_head(const std::string& origin, const char* command, ImportNotes& notes) {
  return fmt::format("# {} by `penstock import {}`\n{}", as_comment(origin), command,
                     notes.head(origin));
}

NamedModel model_of_name(const std::string& name) {
  if (!name.ends_with(".json"))
    return {fmt::format("  base: {}\n", name), load_model(name).num_layers, ""};
  const ForeignModel nearest = foreign_model(name);
  NamedModel model{"", nearest.model.num_layers, nearest.missing};
  for (const auto& [key, value] : shape_keys(nearest.model))
    if (key != "seq_length" && key != "precision")
      model.keys += fmt::format("  {}: {}\n", key, value);
  return model;
}

TransformerSpec model_of_keys(const std::string& lines) {
  std::string map, line;
  std::istringstream in(lines);
  while (std::getline(in, line))
    if (line.starts_with("  ")) map += line + ",";
  if (map.find("seq_length:") == map.npos) map += "seq_length: 1";
  try {
    return load_model("{" + map + "}");
  } catch (const InputError&) {
    return {};
  }
}

}  // namespace penstock
