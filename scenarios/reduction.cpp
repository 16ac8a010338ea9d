#include "scenarios/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr int kEqualBuckets = 10;              // where neither layers nor a number are known
constexpr std::int64_t kMostBuckets = 10'000;  // more are no longer told apart

BucketRequest read_buckets(const Section& reduction, bool overlapped, Diagnostics& diagnostics) {
  BucketRequest request{.overlapped = overlapped,
                        .count = reduction.integer("buckets"),
                        .least_bytes = reduction.number("bucket_size")};
  for (const char* key : {"buckets", "bucket_size"}) {
    if (reduction.has(key) && !overlapped)
      diagnostics.add(reduction.at(key), fmt::format("'{}' needs overlap: backward", key));
  }
  if (reduction.has("buckets") && reduction.has("bucket_size")) {
    diagnostics.add(reduction.at("bucket_size"),
                    "'bucket_size' and 'buckets' exclude each other: give the size of a bucket, or "
                    "the number of equal ones");
  }
  if (request.count.value_or(1) > kMostBuckets) {
    diagnostics.add(reduction.at("buckets"), fmt::format("'buckets' must be at most {}, got {}",
                                                         kMostBuckets, *request.count));
  }
  return request;
}

/// May this schedule's reduction run beside the next batch?
void check_next_batch(const Section& reduction, const Schedule* schedule,
                      Diagnostics& diagnostics) {
  if (schedule == nullptr || schedule->update == UpdateRule::double_buffer) return;
  diagnostics.add(reduction.at("overlap"),
                  fmt::format("'{}' needs the new weights at once, so its reduction cannot run "
                              "beside the next batch; use overlap: backward",
                              schedule->name));
}

/// Replicas that wait for no other have parameter servers and reduce nothing among themselves.
void read_asynchronous(const Section& reduction, Scenario& scenario, Diagnostics& diagnostics) {
  const auto server = static_cast<int>(ReductionAlgorithm::server);
  if (reduction.choice("algorithm").value_or(server) != server) {
    diagnostics.add(reduction.at("algorithm"),
                    fmt::format("'{}' has parameter servers: algorithm must be server",
                                scenario.schedule->name));
  }
  scenario.reduction.algorithm = ReductionAlgorithm::server;
  scenario.reduction.priced = false;
  if (reduction.choice("overlap").value_or(0) != 0) {
    diagnostics.add(
        reduction.at("overlap"),
        fmt::format("'{}' pushes its gradients after the backward: overlap must be none",
                    scenario.schedule->name));
  }
}

}  // namespace

BucketRequest read_reduction(const Section& reduction, Scenario& scenario,
                             Diagnostics& diagnostics) {
  const int algorithm = reduction.choice("algorithm").value_or(0);
  const auto names = static_cast<int>(std::size(kReductionNames));
  scenario.reduction.priced = algorithm == names;
  if (algorithm < names) scenario.reduction.algorithm = static_cast<ReductionAlgorithm>(algorithm);
  const bool asynchronous = scenario.schedule != nullptr && scenario.schedule->asynchronous;
  if (asynchronous) read_asynchronous(reduction, scenario, diagnostics);
  scenario.reduction.servers = static_cast<int>(reduction.integer("servers").value_or(1));
  if (reduction.has("servers") && scenario.reduction.algorithm != ReductionAlgorithm::server)
    diagnostics.add(reduction.at("servers"), "'servers' needs algorithm: server");
  else if (scenario.reduction.servers > scenario.mesh.most() && scenario.mesh.replicated())
    diagnostics.add(reduction.at("servers"),
                    fmt::format("{} servers for {} replicas: a replica's GPU is one server at most",
                                scenario.reduction.servers, scenario.mesh.most()));
  enum { none, backward, next_batch };
  const bool wait_free =
      scenario.schedule != nullptr && scenario.schedule->whole_model && !asynchronous;
  const int overlap = reduction.choice("overlap").value_or(wait_free ? backward : none);
  scenario.lowering.detached_reductions = overlap == next_batch;
  const BucketRequest request = read_buckets(reduction, overlap == backward, diagnostics);
  if (overlap == next_batch && !asynchronous)
    check_next_batch(reduction, scenario.schedule, diagnostics);
  return request;
}

std::vector<GradientBucket> buckets_of(const BucketRequest& request,
                                       const std::vector<LayerGradient>& layers, double bytes) {
  if (!request.overlapped) return {};
  if (request.count) return equal_buckets(static_cast<int>(*request.count));
  const double least = request.least_bytes.value_or(kBucketBytes);
  if (!layers.empty()) return gradient_buckets(layers, least);
  if (!request.least_bytes) return equal_buckets(kEqualBuckets);
  return equal_buckets(static_cast<int>(
      std::clamp(bytes / std::max(least, 1.0), 1.0, static_cast<double>(kMostBuckets))));
}

void gather_weights_last(const ParameterBytes& bytes,
                         std::vector<std::vector<GradientBucket>>& buckets) {
  const double weights = bytes.weights / (bytes.reduced + bytes.weights);
  for (std::vector<GradientBucket>& of_stage : buckets) {
    for (GradientBucket& bucket : of_stage) bucket.share *= 1 - weights;
    of_stage.push_back({1, weights});
  }
}

}  // namespace penstock
