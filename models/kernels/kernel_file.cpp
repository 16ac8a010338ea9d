// SPDX-License-Identifier: Apache-2.0
#include "base/json_fields.hpp"
#include "models/kernels/kernel_times.hpp"

namespace penstock {
namespace {

constexpr const char* kFileMark = "kernels";
constexpr int kFileVersion = 1;
constexpr FieldRange kPercent{-1000, 1000}, kKnot{1e-6, 1e15}, kRate{1, 1e30}, kShare{0, 10};

constexpr const char* kQuantityNames[] = {
    "m",      "n",  "k",    "waves", "rows",           "inter",
    "hidden", "ep", "skew", "seq",   "sequence_heads", "head_dim"};
constexpr const char* kAttentionKindNames[] = {"causal", "full", "mla"};

/// Adds problems where knots do not ascend.
void check_ascending(const Place& at, const std::vector<double>& knots) {
  if (knots.empty() || std::ranges::adjacent_find(knots, std::greater_equal<>()) != knots.end())
    at.problem("must be numbers that ascend");
}

void check_same_size(const Place& at, std::size_t size, std::size_t expected) {
  if (size != expected) at.problem(fmt::format("must have {} numbers, has {}", expected, size));
}

}  // namespace

constexpr const auto& names_of(KernelQuantity) { return kQuantityNames; }
constexpr const auto& names_of(AttentionKind) { return kAttentionKindNames; }

void each_field(Like<KernelAxis> auto& a, auto&& visit) {
  visit("of", a.of);
  visit("knots", a.knots, kKnot);
}

void each_field(Like<KernelGrid> auto& g, auto&& visit) {
  visit("axes", g.axes);
  visit("percent", g.percent, kPercent);
}

void each_field(Like<ProductLaw> auto& p, auto&& visit) {
  visit("type", p.type);
  visit("flops_per_s", p.flops_per_s, kRate);
  visit("launch_s", p.launch_s);
  visit("bytes_per_s", p.bytes_per_s, kRate);
  visit("ramp", p.ramp);
  visit("whole_waves", p.whole_waves, FieldRange{0, 1});
  visit("tile_losses", p.tile_losses, kShare);
  visit("split_s", p.split_s);
  visit("split_bytes_per_s", p.split_bytes_per_s, kRate);
  visit("throttle", p.throttle, kShare);
  visit("patience_s", p.patience_s);
  visit("sustained", p.sustained, FieldRange{0.5, 2});
  visit("cast_bytes_per_s", p.cast_bytes_per_s, kRate);
  visit("corrections", p.corrections);
}

void each_field(Like<ExpertsLaw> auto& e, auto&& visit) {
  visit("type", e.type);
  visit("flops_per_s", e.flops_per_s, kRate);
  visit("launch_s", e.launch_s);
  visit("weights_bytes_per_s", e.weights_bytes_per_s, kRate);
  visit("moved_bytes_per_s", e.moved_bytes_per_s, kRate);
  VISIT_FIELDS(visit, e, padding, skewed_padding, ramp, corrections);
}

void each_field(Like<AttentionLaw> auto& a, auto&& visit) {
  VISIT_FIELDS(visit, a, framework, kind, type);
  visit("head_dims", a.head_dims, kKnot);
  visit("flops_per_s", a.flops_per_s, kRate);
  visit("launch_s", a.launch_s);
  visit("bytes_per_s", a.bytes_per_s, kRate);
  visit("kv_bytes_per_s", a.kv_bytes_per_s, kRate);
  visit("ramp", a.ramp);
  visit("whole_waves", a.whole_waves, FieldRange{0, 1});
  visit("corrections", a.corrections);
}

void each_field(Like<KernelPoints> auto& p, auto&& visit) {
  visit("op", p.op);
  visit("ranks", p.ranks, FieldRange{1, 1e6});
  visit("bytes", p.bytes, kKnot);
  visit("seconds", p.seconds, FieldRange{1e-12, kLongestField_s});
}

void each_field(Like<KernelTimes> auto& t, auto&& visit) {
  VISIT_FIELDS(visit, t, device, source);
  visit("peak_flops_per_s", t.peak_flops_per_s, kRate);
  visit("memory_bytes_per_s", t.memory_bytes_per_s, kRate);
  visit("multiprocessors", t.multiprocessors, FieldRange{1, 1e6});
  visit("attention_backward", t.attention_backward, FieldRange{0, 100});
  VISIT_FIELDS(visit, t, streams, products, experts, attention, collectives);
  visit("link_bytes_per_s", t.link_bytes_per_s, kRate);
}

namespace {

void check_corrections(const Place& law, const std::vector<KernelGrid>& corrections) {
  const Place grids = law.in("corrections");
  for (std::size_t i = 0; i < corrections.size(); ++i) {
    const Place grid = grids.at(i);
    std::size_t corners = 1;
    for (const KernelAxis& axis : corrections[i].axes) {
      check_ascending(grid.in("axes"), axis.knots);
      corners *= axis.knots.size();
    }
    check_same_size(grid.in("percent"), corrections[i].percent.size(), corners);
  }
}

void check_law(const Place& at, const ProductLaw& law) {
  check_same_size(at.in("tile_losses"), law.tile_losses.size(), 3);
  check_corrections(at, law.corrections);
}

void check_law(const Place& at, const ExpertsLaw& law) { check_corrections(at, law.corrections); }

void check_law(const Place& at, const AttentionLaw& law) {
  check_ascending(at.in("head_dims"), law.head_dims);
  check_same_size(at.in("flops_per_s"), law.flops_per_s.size(), law.head_dims.size());
  check_corrections(at, law.corrections);
}

void check_law(const Place& at, const KernelPoints& points) {
  check_ascending(at.in("bytes"), points.bytes);
  check_same_size(at.in("seconds"), points.seconds.size(), points.bytes.size());
}

template <class Law>
void check_laws(const Place& at, const std::vector<Law>& laws) {
  for (std::size_t i = 0; i < laws.size(); ++i) check_law(at.at(i), laws[i]);
}

}  // namespace

std::string to_json(const KernelTimes& times) {
  return text_of_fields(times, kFileMark, kFileVersion);
}

KernelTimes parse_kernel_times(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || json.value(kFileMark, Json()) != Json(kFileVersion))
    throw InputError(origin, fmt::format("is no file of kernel times: its \"{}\" is not {}",
                                         kFileMark, kFileVersion));
  auto times = from_fields<KernelTimes>(json, origin, kFileMark);
  JsonProblems problems(origin);
  const Place whole(problems);
  check_laws(whole.in("streams"), times.streams);
  check_laws(whole.in("products"), times.products);
  check_laws(whole.in("experts"), times.experts);
  check_laws(whole.in("attention"), times.attention);
  check_laws(whole.in("collectives"), times.collectives);
  problems.throw_if_any();
  return times;
}

}  // namespace penstock
