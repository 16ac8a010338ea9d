// SPDX-License-Identifier: Apache-2.0
// The factors of one step of AdamW that all elements share.
#pragma once

namespace penstock {

struct AdamwFactors {
  float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float first_correction, second_correction;  ///< 1 / (1 - beta^step)
  float beside;                               ///< of the gradient, in the step (NAdam)
  float epsilon, rate;
  float kept;   ///< 1 - learning rate x decoupled weight decay
  float decay;  ///< added to the gradient, times the weight
};

}  // namespace penstock
