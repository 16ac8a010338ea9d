// SPDX-License-Identifier: Apache-2.0
#include "sweep/line_output.hpp"

#include "base/error.hpp"
#include "traces/byte_sink.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 16;
constexpr std::chrono::seconds kLongest{1};  // that rows wait in memory

}  // namespace

Lines::Lines(std::string path) : path_(std::move(path)), in_(path_, std::ios::binary) {
  if (!in_) throw SystemError::from_errno("read", path_);
}

bool Lines::next_line(std::string& line) {
  line.clear();
  const bool any = static_cast<bool>(std::getline(in_, line));
  if (in_.bad()) throw SystemError::from_errno("read", path_);
  return any && !in_.eof();
}

LineOutput::LineOutput(std::string path, const LineFormat& format, bool resume)
    : path_(std::move(path)), format_(format) {
  if (path_ == "-") {
    file_ = STDOUT_FILENO;
  } else {
    open(!resume);
  }
  if (!resume) write(format_.header());
}

LineOutput::~LineOutput() {
  if (file_ > STDERR_FILENO) ::close(file_);
}

void LineOutput::open(bool empty) {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  file_ = open_locked(path_, O_WRONLY | O_APPEND);
  if (empty && ::ftruncate(file_, 0) != 0) throw SystemError::from_errno("write", path_);
  size_ = empty ? 0 : ::lseek(file_, 0, SEEK_END);
}

void LineOutput::write(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(file_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  if (done == text.size()) {
    size_ += static_cast<std::int64_t>(done);
    return;
  }
  const SystemError error =
      SystemError::from_errno("write", path_ == "-" ? "standard output" : path_);
  // Whole lines are kept, so that --resume finds nothing torn.
  const std::size_t end = text.rfind('\n', done == 0 ? 0 : done - 1);
  const bool any = done > 0 && end != std::string::npos;
  size_ += any ? static_cast<std::int64_t>(end) + 1 : 0;
  if (path_ != "-" && ::ftruncate(file_, size_) != 0) throw error;  // then it is cut at --resume
  throw error;
}

void LineOutput::put(const Cells& row) {
  pending_ += format_.line(row);
  if (pending_.size() >= kBuffer) flush();
  flush_if_due();
}

void LineOutput::flush_if_due() {
  if (!pending_.empty() && Clock::now() - flushed_ >= kLongest) flush();
}

/// What was written is still there, under the name that the user gave.
void LineOutput::require_whole() const {
  if (path_ == "-") return;
  require_same_file(file_, path_);
  struct stat info {};
  if (::fstat(file_, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == size_) return;
  throw LostOutput(
      fmt::format("'{}' was changed while this sweep wrote it: it has {} bytes, not {}", path_,
                  info.st_size, size_));
}

void LineOutput::flush() {
  flushed_ = Clock::now();
  require_whole();
  const std::string text = std::move(pending_);
  pending_.clear();
  write(text);
  // Also there when the machine stops; what is no file (EINVAL) cannot be synced.
  if (path_ != "-" && ::fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS)
    throw SystemError::from_errno("write", path_);
}

LineReader::LineReader(const std::string& path, const LineFormat& format)
    : path_(path), format_(format), lines_(path) {
  const std::string header = format_.header();
  if (header.empty()) return;
  ended_ = !next_line();
  if (ended_) return;
  if (line_ + '\n' != header)
    throw InputError(path_, "has other columns than this sweep; --force replaces it");
  whole_ = static_cast<std::int64_t>(header.size());
}

bool LineReader::next_line() {
  if (lines_.next_line(line_)) {
    ++number_;
    return true;
  }
  if (number_ == 0 && !format_.begins_as_ours(line_))
    throw InputError(path_, "is not the output of a sweep; --force replaces it");
  return false;
}

std::optional<Cells> LineReader::next_row() {
  if (ended_ || !next_line()) return std::nullopt;
  auto row = format_.parse(line_);
  if (!row)
    throw InputError(fmt::format("{}:{}", path_, number_),
                     "is no row of this sweep, or was changed after it was written");
  whole_ += static_cast<std::int64_t>(line_.size()) + 1;
  return row;
}

std::int64_t read_lines(const std::string& path, const LineFormat& format,
                        const std::function<void(const Cells&)>& visit) {
  LineReader reader(path, format);
  while (const auto row = reader.next_row()) visit(*row);
  return reader.whole();
}

void LineOutput::previous(const std::function<void(const Cells&)>& visit) {
  const std::int64_t whole = read_lines(path_, format_, visit);
  if (::ftruncate(file_, whole) != 0) throw SystemError::from_errno("write", path_);
  size_ = ::lseek(file_, whole, SEEK_SET);
  if (whole == 0) write(format_.header());
}

void LineOutput::replace(const std::vector<Cells>& rows) {
  flush();
  Lines in(path_);
  // Takes the file's place when it is complete; a link stays one.
  ByteSink out(std::filesystem::canonical(path_).string());
  std::string line;
  if (!format_.header().empty() && in.next_line(line)) out.put(line + '\n');
  auto next = rows.begin();
  while (in.next_line(line)) {
    const auto row = format_.parse(line);
    const bool replaced = row && next != rows.end() && (*row)[0] == (*next)[0];
    out.put(replaced ? format_.line(*next++) : line + '\n');
  }
  out.close();
  open(false);
}

}  // namespace penstock
