// SPDX-License-Identifier: Apache-2.0
#include "scenarios/documents.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace penstock {
namespace {

constexpr std::size_t kMostText = std::size_t{64} << 20;

}  // namespace

Documents::Documents(const std::vector<File>& files) : closed_(true) {
  for (const File& file : files) {
    read_[file.path].text = file.text;
    order_.push_back(file.path);
  }
}

bool Documents::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;
  return read_.contains(path) || (!closed_ && std::filesystem::exists(path, ignored));
}

std::string Documents::suggestion(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return closed_ ? "" : nearest_file(path);
}

bool Documents::is_folder(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;
  return !closed_ && std::filesystem::is_directory(path, ignored);
}

Documents::Read& Documents::read(const std::string& path) {
  const auto found = read_.find(path);
  if (found != read_.end()) return found->second;
  if (closed_) throw InputError(path, "was not there when the sweep began");
  std::string text = read_text(path == "-" ? "/dev/stdin" : path, kMostText + 1);
  order_.push_back(path);
  return read_.emplace(path, Read{std::move(text), nullptr}).first->second;
}

const Value& Documents::load(const std::string& path) {
  const std::lock_guard lock(mutex_);
  Read& file = read(path);
  if (!file.value)
    file.value = std::make_unique<const Value>(
        parse_document(file.text, path == "-" ? "standard input" : path));
  return *file.value;
}

const std::string& Documents::text(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const Read& file = read(path);
  if (file.text.size() > kMostText)
    throw InputError(path, fmt::format("is larger than {} MB", kMostText >> 20));
  return file.text;
}

std::vector<std::string> Documents::paths() const {
  const std::lock_guard lock(mutex_);
  return order_;
}

std::vector<Documents::File> Documents::files() const {
  const std::lock_guard lock(mutex_);
  std::vector<File> files;
  for (const std::string& path : order_) files.push_back({path, read_.at(path).text});
  return files;
}

void Documents::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

}  // namespace penstock
