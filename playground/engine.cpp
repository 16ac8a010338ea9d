// SPDX-License-Identifier: Apache-2.0
// penstock in a browser: a scenario's text in, its numbers as JSON out, and the arrays of its
// timeline and of its memory to be drawn, where they lie. Two of them at a time, side by side.
#include "base/json.hpp"
#include "cli/simulation_report.hpp"
#include "results/advice.hpp"
#include "results/fields.hpp"
#include "scenarios/documents.hpp"
#include "scenarios/scenario.hpp"
#include "schedules/generator.hpp"

#include <emscripten/emscripten.h>

#include <array>
#include <cmath>

namespace penstock {
namespace {

struct Point {
  double time_s, bytes;
};

/// A simulated scenario as the page shows it.
struct Side {
  std::optional<Simulation> simulation;
  std::vector<std::uint32_t> versions;     // of each op's weights
  std::vector<std::vector<Point>> memory;  // by device, when it is asked for
};

std::array<Side, 2> sides;
std::string answer;  // what was returned last

const char* give(const Json& json) {
  answer = json.dump();
  return answer.c_str();
}

Json problems_json(const InputError& error) {
  Json list = Json::array();
  for (const Diagnostic& d : error.diagnostics())
    list.push_back({{"message", d.message},
                    {"line", d.where.line},
                    {"column", d.where.column},
                    {"rendered", render(d)}});
  return {{"problems", list}};
}

/// All that a row of a sweep has, and what is said of devices.
Json numbers_of(const Simulation& s, const Result& r) {
  const Summary summary{s.scenario, &s, &r, true};
  Json json;
  for (const Field<Summary>& field : result_fields()) {
    const std::string name(field.name);
    if (field.number == nullptr && !field.before_run && name != "feasible" &&
        name != "infeasible_because")
      continue;
    if (const auto value = field.value(summary)) json[name] = *value;
  }
  json["devices"] = list(r.devices, [](const DeviceResult& d) {
    Json one;
    for (const Field<DeviceResult>& field : device_fields())
      if (const auto value = field.value(d)) one[std::string(field.name)] = *value;
    return one;
  });
  json["notes"] = r.notes;
  return json;
}

Json simulated(Side& side, const std::string& text) {
  static const auto documents = std::make_shared<Documents>();
  static ProgramCache programs;
  side.simulation.reset();
  const ScenarioTemplate scenario(text, "scenario", documents);
  side.simulation.emplace(simulate(scenario.resolve({}), EngineChoice::automatic, &programs));
  const Simulation& s = *side.simulation;
  side.versions.clear();
  for (std::uint32_t g = 0; g < s.program.ops.size(); ++g)
    side.versions.push_back(is_compute(s.program.ops[g].kind) ? s.weight_version(s.program.ops[g])
                                                              : 0);
  side.memory.assign(static_cast<std::size_t>(s.program.ops.devices()), {});
  return {{"result", numbers_of(s, outline(s))}};
}

template <class Work>
const char* answered(Work&& work) {
  try {
    return give(work());
  } catch (const InputError& error) {
    return give(problems_json(error));
  } catch (const std::exception& error) {
    return give(
        {{"problems",
          {{{"message", error.what()}, {"line", 0}, {"column", 0}, {"rendered", error.what()}}}}});
  }
}

}  // namespace
}  // namespace penstock

extern "C" {

/// Reads and simulates: {"result": ...} or {"problems": [...]}.
EMSCRIPTEN_KEEPALIVE const char* penstock_simulate(int side, const char* text) {
  using namespace penstock;
  return answered([&] { return simulated(sides[static_cast<std::size_t>(side)], text); });
}

/// Where the page reads the ops of what was simulated last on this side: [count, Op[8 bytes],
/// Span[16 bytes], version[4 bytes], ends of devices].
EMSCRIPTEN_KEEPALIVE const char* penstock_arrays(int side) {
  using namespace penstock;
  return answered([&]() -> Json {
    const Side& shown = sides[static_cast<std::size_t>(side)];
    const Simulation& s = *shown.simulation;
    std::vector<std::uint32_t> ends;
    for (int d = 0; d < s.program.ops.devices(); ++d) ends.push_back(s.program.ops.end(d));
    Json kinds = Json::array();
    for (std::size_t kind = 0; kind < kOpKinds; ++kind)
      kinds.push_back(token(static_cast<OpKind>(kind)));
    const auto count = s.program.ops.size();
    if (count == 0) return {{"count", 0}};
    return {{"count", count},
            {"ops", reinterpret_cast<std::uintptr_t>(&s.program.ops[0])},
            {"spans", reinterpret_cast<std::uintptr_t>(&std::as_const(*s.timeline).op(0))},
            {"versions", reinterpret_cast<std::uintptr_t>(shown.versions.data())},
            {"ends", ends},
            {"kinds", kinds}};
  });
}

/// Pairs of doubles (time, bytes): the memory of a device after everything that changes it.
EMSCRIPTEN_KEEPALIVE const char* penstock_memory(int side, int device) {
  using namespace penstock;
  return answered([&]() -> Json {
    Side& shown = sides[static_cast<std::size_t>(side)];
    std::vector<Point>& curve = shown.memory.at(static_cast<std::size_t>(device));
    if (curve.empty())
      memory_over_time(shown.simulation->memory(), device,
                       [&](double time_s, const MemoryUse& use) {
                         curve.push_back({time_s, static_cast<double>(use.total())});
                       });
    return {{"count", curve.size()}, {"points", reinterpret_cast<std::uintptr_t>(curve.data())}};
  });
}

/// The page of `penstock simulate --report`, with what would help: {"page": ...}.
EMSCRIPTEN_KEEPALIVE const char* penstock_report(int side) {
  using namespace penstock;
  return answered([&]() -> Json {
    const Simulation& s = *sides[static_cast<std::size_t>(side)].simulation;
    Result result = summarize(s);
    add_help(s, result);
    return {{"page", report_html(simulation_report(s, result, Arguments{}))}};
  });
}

/// Names of what is shipped, and of the schedules what the page must know to ask for one.
EMSCRIPTEN_KEEPALIVE const char* penstock_shipped() {
  using namespace penstock;
  return answered([&]() -> Json {
    return {{"schedules", list(schedules(),
                               [](const Schedule& s) -> Json {
                                 return {{"name", s.name},
                                         {"summary", s.summary},
                                         {"chunks", s.chunks.usual},
                                         {"flushes", s.flushes()},
                                         {"each", s.update == UpdateRule::stash},
                                         {"mirrored", s.layout == Layout::mirrored},
                                         {"splits", s.splits_backward},
                                         {"whole_model", s.whole_model}};
                               })},
            {"models", shipped_names("models")},
            {"clusters", shipped_names("models/clusters")},
            {"scenarios", shipped_names("scenarios")}};
  });
}

/// A file that is shipped: {"text": ...}.
EMSCRIPTEN_KEEPALIVE const char* penstock_file(const char* name) {
  using namespace penstock;
  return answered([&]() -> Json {
    return {{"text", read_text(data_folder() + "/" + name, 1 << 20)}};
  });
}

}  // extern "C"
