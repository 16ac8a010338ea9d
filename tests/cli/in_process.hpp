// SPDX-License-Identifier: Apache-2.0
// A command line of penstock in this process: what it prints, and its exit code.
#pragma once

#include "cli/command_line.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock {

/// The sources, which penstock takes for where it is installed.
inline std::filesystem::path source_folder() { return std::getenv("PENSTOCK_SOURCE"); }

/// A standard stream goes to memory, for as long as this lives.
class CaughtStream {
 public:
  explicit CaughtStream(std::FILE* stream)
      : stream_(stream), own_(dup(fileno(stream))), memory_(memfd_create("caught", 0)) {
    std::fflush(stream);
    dup2(memory_, fileno(stream));
  }
  ~CaughtStream() {
    std::fflush(stream_);
    dup2(own_, fileno(stream_));
    close(own_);
    close(memory_);
  }
  CaughtStream(const CaughtStream&) = delete;
  CaughtStream& operator=(const CaughtStream&) = delete;

  std::string text() const {
    std::fflush(stream_);
    std::string all;
    std::array<char, 65536> part{};
    ssize_t count = 0;
    while ((count = pread(memory_, part.data(), part.size(), static_cast<off_t>(all.size()))) > 0)
      all.append(part.data(), static_cast<std::size_t>(count));
    return all;
  }

 private:
  std::FILE* stream_;
  int own_, memory_;
};

struct Ended {
  int code;
  std::string out, err;
};

/// `penstock WORDS...` in a folder.
inline Ended run_here(const std::vector<std::string>& words,
                      const std::filesystem::path& folder = source_folder()) {
  std::filesystem::current_path(folder);
  const CaughtStream out(stdout), err(stderr);
  const int code = run_command_line(words);
  return {code, out.text(), err.text()};
}

/// Standard output of a command that succeeds and says nothing else.
inline std::string succeeds(const std::vector<std::string>& words) {
  const Ended ended = run_here(words);
  EXPECT_EQ(ended.code, 0) << ended.err << testing::PrintToString(words);
  EXPECT_EQ(ended.err, "") << testing::PrintToString(words);
  return ended.out;
}

/// What a command says that is used wrongly; nothing of it on standard output.
inline std::string refuses(const std::vector<std::string>& words,
                           const std::filesystem::path& folder = source_folder()) {
  const Ended ended = run_here(words, folder);
  EXPECT_EQ(ended.code, 2) << ended.err << testing::PrintToString(words);
  EXPECT_EQ(ended.out, "") << testing::PrintToString(words);
  return ended.err;
}

}  // namespace penstock
