#include "cli/sailor_measurements.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/measured_output.hpp"
#include "traces/byte_sink.hpp"
#include "validate/calibration.hpp"
#include "validate/sailor_data.hpp"
#include "validate/sailor_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr const char* kSailorFormat = "Sailor's measured configurations";

std::vector<ReportedParameter> reported(const SailorParameters& p) {
  return {
      {"message_latency", p.message_latency_s, "s", "of a message between stages"},
      {"message_share", p.message_share, "", "of the NIC's measured bandwidth that a message gets"},
      {"reduction", p.reduction_s, "s", "of every gradient reduction, beside its ring"},
      {"speed_spread", p.speed_spread, "", "standard deviation of the speeds of GPUs of a kind"},
      {"context", p.context_bytes, "bytes", "CUDA context, kernels, NCCL, allocator"},
  };
}

std::string assumptions(const SailorParameters& p) {
  return fmt::format(
      "assumed, not fitted: {:.2f} of the profile's update (a fused optimizer), 18 bytes per "
      "parameter, {} per logit, {} attention matrices while a layer's backward runs",
      p.update_share, p.logits_bytes, p.score_copies);
}

/// What is special about a row that is far off.
std::string hypothesis(const SailorPlan& plan, const SailorData& data,
                       const SailorPrediction& prediction) {
  const SailorReplica& gpus = plan.pipelines.front().replicas.front().front();
  const SailorProfile& profile = data.profiles.at(gpus.gpu);
  const double measured_s = plan.measured_s.value_or(0);
  if (plan.reduction_s && *plan.reduction_s > 0.5 * measured_s)
    return fmt::format(
        "its reduction ({}) leaves no room for the compute: ranks waited for another",
        format_time(*plan.reduction_s));
  if (profile.bound_by_launches(plan.microbatch_size, gpus.tensor))
    return "bound by kernel launches: the profile is slower at this size than at larger ones";
  if (prediction.reduction_s > 0.2 * prediction.iteration_s)
    return "a large share is gradient reduction: the network's bandwidth among that many nodes";
  if (prediction.update_s > 0.1 * prediction.iteration_s)
    return "a large share is the optimizer, which the profile times unfused";
  if (plan.microbatch_size < 8)
    return "few sequences a microbatch: kernels are short, and their launches differ by run";
  return "not understood";
}

struct Configuration {
  SailorRow run;
  std::string model;
  std::shared_ptr<const SailorData> data;
};

MeasuredRowResult result_of(const Configuration& row, const SailorParameters& parameters) {
  const SailorPlan& plan = row.run.plan;
  const SailorPrediction prediction = predict(plan, *row.data, parameters);
  MeasuredRowResult out;
  out.name = plan.name;
  out.pipeline_depth = plan.depth();
  out.measured_s = plan.measured_s;
  out.predicted_s = prediction.iteration_s;
  out.measured_bytes = plan.max_bytes;
  out.predicted_bytes = prediction.max_bytes;
  if (std::max(std::abs(out.error().value_or(0)), std::abs(out.memory_error().value_or(0))) >
      kLargeError)
    out.hypothesis = hypothesis(plan, *row.data, prediction);
  return out;
}

std::vector<SailorRow> runs_of(const std::vector<Configuration>& rows,
                               const std::function<bool(std::size_t)>& chosen) {
  std::vector<SailorRow> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (chosen(i)) out.push_back(rows[i].run);
  }
  if (out.empty()) throw InputError("--fit", "leaves no row to fit on");
  return out;
}

void with_shipped(const std::vector<Configuration>& rows, MeasuredReport& report) {
  report.protocol =
      "shipped parameters, fitted on 15 runs of OPT-350 on 1 to 32 nodes of 4 GH200 (those rows "
      "are "
      "marked)";
  report.parameters = reported({});
  for (const Configuration& row : rows) {
    report.rows.push_back(result_of(row, {}));
    report.rows.back().calibrated = is_sailor_calibration(row.run.plan, row.model);
  }
}

void with_all(const std::vector<Configuration>& rows, MeasuredReport& report) {
  const SailorParameters fitted = fit_sailor(runs_of(rows, [](std::size_t) { return true; }));
  report.protocol = "fitted on all rows";
  report.parameters = reported(fitted);
  for (const Configuration& row : rows) {
    report.rows.push_back(result_of(row, fitted));
    report.rows.back().calibrated = true;
  }
}

void with_half(const std::vector<Configuration>& rows, std::uint64_t seed, MeasuredReport& report) {
  const auto part = random_parts(rows.size(), 2, seed);
  const SailorParameters fitted =
      fit_sailor(runs_of(rows, [&](std::size_t i) { return part[i] == 0; }));
  report.protocol =
      fmt::format("fitted on a random half of the rows (seed {}), the others predicted", seed);
  report.parameters = reported(fitted);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    report.rows.push_back(result_of(rows[i], fitted));
    report.rows.back().calibrated = part[i] == 0;
  }
}

void in_folds(const std::vector<Configuration>& rows, MeasuredReport& report) {
  report.protocol =
      "leave-one-out: every row predicted by a fit on the others; the values are of a fit on all";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto others = runs_of(rows, [&](std::size_t j) { return j != i; });
    report.rows.push_back(result_of(rows[i], fit_sailor(others)));
  }
  report.parameters = reported(fit_sailor(runs_of(rows, [](std::size_t) { return true; })));
}

MeasuredReport report_of(const std::vector<Configuration>& rows, const Arguments& arguments) {
  MeasuredReport report;
  const std::string fit = arguments.value("fit", "none");
  if (fit == "none")
    with_shipped(rows, report);
  else if (fit == "all")
    with_all(rows, report);
  else if (fit == "half")
    with_half(rows, seed_of(arguments), report);
  else if (fit == "folds")
    in_folds(rows, report);
  else
    throw InputError("--fit", fmt::format("'{}' is not for Sailor's configurations; none, half, "
                                          "folds and all are",
                                          fit));
  report.format = fmt::format("{}, {}", kSailorFormat, rows.front().model);
  return report;
}

}  // namespace

std::vector<MeasuredReport> sailor_reports(const std::vector<std::string>& files,
                                           const Arguments& arguments) {
  std::map<std::string, std::vector<Configuration>> by_model;
  std::map<std::string, SailorLibrary> libraries;
  std::map<std::string, std::vector<std::string>> notes;
  for (const std::string& file : files) {
    const SailorPlan plan = parse_sailor_plan(read_file(file), file);
    const std::string folder = std::filesystem::path(file).parent_path().string();
    const std::string profiles = arguments.value("profiles");
    const auto [library, added] =
        libraries.try_emplace(profiles.empty() ? folder : profiles, file, profiles);
    const std::string model = library->second.model_of(plan, arguments.value("model"));
    auto data = library->second.data_for(plan, model);
    by_model[model].push_back({{plan, data.get()}, model, data});
    notes[model] = library->second.notes(model);
  }
  std::vector<MeasuredReport> reports;
  for (const auto& [model, rows] : by_model) {
    reports.push_back(report_of(rows, arguments));
    reports.back().file = arguments.positional[0];
    reports.back().notes = notes[model];
    reports.back().notes.push_back(assumptions({}));
  }
  return reports;
}

}  // namespace penstock
