// SPDX-License-Identifier: Apache-2.0
// penstock simulate
#include "base/exit_codes.hpp"
#include "base/numbers.hpp"
#include "base/say.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"
#include "results/fitting_split.hpp"
#include "results/advice.hpp"
#include "cli/output.hpp"
#include "results/perturbation_study.hpp"
#include "results/samples.hpp"
#include "cli/running.hpp"
#include "cli/simulation_report.hpp"
#include "traces/byte_sink.hpp"

namespace penstock {
namespace {

/// --window; all where it is not given.
TimeWindow window_of(const Arguments& arguments) {
  if (!arguments.flag("window")) return {};
  if (!arguments.flag("trace") && !arguments.flag("report"))
    throw InputError("--window", "is a part of --trace or --report, and neither is asked for");
  const std::string text = arguments.value("window");
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto seconds = [&](const std::string& part) {
    std::string why;
    return parse_quantity(part, Dimension::time, why);
  };
  const auto from = seconds(text.substr(0, colon));
  const auto to = seconds(text.substr(std::min(colon + 1, text.size())));
  if (!from || !to || *from < 0 || *to <= *from)
    throw InputError("--window", fmt::format("must be two times such as 10s:12s, got '{}'", text));
  return {*from, *to};
}

/// --advice.
AdviceEffort advice_of(const Arguments& arguments) {
  const auto* const named = std::ranges::find(kAdviceNames, arguments.value("advice", "usual"));
  return AdviceEffort(named - kAdviceNames);
}

/// --samples; 0 where it is not given.
int samples_of(const Arguments& arguments) {
  constexpr int kMost = 100'000;
  if (!arguments.flag("samples")) return 0;
  const std::string text = arguments.value("samples");
  const auto n = parse_number<int>(text);
  if (!n || *n < 1 || *n > kMost)
    throw InputError("--samples",
                     fmt::format("must be an integer from 1 to {}, got '{}'", kMost, text));
  return *n;
}

/// Before a run that takes long.
void say_size(const Scenario& scenario) {
  constexpr std::uint64_t kLarge = 5'000'000;
  const std::uint64_t ops = count_ops(scenario.shape);
  if (ops <= kLarge) return;
  say("simulating {} ops, which take about {}\n", format_count(static_cast<std::int64_t>(ops)),
      format_bytes(static_cast<double>(ops) * kBytesPerOp));
}

}  // namespace

int run_simulate(const Arguments& arguments) {
  const TimeWindow window = window_of(arguments);
  const int samples = samples_of(arguments);
  const Scenario scenario = load_scenario(arguments.positional[0], overrides_of(arguments));
  say_size(scenario);
  // Beyond that SimGrid takes minutes to play each flow, of which tokens have one for each two GPUs
  // of a group; `fluid` gives the same times.
  constexpr std::int64_t kMostPlayed = 1024, kMostWithExperts = 64;
  const bool many =
      scenario.gpu_count() > (scenario.mesh.expert > 1 ? kMostWithExperts : kMostPlayed);
  const EngineChoice engine =
      engine_of(arguments, many ? EngineChoice::automatic : EngineChoice::simgrid);
  auto perturbed = study_perturbations(scenario, engine);
  // Draws are many: they take the engine that is fast, where none was asked for.
  std::optional<SampleStudy> drawn;
  if (samples > 0)
    drawn = study_samples(scenario, engine_of(arguments, EngineChoice::automatic), samples);
  const Simulation simulation = simulate(scenario, engine);
  const OutputOptions options{arguments.flag("events"), arguments.flag("reproducible"),
                              results_width()};
  const std::string format = arguments.value("format", "table");
  const bool events_only = format == "csv" && options.events;
  Result result = summarize(simulation);
  result.perturbed = std::move(perturbed);
  result.samples = drawn;
  // The trace first: a result that names a trace which could not be written would be wrong.
  if (arguments.flag("trace")) write_trace(simulation, arguments.value("trace"), window);
  const AdviceEffort effort = advice_of(arguments);
  if (!events_only || arguments.flag("report")) add_help(simulation, result, effort);
  if (arguments.flag("report"))
    write_report(simulation_report(simulation, result, arguments, window),
                 arguments.value("report"));
  if (events_only) {
    std::vector<CsvRow> rows;
    for (const Json& event : events_json(simulation)) {
      auto& row = rows.emplace_back();
      for (const auto& [key, value] : event.items()) row.emplace_back(key, value);
    }
    put_result(arguments, to_csv(rows));
    return exit_ok;
  }
  if (format == "table") {
    put_result(arguments, to_table(simulation, result, options));
  } else {
    note_fitting_split(scenario, result,
                       effort);  // for `compare`, which shows notes of saved results
    const Json json = to_json(simulation, result, options);
    put_result(arguments, format == "csv" ? to_csv({summary_row(json)}) : json.dump(2) + "\n");
  }
  return exit_ok;
}

}  // namespace penstock
