// Finds the documents behind `model: NAME`, `cluster: FILE` or `{base: NAME, ...}`.
#pragma once

#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

namespace penstock {

class Library {
 public:
  /// `folder`: relative files are looked up there.
  Library(std::string folder, Diagnostics& diagnostics);

  /// The map a value stands for: itself, or a shipped or own file, with `base` merged in. Null,
  /// with a diagnostic, when there is none. `kind` is "model", "cluster" or "device".
  const Value* resolve(const Value& value, const std::string& kind,
                       const std::string& shipped_folder);

 private:
  const Value* find(const Value& name, const std::string& kind, const std::string& shipped_folder);
  static void replace(Value& map, const Value::Entry& entry, const std::string& kind);

  std::string folder_;
  Diagnostics& diagnostics_;
  int depth_ = 0;
  std::vector<std::unique_ptr<Value>> documents_;  // what the returned pointers point into
};

}  // namespace penstock
