// SPDX-License-Identifier: Apache-2.0
#include "scenarios/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr int kEqualBuckets = 10;              // where neither layers nor a number are known
constexpr std::int64_t kMostBuckets = 10'000;  // more are no longer told apart

void check_buckets(const ReductionKeys& keys, Overlap overlap) {
  for (const char* key : {"buckets", "bucket_size"}) {
    if (keys.section.has(key) && overlap != Overlap::backward)
      keys.section.refuse(key, fmt::format("'{}' needs overlap: backward", key));
  }
  if (keys.buckets.there && keys.bucket_size.there) {
    keys.bucket_size.refuse(
        "'bucket_size' and 'buckets' exclude each other: give the size of a bucket, or "
        "the number of equal ones");
  }
  if (keys.buckets.value_or(1) > kMostBuckets) {
    keys.buckets.refuse(
        fmt::format("'buckets' must be at most {}, got {}", kMostBuckets, *keys.buckets.value));
  }
}

/// May this schedule's reduction run beside the next batch?
void check_next_batch(const ReductionKeys& keys, const Schedule* schedule) {
  if (schedule == nullptr || schedule->update == UpdateRule::double_buffer) return;
  keys.overlap.refuse(
      fmt::format("'{}' needs the new weights at once, so its reduction cannot run "
                  "beside the next batch; use overlap: backward",
                  schedule->name));
}

/// Replicas that wait for no other have parameter servers and reduce nothing among themselves.
void check_asynchronous(const ReductionKeys& keys, const Schedule& schedule) {
  if (keys.algorithm.value_or(ReductionAlgorithm::server) != ReductionAlgorithm::server) {
    keys.algorithm.refuse(
        fmt::format("'{}' has parameter servers: algorithm must be server", schedule.name));
  }
  if (keys.overlap.value_or(Overlap::none) != Overlap::none) {
    keys.overlap.refuse(fmt::format(
        "'{}' pushes its gradients after the backward: overlap must be none", schedule.name));
  }
}

void check_servers(const ReductionKeys& keys, const ReductionOptions& options, int replicas) {
  if (keys.servers.there && options.algorithm != ReductionAlgorithm::server)
    keys.servers.refuse("'servers' needs algorithm: server");
  else if (options.servers > replicas && replicas > 1)
    keys.servers.refuse(
        fmt::format("{} servers for {} replicas: a replica's GPU is one server at most",
                    options.servers, replicas));
}

}  // namespace

ReductionRequest reduction_of(const Specification& spec, int replicas) {
  const ReductionKeys& keys = spec.reduction;
  const Schedule* schedule = spec.schedule;
  const bool asynchronous = schedule != nullptr && schedule->asynchronous;
  ReductionRequest request{.overlap = keys.overlap.value_or(Overlap::none),
                           .count = keys.buckets.value,
                           .least_bytes = keys.bucket_size.value};
  const auto algorithm =
      asynchronous ? ReductionAlgorithm::server : keys.algorithm.value_or(ReductionAlgorithm::ring);
  request.options.priced = algorithm == kFormula;
  if (algorithm != kFormula) request.options.algorithm = algorithm;
  request.options.servers = static_cast<int>(keys.servers.value_or(1));
  if (asynchronous) check_asynchronous(keys, *schedule);
  check_servers(keys, request.options, replicas);
  if (request.overlap == Overlap::next_batch && !asynchronous) check_next_batch(keys, schedule);
  return request;
}

ReductionRequest with_usual_overlap(ReductionRequest request, const Specification& spec) {
  const Schedule* schedule = spec.schedule;
  const bool flushes = schedule != nullptr && schedule->flushes() && !schedule->asynchronous;
  if (!spec.reduction.overlap.there && flushes && spec.stack.overlaps_reduction)
    request.overlap = Overlap::backward;
  check_buckets(spec.reduction, request.overlap);
  return request;
}

std::vector<GradientBucket> buckets_of(const ReductionRequest& request,
                                       const std::vector<LayerGradient>& layers, double bytes) {
  if (request.overlap != Overlap::backward) return {};
  if (request.count) return equal_buckets(static_cast<int>(*request.count));
  const double least = request.least_bytes.value_or(kBucketBytes);
  if (!layers.empty()) return gradient_buckets(layers, least);
  if (!request.least_bytes) return equal_buckets(kEqualBuckets);
  return equal_buckets(static_cast<int>(
      std::clamp(bytes / std::max(least, 1.0), 1.0, static_cast<double>(kMostBuckets))));
}

std::vector<GradientBucket> with_weights_last(const ParameterBytes& bytes,
                                              std::vector<GradientBucket> buckets) {
  const double weights = bytes.weights / (bytes.reduced + bytes.weights);
  for (GradientBucket& bucket : buckets) bucket.share *= 1 - weights;
  buckets.push_back({1, weights});  // when all of the device's gradients are there
  return buckets;
}

bool overlaps_reduction(const Scenario& scenario) {
  return std::ranges::any_of(scenario.reduction.buckets, [](const auto& buckets) {
    return std::ranges::any_of(buckets, [&](const GradientBucket& bucket) {
      return bucket.stage != GradientBucket::kAllStages &&
             (bucket.ready < 1 || bucket.stage != buckets.front().stage);
    });
  });
}

}  // namespace penstock
