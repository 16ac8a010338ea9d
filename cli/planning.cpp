// SPDX-License-Identifier: Apache-2.0
#include "cli/planning.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cli/running.hpp"
#include "scenarios/document.hpp"

namespace penstock {
namespace {

/// Options of our own search that mean nothing to the published planners.
void refuse_others(PlanOptions& options) {
  for (const std::string_view option : kOnlyFull)
    if (option != "time-limit")
      options.refuse(std::string(option), "belongs to our own search (--search full)");
}

}  // namespace

PlanInput input_of(const std::string& name) {
  if (name == "-") return PlanInput::scenario;
  if (name.ends_with(".txt") || name.ends_with(".csv")) {
    require_file(name);
    return PlanInput::profile;
  }
  if (!is_yaml(name)) return PlanInput::model;
  require_file(name);
  const Value document = load_document(name);
  const Value* model = document.find("model");
  if (model == nullptr) return PlanInput::model;
  const bool measured = document.find("machine") != nullptr || model->find("measured") != nullptr;
  return measured && document.find("schedule") == nullptr ? PlanInput::calibration
                                                          : PlanInput::scenario;
}

PlanSource source_of(const Arguments& arguments) {
  PlanSource source{arguments.positional[0], input_of(arguments.positional[0])};
  if (arguments.flag("cluster")) source.cluster = arguments.value("cluster");
  PlanOptions options(arguments);
  if (const auto cluster = options.cluster_of_gpus()) source.cluster = *cluster;
  if (arguments.flag("stack")) source.stack = arguments.value("stack");
  source.seq_length = options.integer("seq-length", kMostTokens);
  source.sequence_parallel = arguments.flag("sequence-parallel");
  source.distributed_optimizer = arguments.flag("distributed-optimizer");
  return source;
}

std::vector<Override> changes_of(const Arguments& arguments, const PlanSource& source) {
  std::vector<Override> changes = overrides_of(arguments);
  if (source.input != PlanInput::scenario) return changes;
  if (source.cluster) changes.push_back({"cluster", *source.cluster, "cluster"});
  if (source.stack) changes.push_back({"stack", *source.stack, "stack"});
  if (source.seq_length)
    changes.push_back({"model.seq_length", std::to_string(*source.seq_length), "seq-length"});
  return changes;
}

void require_devices(const Arguments& arguments, PlanInput input, PlanOptions& options) {
  const bool cluster = arguments.flag("cluster") || arguments.flag("gpus");
  const bool level = arguments.flag("level");
  if (arguments.flag("cluster") && arguments.flag("gpus"))
    options.wrong("gpus", "and --cluster both give the devices; give one");
  options.cluster_of_gpus();  // what is wrong with it
  options.integer("seq-length", kMostTokens);
  if (input == PlanInput::profile || input == PlanInput::calibration)
    for (const char* option : {"stack", "seq-length"})
      options.refuse(option, "is for models by shape, and scenarios of such");
  switch (input) {
    case PlanInput::profile:
      if (cluster && level) options.wrong("level", "and --cluster both give the devices; give one");
      if (!cluster && !level)
        options.missing(
            "needs the devices: --level WIDTHxBANDWIDTH, innermost first, such as "
            "--level 4x12GB/s --level 4x1.25GB/s; or --cluster NAME");
      break;
    case PlanInput::model:
      if (!cluster)
        options.missing(
            "needs --cluster NAME (`penstock list clusters`): what its layers cost depends on the "
            "device");
      break;
    case PlanInput::calibration:
      if (!cluster && load_document(arguments.positional[0]).find("cluster") == nullptr)
        options.missing("needs --cluster NAME: this calibration has none");
      break;
    case PlanInput::scenario:
      options.refuse("cluster", "is the scenario's; change it with --set cluster=NAME");
  }
  if (input != PlanInput::scenario)
    options.refuse("set",
                   input == PlanInput::model
                       ? "changes scenarios only; a model's keys go into a map in its place: "
                         "'{base: MODEL, seq_length: 4096}'"
                       : "changes scenarios only");
  if (input != PlanInput::model)
    for (const char* option : {"sequence-parallel", "distributed-optimizer"})
      options.refuse(option,
                     "is for models by shape; a scenario has it in its pipeline (`--set "
                     "pipeline.sequence_parallel=true`, `pipeline.distributed_optimizer`)");
  if (input != PlanInput::profile)
    options.refuse("profile-batch", "has a meaning for profiles only");
}

PlanTask plan_task(const Arguments& arguments) {
  PlanSource source = source_of(arguments);
  const bool profile = source.input == PlanInput::profile;
  PlanRequest request;
  PlanOptions options(arguments);
  source.levels = options.levels();
  source.memory_bytes = options.bytes("memory");
  source.profile_batch = options.integer("profile-batch", kMostSamples);
  request.microbatch_size = options.integer("microbatch-size", kMostSamples).value_or(0);
  request.batch = options.batch(source);
  if (source.batch_tokens) options.wrong("batch", "in tokens belongs to our own search");
  request.stages = static_cast<int>(options.integer("stages", kMostDevices).value_or(0));
  request.most_plans = static_cast<std::size_t>(options.integer("top", 1'000).value_or(1));
  const auto limit_s = options.positive("time-limit");
  if (limit_s) request.until_s = steady_s() + *limit_s;
  require_devices(arguments, source.input, options);
  refuse_others(options);
  options.throw_if_wrong();
  source.changes = changes_of(arguments, source);
  request.straight = arguments.flag("straight");
  request.transfers = !arguments.flag("no-transfers");
  request.by_size = arguments.value("balance") == "size";
  return task_of(source, *find_planner(arguments.value("search", profile ? "pipedream" : "2bw")),
                 std::move(request));
}

}  // namespace penstock
