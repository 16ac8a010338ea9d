#include "validate/calibration.hpp"

#include "base/error.hpp"
#include "base/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock {
namespace {

constexpr const char* kFormat = "penstock training calibration";

double log_error(double predicted, double measured) { return std::log(predicted / measured); }

/// The shared parameters, with the factors of shapes as they are.
void fit_parameters(TrainingModel& model, const std::vector<TrainingRun>& runs,
                    TrainingCalibration& calibration) {
  std::vector<FitRange> ranges;
  for (const auto& spec : training_parameters())
    ranges.push_back({spec.start, spec.lowest, spec.highest});
  const auto& now = calibration.parameters.values;
  const Residuals residuals = [&](const std::vector<double>& x) {
    TrainingParameters parameters{};
    std::ranges::copy(x, parameters.values.begin());
    std::vector<double> out;
    for (const TrainingRun& run : runs)
      out.push_back(
          log_error(model.iteration_s(run, parameters, calibration.factors(run)), run.measured_s));
    return out;
  };
  const auto fitted = fit_least_squares(residuals, ranges, {now.begin(), now.end()}, {});
  std::ranges::copy(fitted, calibration.parameters.values.begin());
}

/// The factors of one shape, from its own runs.
ShapeFactors fit_shape(TrainingModel& model, const std::vector<const TrainingRun*>& runs,
                       const TrainingParameters& parameters, const ShapeFactors& now) {
  constexpr FitRange kRange = {1, 0.1, 10};
  // Of a shape with one run, a part of the error stays: it is not the shape's alone.
  constexpr FitOptions kOptions = {0.01, 0.03, 20};
  const Residuals residuals = [&](const std::vector<double>& x) {
    std::vector<double> out;
    for (const TrainingRun* run : runs)
      out.push_back(log_error(model.iteration_s(*run, parameters, {x[0], x[1]}), run->measured_s));
    return out;
  };
  const auto x = fit_least_squares(residuals, {kRange, kRange}, {now.layer, now.head}, kOptions);
  return {x[0], x[1]};
}

void fit_table(TrainingModel& model, const std::vector<TrainingRun>& runs,
               TrainingCalibration& calibration) {
  std::map<LayerShape, std::vector<const TrainingRun*>> by_shape;
  for (const TrainingRun& run : runs) by_shape[shape_of(run)].push_back(&run);
  for (const auto& [shape, of_shape] : by_shape) {
    ShapeFactors& factors = calibration.shapes[shape];
    factors = fit_shape(model, of_shape, calibration.parameters, factors);
  }
}

[[noreturn]] void not_a_calibration(const std::string& origin, const std::string& why) {
  throw InputError(origin, "is not a calibration of iteration times: " + why);
}

double positive(const Json& value, const std::string& what) {
  if (!value.is_number() || !(value.get<double>() > 0))
    throw std::invalid_argument(what + " must be a number > 0");
  return value.get<double>();
}

TrainingCalibration from_json(const Json& json) {
  if (json.value("format", "") != kFormat)
    throw std::invalid_argument(fmt::format("'format' must be '{}'", kFormat));
  TrainingCalibration out;
  out.name = json.value("name", "");
  const Json& parameters = json.at("parameters");
  for (std::size_t i = 0; i < kTrainingParameters; ++i) {
    const char* name = training_parameters()[i].name;
    out.parameters.values[i] = positive(parameters.at(name), name);
  }
  for (const Json& entry : json.at("shapes")) {
    const auto numbers = entry.at("shape").get<std::vector<int>>();
    LayerShape shape{};
    if (numbers.size() != shape.size())
      throw std::invalid_argument(fmt::format("'shape' must be {} numbers", shape.size()));
    std::ranges::copy(numbers, shape.begin());
    out.shapes[shape] = {positive(entry.at("layer"), "layer"), positive(entry.at("head"), "head")};
  }
  for (const Json& print : json.at("fitted_on")) out.fitted_on.insert(print.get<std::uint32_t>());
  return out;
}

}  // namespace

ShapeFactors TrainingCalibration::factors(const TrainingRun& run) const {
  const auto it = shapes.find(shape_of(run));
  return it == shapes.end() ? ShapeFactors{} : it->second;
}

TrainingCalibration fit_training(TrainingModel& model, const std::vector<TrainingRun>& runs,
                                 bool with_table) {
  constexpr int kRounds = 2;  // parameters and table in turn: the table frees what is not per shape
  TrainingCalibration out;
  for (const TrainingRun& run : runs) out.fitted_on.insert(run.fingerprint());
  fit_parameters(model, runs, out);
  for (int round = 0; with_table && round < kRounds; ++round) {
    fit_table(model, runs, out);
    fit_parameters(model, runs, out);
  }
  if (with_table) fit_table(model, runs, out);
  return out;
}

std::vector<int> random_parts(std::size_t count, int parts, std::uint64_t seed) {
  std::vector<int> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(static_cast<int>(i % static_cast<std::size_t>(parts)));
  std::mt19937_64 random(seed);  // its numbers are fixed by the standard; std::shuffle's are not
  for (std::size_t i = count; i > 1; --i) std::swap(out[i - 1], out[random() % i]);
  return out;
}

std::string to_json_text(const TrainingCalibration& calibration) {
  Json json = {{"format", kFormat}, {"name", calibration.name}, {"parameters", Json::object()}};
  for (std::size_t i = 0; i < kTrainingParameters; ++i)
    json["parameters"][training_parameters()[i].name] = calibration.parameters.values[i];
  std::string text = json.dump(2);
  text.erase(text.rfind("\n}"));
  text += ",\n  \"shapes\": [";
  const char* separator = "\n    ";
  for (const auto& [shape, factors] : calibration.shapes) {
    text += fmt::format("{}{{\"shape\": {}, \"layer\": {:.5g}, \"head\": {:.5g}}}", separator,
                        Json(shape).dump(), factors.layer, factors.head);
    separator = ",\n    ";
  }
  return text +
         fmt::format("\n  ],\n  \"fitted_on\": {}\n}}\n", Json(calibration.fitted_on).dump());
}

TrainingCalibration parse_training_calibration(const std::string& text, const std::string& origin) {
  try {
    return from_json(Json::parse(text));
  } catch (const JsonError& error) {
    not_a_calibration(origin, error.what());
  } catch (const std::invalid_argument& error) {
    not_a_calibration(origin, error.what());
  }
}

}  // namespace penstock
