// SPDX-License-Identifier: Apache-2.0
// The cluster of a job that is imported: as the user gives it, or nodes of 8 H100; with as many
// nodes as it says, or as the job needs.
#pragma once

#include "scenarios/import_notes.hpp"

namespace penstock {

class JobCluster {
 public:
  /// `given`: a name, a file, a map as in a scenario, or nothing. Throws InputError where it is no
  /// cluster.
  explicit JobCluster(const std::string& given);

  /// Its GPUs, where it says how many nodes it has.
  std::optional<std::int64_t> gpus() const { return gpus_; }

  /// Returns it as a scenario has it, with nodes for `gpus` where it does not count them. Where the
  /// job says that it has `per_node` GPUs of each of several nodes, those have so many, and each
  /// GPU as much of the network as before; a note says where a cluster cannot have such nodes.
  std::string text(ImportNotes& notes, std::int64_t gpus,
                   std::optional<std::int64_t> per_node) const;

 private:
  std::string given_;
  bool whole_ = false;  ///< no name to which nodes are added
  std::optional<std::int64_t> gpus_;
};

}  // namespace penstock
