#include "sweep/line_output.hpp"

#include "base/error.hpp"
#include "traces/byte_sink.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 16;
constexpr std::chrono::seconds kLongest{1};  // that rows wait in memory

/// Reads line by line; a last one without its line feed is none.
bool next_line(std::ifstream& in, std::string& line) {
  return static_cast<bool>(std::getline(in, line)) && !in.eof();
}

}  // namespace

LineOutput::LineOutput(std::string path, const LineFormat& format, bool resume)
    : path_(std::move(path)), format_(format) {
  if (std::filesystem::is_symlink(path_)) path_ = std::filesystem::canonical(path_).string();
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
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw SystemError::from_errno("write", path_);
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw SystemError(fmt::format("cannot write '{}': another sweep is writing it", path_));
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

void LineOutput::flush() {
  flushed_ = Clock::now();
  const std::string text = std::move(pending_);
  pending_.clear();
  write(text);
}

void LineOutput::previous(const std::function<void(const Cells&)>& visit) {
  std::ifstream in(path_, std::ios::binary);
  if (!in) throw SystemError::from_errno("read", path_);
  std::string line;
  std::int64_t whole = 0;
  const std::string header = format_.header();
  if (!header.empty() && next_line(in, line)) {
    if (line + '\n' != header)
      throw InputError(path_, "has other columns than this sweep; --force replaces it");
    whole = static_cast<std::int64_t>(header.size());
  }
  for (std::int64_t number = header.empty() ? 1 : 2; next_line(in, line); ++number) {
    const auto row = format_.parse(line);
    if (!row) throw InputError(fmt::format("{}:{}", path_, number), "is no row of this sweep");
    visit(*row);
    whole += static_cast<std::int64_t>(line.size()) + 1;
  }
  if (::ftruncate(file_, whole) != 0) throw SystemError::from_errno("write", path_);
  size_ = ::lseek(file_, whole, SEEK_SET);
  if (whole == 0) write(header);
}

void LineOutput::replace(const std::vector<Cells>& rows) {
  flush();
  std::ifstream in(path_, std::ios::binary);
  ByteSink out(path_);  // takes the file's place when it is complete
  std::string line;
  if (!format_.header().empty() && next_line(in, line)) out.put(line + '\n');
  auto next = rows.begin();
  while (next_line(in, line)) {
    const auto row = format_.parse(line);
    const bool replaced = row && next != rows.end() && (*row)[0] == (*next)[0];
    out.put(replaced ? format_.line(*next++) : line + '\n');
  }
  out.close();
  open(false);
}

}  // namespace penstock
