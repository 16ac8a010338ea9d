// SPDX-License-Identifier: Apache-2.0
// penstock init: a commented scenario to start from.
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "cli/options.hpp"
#include "scenarios/keys.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace penstock {
namespace {

constexpr const char* kScenario = R"(# A penstock scenario. Try:  penstock simulate THIS-FILE
# Every key with its meaning: docs/scenario.md.
name: my first pipeline

model: gpt-2.2b              # `penstock list models`; a file such as my-model.yaml or config.json;
                             # or by shape: {base: gpt-2.2b, seq_length: 1024}
                             # or as costs: {forward: 1 ms, backward: 2 ms, output: 16 MiB}
cluster: p3.16xlarge         # `penstock list clusters`; or {base: p3.16xlarge, nodes: 2, inter: 100 Gbps}
                             # or abstract: {devices: 8, link: {latency: 5 us, bandwidth: 25 GB/s}}
stack: megatron              # the software that trains: `penstock list stacks`; none: the device's curve alone
schedule: 1f1b               # `penstock schedule list`
transfers: overlapped        # free | overlapped | coupled | blocking
batches: 4                   # weight updates to simulate; steady state is measured after the first

pipeline:
  stages: 8                  # devices in a pipeline
  width: 1                   # replicas of every stage (data parallelism)
  microbatch_size: 8         # samples per microbatch
  microbatches: 8            # per weight update (and replica)
  recompute: full            # none | selective | full | a list with one per virtual stage
  split: even                # even | balanced | a list of layers per stage
)";

}  // namespace

int run_init(const Arguments& arguments) {
  const std::string text = arguments.flag("schema") ? json_schema()
                           : arguments.flag("keys") ? keys_reference()
                                                    : kScenario;
  const std::string path = arguments.positional.empty() ? "-" : arguments.positional[0];
  if (path != "-" && std::filesystem::exists(path))
    throw InputError(path, "exists already; choose another name");
  write_file(path, text);
  if (path != "-") say("wrote {0}; try: penstock simulate {0}\n", path);
  return exit_ok;
}

}  // namespace penstock
