#include "sweep/evaluate.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

namespace penstock {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

double number(const std::optional<double>& value) { return value.value_or(kNothing); }

constexpr std::size_t column(std::string_view name) {
  std::size_t at = 0;
  while (kMeasures.at(at) != name) ++at;
  return at;
}

/// The most of any device, as in the summary of `simulate`.
template <class Of>
double most(const Result& r, const Of& of) {
  double most = kNothing;
  for (const DeviceResult& d : r.devices) {
    const auto value = static_cast<double>(of(d));
    if (!(most >= value)) most = value;
  }
  return most;
}

double capacity(const Result& r) {
  const double bytes = most(r, [](const DeviceResult& d) { return d.capacity_bytes; });
  return bytes > 0 ? bytes : kNothing;
}

/// One number where all stages have as many replicas.
std::string width_text(const std::vector<int>& widths) {
  const bool alike = std::ranges::adjacent_find(widths, std::not_equal_to()) == widths.end();
  return alike ? fmt::format("{}", widths.front()) : fmt::format("{}", fmt::join(widths, " "));
}

/// What is known before anything runs.
void describe(const Scenario& scenario, Row& row) {
  row.scenario = scenario.name;
  row.schedule = scenario.schedule->name;
  row.transfers = to_string(scenario.lowering.transfers);
  row.width = width_text(scenario.widths());
  row.replication = scenario.mesh.divided ? "split" : "round-robin";
  const auto set = [&](std::size_t at, double value) { row.measures[at] = value; };
  set(column("stages"), scenario.shape.depth);
  set(column("tensor"), scenario.mesh.tensor);
  set(column("microbatches"), scenario.shape.microbatches_per_update);
  set(column("samples_per_update"), scenario.samples_per_update());
  set(column("microbatch_size"), static_cast<double>(scenario.microbatch_size));
  set(column("batches"), scenario.shape.batches);
  set(column("devices"), static_cast<double>(scenario.devices()));
  set(column("gpus"), static_cast<double>(scenario.gpu_count()));
  set(column("optimistic"), scenario.optimistic ? 1 : 0);
  set(column("chunks"), scenario.shape.chunks);
}

void measure(const Result& r, Row& row) {
  const auto set = [&](std::size_t at, double value) { row.measures[at] = value; };
  set(column("makespan_s"), r.makespan_s);
  set(column("iteration_time_s"), number(r.iteration_time_s));
  set(column("throughput_samples_per_s"), r.samples_per_s);
  set(column("throughput_microbatches_per_s"), r.microbatches_per_s);
  set(column("tokens_per_s_per_device"), number(r.tokens_per_s_per_device));
  set(column("tflops_per_device"), number(r.tflops_per_device));
  set(column("mfu"), number(r.mfu));
  set(column("hfu"), number(r.hfu));
  set(column("epoch_s"), number(r.epoch_s));
  set(column("bubble_fraction"), r.bubble_fraction);
  set(column("stage_bubble_fraction"), r.stage_bubble_fraction);
  for (std::size_t c = 0; c < kCauses; ++c) set(column("bubble_warmup") + c, r.bubble[c]);
  set(column("ops"), static_cast<double>(r.ops));
  set(column("peak_memory_bytes"), most(r, [](const auto& d) { return d.memory.use.total(); }));
  set(column("capacity_bytes"), capacity(r));
  set(column("stash_peak"), most(r, [](const auto& d) { return d.order.stash_peak; }));
  set(column("weight_versions_peak"),
      most(r, [](const auto& d) { return d.order.weight_versions_peak; }));
  set(column("staleness_max"), most(r, [](const auto& d) { return d.order.staleness_max; }));
}

/// What is wrong with the input, without the lines it stands in.
std::string messages(const InputError& error) {
  std::string text;
  for (const Diagnostic& d : error.diagnostics()) text += (text.empty() ? "" : "; ") + d.message;
  return one_line(text);
}

Row empty_row(std::uint64_t point) {
  Row row;
  row.point = point;
  row.measures.fill(kNothing);
  return row;
}

/// Does `work`, and puts what went wrong into the row.
template <class Work>
void guarded(Row& row, const Work& work) {
  const auto end = [&](Row::Status status, const std::string& why) {
    row.status = status;
    row.why = one_line(why);
  };
  try {
    work();
  } catch (const InputError& error) {
    end(Row::Status::refused, messages(error));
  } catch (const std::exception& error) {
    end(Row::Status::failed, what_of(error));
  }
}

void finish(Simulation& simulation, EngineChoice engine, Row& row) {
  run_engine(simulation, engine);
  const std::uint64_t point = row.point;
  row = row_of(simulation);
  row.point = point;
}

std::string name_of(const std::string& file) { return std::filesystem::path(file).stem().string(); }

}  // namespace

Row row_of(const Simulation& simulation) {
  Row row = empty_row(0);
  const Result result = outline(simulation);
  describe(simulation.scenario, row);
  row.engine = simulation.engine;
  measure(result, row);
  row.why = !result.infeasible_because.empty() ? result.infeasible_because.front()
                                               : result.stalled_because;
  row.status = row.why.empty() ? Row::Status::ok : Row::Status::infeasible;
  return row;
}

struct Evaluator::Parts {
  std::vector<std::string> names;  // of the files, for rows of what could not be read
  std::vector<ScenarioTemplate> scenarios;
  std::vector<Override> overrides;
  EngineChoice engine;
  ProgramCache programs;

  Scenario scenario(const Point& point) const {
    std::vector<Override> all = overrides;
    all.insert(all.end(), point.changes.begin(), point.changes.end());
    return scenarios.at(point.scenario).resolve(all);
  }
};

Evaluator::Evaluator(const std::vector<std::string>& files, const std::vector<Override>& overrides,
                     EngineChoice engine, const std::shared_ptr<Documents>& documents)
    : parts_(std::make_unique<Parts>()) {
  for (const std::string& file : files) {
    parts_->scenarios.emplace_back(file, documents);
    parts_->names.push_back(name_of(file));
  }
  parts_->overrides = overrides;
  parts_->engine = engine;
}

Evaluator::~Evaluator() = default;

Row Evaluator::row(const Point& point) const {
  Row row = empty_row(point.number);
  row.scenario = parts_->names.at(point.scenario);
  guarded(row, [&] {
    Scenario scenario = parts_->scenario(point);
    describe(scenario, row);
    Simulation prepared = prepare(std::move(scenario), &parts_->programs);
    const bool exact = uses_exact(prepared, parts_->engine);
    if (!exact) row.engine = "simgrid";
    try {
      finish(prepared, exact ? EngineChoice::exact : EngineChoice::simgrid, row);
    } catch (const SystemError&) {
      if (exact) throw;  // else its process died, which may be bad luck once
      finish(prepared, EngineChoice::simgrid, row);
    }
  });
  return row;
}

}  // namespace penstock
