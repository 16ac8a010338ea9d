#include "results/expected_error.hpp"

#include "base/units.hpp"
#include "scenarios/document.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

/// "A100" of A100-40 and A100-80, "B200" of GB200: what computes, whatever memory is beside it.
std::string chip_of(const std::string& device) {
  const std::string chip = device.substr(0, device.find('-'));
  return chip.starts_with("GB") ? chip.substr(1) : chip;
}

/// What a job and measured runs do not have in common, and how much that weighs.
struct Differences {
  int weight = 0;
  std::vector<std::string> said;

  void add(bool different, int how_much, std::string what) {
    if (!different) return;
    weight += how_much;
    said.push_back(std::move(what));
  }
};

/// Does the scenario replace numbers of what it names: a map with more than these keys?
bool replaces(const Value* map, std::initializer_list<std::string_view> besides) {
  if (map == nullptr || map->kind != Value::Kind::map) return false;
  return std::ranges::any_of(map->entries, [&](const Value::Entry& entry) {
    return std::ranges::find(besides, entry.key.text) == besides.end();
  });
}

/// What was changed of the software and of the chip that the scenario names.
struct Replaced {
  bool stack, chip;

  explicit Replaced(const Scenario& s) {
    const Value document = parse_document(s.text, s.origin);
    const Value* const cluster = document.find("cluster");
    stack = replaces(document.find("stack"), {"base", "name", "fitted_on"});
    chip = replaces(cluster == nullptr ? nullptr : cluster->find("device"),
                    {"base", "name", "memory", "memory_bandwidth", "reserved", "allocator_slack"});
  }
};

/// Runs of half to twice as many GPUs are of one kind.
Differences differences(const Scenario& s, const Replaced& replaced, const MeasuredRuns& m) {
  const std::int64_t gpus = s.gpu_count();
  const int tensor = s.mesh.size(Axis::tensor);
  const bool neutral = !s.stack.takes_layers_apart() && !s.layer_profile;
  const std::string stack = neutral ? "" : s.stack.name;
  const std::string& type = s.transformer->compute_type;
  Differences d;
  d.add(stack != m.stack, 32, stack.empty() ? "no stack" : "stack " + stack);
  d.add(s.layer_profile.has_value() != m.profiled, 32,
        m.profiled ? "layers not measured" : "layers measured elsewhere");
  d.add(chip_of(s.cluster.device.name) != m.chip, 16, "on " + s.cluster.device.name);
  d.add(replaced.stack, 32, "numbers of the stack changed");
  d.add(replaced.chip, 16, "numbers of the device changed");
  d.add(!s.unlike.kind.empty(), 16, "with devices of several kinds");
  d.add(type != "fp16" && type != "bf16", 8, "in " + type);
  d.add(!s.missing.empty(), 8, "parts left out");
  d.add((s.mesh.size(Axis::context) > 1) != m.context, 4,
        m.context ? "sequences not divided" : "sequences divided");
  d.add(tensor < m.least_tensor || tensor > m.most_tensor, 4, fmt::format("tensor {}", tensor));
  d.add(m.pipelined && s.shape.depth < 2, 2, "no pipeline");
  d.add(gpus > 2 * m.most_gpus || 2 * gpus < m.least_gpus, 2, counted(gpus, "GPU"));
  d.add(s.perturbations.changes_times(), 1, "perturbed");
  return d;
}

}  // namespace

const std::vector<MeasuredRuns>& measured_runs() {
  static const std::vector<MeasuredRuns> kAll = {
#include "results/measured_runs.inc"
  };
  return kAll;
}

std::optional<Json> expected_error(const Scenario& scenario) {
  if (!scenario.transformer) return std::nullopt;
  const Replaced replaced(scenario);
  const MeasuredRuns* nearest = nullptr;
  Differences least;
  for (const MeasuredRuns& runs : measured_runs()) {
    Differences other = differences(scenario, replaced, runs);
    if (nearest != nullptr && other.weight >= least.weight) continue;
    nearest = &runs;
    least = std::move(other);
  }
  const bool memory = nearest->memory_median > 0;
  return Json{{"fraction", nearest->median},
              {"nine_of_ten", nearest->p90 > 0 ? Json(nearest->p90) : Json(nullptr)},
              {"memory_fraction", memory ? Json(nearest->memory_median) : Json(nullptr)},
              {"runs", nearest->runs},
              {"basis", nearest->called},
              {"fitted", nearest->fitted},
              {"near", least.weight == 0},
              {"differs", fmt::format("{}", fmt::join(least.said, ", "))}};
}

std::string expected_error_text(const Json& error) {
  const auto percent = [&](const char* key) { return format_percent(error.at(key).get<double>()); };
  const bool near = error.at("near").get<bool>();
  std::string beside = "median";
  if (!error.at("nine_of_ten").is_null())
    beside += "; nine of ten within " + percent("nine_of_ten");
  if (near && !error.at("memory_fraction").is_null())
    beside += "; their peaks by " + percent("memory_fraction");
  if (error.at("fitted").get<bool>()) beside += "; the stack was fitted on them";
  const std::string runs = counted(error.at("runs").get<std::int64_t>(), "run") + " of " +
                           error.at("basis").get<std::string>();
  if (near) return fmt::format("± {}, as {} were off ({})", percent("fraction"), runs, beside);
  return fmt::format(
      "unknown, no runs of this kind were measured (here: {}): the nearest, {}, were off by {} "
      "({})",
      error.at("differs").get<std::string>(), runs, percent("fraction"), beside);
}

}  // namespace penstock
