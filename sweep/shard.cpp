// SPDX-License-Identifier: Apache-2.0
#include "sweep/shard.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <charconv>

namespace penstock {
namespace {

/// The last step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every bit depends on all.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111eb;
  return x ^ (x >> 31U);
}

constexpr std::uint64_t kMostShards = 1'000'000;

std::optional<Shard> shard_of_array(const Environment& get) {
  const auto id = get("SLURM_ARRAY_TASK_ID");
  if (!id) return std::nullopt;
  const auto number = [&](const char* name, int least) {
    const auto text = get(name);
    if (!text) throw InputError(name, "is not set, but SLURM_ARRAY_TASK_ID is");
    return integer_variable(name, *text, least, static_cast<int>(kMostShards) * 1000);
  };
  const int count = number("SLURM_ARRAY_TASK_COUNT", 1), least = number("SLURM_ARRAY_TASK_MIN", 0),
            most = number("SLURM_ARRAY_TASK_MAX", least),
            step = get("SLURM_ARRAY_TASK_STEP") ? number("SLURM_ARRAY_TASK_STEP", 1) : 1,
            task = integer_variable("SLURM_ARRAY_TASK_ID", *id, least, most);
  if ((most - least) / step + 1 != count || (task - least) % step != 0)
    throw InputError(
        "--shard env",
        fmt::format("the array's {} tasks from {} to {} have gaps, so that nothing says "
                    "which of all shards this is; give --shard K/N",
                    count, least, most));
  return Shard{static_cast<std::uint64_t>((task - least) / step),
               static_cast<std::uint64_t>(count)};
}

}  // namespace

std::uint64_t Shard::of_ordinal(std::uint64_t ordinal, std::uint64_t count) {
  return (ordinal % count + mixed(ordinal / count) % count) % count;
}

std::uint64_t Shard::part_of(std::uint64_t points) const {
  std::uint64_t part = points / count;
  for (std::uint64_t ordinal = part * count; ordinal < points; ++ordinal)
    if (of_ordinal(ordinal, count) == index) return part + 1;
  return part;
}

Shard parse_shard(const std::string& text, const Environment& get) {
  if (text == "env") return shard_of_environment(get);
  std::uint64_t number = 0;
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, number);
  const bool divided = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = divided ? std::from_chars(first.ptr + 1, end, shard.count) : first;
  if (!divided || second.ec != std::errc() || second.ptr != end || number < 1 ||
      number > shard.count || shard.count > kMostShards)
    throw InputError("--shard " + text,
                     "expected K/N with K from 1 to N, such as 1/8, or env: what the job array or "
                     "the launcher says");
  shard.index = number - 1;
  return shard;
}

std::string to_string(const Shard& shard) {
  return fmt::format("{}/{}", shard.index + 1, shard.count);
}

std::optional<LaunchedAs> rank_of_many(const Environment& get) {
  const auto one = launched_as([&](const std::string& name) -> std::optional<std::string> {
    if (name.starts_with("SLURM_") && !get("SLURM_STEP_ID")) return std::nullopt;
    return get(name);
  });
  return one && one->size > 1 ? one : std::nullopt;
}

Shard shard_of_environment(const Environment& get) {
  const auto array = shard_of_array(get);
  const auto rank = rank_of_many(get);
  if (!array && !rank && !launched_as(get))
    throw InputError("--shard env",
                     "the environment names neither the task of a job array nor the rank of a "
                     "launcher (SLURM_ARRAY_TASK_ID; SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK, "
                     "RANK with their sizes); give --shard K/N");
  Shard shard = array.value_or(Shard{});
  if (rank) {
    shard.index = shard.index * static_cast<std::uint64_t>(rank->size) +
                  static_cast<std::uint64_t>(rank->rank);
    shard.count *= static_cast<std::uint64_t>(rank->size);
  }
  return shard;
}

std::string file_of_shard(std::string name, const Shard& shard) {
  for (std::size_t at = 0; (at = name.find('%', at)) != std::string::npos;) {
    const char what = at + 1 < name.size() ? name[at + 1] : '\0';
    const std::string number = what == 'K'   ? std::to_string(shard.index + 1)
                               : what == 'N' ? std::to_string(shard.count)
                                             : "";
    if (!number.empty()) name.replace(at, 2, number);
    at += number.empty() ? 1 : number.size();
  }
  return name;
}

}  // namespace penstock
