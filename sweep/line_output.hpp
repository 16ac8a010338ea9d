// SPDX-License-Identifier: Apache-2.0
// Writes rows as lines of a file, which always has a whole number of lines (output.hpp).
#pragma once

#include "sweep/line_format.hpp"
#include "sweep/output.hpp"

#include <chrono>
#include <fstream>

namespace penstock {

/// Reads a file line by line. Throws SystemError where a line cannot be read, as it would be lost
/// otherwise.
class Lines {
 public:
  explicit Lines(std::string path);
  /// Reads the next line and returns whether there is one. Text at the end without a line feed is
  /// no line; it stays in `line`.
  bool next_line(std::string& line);

 private:
  std::string path_;
  std::ifstream in_;
};

/// Reads the rows of a file one after the other. Throws InputError when it is not the output of a
/// sweep.
class LineReader {
 public:
  LineReader(const std::string& path, const LineFormat& format);
  /// Returns the next row; none after the last whole line.
  std::optional<Cells> next_row();
  /// Returns the number of bytes of the lines so far.
  std::int64_t whole() const { return whole_; }

 private:
  bool next_line();

  std::string path_;
  LineFormat format_;
  Lines lines_;
  std::string line_;
  std::int64_t number_ = 0;  ///< the number of `line_` in the file
  std::int64_t whole_ = 0;
  bool ended_ = false;  ///< before its header
};

/// Visits the rows of a file and returns how many of its bytes are whole lines. Throws InputError
/// when it is not the output of a sweep.
std::int64_t read_lines(const std::string& path, const LineFormat& format,
                        const std::function<void(const Cells&)>& visit);

class LineOutput : public Output {
 public:
  /// Opens a file, which is emptied unless `resume` is set; `path` "-" is standard output.
  LineOutput(std::string path, const LineFormat& format, bool resume);
  ~LineOutput() override;

  void previous(const std::function<void(const Cells&)>& visit) override;
  void put(const Cells& row) override;
  void replace(const std::vector<Cells>& rows) override;
  void flush_if_due() override;
  void flush() override;

 private:
  using Clock = std::chrono::steady_clock;
  void open(bool empty);
  void write(const std::string& text);
  void require_whole() const;

  std::string path_;
  LineFormat format_;
  int file_ = -1;
  std::int64_t size_ = 0;  ///< of the lines that are whole
  std::string pending_;
  Clock::time_point flushed_ = Clock::now();
};

}  // namespace penstock
