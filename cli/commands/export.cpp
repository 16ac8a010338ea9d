// SPDX-License-Identifier: Apache-2.0
// penstock export SCENARIO --to FORM
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "cli/execution.hpp"
#include "cli/output.hpp"
#include "cli/running.hpp"
#include "hw/run_plan_file.hpp"
#include "scenarios/megatron_arguments.hpp"
#include "scenarios/other_formats.hpp"
#include "scenarios/torchtitan_config.hpp"
#include "schedules/formats/chakra.hpp"
#include "schedules/formats/goal.hpp"
#include "sim/durations.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <memory>

namespace penstock {
namespace {

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
  if (!groups.empty()) put_file(prefix + ".groups.json", groups_json(groups));
}

/// What the form has no words for.
void note_losses(const Simulation& s) {
  if (s.perturbation == nullptr) return;
  say("note: the perturbations of the scenario are left out\n");
}

}  // namespace

int run_export(const Arguments& arguments) {
  const std::string form = arguments.value("to", "program");
  const Scenario scenario = load_scenario(arguments.positional[0], overrides_of(arguments));
  if (form == "layout") {
    put_output(arguments, layout_text(scenario));
  } else if (form == "megatron-args") {
    put_output(arguments, megatron_arguments(scenario));
    if (const auto left_out = left_out_of_megatron(scenario); !left_out.empty())
      say("note: no flag says these, so they are left out: {}\n", fmt::join(left_out, "; "));
  } else if (form == "torchtitan-config") {
    put_output(arguments, torchtitan_config(scenario));
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
