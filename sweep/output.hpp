// SPDX-License-Identifier: Apache-2.0
// Writes the rows of a sweep to CSV, JSON lines or SQLite, by the file's extension, or to standard
// output.
//
// Rows come in ascending order of their points, so a file that ends anywhere has all points up to
// some number and can be continued: what an interrupted sweep leaves is the beginning of what an
// uninterrupted one writes. Beside FILE.csv and FILE.jsonl lies FILE.csv.sweep with the manifest,
// which says what sweep the rows are of; a database has it in its table `sweep_manifest`.
#pragma once

#include "base/error.hpp"
#include "sweep/columns.hpp"
#include "sweep/manifest.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace penstock {

/// Says that somebody deleted, replaced or cut the file while the sweep wrote it, so that its rows
/// are lost.
struct LostOutput : SystemError {
  using SystemError::SystemError;
};

/// Returns the descriptor of a sweep's file, locked for this sweep and created when it is not
/// there. Throws SystemError.
int open_locked(const std::string& path, int flags);

/// Throws LostOutput when `path` is no longer the file that is open.
void require_same_file(int file, const std::string& path);

class Output {
 public:
  Output() = default;
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Visits the rows that are there, in order. Throws InputError when they are not those of a
  /// sweep.
  virtual void previous(const std::function<void(const Cells&)>& visit) = 0;
  /// Adds a row behind all others. Throws SystemError; the rows before it are kept then.
  virtual void put(const Cells& row) = 0;
  /// Replaces the rows of the same points by these, given in order: all of them or none.
  virtual void replace(const std::vector<Cells>& rows) = 0;
  /// Writes rows that were put a second ago or longer.
  virtual void flush_if_due() = 0;
  /// Writes all rows that were put.
  virtual void flush() = 0;
};

enum class Existing : std::uint8_t { refuse, resume, overwrite };

/// Opens a file of the kind that its extension names. Throws InputError for an unknown extension, a
/// file that is there with `refuse`, and a file of another sweep with `resume`. Throws SystemError.
std::unique_ptr<Output> open_output(const std::string& path, const SweepColumns& columns,
                                    const Manifest& manifest, Existing existing);

/// Returns the manifest of a file. Throws InputError when the file is not the output of a sweep,
/// and SystemError.
Manifest manifest_of_file(const std::string& path);

/// Returns the next row; none after the last.
using NextRow = std::function<std::optional<Cells>()>;
/// Returns a reader of a file's rows, which are checked as by `previous`.
NextRow read_rows(const std::string& path, const SweepColumns& columns);

/// Raises the limit of open files to the most that the system allows.
void allow_many_files();

/// Returns an output that writes rows to standard output as they come; `format` is "csv" or "json"
/// (lines).
std::unique_ptr<Output> standard_output(const std::string& format, const SweepColumns& columns);

/// Returns an output that keeps nothing, for a table without a file.
std::unique_ptr<Output> no_output();

/// Throws InputError unless the path has an extension that a sweep is written to.
void check_extension(const std::string& path);

}  // namespace penstock
