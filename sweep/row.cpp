#include "sweep/row.hpp"

#include "sweep/bytes.hpp"

#include <cmath>

namespace penstock {
namespace {

constexpr std::string Row::*kTexts[] = {&Row::why,        &Row::scenario,  &Row::engine,
                                        &Row::schedule,   &Row::transfers, &Row::width,
                                        &Row::replication};
static_assert(kMeasures.size() <= 32, "one bit each");

}  // namespace

/// Empty measures are a bit each: a refused point has nothing else.
std::string encode(const Row& row) {
  std::string bytes;
  bytes.reserve(sizeof row);
  ByteWriter to(bytes);
  to.put(row.point);
  to.put(row.status);
  for (const auto text : kTexts) to.text(row.*text);
  std::uint32_t present = 0;
  for (std::size_t i = 0; i < row.measures.size(); ++i)
    present |= std::uint32_t{!std::isnan(row.measures[i])} << i;
  to.put(present);
  for (const double measure : row.measures)
    if (!std::isnan(measure)) to.put(measure);
  return bytes;
}

Row decode(std::string_view bytes) {
  ByteReader from(bytes);
  Row row;
  row.point = from.get<std::uint64_t>();
  row.status = from.get<Row::Status>();
  for (const auto text : kTexts) row.*text = from.text();
  const auto present = from.get<std::uint32_t>();
  for (std::size_t i = 0; i < row.measures.size(); ++i)
    row.measures[i] = (present >> i & 1U) != 0 ? from.get<double>() : std::nan("");
  if (!from.at_end()) throw Garbled();
  return row;
}

}  // namespace penstock
