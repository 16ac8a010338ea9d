// penstock export SCENARIO --to FORM
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "cli/execution.hpp"
#include "cli/megatron_arguments.hpp"
#include "cli/output.hpp"
#include "cli/running.hpp"
#include "hw/run_plan_file.hpp"
#include "models/layout_string.hpp"
#include "schedules/exchange/chakra.hpp"
#include "schedules/exchange/goal.hpp"
#include "schedules/exchange/torch_table.hpp"
#include "sim/durations.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <memory>

namespace penstock {
namespace {

std::string layout_text(const Scenario& scenario) {
  if (scenario.layers.empty()) {
    throw InputError(scenario.origin + ", model",
                     "a model given by its costs has no layers; a layout says where they are");
  }
  if (scenario.schedule->layout != Layout::loop && scenario.placement().stages() > 1 &&
      scenario.schedule->positions.empty()) {
    throw InputError(scenario.origin + ", schedule",
                     fmt::format("Megatron puts virtual stage i on rank i mod p, '{}' does not; a "
                                 "layout would say something else",
                                 scenario.schedule->name));
  }
  return to_layout(layout_of(scenario.layers)) + "\n";
}

/// One batch, or the run where the schedule does not flush, of one pipeline.
std::string torch_csv(const Scenario& scenario) {
  if (!scenario.shape.widths.empty()) {
    throw InputError(
        scenario.origin + ", pipeline.width",
        "the table has a row per device of one pipeline; stages with different numbers "
        "of replicas do not make one");
  }
  OpLists order;
  scenario.schedule->generate(scenario.shape, order);
  return to_csv(table_of(order));
}

/// Undisturbed; the times of what a device's own GPUs exchange are part of its ops.
ActivityGraph activities_of(const Simulation& s) {
  return {s.program, *s.table, s.scenario.costs,
          [duration = std::make_shared<Durations>(s.input())](
              const Op& op, int device, std::uint32_t g) { return (*duration)(op, device, g); }};
}

void put_file(const std::string& path, const std::string& text) {
  ByteSink sink(path);
  sink.put(text);
  sink.close();
}

/// PREFIX.N.et for device N, and the groups of the reductions in PREFIX.groups.json.
void write_chakra(const Simulation& s, const std::string& prefix) {
  if (prefix.empty() || prefix == "-") {
    throw InputError("--to chakra",
                     "writes a file per device; name them with -o PREFIX "
                     "(PREFIX.0.et, PREFIX.1.et, ...)");
  }
  const ActivityGraph graph = activities_of(s);
  const ChakraGroups groups = chakra_groups(graph);
  for (int d = 0; d < graph.devices(); ++d)
    put_file(fmt::format("{}.{}.et", prefix, d), to_chakra(graph, d, groups));
  if (!groups.empty()) put_file(prefix + ".groups.json", to_json(groups));
}

/// What the form has no words for.
void note_losses(const Simulation& s) {
  if (s.perturbation == nullptr) return;
  fmt::print(stderr, "note: the perturbations of the scenario are left out\n");
}

}  // namespace

int run_export(const Arguments& arguments) {
  const std::string form = arguments.value("to", "program");
  const Scenario scenario = load_scenario(arguments.positional[0], overrides_of(arguments));
  if (form == "layout") {
    put_output(arguments, layout_text(scenario));
  } else if (form == "megatron-args") {
    put_output(arguments, megatron_arguments(scenario));
  } else if (form == "torch-csv") {
    put_output(arguments, torch_csv(scenario));
  } else if (form == "program") {
    put_output(arguments, to_text(run_plan_of(prepare(scenario), compute_of(arguments))));
  } else {
    const Simulation simulation = prepare(scenario);
    note_losses(simulation);
    if (form == "goal") {
      put_output(arguments, to_goal(activities_of(simulation)));
    } else {
      write_chakra(simulation, arguments.value("output"));
    }
  }
  return exit_ok;
}

}  // namespace penstock
