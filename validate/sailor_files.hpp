// SPDX-License-Identifier: Apache-2.0
// The files of Sailor's published measurements (Strati et al., SOSP'25): one JSON file per
// configuration that was run, with its iteration time and peak memory; layer times per model and
// kind of GPU; network bandwidths as polynomials.
//
//   plan      {"pipeline_list": [{"layers_per_stage": [[0, 1, ...], ...], "dp": [...],
//             "tmp_per_stage": [stage][replica][[[GPU, GPUs of a node, zone]], tensor degree]}],
//             "mbs", "gbs": sequences, "real": s, "max_mem": bytes}
//   profile   {microbatch size: {tensor degree: {layer: [forward_s, backward_s, update_s]}}}
//   network   {"inter": {GPU: {GPUs that send: [[a, b, c], most bytes/s]}}}: together they move
//             a x^2 + b x + c GB/s in messages of 2^x MB each
// Layer 0 is the embedding, the last one the LM head.
#pragma once

#include "models/transformer.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock {

/// The GPUs that hold one replica of a stage: tensor-parallel ranks of one node.
struct SailorReplica {
  std::string gpu;  ///< kind, e.g. GH-96
  int tensor = 1;
  std::string zone;
};

struct SailorPipeline {
  std::vector<std::vector<int>> layers;              ///< [stage]
  std::vector<std::vector<SailorReplica>> replicas;  ///< [stage][replica]

  int depth() const { return static_cast<int>(layers.size()); }
  int width() const { return static_cast<int>(replicas.front().size()); }
};

/// A configuration that was run. Times in seconds; what was not measured is left out.
struct SailorPlan {
  std::string file, name;
  std::vector<SailorPipeline> pipelines;  ///< side by side; their gradients are added
  int microbatch_size = 1;
  int batch_size = 1;                     ///< sequences per update
  std::optional<double> measured_s;       ///< iteration
  std::optional<std::int64_t> max_bytes;  ///< peak of the fullest GPU

  int depth() const;
  int width() const;  ///< replicas of all pipelines
  int layers() const;
  int microbatches() const;  ///< per replica
  std::set<std::string> gpus() const;
};
/// Throws InputError naming every problem of the text.
SailorPlan parse_sailor_plan(const std::string& text, const std::string& origin);

struct LayerTimes {
  double forward_s = 0, backward_s = 0, update_s = 0;
};

/// Layer times of one model on one kind of GPU.
///
/// `times` takes back what shows that the host's launches were measured instead of the GPU: an op
/// that is slower than the same op on more sequences takes the least time at this or a larger
/// microbatch and this or a smaller tensor degree, neither of which changes the number of launches.
class SailorProfile {
 public:
  /// Throws InputError naming every problem of the text.
  static SailorProfile parse(const std::string& text, const std::string& origin);

  /// A model's times on one kind of GPU and another model's on two kinds.
  struct Reference {
    const SailorProfile &from, &to;
  };
  /// The times of a model on a kind of GPU where it was not profiled: those on another, times the
  /// geometric mean of what the references' embedding, middle block and head gain from there to
  /// here. Sizes and degrees are those that every profile has; it may have none.
  static SailorProfile estimate(const SailorProfile& elsewhere,
                                const std::vector<Reference>& references,
                                const std::string& origin);

  int layers() const { return layers_; }
  bool empty() const { return table_.empty(); }
  /// Was the optimizer timed? Profiles without it were taken in another way, some of them in fp32:
  /// they are ten times slower than others of the same GPU.
  bool has_updates() const;
  /// Adds the sizes and degrees that `other`, of as many layers, has and this one does not.
  void add_missing(const SailorProfile& other);
  /// Throws InputError when the microbatch size or tensor degree was not measured.
  LayerTimes times(int microbatch_size, int tensor, int layer) const;

 private:
  using Layers = std::vector<LayerTimes>;
  const Layers& at(int microbatch_size, int tensor) const;
  const Layers* find(int microbatch_size, int tensor) const;
  double without_launches(int microbatch_size, int tensor, int layer,
                          double LayerTimes::*part) const;

  std::string origin_;
  int layers_ = 0;
  std::map<int, std::map<int, Layers>> table_;  // [microbatch size][tensor degree]
};

/// What the NICs of a node deliver, by kind of GPU.
class SailorNetwork {
 public:
  /// Throws InputError naming every problem of the text.
  static SailorNetwork parse(const std::string& text, const std::string& origin);

  /// Bandwidth of each of `senders` GPUs of a node that send messages of `bytes` at once, bytes/s.
  double bytes_per_s(const std::string& gpu, int senders, double bytes) const;

 private:
  struct Curve {
    double a = 0, b = 0, c = 0;  // GB/s over log2(MB)
    double most = 0;             // bytes/s
  };
  std::string origin_;
  std::map<std::string, std::map<int, Curve>> curves_;
};

/// A training configuration ("hidden_size", "sequence_length", "num_layers", "vocab_size", "heads",
/// "model"). Throws InputError naming every problem of the text.
TransformerSpec parse_sailor_model(const std::string& text, const std::string& origin);

/// The published shape of a model that has layer times but no training configuration; none when the
/// name is not known.
std::optional<TransformerSpec> known_sailor_model(const std::string& name);

}  // namespace penstock
