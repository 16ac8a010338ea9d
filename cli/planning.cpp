#include "cli/planning.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "base/numbers.hpp"
#include "cli/running.hpp"
#include "plan/plan_model.hpp"
#include "plan/search/published.hpp"
#include "scenarios/document.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Servers of GPUs on a switch, one NIC each; or GPUs with a link between every two.
/// Precondition: there are one or two.
std::string cluster_of(const std::vector<PlanLevel>& levels) {
  const auto rate = [](const PlanLevel& level) {
    return fmt::format("{:.0f} B/s", level.bytes_per_s);
  };
  if (levels.size() == 1)
    return fmt::format("{{devices: {}, link: {}}}", levels[0].width, rate(levels[0]));
  return fmt::format(
      "{{devices_per_node: {}, nodes: {}, intra: {{attachment: switch, bandwidth: {}}}, inter: "
      "{}}}",
      levels[0].width, levels[1].width, rate(levels[0]), rate(levels[1]));
}

Value scalar(const std::string& text) {
  Value value;
  value.kind = Value::Kind::scalar;
  value.text = text;
  return value;
}

Value map_of(std::vector<Value::Entry> entries) {
  Value value;
  value.kind = Value::Kind::map;
  value.entries = std::move(entries);
  return value;
}

/// The cluster with another memory of its devices.
Value with_memory(Value cluster, double bytes) {
  if (cluster.kind != Value::Kind::map) cluster = map_of({{scalar("base"), std::move(cluster)}});
  std::erase_if(cluster.entries, [](const Value::Entry& e) { return e.key.text == "memory"; });
  cluster.entries.push_back({scalar("memory"), scalar(fmt::format("{:.0f} B", bytes))});
  return cluster;
}

/// A file, the name of what is shipped, or a map as scenarios have them.
Value part_of(const std::string& given, const std::string& origin) {
  std::error_code ignored;  // a long map is no possible name of a file
  if (fs::exists(given, ignored)) return scalar(fs::absolute(given).string());
  return given.starts_with('{') ? parse_document(given, origin) : scalar(given);
}

/// A model on a cluster, as a scenario without choices.
Value problem(Value model, Value cluster) {
  return map_of({{scalar("model"), std::move(model)}, {scalar("cluster"), std::move(cluster)}});
}

Value cluster_option(const Arguments& arguments) {
  return part_of(arguments.value("cluster"), "--cluster");
}

/// The model of a calibration, or of a file of a model.
const Value& model_in(const Value& document) {
  const Value* model = document.find("model");
  return model == nullptr ? document : *model;
}

/// A microbatch and recomputation that was measured: without recomputation the smallest microbatch,
/// else the first row. Empty where nothing was, or it cannot be read.
std::vector<Value::Entry> measured_choice(const Value& document) {
  const Value* rows = model_in(document).find("measured");
  if (rows == nullptr) return {};
  const auto text = [](const Value& row, const char* key, const char* otherwise) {
    const Value* value = row.find(key);
    return value == nullptr ? std::string(otherwise) : value->text;
  };
  const auto size = [&](const Value& row) {
    return parse_number<std::int64_t>(text(row, "microbatch_size", "1")).value_or(1);
  };
  const auto recomputes = [&](const Value& row) {
    return text(row, "recompute", "none") != "none";
  };
  const Value* best = nullptr;
  for (const Value& row : rows->items) {
    const bool better = best == nullptr || (recomputes(*best) && !recomputes(row)) ||
                        (recomputes(*best) == recomputes(row) && size(row) < size(*best));
    if (row.kind == Value::Kind::map && better) best = &row;
  }
  if (best == nullptr) return {};
  return {{scalar("microbatch_size"), scalar(std::to_string(size(*best)))},
          {scalar("recompute"), scalar(text(*best, "recompute", "none"))}};
}

bool is_yaml(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

/// A model or calibration on its cluster. Precondition: there is one.
Value named_problem(const Arguments& arguments, PlanInput input) {
  const std::string& name = arguments.positional[0];
  const bool measured = input == PlanInput::calibration;
  const bool own = measured && !arguments.flag("cluster");
  Value text = problem(part_of(name, "penstock plan"),
                       own ? part_of(name, "penstock plan") : cluster_option(arguments));
  if (!is_yaml(name) || !fs::exists(name)) return text;
  if (auto choice = measured_choice(load_document(name)); !choice.empty())
    text.entries.push_back({scalar("pipeline"), map_of(std::move(choice))});
  return text;
}

/// What published planners plan: on one stage until they say how many.
Scenario scenario_of(const Arguments& arguments, PlanInput input) {
  const std::string& name = arguments.positional[0];
  if (input == PlanInput::scenario) return load_scenario(name, overrides_of(arguments));
  return parse_scenario(to_yaml(named_problem(arguments, input)), "penstock plan " + name,
                        {{"schedule", "1f1b"},
                         {"pipeline.stages", "1"},
                         {"pipeline.width", "1"},
                         {"pipeline.microbatches", "1"}});
}

/// A profile keeps its branches, which a scenario has not.
void use_profile(const Arguments& arguments, double batch, PlanTask& task) {
  const std::string& path = arguments.positional[0];
  task.name = path;
  PipedreamProfile profile = load_pipedream_profile(path);
  const auto takes_time = [](const ProfiledLayer& l) { return l.forward_s + l.backward_s > 0; };
  if (std::ranges::none_of(profile.layers, takes_time))
    throw InputError(path, "no layer takes any time, so there is nothing to balance");
  task.model = std::make_unique<ProfileModel>(std::move(profile), batch);
  if (!arguments.flag("cluster")) return;
  const std::string one_second = to_yaml(
      problem(parse_document("{forward: 1 s, backward: 1 s}", path), cluster_option(arguments)));
  plan_for_cluster(
      parse_scenario(
          one_second, "--cluster",
          {{"schedule", "1f1b"}, {"pipeline.stages", "1"}, {"pipeline.microbatches", "1"}})
          .cluster,
      task);
}

void use_batch(std::optional<std::int64_t> batch, PlanTask& task) {
  PlanRequest& request = task.request;
  if (batch) request.batch = *batch;
  if (request.batch > 0) return;
  request.batch = kBatchPerDevice * request.devices() * request.microbatch_size;
  if (task.planner->batch_matters)
    task.notes.push_back(fmt::format("batch: {} samples, {} microbatches per device (--batch)",
                                     request.batch, kBatchPerDevice));
}

/// A measured model knows few sizes.
void check_size(const PlanTask& task, bool given) {
  const auto size = static_cast<double>(task.request.microbatch_size);
  const std::string why = given ? task.model->refuse(size, Recompute::none) : "";
  if (!why.empty()) throw InputError("--microbatch-size", why);
}

/// Are the layers of plans those of a chain, as scenarios have them?
bool plans_a_chain(const PlanTask& task) {
  const auto size = static_cast<double>(task.request.microbatch_size);
  const std::size_t layers = task.model->chain(size, Recompute::none).size();
  return task.planner->name != "pipedream" || task.model->states(size, layers).size() == layers;
}

/// Plans are simulated as the problem that they are made for; where it cannot be one, a note.
void use_simulation(PlanTask& task, const std::string& text) {
  try {
    task.problem = std::make_unique<Problem>(text, task.name, task.request.batch);
    task.request.simulate = simulator(*task.problem);
  } catch (const InputError& error) {
    const std::string why = error.what();
    task.notes.push_back("plans are not simulated: " + why.substr(0, why.find('\n')));
  }
}

/// Options of our own search that mean nothing to the published planners.
void refuse_others(PlanOptions& options) {
  for (const char* option : kOnlyFull)
    options.refuse(option, "belongs to our own search (--search full)");
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

void require_devices(const Arguments& arguments, PlanInput input, PlanOptions& options) {
  const bool cluster = arguments.flag("cluster"), level = arguments.flag("level");
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

std::string profile_problem(const Arguments& arguments, const std::vector<PlanLevel>& levels,
                            std::optional<double> memory_bytes, std::int64_t batch) {
  Value cluster = arguments.flag("cluster") ? cluster_option(arguments)
                                            : parse_document(cluster_of(levels), "--level");
  if (memory_bytes) cluster = with_memory(std::move(cluster), *memory_bytes);
  return to_yaml(
      problem(map_of({{scalar("profile"), scalar(fs::absolute(arguments.positional[0]).string())},
                      {scalar("profile_batch"), scalar(std::to_string(batch))}}),
              std::move(cluster)));
}

std::string model_problem(const Arguments& arguments, PlanInput input) {
  Value document = named_problem(arguments, input);
  std::vector<Value::Entry> pipeline;
  if (arguments.flag("sequence-parallel"))
    pipeline.push_back({scalar("sequence_parallel"), scalar("true")});
  if (arguments.flag("distributed-optimizer"))
    pipeline.push_back({scalar("distributed_optimizer"), scalar("true")});
  if (!pipeline.empty())
    document.entries.push_back({scalar("pipeline"), map_of(std::move(pipeline))});
  return to_yaml(document);
}

PlanTask plan_task(const Arguments& arguments) {
  const std::string& name = arguments.positional[0];
  const PlanInput input = input_of(name);
  const bool profile = input == PlanInput::profile;
  PlanTask task;
  PlanRequest& request = task.request;
  task.planner = find_planner(arguments.value("search", profile ? "pipedream" : "2bw"));
  PlanOptions options(arguments);
  request.levels = options.levels();
  request.memory_bytes = options.bytes("memory");
  const auto profile_batch = options.integer("profile-batch", kMostSamples);
  const auto size = options.integer("microbatch-size", kMostSamples);
  const auto batch = options.integer("batch", kMostSamples);
  request.stages = static_cast<int>(options.integer("stages", kMostDevices).value_or(0));
  request.most_plans = static_cast<std::size_t>(options.integer("top", 1'000).value_or(1));
  require_devices(arguments, input, options);
  refuse_others(options);
  options.throw_if_wrong();
  request.straight = arguments.flag("straight");
  request.transfers = !arguments.flag("no-transfers");
  request.by_size = arguments.value("balance") == "size";
  request.microbatch_size = profile_batch.value_or(1);
  request.batch = 0;
  std::string problem_text;
  if (profile) {
    use_profile(arguments, static_cast<double>(profile_batch.value_or(1)), task);
    if (!profile_batch)
      task.notes.emplace_back("a minibatch of the profile counts as one sample (--profile-batch)");
    if (request.levels.size() <= 2)
      problem_text = profile_problem(arguments, request.levels, request.memory_bytes,
                                     profile_batch.value_or(1));
  } else {
    const Scenario scenario = scenario_of(arguments, input);
    plan_for_scenario(scenario, task);
    task.notes.insert(task.notes.end(), scenario.file_notes.begin(), scenario.file_notes.end());
    if (input != PlanInput::scenario) {
      task.name = scenario.transformer ? scenario.transformer->name : name;
      request.batch = 0;
    }
    problem_text = input == PlanInput::scenario ? scenario.text : model_problem(arguments, input);
  }
  std::error_code ignored;  // a long map is no possible name of a file
  if (fs::is_regular_file(name, ignored)) task.text = read_file(name);
  request.model = task.model.get();
  request.microbatch_size = size.value_or(request.microbatch_size);
  check_size(task, size.has_value());
  use_batch(batch, task);
  if (!problem_text.empty() && request.transfers && plans_a_chain(task))
    use_simulation(task, problem_text);
  return task;
}

}  // namespace penstock
