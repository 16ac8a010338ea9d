// SPDX-License-Identifier: Apache-2.0
#include "traces/byte_sink.hpp"

#include "base/error.hpp"
#include "temp_folder.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>

namespace penstock::byte_sink_test {
namespace {

std::string raw(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const SystemError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ByteSink, WritesWhatIsPutAcrossItsBuffer) {
  const TempFolder folder;
  const std::string large(std::size_t{700'000}, 'x');
  std::string expected;
  ByteSink sink(folder / "a");
  for (int i = 0; i < 3; ++i) {
    sink.put(large);
    sink.put('\n');
    sink.put_integer(i);
    expected += large + "\n" + std::to_string(i);
  }
  sink.close();
  EXPECT_EQ(raw(folder / "a"), expected);
}

TEST(ByteSink, WritesExtremeIntegers) {
  const TempFolder folder;
  ByteSink sink(folder / "a");
  sink.put_integer(std::numeric_limits<std::int64_t>::min());
  sink.put(' ');
  sink.put_integer(std::numeric_limits<std::int64_t>::max());
  sink.close();
  EXPECT_EQ(raw(folder / "a"), "-9223372036854775808 9223372036854775807");
}

TEST(ByteSink, WritesNanosecondsAsMicrosecondsWithThreeDecimals) {
  const TempFolder folder;
  ByteSink sink(folder / "a");
  for (const std::int64_t ns : {0, 1, 12, 999, 1000, 1234567, -1001}) {
    sink.put_us(ns);
    sink.put(' ');
  }
  sink.close();
  EXPECT_EQ(raw(folder / "a"), "0.000 0.001 0.012 0.999 1.000 1234.567 -1.001 ");
}

TEST(ByteSink, CompressesWhenTheNameEndsInGz) {
  const TempFolder folder;
  const std::string text(std::size_t{1'000'000}, 'y');
  write_file(folder / "a.gz", text);
  EXPECT_EQ(raw(folder / "a.gz").substr(0, 2), "\x1f\x8b");
  EXPECT_LT(raw(folder / "a.gz").size(), text.size() / 10);
  EXPECT_EQ(read_file(folder / "a.gz"), text);
}

TEST(ByteSink, LeavesNothingBehindWithoutClose) {
  const TempFolder folder;
  for (const char* name : {"a", "a.gz"}) {
    ByteSink sink(folder / name);
    sink.put("half of it");
  }
  EXPECT_EQ(folder.files(), 0u);
}

TEST(ByteSink, KeepsTheOldFileUntilTheNewOneIsComplete) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  {
    ByteSink sink(folder / "a");
    sink.put("new");
    EXPECT_EQ(raw(folder / "a"), "old");
  }
  EXPECT_EQ(raw(folder / "a"), "old") << "given up: still the old one";
  write_file(folder / "a", "new");
  EXPECT_EQ(raw(folder / "a"), "new");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(ByteSink, SaysWhichFolderIsMissing) {
  const TempFolder folder;
  const std::string path = folder / "no/such/folder/a.json";
  const std::string error = error_of([&] { write_file(path, "x"); });
  EXPECT_EQ(error, "cannot write '" + path + "': No such file or directory");
}

TEST(ByteSink, RefusesAFolderAsTheFile) {
  const TempFolder folder;
  EXPECT_EQ(error_of([&] { write_file(folder / "", "x"); }),
            "cannot write '" + (folder / "") + "': Is a directory");
}

TEST(ByteSink, ReportsAFullDisk) {
  EXPECT_EQ(error_of([] { write_file("/dev/full", "x"); }),
            "cannot write '/dev/full': No space left on device");
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST(ByteSink, ReportsAFullDiskWhenCompressing) {
  const TempFolder folder;
  const std::string path = folder / "full.gz";
  std::filesystem::create_symlink("/dev/full", path);
  EXPECT_EQ(error_of([&] { write_file(path, "x"); }),
            "cannot write '" + path + "': No space left on device");
}

TEST(ByteSink, WritesDevicesInPlace) {
  write_file("/dev/null", "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(ReadFile, NamesTheFileThatIsMissing) {
  const TempFolder folder;
  EXPECT_EQ(error_of([&] { read_file(folder / "none"); }),
            "cannot read '" + (folder / "none") + "': No such file or directory");
}

TEST(ReadFile, RefusesAFolder) {
  const TempFolder folder;
  EXPECT_EQ(error_of([&] { read_file(folder / ""); }),
            "cannot read '" + (folder / "") + "': Is a directory");
}

TEST(ReadFile, SaysThatCompressedDataIsCutShort) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += std::to_string(i * 7919);
  write_file(folder / "a.gz", text);
  const std::string whole = raw(folder / "a.gz");
  std::ofstream(folder / "b.gz", std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_EQ(error_of([&] { read_file(folder / "b.gz"); }),
            "cannot read '" + (folder / "b.gz") + "': the compressed data is damaged or cut short");
}

TEST(ByteSink, OfAKilledProcessNothingIsLeft) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  for (const char* name : {"a", "b.gz"}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ByteSink sink(folder / name);
      sink.put(std::string(std::size_t{1'000'000}, 'x'));
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  EXPECT_EQ(raw(folder / "a"), "old");
  EXPECT_EQ(folder.files(), 1U);
}

TEST(ReadFile, WhatBecomesFarLargerThanItIsIsRefused) {
  const TempFolder folder;
  const std::string zeros(std::size_t{3} << 20, '0');
  write_file(folder / "bomb.gz", zeros);
  EXPECT_EQ(read_file(folder / "bomb.gz"), zeros) << "small ones may";
  EXPECT_NE(error_of([&] {
              read_file(folder / "bomb.gz", 1 << 20);
            }).find("compressed bytes become more than "),
            std::string::npos);
  write_file(folder / "large", zeros);
  EXPECT_EQ(read_file(folder / "large", 1), zeros) << "what is not compressed is as large as it is";
}

}  // namespace
}  // namespace penstock::byte_sink_test
