// SPDX-License-Identifier: Apache-2.0
// Files read once for many scenarios: what a sweep does not parse again for every point, and what
// keeps it the same sweep when somebody edits a file meanwhile.
#pragma once

#include "scenarios/document.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace penstock {

/// Files by their path ("-": standard input), as they were when they were first read; those that
/// cannot be read are tried again. Thread-safe. References stay valid.
class Documents {
 public:
  struct File {
    std::string path, text;
  };

  Documents() = default;
  /// Those that another process has read, and no others.
  explicit Documents(const std::vector<File>& files);

  /// Was it read, or can it be?
  bool exists(const std::string& path) const;
  /// "; did you mean 'x'?" of the files beside one that is not there. Of none where no others may
  /// be read: who asks learns nothing of this machine.
  std::string suggestion(const std::string& path) const;
  /// Is it a folder that may be looked at?
  bool is_folder(const std::string& path) const;
  /// The parsed file, which is read the first time. Throws InputError as load_document does.
  const Value& load(const std::string& path);
  /// Its text, for files of other formats. Throws InputError.
  const std::string& text(const std::string& path);

  /// The paths of all that were read, in that order.
  std::vector<std::string> paths() const;
  /// All that were read, in that order.
  std::vector<File> files() const;
  /// From now on there are no other files than those that were read.
  void close();

 private:
  struct Read {
    std::string text;
    std::unique_ptr<const Value> value;  ///< none: it was not parsed
  };
  Read& read(const std::string& path);  // locked

  mutable std::mutex mutex_;
  std::map<std::string, Read> read_;
  std::vector<std::string> order_;
  bool closed_ = false;
};

}  // namespace penstock
