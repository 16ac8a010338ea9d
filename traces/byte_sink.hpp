// SPDX-License-Identifier: Apache-2.0
// Buffered output to a plain or gzip file that is complete or not there: bytes go to a file without
// a name in the target's folder (where the file system has none, to a temporary one), which takes
// the target's name at `close`. So nothing is left of a process that was killed.
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
  /// Compresses when `path` ends in `.gz`. "-" is standard output. Throws SystemError, and
  /// OverwrittenInput where this run has read that file.
  explicit ByteSink(const std::string& path);
  ~ByteSink();  ///< without `close`: removes what was written
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;

  void put(std::string_view text) {
    if (used_ + text.size() > kSize) return put_large(text);
    std::memcpy(buffer_.get() + used_, text.data(), text.size());
    used_ += text.size();
  }
  void put(char c) { put(std::string_view(&c, 1)); }
  void put_integer(std::int64_t value);
  /// Nanoseconds as microseconds with three decimals, the unit of Chrome traces.
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

/// Returns the whole of a plain or gzip file, which this run does not write then. Throws
/// SystemError; also where it would become more than a hundred times as large as it is, and larger
/// than `least_limit`: nothing of ours does.
std::string read_file(const std::string& path, std::int64_t least_limit = std::int64_t{256} << 20);

/// Returns what an earlier run wrote to a file that this one goes on with.
std::string read_back(const std::string& path, std::int64_t least_limit = std::int64_t{256} << 20);

/// Writes a whole file; it is complete or not there. "-" is standard output. Throws SystemError,
/// and OverwrittenInput where this run has read it.
void write_file(const std::string& path, std::string_view content);

/// Several, by their paths, or none of them.
void write_files(const std::vector<std::pair<std::string, std::string_view>>& files);

}  // namespace penstock
