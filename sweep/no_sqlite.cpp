// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "sweep/sqlite_output.hpp"

namespace penstock {

std::unique_ptr<DatabaseOutput> open_sqlite(const std::string& path,
                                            const std::vector<SweepColumn>&, DatabaseAccess) {
  throw InputError("-o " + path,
                   "this penstock was built without SQLite; install libsqlite3-dev and build it "
                   "again, or write .csv or .jsonl");
}

}  // namespace penstock
