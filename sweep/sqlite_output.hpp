// SPDX-License-Identifier: Apache-2.0
// Writes rows to the table `sweep` of a SQLite database, in one transaction per second, so that
// what is committed is always a whole number of rows. It is there only where penstock was built
// with SQLite.
#pragma once

#include "sweep/output.hpp"

namespace penstock {

class DatabaseOutput : public Output {
 public:
  /// Returns the text of the manifest; "" in a new database.
  virtual std::string manifest() = 0;
  virtual void set_manifest(const std::string& text) = 0;
  /// Returns the next row in the order of points; none after the last, and then begins again.
  virtual std::optional<Cells> next_row() = 0;
};

enum class DatabaseAccess : std::uint8_t {
  create,  ///< what is there is removed
  resume,  ///< what is there is kept
  read,    ///< nothing is written
};

/// Opens a database; without `columns` only its manifest may be asked for. Throws InputError where
/// penstock was built without SQLite, or the file is not the database of a sweep. Throws
/// SystemError.
std::unique_ptr<DatabaseOutput> open_sqlite(const std::string& path,
                                            const std::vector<SweepColumn>& columns,
                                            DatabaseAccess access);

}  // namespace penstock
