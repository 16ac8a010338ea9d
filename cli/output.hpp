// SPDX-License-Identifier: Apache-2.0
// Results as JSON, CSV and the table people read.
#pragma once

#include "base/json.hpp"
#include "cli/options.hpp"
#include "results/fields.hpp"

namespace penstock {

/// Names of columns, and scalars.
using CsvRow = std::vector<std::pair<std::string, Json>>;

struct OutputOptions {
  bool events = false;
  bool reproducible = false;  ///< without engine_seconds
  std::size_t width = 0;      ///< of a line of a table; 0: any
};

/// The fields of docs/metrics.md.
Json to_json(const Simulation& simulation, const Result& result, const OutputOptions& options);

/// The name; of an inline model without one also its parameters: "inline model (6.89e9 ...)".
std::string model_text(const TransformerSpec& model);

/// The name, and in a few lines the job: schedule, degrees, model, batch. `reproducible`: without
/// the time that the engine took.
std::string heading_text(const Simulation& simulation, bool reproducible);

/// Every op with its times, one row each.
Json events_json(const Simulation& simulation);

/// The scalar fields of a result; of lists, the largest value. In the order of the columns.
CsvRow summary_row(const Json& result);

/// An object as a row; lists of numbers or texts in one cell.
CsvRow csv_row(const Json& object);

/// Rows of JSON scalars as CSV with a header.
std::string to_csv(const std::vector<CsvRow>& rows);

/// Does it fit, how fast is it, why; then the devices, the critical path, what would help.
std::string to_table(const Simulation& simulation, const Result& result,
                     const OutputOptions& options);

/// The timeline, or a part of it, as Chrome trace. Throws SystemError.
void write_trace(const Simulation& simulation, const std::string& path, TimeWindow window = {});

/// Microbatches' worth of activations of a device's share of the model: of those of its chunks, of
/// which a microbatch has so many. With a decimal where `decimal`.
std::string stash_text(double chunks_held, double chunks, bool decimal);

/// Writes a file to --output, or standard output.
void put_output(const Arguments& arguments, const std::string& text);
/// Likewise what --format makes of a result: the table in lines as wide as there is room.
void put_result(const Arguments& arguments, const std::string& text);

}  // namespace penstock
