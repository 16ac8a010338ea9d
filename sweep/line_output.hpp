// SPDX-License-Identifier: Apache-2.0
// Rows as lines of a file that is always a whole number of lines: see output.hpp.
#pragma once

#include "sweep/line_format.hpp"
#include "sweep/output.hpp"

#include <chrono>
#include <fstream>

namespace penstock {

/// A file line by line. Throws SystemError where one cannot be read: what is not read would be
/// lost.
class Lines {
 public:
  explicit Lines(std::string path);
  /// A last one without its line feed is none, and stays in `line`.
  bool next_line(std::string& line);

 private:
  std::string path_;
  std::ifstream in_;
};

/// The rows of a file, one after the other. Throws InputError when it is no sweep's.
class LineReader {
 public:
  LineReader(const std::string& path, const LineFormat& format);
  /// Nothing behind the last whole line.
  std::optional<Cells> next_row();
  std::int64_t whole() const { return whole_; }  ///< bytes of the lines so far

 private:
  bool next_line();

  std::string path_;
  LineFormat format_;
  Lines lines_;
  std::string line_;
  std::int64_t number_ = 0;  ///< of `line_`
  std::int64_t whole_ = 0;
  bool ended_ = false;  ///< before its header
};

/// Visits the rows of a file; returns how many of its bytes are whole lines. Throws InputError when
/// it is no sweep's.
std::int64_t read_lines(const std::string& path, const LineFormat& format,
                        const std::function<void(const Cells&)>& visit);

class LineOutput : public Output {
 public:
  /// `path` "-" is standard output. A file that is there is kept with `resume`, else emptied.
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
