// Fits of the training model to measured runs: which rows are fitted on, and what comes out.
//
// A calibration belongs to one cluster: runs of up to 8 GPUs are those of a node, others those of
// many. It is a file of fitted values and of fingerprints of the rows they were fitted on, by which
// rows that a prediction has already seen are recognised. It holds no measurement.
#pragma once

#include "validate/least_squares.hpp"
#include "validate/training_model.hpp"

#include <set>

namespace penstock {

struct TrainingCalibration {
  std::string name;
  TrainingParameters parameters = TrainingParameters::nominal();
  ShapeTable shapes;
  std::set<std::uint32_t> fitted_on;  ///< TrainingRun::fingerprint

  ShapeFactors factors(const TrainingRun& run) const;
};

/// Values of the parameters and, if `with_table`, of every shape among the runs.
TrainingCalibration fit_training(TrainingModel& model, const std::vector<TrainingRun>& runs,
                                 bool with_table);

/// A part (0 ... parts-1) for each of `count` rows: equally many in each, shuffled by the seed; the
/// same on every machine.
std::vector<int> random_parts(std::size_t count, int parts, std::uint64_t seed);

/// As JSON, and back. Throws InputError.
std::string to_json_text(const TrainingCalibration& calibration);
TrainingCalibration parse_training_calibration(const std::string& text, const std::string& origin);

}  // namespace penstock
