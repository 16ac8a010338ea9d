// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/json_fields.hpp"
#include "hw/kernel_measurement.hpp"

namespace penstock {
namespace {

constexpr const char* kKernelMark = "penstock_measured_kernels";
constexpr int kKernelVersion = 1;
constexpr FieldRange kSide{1, 1e15}, kTime{1e-12, kLongestField_s};

}  // namespace

void each_field(Like<MeasuredProduct> auto& p, auto&& visit) {
  visit("type", p.type);
  visit("m", p.m, kSide);
  visit("n", p.n, kSide);
  visit("k", p.k, kSide);
  visit("sums", p.sums);
  visit("seconds", p.seconds, kTime);
}

void each_field(Like<MeasuredAttention> auto& a, auto&& visit) {
  visit("type", a.type);
  visit("batch", a.batch, kSide);
  visit("seq", a.seq, kSide);
  visit("heads", a.heads, kSide);
  visit("head_dim", a.head_dim, kSide);
  visit("forward_s", a.forward_s, kTime);
  visit("backward_s", a.backward_s, kTime);
}

void each_field(Like<MeasuredCopy> auto& c, auto&& visit) {
  visit("bytes", c.bytes, kSide);
  visit("seconds", c.seconds, kTime);
}

void each_field(Like<MeasuredKernels> auto& k, auto&& visit) {
  VISIT_FIELDS(visit, k, machine, products, attention, copies);
}

std::string to_json(const MeasuredKernels& measured) {
  return text_of_fields(measured, kKernelMark, kKernelVersion);
}

MeasuredKernels parse_measured_kernels(const std::string& text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  if (!json.is_object() || json.value(kKernelMark, Json()) != Json(kKernelVersion))
    throw InputError(origin, std::string("has no '") + kKernelMark + "': 1");
  return from_fields<MeasuredKernels>(json, origin, kKernelMark);
}

}  // namespace penstock
