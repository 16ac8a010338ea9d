#include "sweep/row.hpp"

#include "sweep/bytes.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr std::string Row::*kRowTexts[] = {&Row::why,        &Row::scenario,  &Row::engine,
                                           &Row::schedule,   &Row::transfers, &Row::width,
                                           &Row::replication};
static_assert(kMeasures.size() <= 32, "one bit each");

constexpr std::string_view kCounts[] = {
    "stages",        "tensor",  "microbatches", "microbatch_size",
    "batches",       "ops",     "stash_peak",   "weight_versions_peak",
    "staleness_max", "devices", "gpus",         "optimistic",
    "chunks"};

}  // namespace

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

bool is_count(std::string_view measure) {
  return measure.ends_with("_bytes") || std::ranges::find(kCounts, measure) != std::end(kCounts);
}

/// Empty measures are a bit each: a refused point has nothing else.
std::string encode(const Row& row) {
  ByteWriter to;
  to.put(row.point);
  to.put(row.status);
  for (const auto text : kRowTexts) to.put(row.*text);
  std::uint32_t present = 0;
  for (std::size_t i = 0; i < row.measures.size(); ++i)
    present |= std::uint32_t{!std::isnan(row.measures[i])} << i;
  to.put(present);
  for (const double measure : row.measures)
    if (!std::isnan(measure)) to.put(measure);
  return to.take();
}

Row decode(std::string_view bytes) {
  ByteReader from(bytes);
  Row row;
  row.point = from.get<std::uint64_t>();
  row.status = from.get<Row::Status>();
  if (row.status > Row::Status::failed) throw Garbled();
  for (const auto text : kRowTexts) row.*text = from.text();
  const auto present = from.get<std::uint32_t>();
  for (std::size_t i = 0; i < row.measures.size(); ++i)
    row.measures[i] = (present >> i & 1U) != 0 ? from.get<double>() : std::nan("");
  if (!from.at_end()) throw Garbled();
  return row;
}

}  // namespace penstock
