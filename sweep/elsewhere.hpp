// SPDX-License-Identifier: Apache-2.0
// Work that another program's engine does (Dask, MPI, any executor of Python's), behind two pipes.
//
// The other end asks for items when it has workers for them, so that no more are under way than it
// wants, and hands them out in chunks. It knows which workers there are, how to reach them, and
// what to do when one is lost. What the items are, the order of answers and the files are known
// here.
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

/// Items to hand out, and what is done with their answers.
struct WorkItems {
  std::function<std::optional<std::string>()>
      next;  ///< returns the next item, or none when there are no more
  std::function<void(std::string_view answer)> take_answer;
  std::function<void(const std::string& item, const std::string& why)> lost;
  std::size_t most_in_chunk = SIZE_MAX;
};

class Elsewhere {
 public:
  /// Takes over the two descriptors, and sends the recipe.
  Elsewhere(int in, int out, const std::string& recipe);
  /// Hands out items until every one has its answer or is lost. Of `options`, `stop`, `full` and
  /// `tick` matter. Throws SystemError when the other end goes away before.
  void serve_items(const WorkItems& items, const WorkerOptions& options);
  /// Returns how many chunks the other end would take now.
  std::size_t wanted() const { return wanted_.size(); }
  /// Tells the other end that there are no more items.
  void end();

 private:
  SystemError gone() const;
  bool wait();
  void serve(const Message& message, const WorkItems& items);
  std::uint64_t chunk_size(const WorkItems& items, const WorkerOptions& options) const;
  void hand_out(const WorkItems& items, const WorkerOptions& options);

  MessageStream stream_;
  std::deque<std::uint64_t> wanted_;
  /// the most chunks that were wanted at a time: two for each worker
  std::size_t most_wanted_ = 1;
  std::uint64_t away_ = 0;  ///< how many items that were handed out have no answer yet
  bool no_more_ = false;
};

/// What the points of a sweep are made of, including the files, so that a process on another
/// machine makes the same points of the same numbers.
struct SweepRecipe {
  std::vector<std::string> files, over, zip, where, set;
  std::string engine;       ///< as --engine takes it
  std::string data_folder;  ///< the folder of shipped files, as `documents` names them
  std::vector<Documents::File> documents;
};
std::string to_json(const SweepRecipe& recipe);

/// The other process's end of a sweep. An item is the number of a point, and its answer the encoded
/// row.
class RemotePoints {
 public:
  /// Makes the points of a recipe that `to_json` wrote. Throws InputError.
  explicit RemotePoints(const std::string& recipe);
  ~RemotePoints();
  /// Returns the answer to an item. Thread-safe.
  std::string answer(std::string_view number) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Visits all points as `visit` does (workers.hpp), by the workers at the other end. Throws
/// SystemError when it goes away before all rows are there.
void visit_elsewhere(int in, int out, const SweepRecipe& recipe, const NextPoint& next,
                     const TakeRow& take, const WorkerOptions& options);

}  // namespace penstock
