// SPDX-License-Identifier: Apache-2.0
#include "scenarios/job_cluster.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "scenarios/document.hpp"
#include "scenarios/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace penstock {
namespace {

constexpr const char* kFlag = "--cluster";
constexpr const char* kUsual = "dgx-h100";
constexpr std::int64_t kLargestServer = 16;  // GPUs; what has more is a rack

bool is_file(const std::string& name) {  // "p3.16xlarge" is none
  return name.find('/') != name.npos || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.ends_with(".json");
}

/// Returns a cluster of nodes that have so many GPUs, each with its share of NICs; nothing where
/// there are none: wiring that names GPUs, NICs that do not divide, a map that says such keys.
std::optional<std::string> with_fewer(const std::string& begin, const std::string& name,
                                      std::int64_t each, std::int64_t nodes) {
  const Cluster cluster = load_cluster(name, kFlag);
  const std::int64_t nics = cluster.nics_per_node * each;
  if (nics % cluster.devices_per_node != 0) return std::nullopt;
  for (const char* pcie : {"", ", pcie: {devices_per_switch: 1}", ", pcie: {sockets: 1}",
                           ", pcie: {devices_per_switch: 1, sockets: 1}"}) {
    const std::string text =
        fmt::format("{}, nodes: {}, devices_per_node: {}, inter: {{nics: {}}}{}}}", begin, nodes,
                    each, nics / cluster.devices_per_node, pcie);
    try {
      load_cluster(text, kFlag);
      return text;
    } catch (const InputError&) {  // the next one, or none
    }
  }
  return std::nullopt;
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
  const std::string name = given_.empty() ? usual : given_;
  const std::int64_t whole = std::max(1, load_cluster(name, kFlag).devices_per_node);
  const std::int64_t each = per_node.value_or(whole);
  const std::int64_t nodes = (gpus + whole - 1) / whole;
  // A rack is one node, of which a job has trays.
  if (each < whole && gpus > each && whole <= kLargestServer) {
    if (const auto smaller = with_fewer(begin, name, each, (gpus + each - 1) / each))
      return *smaller;
    notes.assume(fmt::format(
        "cluster: whole nodes of {} GPUs, though the job has {} of each: what more than "
        "{} GPUs exchange is predicted within a node",
        whole, each, each));
  }
  return fmt::format("{}, nodes: {}}}", begin, nodes);
}

}  // namespace penstock
