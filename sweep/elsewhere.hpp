// Points that are computed elsewhere: by the workers of another program's engine (Dask, MPI, any
// executor of Python's), behind two pipes.
//
// Whoever is at the other end asks for points when it has workers for them, so that no more are on
// their way than it wants, and hands them out in chunks. It knows which workers there are, what to
// do when one is lost, and how to get there; points, the order of rows and files stay here.
//
//   to them    recipe (what the points are made of, once), chunk (their numbers), stop (no more)
//   from them  want (how many points more), row, lost (a point and why it has no row)
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/workers.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

/// What the points of a sweep are made of, files included, so that another process on another
/// machine makes the same of their numbers.
struct SweepRecipe {
  std::vector<std::string> files, over, zip, where, set;
  std::string engine;       ///< as --engine takes it
  std::string data_folder;  ///< where what is shipped lies in `documents`
  std::vector<Documents::File> documents;
};
std::string to_json(const SweepRecipe& recipe);

/// Another process's end.
class RemotePoints {
 public:
  /// Of what `to_json` wrote. Throws InputError.
  explicit RemotePoints(const std::string& recipe);
  ~RemotePoints();
  /// The encoded row of a point. Thread-safe.
  std::string row(std::uint64_t number) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// As `visit`, by who reads from `out` and writes to `in`, which are closed at last. Throws
/// SystemError when the other end goes away before all rows are there.
void visit_elsewhere(int in, int out, const SweepRecipe& recipe, const NextPoint& next,
                     const TakeRow& take, const WorkerOptions& options);

}  // namespace penstock
