// SPDX-License-Identifier: Apache-2.0
// Finds the documents behind `model: NAME`, `cluster: FILE` or `{base: NAME, ...}`.
//
// Relative files are looked up beside the file that names them; those of `--set` in the working
// directory, then beside the scenario. A file with a map `model` or `cluster` at its top is a
// *profile* (`penstock calibrate`) and stands for its section. A map with `base` replaces values of
// what it starts from, map by map: `{base: dgx-a100, inter: 100 Gbps}` keeps the latency of
// `inter`.
#pragma once

#include "scenarios/documents.hpp"
#include "scenarios/scenario.hpp"
#include "scenarios/section.hpp"

#include <filesystem>

namespace penstock {

class Library {
 public:
  /// `folder`: where the scenario lies. Files are read through `documents`.
  Library(std::string folder, Documents& documents, Diagnostics& diagnostics);

  /// The map a value stands for: itself, or a shipped or own file, with `base` merged in. Null when
  /// there is none, with a diagnostic unless the value is neither name nor map. `kind` is "model",
  /// "cluster" or "device".
  const Value* resolve(const Value& value, const std::string& kind,
                       const std::string& shipped_folder, int depth = 0);

  /// The file of this name; none, with a diagnostic, when it is not there.
  std::optional<std::filesystem::path> file(const Value& name, const std::string& kind);

  /// The text of such a file. Throws InputError.
  const std::string& text(const std::filesystem::path& path) { return read_.text(path.string()); }

  /// What was left out of foreign files, for the user.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  const Value* section_of_profile(const Value& document, const Value& name,
                                  const std::string& kind);
  const Value* find(const Value& name, const std::string& kind, const std::string& shipped_folder);
  const Value* read(const std::filesystem::path& path, const Value& name, const std::string& kind);
  std::filesystem::path own_file(const Value& name) const;
  bool is_there(const std::filesystem::path& path, const Value& name, const std::string& kind);
  const Value* keep(Value document);

  std::string folder_;
  Documents& read_;
  Diagnostics& diagnostics_;
  std::vector<std::string> notes_;
  std::vector<std::unique_ptr<Value>> documents_;  // what the returned pointers point into
};

/// Replaces or adds an entry of a map of section `kind`, merging what both give as maps.
void replace_entry(Value& map, const Value::Entry& entry, const std::string& kind);

}  // namespace penstock
