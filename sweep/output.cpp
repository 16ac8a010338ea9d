// SPDX-License-Identifier: Apache-2.0
#include "sweep/output.hpp"

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "base/suggest.hpp"
#include "sweep/line_output.hpp"
#include "sweep/sqlite_output.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::string extension_of(const std::string& path) { return fs::path(path).extension().string(); }

bool is_database(const std::string& path) { return extension_of(path) == ".sqlite"; }

std::string manifest_path(const std::string& path) { return path + ".sweep"; }

void check_same(const Manifest& then, const Manifest& now, const std::string& path) {
  const auto different = differences(then, now);
  if (different.empty()) return;
  throw InputError(path, fmt::format("is of another sweep: {}; --force replaces it",
                                     fmt::join(different, "; ")));
}

/// What the user named stands first: of the file beside it nobody need know.
[[noreturn]] void fail_beside(const std::string& path, const char* what, const SystemError& error) {
  throw SystemError(fmt::format("cannot {} '{}': {}", what, path, error.what()));
}

std::string read_manifest(const std::string& path) {
  try {
    return read_back(manifest_path(path));
  } catch (const SystemError& error) {
    fail_beside(path, "continue", error);
  }
}

void write_manifest(const std::string& path, const Manifest& manifest) {
  try {
    write_file(manifest_path(path), to_json(manifest));
  } catch (const SystemError& error) {
    fail_beside(path, "write", error);
  }
}

/// A sweep that was ended before its first row leaves no more, maybe without a manifest or beside
/// that of the sweep it replaced.
bool has_no_row(const std::string& path, const std::string& header) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return !error && bytes <= header.size() && header.starts_with(read_back(path));
}

/// Continues the file's rows, when there are any.
bool resumes(const std::string& path, const Manifest& manifest, const std::string& header) {
  if (!fs::exists(path) || has_no_row(path, header)) return false;
  const std::string beside = manifest_path(path);
  if (!fs::exists(beside))
    throw InputError(path, fmt::format("is not the output of a sweep, or {} was removed; --force "
                                       "replaces it",
                                       beside));
  check_same(parse_manifest(read_manifest(path), path), manifest, path);
  return true;
}

LineFormat format_of(const std::string& path, const SweepColumns& columns) {
  const auto kind = extension_of(path) == ".csv" ? LineFormat::Kind::csv : LineFormat::Kind::json;
  return LineFormat(kind, columns.all());
}

std::unique_ptr<Output> open_lines(const std::string& path, const SweepColumns& columns,
                                   const Manifest& manifest, Existing existing) {
  const LineFormat format = format_of(path, columns);
  const bool resume = existing == Existing::resume && resumes(path, manifest, format.header());
  // The file first: what is left of it never stands beside the manifest of another sweep.
  auto output = std::make_unique<LineOutput>(path, format, resume);
  if (!resume) write_manifest(path, manifest);
  return output;
}

std::unique_ptr<Output> open_database(const std::string& path, const SweepColumns& columns,
                                      const Manifest& manifest, Existing existing) {
  const bool resume = existing == Existing::resume && fs::exists(path);
  auto output =
      open_sqlite(path, columns.all(), resume ? DatabaseAccess::resume : DatabaseAccess::create);
  const std::string then = output->manifest();
  if (resume && !then.empty()) check_same(parse_manifest(then, path), manifest, path);
  if (then.empty()) output->set_manifest(to_json(manifest));
  return output;
}

}  // namespace

void require_same_file(int file, const std::string& path) {
  struct stat held {
  }, named{};
  if (::fstat(file, &held) != 0) throw SystemError::from_errno("look at", path);
  if (!S_ISREG(held.st_mode)) return;
  const bool there = ::stat(path.c_str(), &named) == 0;
  if (there && named.st_dev == held.st_dev && named.st_ino == held.st_ino) return;
  throw LostOutput(fmt::format("'{}' was {} while this sweep wrote it; its rows are lost", path,
                               there ? "replaced" : "deleted"));
}

int open_locked(const std::string& path, int flags) {
  require_no_input(path);
  const int file = ::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) throw SystemError::from_errno("write", path);
  if (::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return file;
  ::close(file);
  throw SystemError(fmt::format("cannot write '{}': another sweep is writing it", path));
}

void check_extension(const std::string& path) {
  const std::string extension = extension_of(path);
  const std::vector<std::string> known{".csv", ".jsonl", ".sqlite"};
  for (const std::string& one : known)
    if (extension == one) return;
  throw InputError("-o " + path,
                   fmt::format("a sweep is written to a file that ends in {}{}",
                               fmt::join(known, ", "), did_you_mean(extension, known)));
}

std::unique_ptr<Output> open_output(const std::string& path, const SweepColumns& columns,
                                    const Manifest& manifest, Existing existing) {
  check_extension(path);
  if (!is_database(path)) require_no_input(manifest_path(path));
  if (existing == Existing::refuse && fs::exists(path))
    throw InputError("-o " + path,
                     "is there already; --resume continues that sweep, --force "
                     "replaces it");
  return is_database(path) ? open_database(path, columns, manifest, existing)
                           : open_lines(path, columns, manifest, existing);
}

Manifest manifest_of_file(const std::string& path) {
  if (!fs::exists(path)) throw InputError(path, "cannot be read: there is no such file");
  if (is_database(path))
    return parse_manifest(open_sqlite(path, {}, DatabaseAccess::read)->manifest(), path);
  if (!fs::exists(manifest_path(path)))
    throw InputError(
        path, fmt::format("is not the output of a sweep, or {} was removed", manifest_path(path)));
  return parse_manifest(read_manifest(path), path);
}

NextRow read_rows(const std::string& path, const SweepColumns& columns) {
  if (!is_database(path)) {
    return [rows = std::make_shared<LineReader>(path, format_of(path, columns))] {
      return rows->next_row();
    };
  }
  return [rows = std::shared_ptr<DatabaseOutput>(
              open_sqlite(path, columns.all(), DatabaseAccess::read))] { return rows->next_row(); };
}

void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::unique_ptr<Output> standard_output(const std::string& format, const SweepColumns& columns) {
  const auto kind = format == "csv" ? LineFormat::Kind::csv : LineFormat::Kind::json;
  return std::make_unique<LineOutput>("-", LineFormat(kind, columns.all()), false);
}

std::unique_ptr<Output> no_output() {
  class NoOutput : public Output {
   public:
    void previous(const std::function<void(const Cells&)>&) override {}
    void put(const Cells&) override {}
    void flush_if_due() override {}
    void replace(const std::vector<Cells>&) override {}
    void flush() override {}
  };
  return std::make_unique<NoOutput>();
}

}  // namespace penstock
