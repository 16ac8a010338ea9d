// SPDX-License-Identifier: Apache-2.0
// Where the rows of a sweep go: CSV, JSON lines or SQLite, by extension; or standard output.
//
// Rows come in ascending order of their points, so that a file that ends anywhere holds all points
// up to some number and can be continued: what an interrupted sweep left behind is the beginning of
// what an uninterrupted one writes. Beside FILE.csv and FILE.jsonl lies FILE.csv.sweep, which says
// what sweep the rows are of; a database has that in its table `sweep_manifest`.
#pragma once

#include "base/error.hpp"
#include "sweep/columns.hpp"
#include "sweep/manifest.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace penstock {

/// The file was deleted, replaced or cut by somebody else: its rows are not there.
struct LostOutput : SystemError {
  using SystemError::SystemError;
};

/// Opens a sweep's file for this sweep alone; it is created when it is not there. Throws
/// SystemError.
int open_locked(const std::string& path, int flags);

/// Throws LostOutput when `path` is no longer the file that is open.
void require_same_file(int file, const std::string& path);

class Output {
 public:
  Output() = default;
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Visits the rows that are there, in order. Throws InputError when they are no sweep's.
  virtual void previous(const std::function<void(const Cells&)>& visit) = 0;
  /// Adds a row behind all others. Throws SystemError; then the rows before it are kept.
  virtual void put(const Cells& row) = 0;
  /// Replaces rows of the same points, in order; all of them or none.
  virtual void replace(const std::vector<Cells>& rows) = 0;
  /// What was put a second ago or longer is in the file.
  virtual void flush_if_due() = 0;
  /// What was put is in the file.
  virtual void flush() = 0;
};

enum class Existing : std::uint8_t { refuse, resume, overwrite };

/// A file by its extension. Throws InputError: an unknown extension, a file that is there and is
/// not to be (`refuse`), one of another sweep; SystemError.
std::unique_ptr<Output> open_output(const std::string& path, const SweepColumns& columns,
                                    const Manifest& manifest, Existing existing);

/// What sweep the rows of a file are of. Throws InputError when it is no sweep's; SystemError.
Manifest manifest_of_file(const std::string& path);

/// Nothing behind the last row.
using NextRow = std::function<std::optional<Cells>()>;
/// The rows of a file, which is left as it is. They are checked as for `previous`.
NextRow read_rows(const std::string& path, const SweepColumns& columns);

/// Opens files and pipes of as many as the system lets us have from now on.
void allow_many_files();

/// Rows to standard output as they come: "csv" or "json" (a line each).
std::unique_ptr<Output> standard_output(const std::string& format, const SweepColumns& columns);

/// Rows that are only counted and looked at: for a table without a file.
std::unique_ptr<Output> no_output();

/// Throws InputError unless this is an extension we write.
void check_extension(const std::string& path);

}  // namespace penstock
