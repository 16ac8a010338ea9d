// SPDX-License-Identifier: Apache-2.0
#include "base/folder.hpp"

#include "base/error.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace penstock {
namespace {

bool is_itself_or_parent(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

/// A link to a folder is not followed, one to a file is.
void add_files_below(const std::string& folder, std::vector<std::string>& files) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder.ends_with('/') ? folder + name : folder + '/' + name;
    struct stat linked {
    }, info{};
    if (::lstat(path.c_str(), &linked) != 0 || ::stat(path.c_str(), &info) != 0) continue;
    if (S_ISREG(info.st_mode)) files.push_back(path);
    if (S_ISDIR(linked.st_mode)) add_files_below(path, files);
  }
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(folder.c_str()), ::closedir);
  if (opened == nullptr && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (opened == nullptr) throw SystemError::from_errno("read", folder);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(opened.get());
    if (entry == nullptr && errno != 0) throw SystemError::from_errno("read", folder);
    if (entry == nullptr) break;
    if (!is_itself_or_parent(entry->d_name)) names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  add_files_below(folder, files);
  std::ranges::sort(files);
  return files;
}

void remove_folder(const char* folder) noexcept {
  const int opened = ::open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) char entries[4096];
  ssize_t bytes = 0;
  while (opened >= 0 && (bytes = ::getdents64(opened, entries, sizeof entries)) > 0) {
    for (ssize_t at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      if (!is_itself_or_parent(entry->d_name)) ::unlinkat(opened, entry->d_name, 0);
      at += entry->d_reclen;
    }
  }
  if (opened >= 0) ::close(opened);
  ::rmdir(folder);
}

}  // namespace penstock
