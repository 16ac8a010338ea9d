#include "results/expected_error.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"
#include "scenarios/document.hpp"
#include "scenarios/stack_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

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

bool is_shipped(const std::string& name, const char* folder) {
  const std::vector<std::string> names = shipped_names(folder);
  return std::ranges::find(names, name) != names.end();
}

/// A GPU with the software, as they are shipped.
Scenario as_shipped(const std::string& device, const std::string& stack) {
  return parse_scenario(
      fmt::format("model: {{forward: 1 s, backward: 1 s}}\ncluster: {{devices: 1, device: {}}}\n"
                  "stack: {}\nschedule: 1f1b\npipeline: {{stages: 1, microbatches: 1}}\n",
                  device, stack),
      "as shipped");
}

bool same_numbers(const StackSpec& a, const StackSpec& b) {
  const auto same = [&](const StackNumber& number) {
    return std::visit([&](auto field) { return a.*field == b.*field; }, number.field);
  };
  return std::ranges::all_of(stack_numbers(), same) && a.gathers_again == b.gathers_again &&
         a.overlaps_reduction == b.overlaps_reduction;
}

/// But for its memory, which other jobs of the kind may have more or less of.
bool same_numbers(DeviceSpec a, const DeviceSpec& b) {
  a.name = b.name;
  a.memory_bytes = b.memory_bytes;
  a.memory_bytes_per_s = b.memory_bytes_per_s;
  a.reserved_bytes = b.reserved_bytes;
  a.allocator_slack = b.allocator_slack;
  a.headroom = b.headroom;
  return a == b;
}

/// What is other than what is shipped under the names of the scenario's software and chip, whether
/// a map or a file says so.
struct Replaced {
  bool stack, chip;

  explicit Replaced(const Scenario& s) {
    const std::string device = folded(s.cluster.device.name);
    const bool known_stack = is_shipped(s.stack.name, "models/stacks");
    const bool known_device = is_shipped(device, "models/devices");
    const Scenario shipped =
        as_shipped(known_device ? device : shipped_names("models/devices").front(),
                   known_stack ? s.stack.name : "none");
    stack = (known_stack || !s.stack.takes_layers_apart()) &&
            !same_numbers(s.stack, known_stack ? shipped.stack : StackSpec{});
    chip = !known_device || !same_numbers(s.cluster.device, shipped.cluster.device);
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

std::string how_sure_text(const Json& error) {
  constexpr std::size_t kColumns = 120;
  const std::string indent(10, ' ');
  std::string text, line = "How sure? ";
  std::istringstream words(expected_error_text(error));
  for (std::string word; words >> word;) {
    if (display_width(line) + 1 + display_width(word) > kColumns) {
      text += line + "\n";
      line = indent;
    }
    line += " " + word;
  }
  return text + line + "\n";
}

}  // namespace penstock
