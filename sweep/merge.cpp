// SPDX-License-Identifier: Apache-2.0
#include "sweep/merge.hpp"

#include "base/error.hpp"
#include "scenarios/document.hpp"
#include "sweep/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace penstock {
namespace {

struct ShardFile {
  std::string path;
  Manifest manifest;
  Shard shard;
};

ShardFile shard_file(const std::string& path) {
  check_extension(path);
  ShardFile file{path, manifest_of_file(path), {}};
  try {
    file.shard = parse_shard(file.manifest.shard);
  } catch (const InputError&) {
    throw InputError(path, fmt::format("does not say which shard it is, but '{}'",
                                       printable(file.manifest.shard)));
  }
  return file;
}

/// A wrong file, and what is wrong with it.
void add_wrong(std::vector<Diagnostic>& wrong, const std::string& path, std::string what) {
  Diagnostic diagnostic;
  diagnostic.where.origin = path;
  diagnostic.message = std::move(what);
  wrong.push_back(std::move(diagnostic));
}

void check_same_sweep(const std::vector<ShardFile>& files) {
  std::vector<Diagnostic> wrong;
  const ShardFile& first = files.front();
  for (const ShardFile& file : files) {
    Manifest manifest = file.manifest;
    manifest.shard = first.manifest.shard;
    const auto different = differences(first.manifest, manifest);
    if (!different.empty())
      add_wrong(
          wrong, file.path,
          fmt::format("is of another sweep than {}: {}", first.path, fmt::join(different, "; ")));
    else if (file.shard.count != first.shard.count)
      add_wrong(wrong, file.path,
                fmt::format("is one of {} shards, {} one of {}", file.shard.count, first.path,
                            first.shard.count));
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
}

/// In the order of their shards: each is there once.
std::vector<ShardFile> all_shards(std::vector<ShardFile> files) {
  std::ranges::stable_sort(files, {}, [](const ShardFile& file) { return file.shard.index; });
  std::vector<Diagnostic> wrong;
  std::vector<std::string> missing;
  const std::uint64_t count = files.front().shard.count;
  auto at = files.begin();
  for (std::uint64_t index = 0; index < count; ++index) {
    if (at == files.end() || at->shard.index != index) {
      missing.push_back(to_string(Shard{index, count}));
      continue;
    }
    for (const ShardFile& first = *at++; at != files.end() && at->shard.index == index; ++at)
      add_wrong(wrong, at->path,
                fmt::format("is shard {}, as {} is", to_string(first.shard), first.path));
  }
  constexpr std::size_t kShown = 10;
  const std::size_t shown = std::min(missing.size(), kShown);
  if (!missing.empty())
    add_wrong(
        wrong, "penstock merge",
        fmt::format(
            "no file has shard{} {}{}", missing.size() == 1 ? "" : "s",
            fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
            missing.size() > shown ? fmt::format(" and {} more", missing.size() - shown) : ""));
  if (!wrong.empty()) throw InputError(std::move(wrong));
  return files;
}

/// The rows of one shard, which must be as many as it has points.
class ShardRows {
 public:
  ShardRows(const ShardFile& file, const SweepColumns& columns)
      : path_(file.path), next_(read_rows(file.path, columns)) {
    expected_ = file.shard.part_of(file.manifest.points);
  }

  Cells next_row() {
    auto row = next_();
    if (!row)
      throw InputError(path_,
                       fmt::format("has {} of its {} rows: its sweep has not ended; the same "
                                   "command with --resume continues it",
                                   read_, expected_));
    ++read_;
    return std::move(*row);
  }
  void expect_end() {
    if (next_())
      throw InputError(path_, fmt::format("has more than its {} rows: it was edited", expected_));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  NextRow next_;
  std::uint64_t expected_ = 0, read_ = 0;
};

std::uint64_t point_of(const Cells& row) {
  std::uint64_t point = 0;
  std::from_chars(row[0].data(), row[0].data() + row[0].size(), point);
  return point;
}

Merged visit_rows(const std::vector<ShardFile>& files, const SweepColumns& columns,
                  const std::function<void(const Cells&)>& visit) {
  std::vector<std::unique_ptr<ShardRows>> shards;
  for (const ShardFile& file : files) shards.push_back(std::make_unique<ShardRows>(file, columns));
  const std::size_t status = columns.at("status");
  Merged merged;
  std::optional<std::uint64_t> last;
  for (; merged.rows < files.front().manifest.points; ++merged.rows) {
    ShardRows& shard = *shards[Shard::of_ordinal(merged.rows, shards.size())];
    const Cells row = shard.next_row();
    const std::uint64_t point = point_of(row);
    if (last && point <= *last)
      throw InputError(shard.path(), fmt::format("the row of point {} stands where one behind {} "
                                                 "belongs: the file was sorted or edited",
                                                 row[0], *last));
    last = point;
    merged.failed += row[status] == kFailed;
    visit(row);
  }
  for (const auto& shard : shards) shard->expect_end();
  return merged;
}

void check_output(const std::vector<std::string>& files, const std::string& output,
                  Existing existing) {
  check_extension(output);
  if (existing == Existing::refuse && std::filesystem::exists(output))
    throw InputError("-o " + output, "is there already; --force replaces it");
  for (const std::string& file : files) {
    std::error_code ignored;
    if (std::filesystem::equivalent(file, output, ignored))
      throw InputError("-o " + output, "is one of the shards");
  }
}

}  // namespace

Merged merge_shards(const std::vector<std::string>& files, const std::string& output,
                    Existing existing) {
  check_output(files, output, existing);
  allow_many_files();
  std::vector<ShardFile> shards;
  for (const std::string& file : files) shards.push_back(shard_file(file));
  check_same_sweep(shards);
  shards = all_shards(std::move(shards));
  Manifest whole = shards.front().manifest;
  whole.shard = to_string(Shard{});
  const SweepColumns columns(whole.axes);
  visit_rows(shards, columns, [](const Cells&) {});
  const auto out = open_output(output, columns, whole, existing);
  const Merged merged = visit_rows(shards, columns, [&](const Cells& row) { out->put(row); });
  out->flush();
  return merged;
}

}  // namespace penstock
