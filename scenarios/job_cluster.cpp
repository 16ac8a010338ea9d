// SPDX-License-Identifier: Apache-2.0
#include "scenarios/job_cluster.hpp"

#include "base/suggest.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr const char* kFlag = "--cluster";
constexpr const char* kUsual = "dgx-h100";

bool is_file(const std::string& name) {  // "p3.16xlarge" is none
  return name.find('/') != name.npos || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.ends_with(".json");
}

bool counts_nodes(const std::string& map) {
  const Value document = parse_document(map, kFlag);
  for (const char* key : {"nodes", "devices", "groups"})
    if (document.find(key) != nullptr) return true;
  return false;
}

}  // namespace

JobCluster::JobCluster(const std::string& given) : given_(given) {
  if (given.empty()) return;
  const Cluster cluster = load_cluster(given, kFlag);
  const bool map = given.starts_with('{');
  whole_ = map ? counts_nodes(given) : is_file(given);
  if (whole_ && (map || cluster.nodes > 1)) gpus_ = cluster.devices();
}

std::string JobCluster::text(ImportNotes& notes, std::int64_t gpus,
                             std::optional<std::int64_t> per_node) const {
  if (whole_) return given_;
  const std::string named = notes.word("gpu-model", "cluster");
  std::string usual = kUsual;
  for (const char* cluster : {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300"})
    if ("dgx-" + lower_case(named) == cluster) usual = cluster;
  if (!named.empty() && (!given_.empty() || usual != "dgx-" + lower_case(named)))
    notes.unmodelled("gpu-model", "the cluster is what --cluster NAME says, or nodes of 8 H100");
  if (given_.empty() && (named.empty() || usual == kUsual))
    notes.assume("cluster: nodes of 8 H100 (--cluster NAME: others)");
  else if (given_.empty())
    notes.assume(fmt::format("cluster: {}, by the GPU's name (--cluster NAME: others)", usual));
  const std::string begin = given_.starts_with('{') ? given_.substr(0, given_.rfind('}'))
                                                    : "{base: " + (given_.empty() ? usual : given_);
  const Cluster cluster = load_cluster(given_.empty() ? usual : given_, kFlag);
  const std::int64_t whole = std::max(1, cluster.devices_per_node);
  const std::int64_t each = std::clamp<std::int64_t>(per_node.value_or(whole), 1, whole);
  const std::int64_t nodes = (gpus + each - 1) / each;
  std::string size;
  if (each != whole && nodes > 1 && begin.find("devices_per_node") == begin.npos) {
    const std::int64_t nics = std::max<std::int64_t>(1, cluster.nics_per_node * each / whole);
    size = fmt::format(", devices_per_node: {}, inter: {{nics: {}}}", each,
                       each % nics == 0 ? nics : 1);
    if (each < 2 && cluster.pcie) size += ", pcie: {devices_per_switch: 1}";
  }
  return fmt::format("{}, nodes: {}{}}}", begin, nodes, size);
}

}  // namespace penstock
