// SPDX-License-Identifier: Apache-2.0
// The files of `penstock plan --write FOLDER`: plan-N.yaml, the scenario; plan-N.csv, the table of
// torch.distributed.pipelining; plan-N.megatron.txt, Megatron-LM's arguments, where it runs the
// plan.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// A file of a plan: its name's ending and what is in it.
struct PlanFile {
  std::string ending;
  std::string text;
};

/// With that of layout strings, which were written once, so that --force removes them, too.
inline constexpr const char* kPlanEndings[] = {"yaml", "csv", "megatron.txt", "layout.txt"};

/// Where plans are written. A folder that it made is gone again if nothing was written to it.
class PlanFolder {
 public:
  /// What is in the way: plan files that are there; "" when nothing is, or they may be replaced.
  static std::string refuse(const std::string& folder, bool replaces);

  /// Makes the folder. Throws SystemError.
  explicit PlanFolder(const std::string& folder);
  ~PlanFolder();
  PlanFolder(const PlanFolder&) = delete;
  PlanFolder& operator=(const PlanFolder&) = delete;

  /// Writes all files of plan `number`, or none: they take their names when all are complete.
  /// Returns their paths. Throws SystemError.
  std::vector<std::string> write(int number, const std::vector<PlanFile>& files);
  /// Removes the plan files that were there before and were not written.
  void remove_others();

 private:
  std::string folder_;
  bool made_ = false;
  std::vector<std::string> written_;
};

}  // namespace penstock
