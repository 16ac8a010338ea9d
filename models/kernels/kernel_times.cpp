// SPDX-License-Identifier: Apache-2.0
#include "models/kernels/kernel_times.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr double kAttentionBlock = 128;             // queries
constexpr double kMlaQuery = 192, kMlaValue = 128;  // of a head of expanded latent attention
constexpr double kSumBytes = 4, kHalfBytes = 2;     // of elements of 32 and 16 bits

/// The share of the bytes that adding to a gradient of 32 bits moves that takes time of its own:
/// SimuMax's B200 takes 1.07 times as long for weights as forward (github.com/MooreThreads/SimuMax,
/// configs/system, medians by shape), where all of them would make it 1.21.
constexpr double kExposedSums = 1.0 / 3;

struct Tile {
  double rows, columns;
  std::size_t halvings;  // of 128 x 256
};
constexpr Tile kTiles[] = {{256, 128, 0}, {128, 256, 0}, {128, 128, 1}, {256, 64, 1},
                           {64, 256, 1},  {128, 64, 2},  {64, 128, 2},  {64, 64, 3}};
constexpr double kSplits[] = {1, 2, 4, 8};

double& quantity(KernelShape& shape, KernelQuantity of) {
  return shape[static_cast<std::size_t>(of)];
}

double operand_bytes(std::string_view type) {
  if (type == "fp8" || type == "fp8_block") return 1;
  return type == "nvfp4" ? 0.5625 : 2;  // nvfp4: a scale of a byte for each 16 elements
}

/// A place of a value among knots: between `low` and the next, `share` of the way.
struct KnotPlace {
  std::size_t low = 0;
  double share = 0;
};

KnotPlace place_among(const std::vector<double>& knots, double value) {
  if (value <= knots.front()) return {};
  if (value >= knots.back()) return {knots.size() - 1, 0};
  const auto above = std::ranges::upper_bound(knots, value);
  const auto low = static_cast<std::size_t>(above - knots.begin()) - 1;
  return {low, std::log(value / knots[low]) / std::log(*above / knots[low])};
}

/// The value of a grid from this axis on; `at`: the corner that the earlier axes chose.
double grid_value(const KernelGrid& grid, const KernelShape& shape, std::size_t axis,
                  std::size_t at) {
  if (axis == grid.axes.size()) return grid.percent[at];
  const KernelAxis& a = grid.axes[axis];
  const KnotPlace place = place_among(a.knots, shape[static_cast<std::size_t>(a.of)]);
  const std::size_t corner = at * a.knots.size() + place.low;
  const double low = grid_value(grid, shape, axis + 1, corner);
  if (place.share == 0) return low;
  return low + place.share * (grid_value(grid, shape, axis + 1, corner + 1) - low);
}

double correction(const std::vector<KernelGrid>& grids, const KernelShape& shape) {
  double percent = 0;
  for (const KernelGrid& grid : grids) percent += grid_value(grid, shape, 0, 0);
  return std::exp(percent / 100);
}

double smooth_max(double a, double b, double power) {
  const double top = std::max(a, b);
  return top <= 0 ? 0 : top * std::pow(1 + std::pow(std::min(a, b) / top, power), 1 / power);
}

/// Waves of so many blocks per multiprocessor.
double wave_count(double blocks, double whole_waves) {
  return blocks + whole_waves * (std::ceil(blocks) - blocks);
}

double compute_s(const ProductLaw& law, const ProductShape& p, double multiprocessors) {
  double least = 0;
  for (const Tile& tile : kTiles) {
    double loss = 0;
    for (std::size_t i = 0; i < tile.halvings; ++i) loss += law.tile_losses[i];
    const double rate = law.flops_per_s * std::exp(-loss);
    const double tiles = std::ceil(p.m / tile.rows) * std::ceil(p.n / tile.columns);
    for (const double parts : kSplits) {
      const double waves = wave_count(parts * tiles / multiprocessors, law.whole_waves);
      double s =
          waves * multiprocessors * 2 * tile.rows * tile.columns * (p.k / parts + law.ramp) / rate;
      if (parts > 1) s += law.split_s + kSumBytes * p.m * p.n / law.split_bytes_per_s;
      if (least == 0 || s < least) least = s;
    }
  }
  return least * (1 + law.throttle * least / (least + law.patience_s));
}

double seconds_of(const ProductLaw& law, const ProductShape& p, double multiprocessors) {
  const double size = operand_bytes(law.type);
  const double bytes = size * (p.m * p.k + p.n * p.k) + kHalfBytes * p.m * p.n;
  double s =
      law.launch_s + smooth_max(compute_s(law, p, multiprocessors), bytes / law.bytes_per_s, 4);
  if (law.cast_bytes_per_s) s += p.m * p.k * (kHalfBytes + size) / *law.cast_bytes_per_s;
  KernelShape shape{};
  quantity(shape, KernelQuantity::m) = p.m;
  quantity(shape, KernelQuantity::n) = p.n;
  quantity(shape, KernelQuantity::k) = p.k;
  quantity(shape, KernelQuantity::waves) =
      std::ceil(p.m / 128) * std::ceil(p.n / 256) / multiprocessors;
  return s * correction(law.corrections, shape);
}

double seconds_of(const ExpertsLaw& law, const ExpertsShape& e) {
  const double inter = e.inter / e.tp, experts = e.experts / e.ep, up = e.gated ? 2 : 1;
  const double rows = e.tokens * e.topk / e.ep * e.load;
  const double padded =
      rows + experts * (law.padding + (e.skew - 1) * (law.skewed_padding - law.padding));
  const double used = experts * (1 - std::exp(-rows / experts));  // that have any row
  const double read = operand_bytes(law.type) * used * e.hidden * inter / law.weights_bytes_per_s;
  const double moved = rows * (2 * kHalfBytes * e.hidden + kHalfBytes * inter * (up + 1)) +
                       2 * kHalfBytes * e.tokens * e.hidden;
  const double s =
      law.launch_s +
      smooth_max(2 * padded * (e.hidden + law.ramp) * inter * up / law.flops_per_s, read * up, 3) +
      smooth_max(2 * padded * (inter + law.ramp) * e.hidden / law.flops_per_s, read, 3) +
      moved / law.moved_bytes_per_s;
  KernelShape shape{};
  quantity(shape, KernelQuantity::rows) = rows / experts;
  quantity(shape, KernelQuantity::inter) = inter;
  quantity(shape, KernelQuantity::hidden) = e.hidden;
  quantity(shape, KernelQuantity::ep) = e.ep;
  quantity(shape, KernelQuantity::skew) = e.skew;
  return s * correction(law.corrections, shape);
}

double seconds_of(const AttentionLaw& law, const AttentionShape& a, double multiprocessors) {
  const bool mla = law.kind == AttentionKind::mla;
  const double sizes = mla ? kMlaQuery + kMlaValue : 2 * a.head_dim;  // of a query and a value
  const double waves = wave_count(
      a.batch * a.heads * std::ceil(a.seq / kAttentionBlock) / multiprocessors, law.whole_waves);
  const double pairs = law.ramp + (law.kind == AttentionKind::full ? a.seq : a.seq / 2);
  const KnotPlace size = place_among(law.head_dims, a.head_dim);
  double rate = law.flops_per_s[size.low];
  if (size.share > 0) rate *= std::pow(law.flops_per_s[size.low + 1] / rate, size.share);
  const double token = operand_bytes(law.type) * a.batch * a.seq * sizes;
  const double s = law.launch_s +
                   2 * waves * multiprocessors * kAttentionBlock * pairs * sizes / rate +
                   token * (a.heads / law.bytes_per_s + a.kv_heads / law.kv_bytes_per_s);
  KernelShape shape{};
  quantity(shape, KernelQuantity::seq) = a.seq;
  quantity(shape, KernelQuantity::sequence_heads) = a.batch * a.heads;
  quantity(shape, KernelQuantity::head_dim) = a.head_dim;
  return s * correction(law.corrections, shape);
}

/// Below the first size it takes as long, beyond the last one in proportion to the bytes.
double seconds_at(const KernelPoints& points, double bytes) {
  const KnotPlace place = place_among(points.bytes, bytes);
  const double low = points.seconds[place.low];
  if (place.share > 0) return low * std::pow(points.seconds[place.low + 1] / low, place.share);
  return bytes > points.bytes.back() ? low * bytes / points.bytes.back() : low;
}

bool same_type(std::string_view law, std::string_view type) {
  return law == type || (law == "bf16" && type == "fp16");
}

template <class Law>
const Law* law_of(const std::vector<Law>& laws, std::string_view type) {
  const auto found =
      std::ranges::find_if(laws, [&](const Law& law) { return same_type(law.type, type); });
  return found == laws.end() ? nullptr : &*found;
}

}  // namespace

ProductShape pass_shape(ProductPass pass, double tokens, double in, double out) {
  if (pass == ProductPass::forward) return {tokens, out, in};
  return pass == ProductPass::input ? ProductShape{tokens, in, out} : ProductShape{out, in, tokens};
}

std::optional<double> KernelTimes::product_s(std::string_view type,
                                             const ProductShape& shape) const {
  const ProductLaw* law = law_of(products, type);
  if (law == nullptr) return std::nullopt;
  return seconds_of(*law, shape, multiprocessors);
}

std::optional<double> KernelTimes::accumulated_s(std::string_view type, const ProductShape& shape,
                                                 double sum_bytes) const {
  const auto product = product_s(type, shape);
  if (!product) return std::nullopt;
  // Reads and writes sums, of 32 bits mostly, where the measured product writes 16 bits, two thirds
  // of it under computing.
  const double more = kExposedSums * (2 * sum_bytes - kHalfBytes) * shape.m * shape.n;
  return *product + more / law_of(products, type)->bytes_per_s;
}

double KernelTimes::sustained(std::string_view type) const {
  const ProductLaw* law = law_of(products, type);
  return law == nullptr ? 1 : law->sustained;
}

std::optional<double> KernelTimes::experts_s(std::string_view type,
                                             const ExpertsShape& shape) const {
  const ExpertsLaw* law = law_of(experts, type);
  if (law == nullptr) return std::nullopt;
  return seconds_of(*law, shape);
}

std::optional<double> KernelTimes::attention_s(AttentionKind kind, std::string_view type,
                                               const AttentionShape& shape,
                                               std::string_view framework) const {
  const AttentionLaw* best = nullptr;
  const auto rank = [&](const AttentionLaw& law) {  // the more, the nearer
    const bool holds =
        shape.head_dim >= law.head_dims.front() && shape.head_dim <= law.head_dims.back();
    return 2 * static_cast<int>(law.framework == framework) + static_cast<int>(holds);
  };
  for (const AttentionLaw& law : attention)
    if (law.kind == kind && same_type(law.type, type) &&
        (best == nullptr || rank(law) > rank(*best)))
      best = &law;
  if (best == nullptr) return std::nullopt;
  return seconds_of(*best, shape, multiprocessors);
}

std::optional<double> KernelTimes::collective_s(std::string_view op, double ranks,
                                                double bytes) const {
  const KernelPoints *low = nullptr, *high = nullptr;  // the nearest numbers of ranks
  for (const KernelPoints& points : collectives) {
    if (points.op != op) continue;
    if (points.ranks <= ranks && (low == nullptr || points.ranks > low->ranks)) low = &points;
    if (points.ranks >= ranks && (high == nullptr || points.ranks < high->ranks)) high = &points;
  }
  if (low == nullptr || high == nullptr) return std::nullopt;
  const double s = seconds_at(*low, bytes);
  if (low == high) return s;
  const double share = std::log(ranks / low->ranks) / std::log(1.0 * high->ranks / low->ranks);
  return s * std::pow(seconds_at(*high, bytes) / s, share);
}

std::optional<double> KernelTimes::stream_s(std::string_view op, double bytes) const {
  const auto found = std::ranges::find(streams, op, &KernelPoints::op);
  if (found == streams.end()) return std::nullopt;
  return seconds_at(*found, bytes);
}

KernelTimes assumed_times(KernelTimes times, double peak_flops_per_s, double memory_bytes_per_s) {
  const double flops = peak_flops_per_s / times.peak_flops_per_s;
  const double bytes = memory_bytes_per_s / times.memory_bytes_per_s;
  const auto scale = [](double factor, auto&... rates) { ((rates *= factor), ...); };
  for (ProductLaw& law : times.products) {
    scale(flops, law.flops_per_s);
    scale(bytes, law.bytes_per_s, law.split_bytes_per_s);
    if (law.cast_bytes_per_s) scale(bytes, *law.cast_bytes_per_s);
  }
  for (ExpertsLaw& law : times.experts) {
    scale(flops, law.flops_per_s);
    scale(bytes, law.weights_bytes_per_s, law.moved_bytes_per_s);
  }
  for (AttentionLaw& law : times.attention) {
    for (double& rate : law.flops_per_s) scale(flops, rate);
    scale(bytes, law.bytes_per_s, law.kv_bytes_per_s);
  }
  for (KernelPoints& points : times.streams)
    for (double& size : points.bytes) scale(bytes, size);
  scale(flops, times.peak_flops_per_s);
  scale(bytes, times.memory_bytes_per_s);
  return times;
}

}  // namespace penstock
