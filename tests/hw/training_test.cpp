// SPDX-License-Identifier: Apache-2.0
// What is trained against the papers' recurrences, written down by hand for a product of matrices:
// no Program, no schedule, no version rule takes part in them.
#include "hw/training_run.hpp"

#include "hw/closed_form_stages.hpp"
#include "hw/reference.hpp"
#include "hw/row_kernels.hpp"
#include "hw/stages.hpp"
#include "hw/training_data.hpp"
#include "schedules/pipemare.hpp"
#include "tests/hw/plan_rig.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <numbers>
#include <numeric>
#include <tuple>

namespace penstock {
namespace {

constexpr int kWidth = LinearStage::width;
constexpr std::uint64_t kSeed = 7;
constexpr double kRate = 0.3;

/// Rows x kWidth numbers; or a weight, kWidth x kWidth.
using Matrix = std::vector<double>;
using Weights = std::vector<Matrix>;  // by stage

Matrix random_matrix(std::size_t count, std::uint64_t seed, std::uint64_t stream, double scale) {
  Matrix m;
  for (std::size_t i = 0; i < count; ++i)
    m.push_back(scale * static_cast<double>(kernels::uniform(kernels::hash(seed, stream, i))));
  return m;
}

/// x + scale x W^T, or x + scale x W.
Matrix plus_product(const Matrix& x, const Matrix& w, double scale, bool transposed) {
  Matrix y = x;
  for (std::size_t r = 0; r < x.size() / kWidth; ++r) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t j = 0; j < kWidth; ++j)
        y[r * kWidth + i] +=
            scale * x[r * kWidth + j] * (transposed ? w[i * kWidth + j] : w[j * kWidth + i]);
    }
  }
  return y;
}

/// Of microbatch k, with one set of weights in the forward and another in the backward.
Weights gradient(const Weights& forward, const Weights& backward, std::uint32_t k,
                 std::size_t rows) {
  std::vector<Matrix> x{random_matrix(rows * kWidth, kSeed, (1ULL << 32) + k, 1)};
  for (const Matrix& w : forward) x.push_back(plus_product(x.back(), w, 1, true));
  const Matrix target =
      plus_product(x[0], random_matrix(kWidth * kWidth, 1, 2ULL << 32, 1), 0.25, true);
  Matrix dy = x.back();
  for (std::size_t i = 0; i < dy.size(); ++i)
    dy[i] = (dy[i] - target[i]) / static_cast<double>(dy.size());
  Weights gradients(forward.size());
  for (std::size_t s = forward.size(); s-- > 0;) {
    Matrix g(kWidth * kWidth, 0.0);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < kWidth; ++i) {
        for (std::size_t j = 0; j < kWidth; ++j)
          g[i * kWidth + j] += dy[r * kWidth + i] * x[s][r * kWidth + j];
      }
    }
    gradients[s] = g;
    dy = plus_product(dy, backward[s], 1, false);
  }
  return gradients;
}

Weights initial(std::size_t stages) {
  Weights w;
  for (std::size_t s = 0; s < stages; ++s)
    w.push_back(random_matrix(kWidth * kWidth, kSeed, s, 1.0 / 8));
  return w;
}

void add(Weights& to, const Weights& what, double scale) {
  for (std::size_t s = 0; s < to.size(); ++s) {
    for (std::size_t i = 0; i < to[s].size(); ++i) to[s][i] += scale * what[s][i];
  }
}

/// What weights an update's gradient of microbatch k is taken at, given all weights so far.
struct Taken {
  Weights forward, backward;
};
using History = std::vector<Weights>;  // by number of updates made
using Rule = std::function<Taken(const History&, std::uint32_t k)>;

/// What update t, from 0 on, adds to the weights of a stage, given the mean gradient.
using Step = std::function<Matrix(std::size_t stage, std::uint32_t t, const Matrix& w,
                                  const Matrix& gradient)>;

Matrix plain_step(std::size_t, std::uint32_t, const Matrix&, const Matrix& g) {
  Matrix change = g;
  for (double& x : change) x *= -kRate;
  return change;
}

/// W(t+1) = W(t) + step of the mean over the m microbatches of update t of their gradients.
History by_hand(std::size_t stages, std::uint32_t m, std::uint32_t updates, std::size_t rows,
                const Rule& rule, const Step& step = plain_step) {
  History w{initial(stages)};
  for (std::uint32_t t = 0; t < updates; ++t) {
    Weights mean(stages, Matrix(kWidth * kWidth, 0.0)), next = w.back();
    for (std::uint32_t k = t * m; k < (t + 1) * m; ++k) {
      const Taken at = rule(w, k);
      add(mean, gradient(at.forward, at.backward, k, rows), 1.0 / m);
    }
    for (std::size_t s = 0; s < stages; ++s) {
      const Matrix change = step(s, t, w.back()[s], mean[s]);
      for (std::size_t i = 0; i < change.size(); ++i) next[s][i] += change[i];
    }
    w.push_back(std::move(next));
  }
  return w;
}

RunPlan linear_plan(const RigSpec& spec, std::int64_t rows) {
  RunPlan plan = plan_of(spec);
  plan.compute = Compute::linear;
  plan.microbatch_size = rows;
  plan.optimizer.learning_rate = kRate;
  plan.training.seed = kSeed;
  return plan;
}

/// Weights after each update, as they are trained.
std::vector<Weights> trained(const RunPlan& plan) {
  SingleProcess alone;
  RunControl control(0);
  RunPlan bare = plan;
  bare.channels.clear();
  const RunSettings settings;
  const auto backend = open_backend("host", {bare, settings, control, alone, {0}});
  SequentialRun run(plan, backend->device(0), make_stage);
  std::vector<Weights> all;
  for (std::uint32_t u = 0; u < plan.program.batches; ++u) {
    run.run_update(u);
    Weights now;
    for (const std::string& bytes : run.weights()) {
      std::vector<float> numbers(bytes.size() / 4);
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      now.emplace_back(numbers.begin(), numbers.end());
    }
    all.push_back(std::move(now));
  }
  return all;
}

double farthest(const Weights& a, const Weights& b) {
  double most = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    for (std::size_t i = 0; i < a[s].size(); ++i)
      most = std::max(most, std::abs(a[s][i] - b[s][i]));
  }
  return most;
}

constexpr double kRounding = 1e-5;  // of fp32 over some dozens of updates

void expect_alike(const std::vector<Weights>& seen, const History& right, const Weights& start) {
  ASSERT_EQ(seen.size() + 1, right.size());
  for (std::size_t u = 0; u < seen.size(); ++u)
    EXPECT_LT(farthest(seen[u], right[u + 1]), kRounding) << "after update " << u + 1;
  EXPECT_GT(farthest(seen.back(), start), 1000 * kRounding) << "nothing was learned";
}

TEST(Recurrence, TwoBufferedWeightsUseThoseBeforeTheLatest) {
  constexpr std::uint32_t m = 4, updates = 12;
  const Rule rule = [](const History& w, std::uint32_t k) {
    const std::uint32_t t = k / m;
    const Weights& before = w[t > 0 ? t - 1 : 0];
    return Taken{before, before};
  };
  const auto seen = trained(linear_plan({"pipedream-2bw", {4, m, updates}}, 3));
  expect_alike(seen, by_hand(4, m, updates, 3, rule), initial(4));
}

/// Of each stage the version that rule says.
Weights each_of(const History& w, const std::function<std::uint32_t(std::uint32_t)>& version) {
  Weights at;
  for (std::uint32_t s = 0; s < w[0].size(); ++s) at.push_back(w[version(s)][s]);
  return at;
}

std::uint32_t minus(std::uint32_t a, std::uint32_t b) { return a > b ? a - b : 0; }

TEST(Recurrence, PipedreamStashesWhatEachStageHadWhenTheMicrobatchCame) {
  constexpr std::uint32_t n = 4, updates = 30;
  const Rule rule = [](const History& w, std::uint32_t k) {
    const Weights at = each_of(w, [&](std::uint32_t s) { return minus(k, n - 1 - s); });
    return Taken{at, at};
  };
  const auto seen = trained(linear_plan({"pipedream", {n, 1, updates}}, 3));
  expect_alike(seen, by_hand(n, 1, updates, 3, rule), initial(n));
}

TEST(Recurrence, VerticalSyncTakesTheVersionOfStage0OnEveryStage) {
  constexpr std::uint32_t n = 3, updates = 20;
  const Rule rule = [](const History& w, std::uint32_t k) {
    const Weights& at = w[minus(k, n - 1)];
    return Taken{at, at};
  };
  ScheduleShape shape{.depth = n, .microbatches_per_update = 1, .batches = updates};
  shape.vertical_sync = true;
  const auto seen = trained(linear_plan({"pipedream", shape}, 3));
  expect_alike(seen, by_hand(n, 1, updates, 3, rule), initial(n));
}

TEST(Recurrence, WithoutStashingTheBackwardUsesTheLatest) {
  constexpr std::uint32_t n = 4, updates = 30;
  const Rule rule = [](const History& w, std::uint32_t k) {
    return Taken{each_of(w, [&](std::uint32_t s) { return minus(k, n - 1 - s); }), w.back()};
  };
  ScheduleShape shape{.depth = n, .microbatches_per_update = 1, .batches = updates};
  shape.stashing = false;
  RunPlan plan = linear_plan({"pipedream", shape}, 3);
  expect_alike(trained(plan), by_hand(n, 1, updates, 3, rule), initial(n));
  const RecordedRun piped = run_alone(plan, unpaced());
  EXPECT_EQ(piped.weights_equal, true);
  for (const std::uint32_t s : {0U, 3U}) EXPECT_EQ(plan.program.versions.held(s), 1U);
}

/// Forward w(floor((k - 2(n-1-s) - 1) / m)), backward w(t), or w(t) - tau delta(t).
void expect_pipemare(bool corrected) {
  constexpr std::uint32_t n = 3, m = 2, updates = 16;
  const auto slots = [](std::uint32_t s) { return 2 * (n - 1 - s) + 1; };
  const auto corrections = [&](const History& w) {
    Weights u = w.back();
    for (std::uint32_t s = 0; s < n; ++s) {
      const double tau = slots(s) / static_cast<double>(m), gamma = std::pow(0.135, 1 / tau);
      Matrix delta(w[0][s].size(), 0.0);
      for (std::size_t t = 1; t < w.size(); ++t) {
        for (std::size_t i = 0; i < delta.size(); ++i)
          delta[i] = gamma * delta[i] + (1 - gamma) * (w[t][s][i] - w[t - 1][s][i]);
      }
      for (std::size_t i = 0; i < delta.size(); ++i) u[s][i] -= tau * delta[i];
    }
    return u;
  };
  const Rule rule = [&](const History& w, std::uint32_t k) {
    return Taken{each_of(w, [&](std::uint32_t s) { return minus(k, slots(s)) / m; }),
                 corrected ? corrections(w) : w.back()};
  };
  ScheduleShape shape{.depth = n, .microbatches_per_update = m, .batches = updates};
  shape.correction = corrected;
  const auto seen = trained(linear_plan({"pipemare", shape}, 3));
  expect_alike(seen, by_hand(n, m, updates, 3, rule), initial(n));
}

TEST(Recurrence, PipemareWithoutItsCorrection) { expect_pipemare(false); }
TEST(Recurrence, PipemareCorrectsTheWeightsOfItsBackward) { expect_pipemare(true); }

TEST(Recurrence, AFlushIsPlainGradientDescentWhateverTheSchedule) {
  constexpr std::uint32_t m = 4, updates = 10;
  const Rule rule = [](const History& w, std::uint32_t) { return Taken{w.back(), w.back()}; };
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const auto seen = trained(linear_plan({schedule, {4, m, updates}}, 3));
    expect_alike(seen, by_hand(4, m, updates, 3, rule), initial(4));
  }
}

// --- optimizers and corrections, each of two-buffered weights or PipeDream's

constexpr std::uint32_t kMicrobatches = 4;

Taken before_the_latest(const History& w, std::uint32_t k) {
  const std::uint32_t t = k / kMicrobatches;
  return {w[t > 0 ? t - 1 : 0], w[t > 0 ? t - 1 : 0]};
}

/// 2BW of three stages with this optimizer, against the step by hand.
void expect_step(OptimizerSpec::Kind kind, double rate, double momentum, double decay,
                 const Step& step, std::int64_t rows = 3, std::uint32_t updates = 12,
                 double epsilon = 1e-8) {
  RunPlan plan = linear_plan({"pipedream-2bw", {3, kMicrobatches, updates}}, rows);
  plan.optimizer.kind = kind;
  plan.optimizer.learning_rate = rate;
  plan.optimizer.beta1 = momentum;
  plan.optimizer.weight_decay = decay;
  plan.optimizer.epsilon = epsilon;
  const History right =
      by_hand(3, kMicrobatches, updates, static_cast<std::size_t>(rows), before_the_latest, step);
  expect_alike(trained(plan), right, initial(3));
  EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true);
}

/// a b, either of which may be taken transposed.
Matrix product(const Matrix& a, const Matrix& b, bool transpose_a = false,
               bool transpose_b = false) {
  Matrix sum(a.size(), 0.0);
  for (std::size_t i = 0; i < kWidth; ++i) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      for (std::size_t k = 0; k < kWidth; ++k)
        sum[i * kWidth + j] += (transpose_a ? a[k * kWidth + i] : a[i * kWidth + k]) *
                               (transpose_b ? b[j * kWidth + k] : b[k * kWidth + j]);
    }
  }
  return sum;
}

/// The published loop, in the order in which it is published.
Matrix newton_schulz(Matrix x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::sqrt(squares) + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const Matrix a = product(x, x, false, true), aa = product(a, a);
    Matrix b = a;
    for (std::size_t j = 0; j < b.size(); ++j) b[j] = -4.7750 * a[j] + 2.0315 * aa[j];
    const Matrix bx = product(b, x);
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = 3.4445 * x[j] + bx[j];
  }
  return x;
}

TEST(Recurrence, MuonStepsAlongTheOrthogonalizedMomentum) {
  constexpr double rate = 0.02, momentum = 0.95, decay = 0.1;
  std::vector<Matrix> m(3, Matrix(kWidth * kWidth, 0.0));
  expect_step(OptimizerSpec::Kind::muon, rate, momentum, decay,
              [&](std::size_t s, std::uint32_t, const Matrix& w, const Matrix& g) {
                Matrix u = g;
                for (std::size_t i = 0; i < g.size(); ++i) {
                  m[s][i] = momentum * m[s][i] + g[i];
                  u[i] = g[i] + momentum * m[s][i];
                }
                Matrix change = newton_schulz(u);
                for (std::size_t i = 0; i < g.size(); ++i)
                  change[i] = -rate * (0.2 * std::sqrt(8.0) * change[i] + decay * w[i]);
                return change;
              });
}

/// A symmetric matrix's eigenvectors as columns, the largest eigenvalue first, by Jacobi's
/// rotations of rows and columns.
Matrix eigenvectors(Matrix a) {
  Matrix q(a.size(), 0.0);
  for (std::size_t i = 0; i < kWidth; ++i) q[i * kWidth + i] = 1;
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t j = i + 1; j < kWidth; ++j) {
        const double angle =
            std::atan2(2 * a[i * kWidth + j], a[j * kWidth + j] - a[i * kWidth + i]) / 2;
        const double c = std::cos(angle), s = std::sin(angle);
        const auto turn = [&](Matrix& m, std::size_t step, std::size_t next) {
          for (std::size_t k = 0; k < kWidth; ++k) {
            double &x = m[i * step + k * next], &y = m[j * step + k * next];
            std::tie(x, y) = std::pair{c * x - s * y, s * x + c * y};
          }
        };
        turn(a, kWidth, 1);
        turn(a, 1, kWidth);
        turn(q, 1, kWidth);
      }
    }
  }
  std::vector<std::size_t> order(kWidth);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, std::greater<>(), [&](std::size_t i) { return a[i * kWidth + i]; });
  Matrix sorted(q.size());
  for (std::size_t k = 0; k < q.size(); ++k) sorted[k] = q[k / kWidth * kWidth + order[k % kWidth]];
  return sorted;
}

/// Makes the columns orthonormal, each of what those before leave of it (Gram and Schmidt).
void orthonormalize(Matrix& a) {
  for (std::size_t j = 0; j < kWidth; ++j) {
    double squares = 0;
    for (std::size_t i = 0; i <= j; ++i) {
      double along = 0;
      for (std::size_t k = 0; k < kWidth; ++k) along += a[k * kWidth + i] * a[k * kWidth + j];
      for (std::size_t k = 0; i < j && k < kWidth; ++k)
        a[k * kWidth + j] -= along * a[k * kWidth + i];
      squares = along;
    }
    for (std::size_t k = 0; k < kWidth; ++k) a[k * kWidth + j] /= std::sqrt(squares);
  }
}

// Jung et al., ICML'26, with columns for eigenvectors and Q_L^T G Q_R for a rotated gradient. At
// the tenth and the twentieth step the bases are renewed. The first gradient is diagonal in its
// bases, where fp32 leaves 1e-8 of it beside the diagonal: an epsilon far above that keeps this out
// of the step.
TEST(Recurrence, BasisRotationIsAdamInTheEigenvectorsOfBothSides) {
  constexpr double rate = 0.02, beta1 = 0.9, beta2 = 0.999, decay = 0.1, epsilon = 1e-4;
  constexpr std::uint32_t updates = 24, rows = 8;
  struct State {
    Matrix m, v, left, right, left_basis, right_basis;
  };
  const Matrix zeros(kWidth * kWidth, 0.0);
  std::vector<State> states(3, {zeros, zeros, zeros, zeros, {}, {}});
  int moved = 0;
  const auto renew = [&](const Matrix& mean, Matrix& basis, Matrix& v, bool by_rows) {
    const Matrix sizes = product(product(basis, mean, true, false), basis);
    std::vector<std::size_t> order(kWidth);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, std::greater<>(),
                      [&](std::size_t i) { return sizes[i * kWidth + i]; });
    const Matrix old = basis, before = v;
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t j = 0; j < kWidth; ++j) {
        basis[i * kWidth + j] = old[i * kWidth + order[j]];
        v[i * kWidth + j] = by_rows ? before[order[i] * kWidth + j] : before[i * kWidth + order[j]];
      }
      moved += order[i] != i;
    }
    basis = product(mean, basis);
    orthonormalize(basis);
  };
  const Step step = [&](std::size_t stage, std::uint32_t update, const Matrix& w, const Matrix& g) {
    State& s = states[stage];
    const Matrix left = product(g, g, false, true), right = product(g, g, true, false);
    for (std::size_t i = 0; i < g.size(); ++i) {
      s.left[i] += (1 - beta2) * (left[i] - s.left[i]);
      s.right[i] += (1 - beta2) * (right[i] - s.right[i]);
    }
    const int t = static_cast<int>(update) + 1;
    if (t == 1) s.left_basis = eigenvectors(s.left), s.right_basis = eigenvectors(s.right);
    if (t % 10 == 0) {
      renew(s.left, s.left_basis, s.v, true);
      renew(s.right, s.right_basis, s.v, false);
    }
    const auto rotated = [&](const Matrix& x) {
      return product(product(s.left_basis, x, true, false), s.right_basis);
    };
    const Matrix turned = rotated(g);
    for (std::size_t i = 0; i < g.size(); ++i) {
      s.m[i] = beta1 * s.m[i] + (1 - beta1) * g[i];
      s.v[i] = beta2 * s.v[i] + (1 - beta2) * turned[i] * turned[i];
    }
    Matrix change = rotated(s.m);
    for (std::size_t i = 0; i < g.size(); ++i) change[i] /= std::sqrt(s.v[i]) + epsilon;
    change = product(product(s.left_basis, change), s.right_basis, false, true);
    const double size = std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    for (std::size_t i = 0; i < g.size(); ++i)
      change[i] = -rate * (size * change[i] + decay * w[i]);
    return change;
  };
  expect_step(OptimizerSpec::Kind::basis_rotation, rate, beta1, decay, step, rows, updates,
              epsilon);
  EXPECT_GT(moved, 0) << "no vector changed its place";
}

// Ajanthan et al., ICML'25: d = beta (w(t) - w(t-1)), w(t+1) = w(t) + d - lr (1 - beta) g, with the
// gradient at what w + d was; the weights that are stored are these w + d.
TEST(Recurrence, NesterovsLookAheadIsAjanthansWithAStepDiscounted) {
  constexpr double rate = 0.5, beta = 0.9;
  std::vector<Matrix> d(3, Matrix(kWidth * kWidth, 0.0));
  expect_step(OptimizerSpec::Kind::nesterov, rate, beta, 0,
              [&](std::size_t s, std::uint32_t, const Matrix&, const Matrix& g) {
                Matrix change = g;
                for (std::size_t i = 0; i < g.size(); ++i) {
                  const double moved = d[s][i] - rate * (1 - beta) * g[i];  // w(t+1) - w(t)
                  const double ahead = beta * moved;
                  change[i] = moved + ahead - d[s][i];
                  d[s][i] = ahead;
                }
                return change;
              });
}

TEST(Recurrence, NadamwIsAdamwThatLooksAhead) {
  constexpr double rate = 0.02, beta1 = 0.99, beta2 = 0.999, decay = 0.1;
  const auto mu = [](int t) { return beta1 * (1 - 0.5 * std::pow(0.96, t * 0.004)); };
  std::vector<Matrix> m(3, Matrix(kWidth * kWidth, 0.0)), v = m;
  expect_step(OptimizerSpec::Kind::nadamw, rate, beta1, decay,
              [&](std::size_t s, std::uint32_t update, const Matrix& w, const Matrix& g) {
                const int t = static_cast<int>(update) + 1;
                double product = 1;
                for (int i = 1; i <= t; ++i) product *= mu(i);
                Matrix change = g;
                for (std::size_t i = 0; i < g.size(); ++i) {
                  m[s][i] = beta1 * m[s][i] + (1 - beta1) * g[i];
                  v[s][i] = beta2 * v[s][i] + (1 - beta2) * g[i] * g[i];
                  const double ahead = mu(t + 1) * m[s][i] / (1 - product * mu(t + 1)) +
                                       (1 - mu(t)) * g[i] / (1 - product);
                  const double size = std::sqrt(v[s][i] / (1 - std::pow(beta2, t))) + 1e-8;
                  change[i] = -rate * (ahead / size + decay * w[i]);
                }
                return change;
              });
}

// SpecTrain's w - s lr v with v the velocity of momentum SGD.
TEST(Recurrence, PredictedWeightsGoOnAlongTheVelocity) {
  constexpr double rate = 0.05, momentum = 0.9;
  for (const bool doubled : {true, false}) {
    const std::uint32_t n = 3, m = doubled ? 4 : 1, updates = 20;
    History velocity{Weights(n, Matrix(kWidth * kWidth, 0.0))};  // by number of updates made
    const Step step = [&](std::size_t s, std::uint32_t t, const Matrix&, const Matrix& g) {
      if (velocity.size() == t + 1) velocity.push_back(velocity.back());
      Matrix change = g;
      for (std::size_t i = 0; i < g.size(); ++i) {
        velocity[t + 1][s][i] = momentum * velocity[t][s][i] + g[i];
        change[i] = -rate * velocity[t + 1][s][i];
      }
      return change;
    };
    const Rule rule = [&](const History& w, std::uint32_t k) {
      Weights at;
      for (std::uint32_t s = 0; s < n; ++s) {
        const std::uint32_t delay = doubled ? 1 : n - 1 - s, u = minus(k / m, delay);
        at.push_back(w[u][s]);
        for (std::size_t i = 0; i < at[s].size(); ++i) at[s][i] -= delay * rate * velocity[u][s][i];
      }
      return Taken{at, at};
    };
    RunPlan plan = linear_plan({doubled ? "pipedream-2bw" : "pipedream", {n, m, updates}}, 3);
    plan.optimizer.kind = OptimizerSpec::Kind::momentum;
    plan.optimizer.learning_rate = rate;
    plan.training.predicted = true;
    expect_alike(trained(plan), by_hand(n, m, updates, 3, rule, step), initial(n));
    const RecordedRun piped = run_alone(plan, unpaced());
    EXPECT_EQ(piped.weights_equal, true);
    plan.training.predicted = false;
    EXPECT_NE(run_alone(plan, unpaced()).weights_digest, piped.weights_digest);
  }
}

// w - 2 u + the last u, of momentum SGD, whose own step is u.
TEST(Recurrence, ErrorFeedbackTakesWhatTheLastStepLacked) {
  constexpr double rate = 0.05, momentum = 0.9;
  constexpr std::uint32_t n = 3, m = 4, updates = 20;
  std::vector<Matrix> velocity(n, Matrix(kWidth * kWidth, 0.0)), last = velocity;
  const Step step = [&](std::size_t s, std::uint32_t t, const Matrix&, const Matrix& g) {
    Matrix change = g;
    for (std::size_t i = 0; i < g.size(); ++i) {
      velocity[s][i] = momentum * velocity[s][i] + g[i];
      const double own = rate * velocity[s][i];
      change[i] = -own - (t == 0 ? 0 : own - last[s][i]);
      last[s][i] = own;
    }
    return change;
  };
  const Rule rule = [](const History& w, std::uint32_t k) {
    const Weights at = each_of(w, [&](std::uint32_t) { return minus(k / m, 1); });
    return Taken{at, at};
  };
  RunPlan plan = linear_plan({"pipedream-2bw", {n, m, updates}}, 3);
  plan.optimizer.kind = OptimizerSpec::Kind::momentum;
  plan.optimizer.learning_rate = rate;
  plan.training.error_feedback = true;
  expect_alike(trained(plan), by_hand(n, m, updates, 3, rule, step), initial(n));
  const RecordedRun piped = run_alone(plan, unpaced());
  EXPECT_EQ(piped.weights_equal, true);
  plan.training.error_feedback = false;
  EXPECT_NE(run_alone(plan, unpaced()).weights_digest, piped.weights_digest);
}

TEST(Recurrence, DiscountedRatesAreDividedByTheDelay) {
  constexpr std::uint32_t n = 4, updates = 30;
  const Rule rule = [](const History& w, std::uint32_t k) {
    const Weights at = each_of(w, [&](std::uint32_t s) { return minus(k, n - 1 - s); });
    return Taken{at, at};
  };
  for (const std::uint32_t rescheduled : {0U, 12U}) {
    const Step step = [&](std::size_t s, std::uint32_t t, const Matrix&, const Matrix& g) {
      const double delay = std::max(1.0, n - 1.0 - static_cast<double>(s));
      const double power = rescheduled == 0 ? 1 : 1 - std::min(t / 12.0, 1.0);
      Matrix change = g;
      for (double& x : change) x *= -kRate / std::pow(delay, power);
      return change;
    };
    RunPlan plan = linear_plan({"pipedream", {n, 1, updates}}, 3);
    plan.training.discounted = rescheduled == 0;
    plan.training.rescheduled = rescheduled;
    expect_alike(trained(plan), by_hand(n, 1, updates, 3, rule, step), initial(n));
    EXPECT_EQ(run_alone(plan, unpaced()).weights_equal, true);
  }
}

/// The largest weight of stage 0, whose delay is the longest, at the end.
double left_of_quadratic(std::uint32_t depth, double rate) {
  RunPlan plan = plan_of({"pipedream", {depth, 1, 1500}});
  plan.compute = Compute::quadratic;
  plan.optimizer.learning_rate = rate;
  double most = 0;
  const std::vector<Weights> all = trained(plan);
  for (const double w : all.back()[0]) {
    if (!std::isfinite(w)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(w));
  }
  return most;
}

TEST(Theory, DelayedDescentOnAQuadraticIsStableUpToItsLimit) {
  for (const std::uint32_t depth : {1U, 2U, 4U, 8U}) {
    const std::uint32_t delay = depth - 1;
    const double limit = 2 * std::sin(std::numbers::pi / (4.0 * delay + 2));
    EXPECT_DOUBLE_EQ(delayed::stable_learning_rate(1, delay), limit);
    EXPECT_LT(left_of_quadratic(depth, 0.95 * limit), 0.1) << "delay " << delay;
    EXPECT_GT(left_of_quadratic(depth, 1.05 * limit), 10) << "delay " << delay;
  }
}

// --- the same bits as the pipeline, and what is kept of a run
// ---------------------------------------

TrainingCurve curve_of(const RunPlan& plan, const TrainingOptions& options = {}) {
  return train(plan, RunOptions{}, options);
}

TEST(Training, EndsWithTheWeightsOfThePipeline) {
  using Kind = OptimizerSpec::Kind;
  for (const Kind kind : {Kind::sgd, Kind::momentum, Kind::nesterov, Kind::adam, Kind::adamw,
                          Kind::nadamw, Kind::muon, Kind::basis_rotation}) {
    RunPlan plan = plan_of({"pipedream-2bw", {3, 3, 4}});
    make_transformer(plan, Recompute::none);
    plan.optimizer.kind = kind;
    plan.optimizer.weight_decay = 0.1;
    plan.training.data = TrainingSpec::Data::markov;
    plan.training.clip = 0.5;
    plan.training.warmup = 2;
    plan.training.updates = 4;
    plan.training.decay = TrainingSpec::Decay::cosine;
    plan.training.predicted = kind != Kind::sgd;
    const RecordedRun piped = run_alone(plan, unpaced());
    EXPECT_EQ(piped.weights_equal, true);
    EXPECT_EQ(piped.weights_digest, curve_of(plan).weights_digest);
    RunPlan other = plan;
    other.training.clip = 0;
    EXPECT_NE(piped.weights_digest, curve_of(other).weights_digest) << "clipping does something";
  }
}

// Every optimizer with every correction, of every rule that has stale weights.
TEST(Training, EveryCorrectionEndsWithTheWeightsOfThePipeline) {
  using Kind = OptimizerSpec::Kind;
  const std::function<void(TrainingSpec&)> corrections[] = {
      [](TrainingSpec&) {}, [](TrainingSpec& t) { t.discounted = true; },
      [](TrainingSpec& t) { t.rescheduled = 4; }, [](TrainingSpec& t) { t.predicted = true; },
      [](TrainingSpec& t) { t.error_feedback = true; }};
  for (const char* schedule : {"pipedream", "pipedream-2bw", "pipemare"}) {
    const bool one = std::string(schedule) == "pipedream";
    for (const Kind kind : {Kind::sgd, Kind::momentum, Kind::nesterov, Kind::adam, Kind::adamw,
                            Kind::nadamw, Kind::muon, Kind::basis_rotation}) {
      std::vector<std::string> digests;
      for (const auto& correct : corrections) {
        RunPlan plan = linear_plan({schedule, {4, one ? 1U : 4U, 6}}, 3);
        plan.optimizer.kind = kind;
        plan.optimizer.learning_rate = 0.02;
        correct(plan.training);
        if (plan.training.error_feedback && std::string(schedule) != "pipedream-2bw") continue;
        // PipeMare's forward and backward have weights of their own.
        if (plan.training.predicted && std::string(schedule) == "pipemare") continue;
        const RecordedRun piped = run_alone(plan, unpaced());
        EXPECT_EQ(piped.weights_equal, true);
        EXPECT_EQ(piped.weights_digest, curve_of(plan).weights_digest)
            << schedule << " " << static_cast<int>(kind) << " " << digests.size();
        digests.push_back(piped.weights_digest.value_or(""));
      }
      // 2BW's delay is one update, which leaves a rate as it is.
      if (!one) continue;
      std::ranges::sort(digests);
      EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end()) << "a correction does nothing";
    }
  }
}

TEST(Training, GoesOnFromACheckpointWithTheSameBits) {
  const auto file = std::filesystem::temp_directory_path() / "penstock_training_test.ckpt";
  std::filesystem::remove(file);
  for (const char* schedule : {"pipedream", "pipemare", "pipedream-2bw"}) {
    RunPlan plan = plan_of({schedule, shape_of(schedule, 3, 3, 6)});
    const bool predicted = std::string(schedule) == "pipedream-2bw";
    plan.optimizer.kind = predicted ? OptimizerSpec::Kind::muon
                          : std::string(schedule) == "pipemare"
                              ? OptimizerSpec::Kind::basis_rotation
                              : OptimizerSpec::Kind::adam;
    plan.training.predicted = predicted;
    const TrainingCurve whole = curve_of(plan);
    int left = 3;
    TrainingOptions options;
    options.checkpoint = file.string();
    options.resume = true;
    options.stop = [&] { return left-- == 0; };
    const TrainingCurve part = curve_of(plan, options);
    EXPECT_EQ(part.points.size(), 3U);
    EXPECT_NE(part.stopped_because, "");
    options.stop = {};
    const TrainingCurve rest = curve_of(plan, options);
    EXPECT_EQ(rest.points.size(), whole.points.size());
    EXPECT_EQ(rest.points.front().loss, whole.points.front().loss);
    EXPECT_EQ(rest.weights_digest, whole.weights_digest) << schedule;
    plan.optimizer.learning_rate *= 2;
    EXPECT_THROW(curve_of(plan, options), InputError) << "the checkpoint of another rate";
    std::filesystem::remove(file);
  }
}

TEST(Training, ADivergedRunSaysSo) {
  RunPlan plan = plan_of({"pipedream", {4, 1, 400}});
  plan.compute = Compute::quadratic;
  plan.optimizer.learning_rate = 10;
  const TrainingCurve curve = curve_of(plan);
  EXPECT_NE(curve.stopped_because.find("diverged"), std::string::npos);
  EXPECT_LT(curve.points.size(), 400U);
}

TEST(Training, TheRateRisesAndDecays) {
  TrainingSpec t{
      .decay = TrainingSpec::Decay::linear, .updates = 14, .warmup = 4, .final_rate = 0.1};
  EXPECT_DOUBLE_EQ(rate_factor(t, 0), 0.25);
  EXPECT_DOUBLE_EQ(rate_factor(t, 3), 1);
  EXPECT_DOUBLE_EQ(rate_factor(t, 4), 1);
  EXPECT_DOUBLE_EQ(rate_factor(t, 13), 0.1);
  t.decay = TrainingSpec::Decay::cosine;
  EXPECT_DOUBLE_EQ(rate_factor(t, 13), 0.1);
  EXPECT_DOUBLE_EQ(rate_factor(t, 8), 0.1 + 0.9 * (1 + std::cos(std::numbers::pi * 4 / 9)) / 2);
}

/// Of many tokens, how often each of the four possible next ones comes.
TEST(Data, TheMarkovChainHasItsEntropy) {
  TrainingSpec t;
  t.data = TrainingSpec::Data::markov;
  TransformerSpec model;
  model.vocab_size = 40;
  model.seq_length = 50;
  std::array<double, 4> seen{};
  std::vector<double> tokens(40, 0.0);
  constexpr int kSequences = 4000;
  const TokenSource source = token_source(t, nullptr, model, kSequences, 3);
  for (std::int64_t n = 0; n < kSequences; ++n) {
    for (std::int64_t i = 0; i < 50; ++i) {
      const std::int64_t now = kernels::token(source, n, i),
                         next = kernels::token(source, n, i + 1);
      const std::int64_t branch = ((next - source.multiplier * now - 1) % 40 + 40) % 40;
      ASSERT_LT(branch, 4);
      ++seen[static_cast<std::size_t>(branch)];
      ++tokens[static_cast<std::size_t>(now)];
    }
  }
  double bits = 0;
  for (const double count : seen) bits -= count / 2e5 * std::log2(count / 2e5);
  EXPECT_NEAR(bits, kMarkovBits, 0.01);
  for (const double count : tokens) EXPECT_NEAR(count / 5000, 1, 0.1);
}

TEST(Data, ATextsHeldOutPartIsNeverTrainedOn) {
  TrainingSpec t;
  t.data = TrainingSpec::Data::text;
  t.held_out = 0.25;
  const std::string text = std::string(750, 'a') + std::string(250, 'b');
  TransformerSpec model;
  model.vocab_size = 128;
  model.seq_length = 20;
  for (std::uint32_t k = 0; k < 200; ++k) {
    for (const std::uint32_t bit : {0U, kHeldOut}) {
      const TokenSource source = token_source(t, &text, model, 4, k | bit);
      for (std::int64_t i = 0; i <= 20; ++i)
        ASSERT_EQ(kernels::token(source, 3, i), bit == 0 ? 'a' : 'b');
    }
  }
}

}  // namespace
}  // namespace penstock
