#include "cli/planning.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "cli/option_numbers.hpp"
#include "cli/running.hpp"
#include "plan/plan_model.hpp"
#include "scenarios/document.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int kMostDevices = 4'096;
constexpr std::int64_t kMostSamples = 1'000'000'000;

/// Values of the options, with everything that is wrong about them.
class Options {
 public:
  explicit Options(const Arguments& arguments) : arguments_(arguments) {}

  std::optional<std::int64_t> integer(const char* option, std::int64_t most) {
    if (!arguments_.flag(option)) return std::nullopt;
    const std::string text = arguments_.value(option);
    const auto n = parse_number<std::int64_t>(text);
    if (n && *n >= 1 && *n <= most) return n;
    wrong(option, fmt::format("must be an integer from 1 to {}, got '{}'", most, text));
    return std::nullopt;
  }

  std::optional<double> bytes(const char* option) {
    if (!arguments_.flag(option)) return std::nullopt;
    return quantity(option, arguments_.value(option), Dimension::bytes);
  }

  /// "4x12GB/s", innermost first.
  std::vector<PlanLevel> levels() {
    std::vector<PlanLevel> found;
    std::int64_t devices = 1;
    for (const std::string& text : arguments_.values("level")) {
      const std::size_t sign = std::min(text.find('x'), text.size());
      PlanLevel level;
      level.width = parse_number<int>(text.substr(0, sign)).value_or(0);
      if (sign == text.size() || level.width < 1 || level.width > kMostDevices) {
        wrong("level", fmt::format("must be WIDTHxBANDWIDTH such as 4x12GB/s, with 1 to {} devices "
                                   "(or groups of the level before), got '{}'",
                                   kMostDevices, text));
        continue;
      }
      const auto bandwidth = quantity("level", text.substr(sign + 1), Dimension::bandwidth);
      level.bytes_per_s = bandwidth.value_or(1);
      devices *= level.width;
      if (devices > kMostDevices) {
        wrong("level", fmt::format("the levels have more than {} devices", kMostDevices));
        break;
      }
      found.push_back(level);
    }
    return found;
  }

  void wrong(const std::string& option, const std::string& message) {
    wrong_.push_back({{"--" + option, 0, 0}, message, "", 1, 0});
  }
  void throw_if_wrong() const {
    if (!wrong_.empty()) throw InputError(wrong_);
  }

 private:
  std::optional<double> quantity(const char* option, const std::string& text, Dimension dimension) {
    std::string why;
    const auto value = parse_quantity(text, dimension, why);
    if (value && *value > 0) return value;
    wrong(option, fmt::format("must be {}{}, got '{}'", describe(dimension),
                              value ? " of more than 0" : "", text));
    return std::nullopt;
  }

  const Arguments& arguments_;
  std::vector<Diagnostic> wrong_;
};

const Planner& planner_of(const Arguments& arguments, const std::string& otherwise) {
  const std::string name = arguments.value("search", otherwise);
  if (const Planner* found = find_planner(name)) return *found;
  std::vector<std::string> known;
  for (const Planner& planner : planners()) known.emplace_back(planner.name);
  throw InputError("--search", fmt::format("'{}' is not one of {}{}", name, fmt::join(known, ", "),
                                           did_you_mean(name, known)));
}

/// What a message between two devices gets.
double bandwidth_between(const Cluster& cluster, int from, int to) {
  Network network(cluster);
  double least = std::numeric_limits<double>::infinity();
  for (const int link : network.route(from, to, false).links)
    least = std::min(least, network.links()[static_cast<std::size_t>(link)].bytes_per_s);
  return least;
}

/// The devices of a node, then the nodes.
std::vector<PlanLevel> levels_of(const Cluster& cluster) {
  const int each = cluster.devices_per_node, all = cluster.devices();
  const bool flat = cluster.link || cluster.network || cluster.nodes == 1;
  const int inner = flat ? all : each;
  std::vector<PlanLevel> levels;
  const double alone = std::numeric_limits<double>::infinity();
  levels.push_back({inner, inner > 1 ? bandwidth_between(cluster, 0, 1) : alone});
  if (!flat) levels.push_back({cluster.nodes, bandwidth_between(cluster, 0, each)});
  return levels;
}

void use_cluster(const Cluster& cluster, PlanTask& task) {
  PlanRequest& request = task.request;
  if (request.levels.empty()) request.levels = levels_of(cluster);
  const DeviceSpec device = cluster.device_of(0);
  if (!cluster.groups.empty())
    task.notes.push_back(fmt::format("planned as if all devices were {}", device.name));
  if (!request.memory_bytes && device.capacity_bytes() > 0) {
    request.memory_bytes = static_cast<double>(device.capacity_bytes());
    task.notes.push_back(fmt::format("memory per device: {} of {}",
                                     format_bytes(*request.memory_bytes), device.name));
  }
}

/// Samples of a minibatch of the profile: costs are those of a scenario's microbatch.
double profile_batch(const Scenario& scenario) {
  double planned = 0, profiled = 0;
  for (const StageCosts& c : scenario.costs) planned += c.forward_s;
  for (const ProfiledLayer& layer : scenario.profile->layers) profiled += layer.forward_s;
  const auto size = static_cast<double>(scenario.microbatch_size);
  return planned > 0 ? size * profiled / planned : size;
}

void use_scenario(const Scenario& scenario, PlanTask& task) {
  task.name = scenario.name;
  if (scenario.transformer) {
    task.model =
        std::make_unique<TransformerModel>(*scenario.transformer, scenario.cluster.device_of(0));
  } else if (scenario.profile) {
    task.model = std::make_unique<ProfileModel>(*scenario.profile, profile_batch(scenario));
  } else {
    throw InputError(scenario.origin,
                     "gives its model as costs of stages, so there are no layers to split; name a "
                     "model by shape or a profile");
  }
  if (scenario.measured)
    task.notes.emplace_back("times by the model's shape on its device, not those measured");
  if (scenario.tensor > 1)
    task.notes.push_back(
        fmt::format("planned without the tensor parallelism of {}", scenario.tensor));
  use_cluster(scenario.cluster, task);
  task.request.microbatch_size = scenario.microbatch_size;
  task.request.batch = static_cast<std::int64_t>(scenario.samples_per_update());
}

void use_model(const Arguments& arguments, PlanTask& task) {
  const std::string& name = arguments.positional[0];
  const TransformerSpec spec = load_model(fs::exists(name) ? fs::absolute(name).string() : name);
  if (!arguments.flag("cluster"))
    throw InputError("penstock plan " + name,
                     "needs --cluster NAME (`penstock list clusters`): what its layers cost "
                     "depends on the device");
  const std::string given = arguments.value("cluster");
  const Cluster cluster = load_cluster(fs::exists(given) ? fs::absolute(given).string() : given);
  task.name = spec.name;
  task.model = std::make_unique<TransformerModel>(spec, cluster.device_of(0));
  use_cluster(cluster, task);
}

[[noreturn]] void ask_for_devices(const std::string& path) {
  throw InputError("penstock plan " + path,
                   "needs the devices: --level WIDTHxBANDWIDTH, innermost first, such as "
                   "--level 4x12GB/s --level 4x1.25GB/s; or --cluster NAME");
}

void use_profile(const Arguments& arguments, double batch, PlanTask& task) {
  const std::string& path = arguments.positional[0];
  task.name = path;
  PipedreamProfile profile = load_pipedream_profile(path);
  const auto takes_time = [](const ProfiledLayer& l) { return l.forward_s + l.backward_s > 0; };
  if (std::ranges::none_of(profile.layers, takes_time))
    throw InputError(path, "no layer takes any time, so there is nothing to balance");
  task.model = std::make_unique<ProfileModel>(std::move(profile), batch);
  if (arguments.flag("cluster")) use_cluster(load_cluster(arguments.value("cluster")), task);
  if (task.request.levels.empty()) ask_for_devices(path);
}

/// Servers of GPUs on a switch, one NIC each; or GPUs with a link between every two.
std::string cluster_of(const std::vector<PlanLevel>& levels) {
  const auto rate = [](const PlanLevel& level) {
    return fmt::format("{:.0f} B/s", level.bytes_per_s);
  };
  if (levels.size() > 2)
    throw InputError("--level",
                     "the full search takes two levels at most; describe deeper networks "
                     "as a cluster (docs/scenario.md) and give that with --cluster");
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

std::string problem_text(Value model, Value cluster) {
  return to_yaml(
      map_of({{scalar("model"), std::move(model)}, {scalar("cluster"), std::move(cluster)}}));
}

}  // namespace

bool is_profile_file(const std::string& name) {
  return name.ends_with(".txt") || name.ends_with(".csv");
}

bool is_scenario_file(const std::string& name) {
  if (!name.ends_with(".yaml") && !name.ends_with(".yml")) return false;
  require_file(name);
  return load_document(name).find("model") != nullptr;
}

std::string profile_problem(const Arguments& arguments) {
  const std::string& path = arguments.positional[0];
  require_file(path);
  Options options(arguments);
  const std::vector<PlanLevel> levels = options.levels();
  const auto memory = options.bytes("memory");
  const auto batch = options.integer("profile-batch", kMostSamples).value_or(1);
  options.throw_if_wrong();
  Value cluster;
  if (arguments.flag("cluster")) {
    cluster = part_of(arguments.value("cluster"), "--cluster");
  } else if (!levels.empty()) {
    cluster = parse_document(cluster_of(levels), "--level");
  } else {
    ask_for_devices(path);
  }
  if (memory) cluster = with_memory(std::move(cluster), *memory);
  return problem_text(map_of({{scalar("profile"), scalar(fs::absolute(path).string())},
                              {scalar("profile_batch"), scalar(std::to_string(batch))}}),
                      std::move(cluster));
}

std::string model_problem(const Arguments& arguments) {
  const std::string& name = arguments.positional[0];
  return problem_text(part_of(name, "penstock plan"),
                      part_of(arguments.value("cluster"), "--cluster"));
}

PlanTask task_of(const Scenario& scenario) {
  PlanTask task;
  use_scenario(scenario, task);
  return task;
}

PlanTask plan_task(const Arguments& arguments) {
  const std::string& name = arguments.positional[0];
  const bool profile = is_profile_file(name);
  PlanTask task;
  PlanRequest& request = task.request;
  task.planner = &planner_of(arguments, profile ? "pipedream" : "2bw");
  Options options(arguments);
  request.levels = options.levels();
  request.memory_bytes = options.bytes("memory");
  const auto profile_batch = options.integer("profile-batch", kMostSamples);
  const auto size = options.integer("microbatch-size", kMostSamples);
  const auto batch = options.integer("batch", kMostSamples);
  request.stages = static_cast<int>(options.integer("stages", kMostDevices).value_or(0));
  request.most_plans = static_cast<std::size_t>(options.integer("top", 1'000).value_or(1));
  const bool scenario = !profile && is_scenario_file(name);
  if (!profile && profile_batch) options.wrong("profile-batch", "has a meaning for profiles only");
  if (!scenario && arguments.flag("set")) options.wrong("set", "changes scenarios only");
  if (scenario && arguments.flag("cluster"))
    options.wrong("cluster", "is the scenario's; change it with --set cluster=NAME");
  options.throw_if_wrong();
  request.straight = arguments.flag("straight");
  request.transfers = !arguments.flag("no-transfers");
  request.by_size = arguments.value("balance") == "size";
  request.microbatch_size = profile_batch.value_or(1);
  request.batch = 0;
  if (profile) {
    require_file(name);
    use_profile(arguments, static_cast<double>(profile_batch.value_or(1)), task);
    if (!profile_batch)
      task.notes.emplace_back("a minibatch of the profile counts as one sample (--profile-batch)");
  } else if (scenario) {
    use_scenario(load_scenario(name, overrides_of(arguments)), task);
  } else {
    use_model(arguments, task);
  }
  if (fs::is_regular_file(name)) task.text = read_file(name);
  request.model = task.model.get();
  request.microbatch_size = size.value_or(request.microbatch_size);
  if (batch) request.batch = *batch;
  if (request.batch == 0) {
    request.batch = kBatchPerDevice * request.devices() * request.microbatch_size;
    if (task.planner->batch_matters)
      task.notes.push_back(fmt::format("batch: {} samples, {} microbatches per device (--batch)",
                                       request.batch, kBatchPerDevice));
  }
  return task;
}

}  // namespace penstock
