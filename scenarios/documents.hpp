// Files read once for many scenarios: what a sweep does not parse again for every point.
#pragma once

#include "scenarios/document.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace penstock {

/// Documents by their path, as they were when they were first read; those that cannot be read are
/// tried again. Thread-safe. References stay valid.
class Documents {
 public:
  /// Null when this file was not read yet.
  const Value* known(const std::string& path) const;
  /// Reads the file the first time. Throws InputError as load_document does.
  const Value& load(const std::string& path);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<const Value>> read_;
};

}  // namespace penstock
