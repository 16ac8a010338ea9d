// SPDX-License-Identifier: Apache-2.0
// Rows as the table `sweep` of a SQLite database; a transaction a second, so that what is committed
// is always a whole number of rows. Only where penstock was built with SQLite.
#pragma once

#include "sweep/output.hpp"

namespace penstock {

class DatabaseOutput : public Output {
 public:
  virtual std::string manifest() = 0;  ///< "" in a new database
  virtual void set_manifest(const std::string& text) = 0;
  /// In the order of points; nothing behind the last. Then it begins again.
  virtual std::optional<Cells> next_row() = 0;
};

enum class DatabaseAccess : std::uint8_t {
  create,  ///< what is there is removed
  resume,  ///< what is there is kept
  read,    ///< nothing is written
};

/// Without `columns` it is only asked for its manifest. Throws SystemError; InputError where
/// penstock was built without SQLite, or the file is no database of a sweep.
std::unique_ptr<DatabaseOutput> open_sqlite(const std::string& path,
                                            const std::vector<SweepColumn>& columns,
                                            DatabaseAccess access);

}  // namespace penstock
