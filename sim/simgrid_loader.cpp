// SPDX-License-Identifier: Apache-2.0
// Finds and opens the SimGrid module beside this program.
#include "base/child_process.hpp"
#include "base/module_path.hpp"
#include "sim/events.hpp"
#include "sim/simgrid/module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

namespace penstock {
namespace {

constexpr const char* kModule = "libpenstock_simgrid.so";

struct Module {
  SimgridEntry* entry = nullptr;
  std::string problem;
};

Module open_module() {
  for (const auto& path : module_paths(kModule, "sim/simgrid")) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
      return {nullptr, fmt::format("the SimGrid module cannot be loaded: {}", dlerror())};
    auto* const start = reinterpret_cast<SimgridStart*>(dlsym(handle, kSimgridStart));
    auto* const entry = reinterpret_cast<SimgridEntry*>(dlsym(handle, kSimgridEntry));
    if (start != nullptr && entry != nullptr) {
      start();  // here and not in every child: half of a small run
      return {entry, ""};
    }
    return {nullptr, fmt::format("'{}' is not penstock's SimGrid module", path.string())};
  }
  return {nullptr,
          fmt::format("the SimGrid module '{}' was not found beside this program", kModule)};
}

const Module& module() {
  static const Module loaded = open_module();
  return loaded;
}

/// What a child says of its run beside the spans, which it shares: this, the peaks of flows and why
/// the run stalled; or after another letter the text of an error.
struct Outcome {
  char kind = 'r';  ///< a result; i: InputError; f: another error
  double makespan_s = 0;
  SimgridCounts counts = {};
  std::uint32_t links = 0;
};

template <class T>
std::string_view bytes_of(const T* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

std::string error_text(char kind, const std::exception& error) {
  return std::string(1, kind) + error.what();
}

std::string run_module(const SimulationInput& input, const SimgridOptions& options,
                       Timeline& timeline) {
  try {
    Outcome outcome;
    timeline.map_all();
    timeline.no_messages();
    const std::unique_ptr<FlowNetwork> network(module().entry());
    run_events(input, *network, {options.every_message_a_flow}, outcome.counts, timeline);
    outcome.makespan_s = timeline.makespan_s;
    outcome.links = static_cast<std::uint32_t>(timeline.peak_flows.size());
    std::string text(bytes_of(&outcome, 1));
    text += bytes_of(timeline.peak_flows.data(), timeline.peak_flows.size());
    return text + timeline.stalled_because;
  } catch (const InputError& error) {
    return error_text('i', error);
  } catch (const std::exception& error) {
    return error_text('f', error);
  }
}

void take_outcome(const std::string& text, Timeline& timeline, SimgridCounts& counts) {
  if (text.at(0) == 'i') throw InputError("simgrid", text.substr(1));
  if (text[0] == 'f') throw SystemError(text.substr(1));
  Outcome outcome;
  std::memcpy(&outcome, text.data(), sizeof outcome);
  timeline.makespan_s = outcome.makespan_s;
  timeline.peak_flows.resize(outcome.links);
  const std::size_t peaks = outcome.links * sizeof(std::uint32_t);
  if (peaks > 0) std::memcpy(timeline.peak_flows.data(), text.data() + sizeof outcome, peaks);
  timeline.stalled_because = text.substr(sizeof outcome + peaks);
  counts = outcome.counts;
}

}  // namespace

std::string why_no_simgrid() { return module().problem; }

Timeline simulate_simgrid(const SimulationInput& input, const SimgridOptions& options,
                          SimgridCounts* counts) {
  if (module().entry == nullptr) throw SystemError(module().problem + "; use --engine exact");
  Timeline timeline = Timeline::shared(input.program.ops.size());
  const ChildResult child =
      run_in_child("SimGrid", [&] { return run_module(input, options, timeline); });
  if (!child.answer)
    throw SystemError("SimGrid ended without a result, " + how_it_ended(child.status));
  SimgridCounts ignored;
  take_outcome(*child.answer, timeline, counts != nullptr ? *counts : ignored);
  timeline.map_all();
  return timeline;
}

}  // namespace penstock
