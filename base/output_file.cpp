// SPDX-License-Identifier: Apache-2.0
#include "base/output_file.hpp"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace penstock {
namespace {

namespace fs = std::filesystem;

using FileIdentity = std::pair<dev_t, ino_t>;

/// None where there is no regular file.
std::optional<FileIdentity> identity_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  return FileIdentity(info.st_dev, info.st_ino);
}

/// Holds what the run under way reads and writes.
struct KnownFiles {
  std::mutex mutex;
  bool begun = false;
  std::map<FileIdentity, std::string> inputs;
  std::vector<OutputFile> outputs;
};

KnownFiles& known_files() {
  static KnownFiles files;
  return files;
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto identity = identity_of(a);
  if (identity) return identity == identity_of(b);
  std::error_code ignored;
  if (a == "-" || b == "-" || fs::exists(a, ignored)) return false;  // devices take several
  return fs::weakly_canonical(fs::absolute(a), ignored) ==
         fs::weakly_canonical(fs::absolute(b), ignored);
}

/// Why nothing can be written there; "" where it can.
std::string refusal_of(const std::string& path) {
  if (path == "-") return "";
  std::error_code ignored;
  if (fs::is_directory(path, ignored) || path.ends_with('/'))
    return fmt::format("'{}' is a folder; name a file in it", path);
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  if (!fs::is_directory(folder, ignored))
    return fmt::format("there is no folder '{}'", folder.string());
  return "";
}

void require_writable(const std::string& path) {
  struct stat info {};
  if (path == "-" || (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))) return;
  const std::string folder = fs::absolute(path).parent_path().string();
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw SystemError::from_errno("write", path);
}

std::string overwrites(const std::string& path) {
  return fmt::format("'{}' is read, too; name another file to write to", path);
}

}  // namespace

RunFiles::RunFiles(const std::vector<OutputFile>& outputs) {
  std::vector<Diagnostic> wrong;
  std::vector<OutputFile> given;
  for (const OutputFile& output : outputs) {
    if (output.path.empty()) continue;
    std::string why = refusal_of(output.path);
    for (const OutputFile& other : given)
      if (why.empty() && is_same_file(other.path, output.path))
        why =
            fmt::format("'{}' is written by {}, too; name another file", output.path, other.option);
    if (!why.empty()) wrong.push_back({{output.option, 0, 0}, why, "", 1, 0});
    given.push_back(output);
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
  for (const OutputFile& output : given) require_writable(output.path);
  KnownFiles& files = known_files();
  const std::lock_guard lock(files.mutex);
  files.begun = true;
  files.outputs = std::move(given);
}

RunFiles::~RunFiles() {
  KnownFiles& files = known_files();
  const std::lock_guard lock(files.mutex);
  files.begun = false;
  files.inputs.clear();
  files.outputs.clear();
}

void note_input(const std::string& path) {
  KnownFiles& files = known_files();
  const std::lock_guard lock(files.mutex);
  if (!files.begun) return;
  const auto identity = identity_of(path);
  if (!identity) return;
  files.inputs[*identity] = path;
  for (const OutputFile& output : files.outputs)
    if (identity_of(output.path) == identity)
      throw OverwrittenInput(output.option, overwrites(output.path));
}

void require_no_input(const std::string& path) {
  KnownFiles& files = known_files();
  const std::lock_guard lock(files.mutex);
  const auto identity = identity_of(path);
  const auto input = identity ? files.inputs.find(*identity) : files.inputs.end();
  // The number of a file that was removed is soon that of another.
  if (input == files.inputs.end() || identity_of(input->second) != identity) return;
  for (const OutputFile& output : files.outputs)
    if (output.path == path) throw OverwrittenInput(output.option, overwrites(path));
  throw OverwrittenInput(path, "is read, too; name another file to write to");
}

}  // namespace penstock
