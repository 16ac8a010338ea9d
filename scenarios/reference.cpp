// SPDX-License-Identifier: Apache-2.0
// docs/scenario.md, made from the table of keys.
#include "scenarios/keys.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr const char* kIntroduction = R"(# Scenarios

<!-- Written by `penstock init --keys` from the table in scenarios/keys.cpp: change it there. -->

A scenario is a YAML file that says what is trained, on what, and under which schedule.
`penstock simulate FILE` predicts how it runs; `penstock init` prints a commented one to start from.

A real model on real machines:

```yaml
# yaml-language-server: $schema=./scenario.schema.json
name: GPT-2.2B on one p3.16xlarge
model: gpt-2.2b                     # `penstock list models`, a file, or inline
cluster: p3.16xlarge                # `penstock list clusters`, a file, or inline
schedule: pipedream-2bw             # `penstock schedule list`
pipeline: {stages: 8, width: 1, microbatch_size: 8, microbatches: 8, recompute: full}
batches: 4                          # simulated; steady state is measured after the first
```

Abstract costs, for studying a schedule by itself:

```yaml
model: {forward: 1 s, backward: 2 s, output: 48 MiB}     # a list gives one per stage
cluster: {devices: 4, link: {latency: 0.5 s, bandwidth: 25 GB/s}}
transfers: overlapped
schedule: gpipe
pipeline: {stages: 4, microbatches: 8}
```

- **Units.** Quantities have a unit (`1.5 us`, `48 MiB`, `25 GB/s`, `100 Gbps`, `125 TFLOP/s`); 0 needs
  none. GB is 10^9 bytes and GiB 2^30; Gbps counts bits and GB/s bytes.
- **Names, files, maps.** `model`, `cluster`, `device` and `stack` take a shipped name, a file
  (`my/model.yaml`, relative to the file that names it), or a map. `{base: NAME, key: value}` starts
  from another one and changes some keys.
- **Profiles.** `penstock calibrate -o my-profile.yaml` measures a model on a machine. `model:
  my-profile.yaml` takes what it measured of the model's stages, `cluster: my-profile.yaml` what it
  measured of the links; `{base: my-profile.yaml, key: value}` changes some of it.
- **Profiles of layers.** `model: vgg16/graph.txt` (or `{profile: vgg16/graph.txt, profile_batch: 128}`)
  reads the layer times of PipeDream's profiler: `ID -- DESCRIPTION -- forward_compute_time=MS,
  backward_compute_time=MS, activation_size=BYTES, parameter_size=BYTES` per layer, `<tab>ID -- ID`
  per edge. A stage takes the sum of its layers and sends every tensor that a later stage reads. The
  split is balanced unless given; `Input` layers and items that nobody reads are left out; half of a
  backward counts as I, half as W; the optimizer takes no time.
- **Other tools' names.** The names of Megatron and Hugging Face in the last column work, too. A
  `config.json` can be used as it is: `model: llama/config.json`; give `seq_length` with it, as the
  file says only how long a sequence can be: `model: {base: llama/config.json, seq_length: 8192}`.
  Its number type becomes `precision`; what cannot be modelled is refused, what is not understood
  is noted. `penstock import` writes the nearest dense model of a mixture of experts.
- **From the command line.** `--set key=value` changes any key: `--set pipeline.stages=8`, or
  `--set stages=8` where no other key has that name. `--set 'cluster.inter=100 Gbps'` on a named
  cluster changes that link and nothing else. Files named there are looked up in the working
  directory, then beside the scenario. `--set schedule=NAME` takes the job along: keys of the file
  that are for its own schedule only are left out, and lists of virtual stages in `pipeline` are
  divided anew, so that every device keeps its layers, or all are balanced where the last stage moves
  to another device; `transfers: coupled` becomes `overlapped` where devices have several stages; a
  note says so. Costs in `model` stay as they are: give them by device (a number, or one per device),
  which any number of chunks divides.
- **Mistakes** are reported all at once, each with its place. Editors find them while you type with
  `scenarios/scenario.schema.json`.
)";

struct Chapter {
  std::string_view section, title, text;
};

constexpr Chapter kChapters[] = {
    {"scenario", "The scenario", "Only `model` and `schedule` are required."},
    {"block", "`schedule` as a building block",
     "The passes of one microbatch, repeated every `interval` slots, squeezed and reordered (Qi et "
     "al., NeurIPS'24). Example, a V on two devices: `{forward: [0, 1, 2, 3], backward_input: [7, "
     "6, 5, 4]}`. `penstock schedule show FILE.yaml` draws it."},
    {"slots", "`schedule.slots`", ""},
    {"pipeline", "`pipeline`", ""},
    {"reduction", "`pipeline.reduction`", ""},
    {"model", "`model`",
     "By shape (a transformer; its costs follow from the cluster's device), by costs per stage, or "
     "by a profile of its layers; one of them. A model by shape needs num_layers, hidden_size, "
     "num_attention_heads, vocab_size and seq_length, one by costs forward and backward."},
    {"bytes_per_parameter", "`model.bytes_per_parameter`", ""},
    {"measured", "`model.measured`",
     "A row of a profile. An op of a stage takes `overhead` + layers * `layer` + `embedding` "
     "(first stage) + `head` (last stage); activations likewise."},
    {"measured_part", "`model.measured`: layer, embedding, head, overhead", ""},
    {"measured_step", "`model.measured_step`",
     "A step takes `overhead` + parameters * `per_parameter`."},
    {"cluster", "`cluster`",
     "Abstract (devices, with link or network) or real (nodes, devices_per_node, intra, inter "
     "...); not both. `{base: dgx-a100, nodes: 8, inter: 100 Gbps}` changes a shipped cluster. "
     "Nodes may differ: `{inter: 25 Gbps, groups: [{base: dgx-a100, nodes: 2}, {nodes: 4, device: "
     "V100-16, devices_per_node: 4, intra: 50 GB/s}]}`. GPUs are numbered node by node. A message "
     "takes one way and is never striped over several NICs or uplinks."},
    {"link", "Links: `cluster.link`, `cluster.intra`, `cluster.inter` and those of pcie and fabric",
     "A bandwidth alone (`inter: 100 Gbps`), which leaves the rest of a `base` as it is, or a map. "
     "`intra` and `inter` have the latency of a message from port to port; the links of pcie and "
     "fabric add theirs each time a message crosses one."},
    {"mesh", "`cluster.mesh`",
     "A list such as `[{between: [0, 1], links: 2}, {between: [1, 2]}]`. Two GPUs without a link "
     "need `pcie`; no message goes through a third GPU."},
    {"pcie", "`cluster.pcie`",
     "GPU - switch - socket. Two GPUs of one switch meet there, others over the uplinks of their "
     "switches and, where these are on different sockets, the link between the sockets. Used by "
     "`attachment: pcie`, by a mesh with gaps, and by NICs that are not `direct`."},
    {"fabric", "`cluster.fabric`",
     "Examples: `{topology: switch, rails: true}`; `{topology: fat-tree, leaf: 4, "
     "oversubscription: 3}`; `{topology: dragonfly, groups: 9, routers: 4, nodes_per_router: 2}`; "
     "`{topology: torus, shape: 4x4x2}`. Nodes take their places in the order of their numbers. A "
     "dragonfly's messages take the shortest way (local, global, local cable), a torus's go "
     "dimension by dimension, the shorter way round (forth, if both are as short)."},
    {"edge", "`cluster.network`",
     "A list of edges, such as `{devices: 4, network: [{between: [0, rack], bandwidth: 1 Gbps}, "
     "{between: [rack, 1], bandwidth: 10 Gbps}, ...]}`. A message takes the route of fewest edges, "
     "through switches and devices alike; of several, the one whose first edge is listed first, "
     "then its second, and so on. Channels whose routes have an edge in the same direction share "
     "it. Both directions of a full-duplex edge are links of their own."},
    {"device", "`cluster.device`", ""},
    {"stack", "`stack`",
     "The software that trains, as numbers: what a layer costs beside its matrix products, what "
     "links reach, what overlaps, what is kept (the model is at the head of `models/stack.hpp`). "
     "Without the key, a model by shape is trained by `megatron`. With `none`, or any stack "
     "without "
     "`matrix_efficiency`, a layer takes what the device's `efficiency` says of whole layers."},
    {"training", "`training`",
     "What `replay` and `train` execute; no predicted time depends on it. With `adam` and `adamw` "
     "the moments decay by 0.9 and 0.999. Example: `{data: book.txt, learning_rate: 0.002, warmup: "
     "50, decay: cosine, updates: 1000}`."},
    {"perturbations", "`perturbations`",
     "What disturbs the run, and what that costs: the result compares with the undisturbed run. "
     "Failures of devices do not change the simulated batches; the goodput of a long job is "
     "computed on top of them."},
    {"jitter", "`perturbations.jitter`",
     "Every compute op and optimizer step has a factor of its own with mean 1, drawn from (seed, "
     "run, device, number of the op on it); gradient reductions have none. The timeline shown is "
     "that of the first run."},
    {"slow_device", "`perturbations.slow_devices`", ""},
    {"throttle", "`perturbations.throttle`",
     "An op ends when the integral of its device's speed is its duration at full speed."},
    {"link_change", "`perturbations.links`",
     "With `simgrid` and `fluid`. Changes of the bandwidth alone; messages of no bytes do not "
     "notice. A "
     "link that never recovers while messages wait for it makes the scenario infeasible."},
    {"failure", "`perturbations.failures`", "A failure of any device stops the whole job."},
    {"checkpoint", "`perturbations.checkpoint`", ""},
};

std::string words_of(const KeyRow& row) {
  std::string text;
  for (const std::string& word : split_choices(row.choices))
    text += (text.empty() ? "`" : ", `") + word + "`";
  return text;
}

std::string values_of(const KeyRow& row) {
  switch (row.type) {
    case KeyRow::Type::section: return fmt::format("map, see `{}` below", row.choices);
    case KeyRow::Type::section_list:
      return fmt::format("list of maps, see `{}` below", row.choices);
    case KeyRow::Type::choice: return words_of(row);
    case KeyRow::Type::choice_per_stage:
      return words_of(row) + ", or a list with one per virtual stage";
    default: return describe(row);
  }
}

std::string table_row(const KeyRow& row) {
  std::string aliases;
  for (const std::string& alias : split_choices(row.aliases))
    aliases += fmt::format("{}`{}`", aliases.empty() ? "" : ", ", alias);
  return fmt::format("| `{}` | {} | {} | {} |\n", row.key, values_of(row), row.help, aliases);
}

}  // namespace

std::string keys_reference() {
  std::string text = kIntroduction;
  for (const Chapter& chapter : kChapters) {
    text += fmt::format("\n## {}\n\n", chapter.title);
    if (!chapter.text.empty()) text += fmt::format("{}\n\n", chapter.text);
    text += "| key | value | meaning | also called |\n|---|---|---|---|\n";
    for (const KeyRow& row : key_table()) {
      if (row.section == chapter.section) text += table_row(row);
    }
  }
  return text;
}

}  // namespace penstock
