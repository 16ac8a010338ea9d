// SPDX-License-Identifier: Apache-2.0
#include "hw/training_curve.hpp"

namespace penstock {
namespace {

constexpr const char* kCurveMark = "penstock_training_curve";
constexpr FieldRange kLoss = {-1e300, 1e300, true};

}  // namespace

void each_field(Like<CurvePoint> auto& p, auto&& visit) {
  visit("update", p.update);
  visit("loss", p.loss, kLoss);
  visit("evaluation_loss", p.evaluation_loss, kLoss);
}

void each_field(Like<TrainingCurve> auto& c, auto&& visit) {
  visit("weights_digest", c.weights_digest);
  visit("loss_floor", c.loss_floor, kLoss);
  VISIT_FIELDS(visit, c, parameters, seconds, stopped_because);
  visit("curve", c.points);
}

std::string to_text(const TrainingCurve& curve) { return text_of_fields(curve, kCurveMark, 1); }

TrainingCurve parse_training_curve(std::string_view text, const std::string& origin) {
  return from_fields<TrainingCurve>(parse_json(text, origin), origin, kCurveMark);
}

}  // namespace penstock
