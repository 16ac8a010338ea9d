// SPDX-License-Identifier: Apache-2.0
// What training came to, update by update, and the file in which `penstock-run --train` leaves it.
#pragma once

#include "base/json_fields.hpp"

namespace penstock {

/// After one update.
struct CurvePoint {
  std::uint32_t update = 0;  ///< updates made, from 1 on
  double loss = 0;           ///< mean over the microbatches of the update, before it
  std::optional<double> evaluation_loss = {};  ///< of held-out data, after it
};

struct TrainingCurve {
  std::vector<CurvePoint> points;
  std::string weights_digest;        ///< as RecordedRun's; of the last point
  std::optional<double> loss_floor;  ///< that no mean loss can be below, where it is known
  std::int64_t parameters = 0;
  double seconds = 0;           ///< of this process, on the wall, in all its parts
  std::string stopped_because;  ///< empty: all updates were made
};

/// The text of the file. A loss that is no number is null, and read as infinite.
std::string to_text(const TrainingCurve& curve);

/// Throws InputError with everything that is wrong.
TrainingCurve parse_training_curve(std::string_view text, const std::string& origin);

}  // namespace penstock
