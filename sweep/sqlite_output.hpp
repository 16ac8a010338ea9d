// Rows as the table `sweep` of a SQLite database; a transaction a second, so that what is committed
// is always a whole number of rows. Only where penstock was built with SQLite.
#pragma once

#include "sweep/output.hpp"

namespace penstock {

class DatabaseOutput : public Output {
 public:
  virtual std::string manifest() = 0;  ///< "" in a new database
  virtual void set_manifest(const std::string& text) = 0;
};

/// Throws SystemError; InputError where penstock was built without SQLite, or the file is no
/// database of a sweep. What is there is kept with `resume`.
std::unique_ptr<DatabaseOutput> open_sqlite(const std::string& path,
                                            const std::vector<SweepColumn>& columns, bool resume);

}  // namespace penstock
