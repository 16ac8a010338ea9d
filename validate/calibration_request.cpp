// SPDX-License-Identifier: Apache-2.0
#include "validate/calibration_request.hpp"

#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A GPT that a laptop computes in milliseconds.
TransformerSpec small_gpt() {
  TransformerSpec m;
  m.name = "small-gpt";
  m.num_layers = 8;
  m.hidden_size = 256;
  m.num_attention_heads = m.num_query_groups = 4;
  m.ffn_hidden_size = 1024;
  m.vocab_size = 1024;
  m.seq_length = 128;
  m.tie_embeddings = false;
  m.compute_type = "fp32";
  return m;
}

bool is_scenario(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && load_document(path).find("schedule") != nullptr;
}

/// What a scenario runs: its model, microbatch size, recomputation and devices.
void request_scenario(const std::string& path, CalibrationRequest& request) {
  const Scenario scenario = load_scenario(path);
  if (!scenario.transformer)
    throw InputError(path,
                     "gives its model as costs, so there is nothing to measure; name a model "
                     "by shape");
  request.model = *scenario.transformer;
  request.microbatch_sizes = {scenario.microbatch_size};
  std::set<Recompute> granularities;  // what single layers take is part of `none` and `full`
  for (const Recomputation& r : scenario.recompute.distinct()) {
    if (!r.plain()) granularities.insert(Recompute::none);
    granularities.insert(r.granularity);
  }
  request.recompute.assign(granularities.begin(), granularities.end());
}

}  // namespace

CalibrationRequest calibration_request(const std::string& name) {
  CalibrationRequest request;
  request.optimizer.kind = OptimizerSpec::Kind::adamw;  // as `penstock replay`
  request.optimizer.weight_decay = 0.01;
  if (name.empty())
    request.model = small_gpt();
  else if (is_scenario(name))
    request_scenario(name, request);
  else
    request.model = load_model(fs::exists(name) ? fs::absolute(name).string() : name);
  return request;
}

void set_precision(CalibrationRequest& request, const std::string& backend,
                   const std::string& asked) {
  if (backend == "host" && asked == "bf16")
    throw InputError("--precision", "the host computes in fp32; bf16 needs --backend cuda");
  const bool bf16 =
      backend == "cuda" && (asked.empty() ? request.model.compute_type : asked).ends_with("16");
  request.precision = bf16 ? Precision::bf16 : Precision::fp32;
  request.model.compute_type = bf16 ? "bf16" : "fp32";
}

void add_message_sizes(CalibrationRequest& request) {
  const std::int64_t element = request.precision == Precision::bf16 ? 2 : 4;
  std::vector<std::int64_t>& sizes = request.message_bytes;
  for (const std::int64_t size : request.microbatch_sizes)
    sizes.push_back(size * request.model.seq_length * request.model.hidden_size * element);
  std::ranges::sort(sizes);
  const auto [same, end] = std::ranges::unique(sizes);
  sizes.erase(same, end);
}

}  // namespace penstock
