// SPDX-License-Identifier: Apache-2.0
// Buffered output to a plain or gzip file that is there completely or not at all. Bytes go to a
// file without a name in the target's folder (where the file system has no such files, to a
// temporary file), which takes the target's name at `close`, so a process that is killed leaves
// nothing.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

class ByteSink {
 public:
  /// Opens a file, compressed when `path` ends in `.gz`; "-" is standard output. Throws
  /// SystemError, and OverwrittenInput where this run has read that file.
  explicit ByteSink(const std::string& path);
  ~ByteSink();  ///< removes what was written, unless it was closed
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;

  void put(std::string_view text) {
    if (used_ + text.size() > kSize) return put_large(text);
    std::memcpy(buffer_.get() + used_, text.data(), text.size());
    used_ += text.size();
  }
  void put(char c) { put(std::string_view(&c, 1)); }
  void put_integer(std::int64_t value);
  /// Puts nanoseconds as microseconds with three decimals, the unit of Chrome traces.
  void put_us(std::int64_t ns);

  /// Flushes and gives the file its name. Throws SystemError.
  void close();

 private:
  static constexpr std::size_t kSize = std::size_t{1} << 18;
  void put_large(std::string_view text);
  void flush();

  struct File;
  std::unique_ptr<File> file_;
  std::unique_ptr<char[]> buffer_ = std::make_unique_for_overwrite<char[]>(kSize);
  std::size_t used_ = 0;
};

/// Returns the content of a plain or gzip file, and notes that this run must not write it. Throws
/// SystemError; also where the content is larger than `least_limit` and more than a hundred times
/// as large as the file, which no file of ours is.
std::string read_file(const std::string& path, std::int64_t least_limit = std::int64_t{256} << 20);

/// Returns the content of a file that an earlier run wrote and this one continues. Throws
/// SystemError.
std::string read_back(const std::string& path, std::int64_t least_limit = std::int64_t{256} << 20);

/// Writes a file, completely or not at all; "-" is standard output. Throws SystemError, and
/// OverwrittenInput where this run has read it.
void write_file(const std::string& path, std::string_view content);

/// Writes several files, given as path and content, or none of them. Throws as write_file does.
void write_files(const std::vector<std::pair<std::string, std::string_view>>& files);

}  // namespace penstock
