// SPDX-License-Identifier: Apache-2.0
// Files that are to be written: never one that the same run reads, and each by one option alone.
//
// What an option of the command line names is known before any work; what a scenario, a script or a
// folder names is known when it is read. So a run says first what it will write, every reader says
// what it reads, and every writer asks. Files are the same where device and inode are, whatever
// they are called.
#pragma once

#include "base/error.hpp"

#include <string>
#include <vector>

namespace penstock {

/// A file that is read is one that is to be written. Whoever leaves out files that cannot be read
/// does not leave out this.
struct OverwrittenInput : InputError {
  using InputError::InputError;
};

struct OutputFile {
  std::string option, path;
};

/// The files of a run, as long as it lives: before and after it nothing is noted. There is one at a
/// time.
class RunFiles {
 public:
  /// Will write these files; "-" is standard output, "" none. Throws InputError with every one that
  /// is a folder, lies in none, or is named twice; SystemError where its folder cannot be written
  /// to.
  explicit RunFiles(const std::vector<OutputFile>& outputs);
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;
};

/// Notes that the run reads a file. Throws OverwrittenInput where an option writes it.
void note_input(const std::string& path);

/// Throws OverwrittenInput where the run has read the file that it is about to write.
void require_no_input(const std::string& path);

}  // namespace penstock
