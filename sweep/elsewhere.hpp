// SPDX-License-Identifier: Apache-2.0
// Work that is done elsewhere: by the workers of another program's engine (Dask, MPI, any executor
// of Python's), behind two pipes.
//
// Whoever is at the other end asks for items when it has workers for them, so that no more are on
// their way than it wants, and hands them out in chunks. It knows which workers there are, what to
// do when one is lost, and how to get there; what the items are, the order of answers and files
// stay here.
//
//   to them    recipe (what the items are made of, once), chunk (items), stop (no more)
//   from them  want (how many items more), row (an answer), lost (an item and why it has no answer)
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/messages.hpp"
#include "sweep/workers.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

/// Items to be handed out, and what becomes of them.
struct WorkItems {
  std::function<std::optional<std::string>()> next;  ///< nothing: there are no more
  std::function<void(std::string_view answer)> take_answer;
  std::function<void(const std::string& item, const std::string& why)> lost;
  std::size_t most_in_chunk = SIZE_MAX;
};

class Elsewhere {
 public:
  /// Descriptors that it owns from now on.
  Elsewhere(int in, int out, const std::string& recipe);
  /// Until every item has its answer or is lost. Throws SystemError when the other end goes away
  /// before. `options`: stop, full and tick.
  void serve_items(const WorkItems& items, const WorkerOptions& options);
  /// Chunks that the other end would take now.
  std::size_t wanted() const { return wanted_.size(); }
  /// Says that there is no more.
  void end();

 private:
  SystemError gone() const;
  bool wait();
  void serve(const Message& message, const WorkItems& items);
  std::uint64_t chunk_size(const WorkItems& items, const WorkerOptions& options) const;
  void hand_out(const WorkItems& items, const WorkerOptions& options);

  MessageStream stream_;
  std::deque<std::uint64_t> wanted_;
  std::size_t most_wanted_ = 1;  ///< chunks at a time: two for each worker
  std::uint64_t away_ = 0;       ///< items handed out that have no answer yet
  bool no_more_ = false;
};

/// What the points of a sweep are made of, files included, so that another process on another
/// machine makes the same of their numbers.
struct SweepRecipe {
  std::vector<std::string> files, over, zip, where, set;
  std::string engine;       ///< as --engine takes it
  std::string data_folder;  ///< where what is shipped lies in `documents`
  std::vector<Documents::File> documents;
};
std::string to_json(const SweepRecipe& recipe);

/// Another process's end of a sweep: an item is the number of a point, its answer the encoded row.
class RemotePoints {
 public:
  /// Of what `to_json` wrote. Throws InputError.
  explicit RemotePoints(const std::string& recipe);
  ~RemotePoints();
  /// Thread-safe.
  std::string answer(std::string_view number) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// As `visit`, by who is at the other end. Throws SystemError when that goes away before all rows
/// are there.
void visit_elsewhere(int in, int out, const SweepRecipe& recipe, const NextPoint& next,
                     const TakeRow& take, const WorkerOptions& options);

}  // namespace penstock
