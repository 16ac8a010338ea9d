// SPDX-License-Identifier: Apache-2.0
// The kernels of the optimizers, SGD, AdamW and Muon, in the form of hw/row_kernels.hpp. What is
// alike for all elements of a step (its factors) is computed once, on the host. Source: Loshchilov
// and Hutter, ICLR'19, algorithm 2 (AdamW).
#pragma once

#include "hw/adamw_factors.hpp"
#include "hw/row_kernels.hpp"

#include <cmath>

namespace penstock::kernels {

/// Pointers of StepTensors; `working_out` and the moments may be null.
template <class T>
struct StepPointers {
  const float* master_in;
  float* master_out;
  T* working_out;
  float* gradient;
  float* first_moment;
  float* second_moment;

  template <int N>
  PENSTOCK_HD void store(std::int64_t i, const Pack<float, N>& weights) const {
    kernels::store<N>(master_out + i, weights);
    if (working_out) store_each<N>(working_out + i, [&](int k) { return weights.at[k]; });
    kernels::store<N>(gradient + i, {});
  }
};

/// Returns pointers to the tensors' blocks; null for those that are not there.
template <class T>
StepPointers<T> pointers(const StepTensors& t) {
  const auto optional = [](Tensor x) { return x ? x.data<float>() : nullptr; };
  return {t.master_in.data<float>(),
          t.master_out.data<float>(),
          t.working_out ? t.working_out.data<T>() : nullptr,
          t.gradient.data<float>(),
          optional(t.first_moment),
          optional(t.second_moment)};
}

/// One team.
template <int N = 1, class Team>
PENSTOCK_HD void clip_all(const Team& team, std::int64_t n, float limit, float* gradient) {
  double squares = 0;
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto g = load<N>(gradient + i);
    for (int k = 0; k < N; ++k) squares += static_cast<double>(g.at[k]) * g.at[k];
  });
  const float norm = std::sqrt(team.sum(static_cast<float>(squares)));
  if (!(norm > limit)) return;
  const float scale = limit / norm;
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto g = load<N>(gradient + i);
    store_each<N>(gradient + i, [&](int k) { return g.at[k] * scale; });
  });
}

struct SgdFactors {
  float rate;  ///< learning rate x gradient scale
  float kept;  ///< 1 - learning rate x weight decay
  // With momentum:
  float momentum, learning_rate, gradient_scale, weight_decay;
  float taken;          ///< of the gradient, into the velocity
  float along, beside;  ///< of the velocity and of the gradient, in the step
};
inline SgdFactors factors(const SgdSettings& s) {
  const auto rest = static_cast<float>(1 - s.momentum);
  return {static_cast<float>(s.learning_rate * s.gradient_scale),
          static_cast<float>(1 - s.learning_rate * s.weight_decay),
          static_cast<float>(s.momentum),
          static_cast<float>(s.learning_rate),
          static_cast<float>(s.gradient_scale),
          static_cast<float>(s.weight_decay),
          s.nesterov ? rest : 1.0F,
          s.nesterov ? static_cast<float>(s.momentum) : 1.0F,
          s.nesterov ? rest : 0.0F};
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void sgd_each(const Team& team, std::int64_t n, const StepPointers<T>& p,
                          SgdFactors f) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    auto w = load<N>(p.master_in + i);
    const auto gradient = load<N>(p.gradient + i);
    if (!p.first_moment) {
      for (int k = 0; k < N; ++k) w.at[k] = w.at[k] * f.kept - f.rate * gradient.at[k];
      return p.template store<N>(i, w);
    }
    auto velocity = load<N>(p.first_moment + i);
    for (int k = 0; k < N; ++k) {
      const float g = gradient.at[k] * f.gradient_scale + f.weight_decay * w.at[k];
      velocity.at[k] = f.momentum * velocity.at[k] + f.taken * g;
      w.at[k] -= f.learning_rate * (f.along * velocity.at[k] + f.beside * g);
    }
    store<N>(p.first_moment + i, velocity);
    p.template store<N>(i, w);
  });
}

using penstock::AdamwFactors;
/// NAdam's shares of the moment and of the gradient (Dozat, ICLR'16 workshop; PyTorch's momentum
/// decay of 0.004): with mu(t) = beta1 (1 - 0.96^(0.004 t) / 2) and P(t) = mu(1) ... mu(t),
/// mu(t+1) / (1 - P(t+1)) and (1 - mu(t)) / (1 - P(t)).
struct LookAhead {
  double along, beside;
};
inline LookAhead look_ahead(double beta1, std::int64_t step) {
  const auto mu = [beta1](std::int64_t t) {
    return beta1 * (1 - std::pow(0.96, 0.004 * static_cast<double>(t)) / 2);
  };
  double product = 1;  // what is below the last place of 1 changes nothing
  for (std::int64_t t = 1; t <= step && product > 1e-20; ++t) product *= mu(t);
  return {mu(step + 1) / (1 - product * mu(step + 1)), (1 - mu(step)) / (1 - product)};
}
inline AdamwFactors factors(const AdamwSettings& s, std::int64_t step) {
  const auto correction = [step](double beta) {
    return static_cast<float>(1 / (1 - std::pow(beta, static_cast<double>(step))));
  };
  const LookAhead ahead = s.nesterov ? look_ahead(s.beta1, step) : LookAhead{};
  return {static_cast<float>(s.gradient_scale),
          static_cast<float>(s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1 - s.beta1),
          static_cast<float>(1 - s.beta2),
          s.nesterov ? static_cast<float>(ahead.along) : correction(s.beta1),
          correction(s.beta2),
          static_cast<float>(ahead.beside),
          static_cast<float>(s.epsilon),
          static_cast<float>(s.learning_rate),
          static_cast<float>(s.decoupled ? 1 - s.learning_rate * s.weight_decay : 1),
          static_cast<float>(s.decoupled ? 0 : s.weight_decay)};
}

template <int N = 1, class Team, class T>
PENSTOCK_HD void adamw_each(const Team& team, std::int64_t n, const StepPointers<T>& p,
                            AdamwFactors f) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    auto w = load<N>(p.master_in + i), m = load<N>(p.first_moment + i),
         v = load<N>(p.second_moment + i);
    const auto gradient = load<N>(p.gradient + i);
    for (int k = 0; k < N; ++k) {
      const float g = gradient.at[k] * f.gradient_scale + f.decay * w.at[k];
      m.at[k] = f.beta1 * m.at[k] + f.one_minus_beta1 * g;
      v.at[k] = f.beta2 * v.at[k] + f.one_minus_beta2 * g * g;
      const float deviation = std::sqrt(v.at[k] * f.second_correction) + f.epsilon;
      const float direction = m.at[k] * f.first_correction + f.beside * g;
      w.at[k] = w.at[k] * f.kept - f.rate * direction / deviation;
    }
    store<N>(p.first_moment + i, m);
    store<N>(p.second_moment + i, v);
    p.template store<N>(i, w);
  });
}

struct MuonFactors {
  float gradient_scale, momentum, rate, kept;
};
inline MuonFactors factors(const MuonSettings& s) {
  return {static_cast<float>(s.gradient_scale), static_cast<float>(s.momentum),
          static_cast<float>(s.learning_rate), static_cast<float>(s.kept)};
}

/// One team.
template <int N = 1, class Team, class T>
PENSTOCK_HD void muon_direction_all(const Team& team, std::int64_t n, const float* gradient,
                                    float* moment, MuonFactors f, T* direction) {
  double squares = 0;
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto g = load<N>(gradient + i);
    auto m = load<N>(moment + i);
    for (int k = 0; k < N; ++k) {
      m.at[k] = f.momentum * m.at[k] + g.at[k] * f.gradient_scale;
      const float ahead = f.momentum * m.at[k] + g.at[k] * f.gradient_scale;
      squares += static_cast<double>(ahead) * ahead;
    }
    store<N>(moment + i, m);
  });
  const float inverse = 1.0F / (std::sqrt(team.sum(static_cast<float>(squares))) + 1e-7F);
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto g = load<N>(gradient + i), m = load<N>(moment + i);
    store_each<N>(direction + i, [&](int k) {
      return (f.momentum * m.at[k] + g.at[k] * f.gradient_scale) * inverse;
    });
  });
}

/// Takes the step along a direction, Muon's or that of basis rotation, which is fp32 whatever the
/// working type is.
template <int N = 1, class Team, class T, class D>
PENSTOCK_HD void muon_each(const Team& team, std::int64_t n, const StepPointers<T>& p,
                           MuonFactors f, const D* direction) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    auto w = load<N>(p.master_in + i);
    const auto x = load<N>(direction + i);
    for (int k = 0; k < N; ++k) w.at[k] = w.at[k] * f.kept - f.rate * to_float(x.at[k]);
    p.template store<N>(i, w);
  });
}

// The parts of a step of basis rotation that are no products; hw/optimizer_step.hpp has the
// formulas.

/// The first moment and the mean gradient, in its place.
template <int N = 1, class Team>
PENSTOCK_HD void rotation_moment_each(const Team& team, std::int64_t n, float* gradient,
                                      float* moment, AdamwFactors f) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    auto g = load<N>(gradient + i), m = load<N>(moment + i);
    for (int k = 0; k < N; ++k) {
      g.at[k] *= f.gradient_scale;
      m.at[k] = f.beta1 * m.at[k] + f.one_minus_beta1 * g.at[k];
    }
    store<N>(gradient + i, g);
    store<N>(moment + i, m);
  });
}

/// The second moment, of the rotated gradient.
template <int N = 1, class Team>
PENSTOCK_HD void rotation_square_each(const Team& team, std::int64_t n, const float* rotated,
                                      float* moment, AdamwFactors f) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    const auto x = load<N>(rotated + i);
    auto v = load<N>(moment + i);
    for (int k = 0; k < N; ++k) v.at[k] = f.beta2 * v.at[k] + f.one_minus_beta2 * x.at[k] * x.at[k];
    store<N>(moment + i, v);
  });
}

/// The rotated first moment, over the root of the second, in its place.
template <int N = 1, class Team>
PENSTOCK_HD void rotation_quotient_each(const Team& team, std::int64_t n, float* rotated,
                                        const float* moment, AdamwFactors f) {
  each_pack<N>(team, n, [&](std::int64_t i) {
    auto x = load<N>(rotated + i);
    const auto v = load<N>(moment + i);
    for (int k = 0; k < N; ++k) x.at[k] /= std::sqrt(v.at[k]) + f.epsilon;
    store<N>(rotated + i, x);
  });
}

/// The factors of the step along a direction that has been rotated back.
inline MuonFactors rotation_factors(const AdamwFactors& f) {
  return {f.gradient_scale, f.beta1, f.rate * f.first_correction / std::sqrt(f.second_correction),
          f.kept};
}

}  // namespace penstock::kernels
