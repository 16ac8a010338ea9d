// SPDX-License-Identifier: Apache-2.0
#include "traces/byte_sink.hpp"

#include "base/error.hpp"
#include "base/output_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <new>

namespace penstock {

struct ByteSink::File {
  std::string path, temporary;
  int descriptor = -1;
  gzFile gz = nullptr;
  bool keep = false;      // standard output or a device: written in place
  bool nameless = false;  // until `close` gives it the temporary name

  ~File() {
    if (gz != nullptr) gzclose(gz);
    if (gz == nullptr && descriptor > STDERR_FILENO) ::close(descriptor);
    if (!keep && !nameless) ::unlink(temporary.c_str());
  }

  bool open_nameless() {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    return nameless = descriptor > STDERR_FILENO;
  }
  void open(int flags) {
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  }
  /// Of what is complete and still open: its own name where there is no file yet, else the
  /// temporary one. False: errno says why.
  bool name() {
    const std::string open_file = "/proc/self/fd/" + std::to_string(descriptor);
    const auto link = [&](const std::string& to) {
      return ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    nameless = false;
    if (link(path)) return keep = true;
    ::unlink(temporary.c_str());
    nameless = !link(temporary);
    return !nameless;
  }
};

namespace {

/// No signal but SIGKILL ends this thread's work in between: a file with two names would stay.
class Undisturbed {
 public:
  Undisturbed() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~Undisturbed() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  sigset_t before_{};
};

/// Pipes and devices are written in place; everything else through a temporary file.
bool in_place(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

}  // namespace

ByteSink::ByteSink(const std::string& path) : file_(std::make_unique<File>()) {
  if (path != "-") require_no_input(path);
  file_->path = path == "-" ? "standard output" : path;
  file_->keep = path == "-" || in_place(path);
  file_->temporary = file_->keep ? path : path + ".part" + std::to_string(::getpid());
  if (path == "-") {
    file_->descriptor = STDOUT_FILENO;
  } else if (file_->keep) {
    file_->open(O_TRUNC);
  } else if (!file_->open_nameless()) {
    // What another process left under that name, or planted there, is not written to.
    ::unlink(file_->temporary.c_str());
    file_->open(O_EXCL | O_NOFOLLOW);
  }
  if (file_->descriptor < 0) {
    const int why = errno;
    file_->keep = true;
    errno = why;
    throw SystemError::from_errno("write", path);
  }
  if (path.ends_with(".gz")) {
    file_->gz = gzdopen(file_->nameless ? ::dup(file_->descriptor) : file_->descriptor, "wb1");
    if (file_->gz == nullptr) throw SystemError("cannot compress '" + path + "': out of memory");
    gzbuffer(file_->gz, kSize);
  }
}

ByteSink::~ByteSink() = default;

void ByteSink::put_large(std::string_view text) {
  while (!text.empty()) {
    if (used_ == kSize) flush();
    const std::size_t part = std::min(kSize - used_, text.size());
    std::memcpy(buffer_.get() + used_, text.data(), part);
    used_ += part;
    text.remove_prefix(part);
  }
}

void ByteSink::put_integer(std::int64_t value) {
  if (used_ + 24 > kSize) flush();
  char* const at = buffer_.get() + used_;
  used_ += static_cast<std::size_t>(std::to_chars(at, at + 24, value).ptr - at);
}

void ByteSink::put_us(std::int64_t ns) {
  if (ns < 0) {
    put('-');
    ns = -ns;
  }
  put_integer(ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                         static_cast<char>('0' + rest / 10 % 10),
                         static_cast<char>('0' + rest % 10)};
  put(std::string_view(digits, 4));
}

void ByteSink::flush() {
  std::size_t done = 0;
  while (done < used_) {
    const std::size_t left = used_ - done;
    const auto wrote = file_->gz != nullptr
                           ? static_cast<ssize_t>(gzwrite(file_->gz, buffer_.get() + done,
                                                          static_cast<unsigned>(left)))
                           : ::write(file_->descriptor, buffer_.get() + done, left);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) throw SystemError::from_errno("write", file_->path);
    done += static_cast<std::size_t>(wrote);
  }
  used_ = 0;
}

void ByteSink::close() {
  flush();
  if (file_->gz != nullptr) {
    gzFile gz = file_->gz;
    file_->gz = nullptr;
    if (!file_->nameless) file_->descriptor = -1;
    if (gzclose(gz) != Z_OK) throw SystemError::from_errno("write", file_->path);
  }
  const Undisturbed undisturbed;
  if (file_->nameless && !file_->name()) throw SystemError::from_errno("write", file_->path);
  if (file_->descriptor > STDERR_FILENO) {
    const int descriptor = file_->descriptor;
    file_->descriptor = -1;
    if (::close(descriptor) != 0) throw SystemError::from_errno("write", file_->path);
  }
  if (file_->keep) return;
  if (::rename(file_->temporary.c_str(), file_->path.c_str()) != 0) {
    throw SystemError::from_errno("write", file_->path);
  }
  file_->keep = true;
}

std::string read_file(const std::string& path, std::int64_t least_limit) {
  note_input(path);
  return read_back(path, least_limit);
}

std::string read_back(const std::string& path, std::int64_t least_limit) {
  constexpr std::int64_t kMostRatio = 100;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw SystemError::from_errno("read", path);
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    throw SystemError::from_errno("read", path);
  }
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) throw SystemError::from_errno("read", path);
  std::string content;
  std::string part(std::size_t{1} << 18, '\0');
  int count = 0;
  while ((count = gzread(file.get(), part.data(), static_cast<unsigned>(part.size()))) > 0) {
    content.append(part.data(), static_cast<std::size_t>(count));
    const auto most = std::max(least_limit, kMostRatio * static_cast<std::int64_t>(info.st_size));
    if (S_ISREG(info.st_mode) && static_cast<std::int64_t>(content.size()) > most) {
      throw SystemError("cannot read '" + path + "': " + std::to_string(info.st_size) +
                        " compressed bytes become more than " + std::to_string(most));
    }
  }
  const int error = errno;
  int problem = Z_OK;
  if (count < 0) gzerror(file.get(), &problem);
  if (count == 0) problem = gzclose(file.release());
  if (problem == Z_ERRNO) {
    if (count < 0) errno = error;
    throw SystemError::from_errno("read", path);
  }
  if (problem == Z_MEM_ERROR) throw std::bad_alloc();
  if (problem != Z_OK)
    throw SystemError("cannot read '" + path + "': the compressed data is damaged or cut short");
  return content;
}

void write_file(const std::string& path, std::string_view content) {
  ByteSink sink(path);
  sink.put(content);
  sink.close();
}

void write_files(const std::vector<std::pair<std::string, std::string_view>>& files) {
  std::vector<std::unique_ptr<ByteSink>> sinks;
  for (const auto& [path, content] : files)
    sinks.emplace_back(std::make_unique<ByteSink>(path))->put(content);
  std::size_t closed = 0;
  try {
    for (; closed < sinks.size(); ++closed) sinks[closed]->close();
  } catch (...) {
    while (closed > 0) ::unlink(files[--closed].first.c_str());
    throw;
  }
}

}  // namespace penstock
