// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "scenarios/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock {
namespace {

/// The capacity of an abstract device; of a real one its memory, with what it reserves.
void replace_memory(const Section& cluster, std::int64_t bytes, DeviceSpec& device) {
  device.memory_bytes = bytes;
  if (bytes == 0) {
    cluster.refuse("memory", "'memory' must be more than 0");
  } else if (device.reserved_bytes >= bytes) {
    cluster.refuse("memory",
                   fmt::format("'memory' must be more than the {} that the device reserves",
                               format_bytes(static_cast<double>(device.reserved_bytes))));
  }
}

DeviceSpec read_device(const Section& device) {
  DeviceSpec d;
  d.name = device.text("name").value_or("inline device");
  d.memory_bytes = std::llround(device.number("memory").value_or(0));
  d.reserved_bytes = std::llround(device.number("reserved").value_or(0));
  d.allocator_slack = device.number("allocator_slack").value_or(0);
  d.memory_bytes_per_s = device.number("memory_bandwidth").value_or(0);
  d.memory_efficiency = std::max(0.01, device.number("memory_efficiency").value_or(0.8));
  d.launch_s = device.number("launch").value_or(0);
  d.matrix_efficiency = device.number("matrix_efficiency").value_or(0);
  d.attention_efficiency = device.number("attention_efficiency").value_or(0);
  d.kernels = device.text("kernels").value_or("");
  const std::vector<std::string> known =
      d.kernels.empty() ? std::vector<std::string>() : kernel_files();
  if (!d.kernels.empty() && !is_kernel_path(d.kernels) &&
      std::ranges::find(known, d.kernels) == known.end())
    device.refuse("kernels", fmt::format("there are no kernel times of '{}'{}",
                                         printable(d.kernels), did_you_mean(d.kernels, known)));
  d.efficiency_assumed = device.choice("efficiency_source").value_or(0) == 1;
  const auto curve = device.list("efficiency").value_or(std::vector<double>{});
  for (std::size_t i = 0; i + 1 < curve.size(); i += 2)
    d.efficiency.push_back({curve[i], curve[i + 1]});
  for (const std::string& type : split_choices(find_key("device", "peak")->choices)) {
    if (const auto rate = device.number(type)) d.peak_flops_per_s[type] = *rate;
  }
  const Section shares(device, "product_share");
  for (const std::string& type : keys_of("product_share")) {
    if (const auto share = shares.number(type); share && *share > 0) d.product_share[type] = *share;
  }
  if (device.number("memory") && d.memory_bytes == 0)
    device.refuse("memory", "'memory' must be more than 0");
  if (d.allocator_slack >= 1)
    device.refuse("allocator_slack", "'allocator_slack' must be below 100%");
  if (d.memory_bytes > 0 && d.reserved_bytes >= d.memory_bytes)
    device.refuse("reserved", "'reserved' leaves nothing of the device's memory");
  return d;
}

class NodeReader {
 public:
  NodeReader(const Section& section, const NodeSpec& start) : section_(section), node_(start) {}

  NodeSpec read(Library& library) {
    read_device_keys(section_, library, node_.device);
    read_count();
    read_intra();
    read_inter();
    if (section_.has("mesh") && !section_.broken("mesh")) read_mesh();
    if (section_.has("pcie") && !section_.broken("pcie")) read_pcie();
    check_use();
    return node_;
  }

 private:
  void read_count() {
    const bool in_groups = section_.has("groups");  // each of which may say it
    if (!section_.has("devices_per_node") && node_.devices_per_node == 0 && !in_groups)
      section_.refuse("the cluster needs 'devices_per_node'");
    node_.devices_per_node =
        static_cast<int>(section_.integer("devices_per_node").value_or(node_.devices_per_node));
    if (node_.devices_per_node == 0 && !in_groups) node_.devices_per_node = 1;
  }

  void read_intra() {
    std::optional<Section> intra;
    if (section_.has("intra")) node_.intra = read_link(section_, "intra", node_.intra, intra);
    refuse_keys(intra, {"nics", "nics_at"}, "intra");
    if (intra && intra->choice("attachment"))
      node_.attachment = static_cast<Attachment>(*intra->choice("attachment"));
    for (const char* key : {"bandwidth", "latency", "duplex", "sharing"}) {
      if (intra && intra->has(key) && node_.attachment == Attachment::pcie)
        intra->refuse(key, fmt::format("'{}' has no meaning for 'attachment: pcie'; "
                                       "give it in pcie.link",
                                       key));
    }
  }

  void read_inter() {
    std::optional<Section> inter;
    if (section_.has("inter")) node_.inter = read_link(section_, "inter", node_.inter, inter);
    refuse_keys(inter, {"attachment"}, "inter");
    if (inter) {
      node_.nics_per_node = static_cast<int>(inter->integer("nics").value_or(node_.nics_per_node));
      node_.nic_place = static_cast<NicPlace>(
          inter->choice("nics_at").value_or(static_cast<int>(node_.nic_place)));
    }
    if (node_.devices_per_node == 0 || node_.devices_per_node % node_.nics_per_node == 0) return;
    section_.diagnostics().add_error(inter ? inter->at("nics") : section_.at("devices_per_node"),
                                     fmt::format("{} NICs cannot be shared evenly by {} devices",
                                                 node_.nics_per_node, node_.devices_per_node));
    node_.nics_per_node = 1;
  }

  void read_mesh() {
    node_.mesh.clear();
    for (const Value& item : section_.at("mesh").items) {
      if (item.kind != Value::Kind::map) continue;  // refused already
      const Section link(item, "mesh", section_.diagnostics());
      if (!link.has("between"))
        section_.diagnostics().add_error(item, "the entry of the mesh needs 'between'");
      if (!link.has("between") || link.broken("between")) continue;
      const Value& ends = link.at("between");
      const MeshLink found{gpu(ends.items[0]), gpu(ends.items[1]),
                           static_cast<int>(link.integer("links").value_or(1))};
      if (found.from >= 0 && found.to >= 0 && is_new(ends, found)) node_.mesh.push_back(found);
    }
    if (node_.attachment != Attachment::mesh)
      section_.refuse("mesh", "'mesh' needs intra: {attachment: mesh, ...}");
  }

  /// -1 when it is none.
  int gpu(const Value& word) {
    const int number = number_below(node_.devices_per_node, word.text);
    if (number >= 0) return number;
    section_.diagnostics().add_error(
        word, fmt::format("'{}' is not a GPU of a node (0 to {})", printable(word.text),
                          node_.devices_per_node - 1));
    return -1;
  }

  bool is_new(const Value& where, const MeshLink& link) {
    if (link.from == link.to) {
      section_.diagnostics().add_error(where, fmt::format("joins GPU {} with itself", link.from));
      return false;
    }
    const bool known = std::ranges::any_of(node_.mesh, [&](const MeshLink& other) {
      return std::minmax(other.from, other.to) == std::minmax(link.from, link.to);
    });
    if (known) {
      section_.diagnostics().add_error(
          where, fmt::format("GPUs {} and {} are joined already; several NVLinks are "
                             "one entry with 'links'",
                             link.from, link.to));
    }
    return !known;
  }

  void read_pcie() {
    const Section pcie(section_, "pcie");
    PcieTree tree;
    tree.devices_per_switch = static_cast<int>(
        pcie.integer("devices_per_switch").value_or(std::max(1, node_.devices_per_node)));
    tree.sockets = static_cast<int>(pcie.integer("sockets").value_or(1));
    tree.link = read_plain_link(pcie, "link", {});
    tree.uplink = read_plain_link(pcie, "uplink", {});
    tree.host = read_plain_link(pcie, "host", {});
    const int switches = (node_.devices_per_node - 1) / tree.devices_per_switch + 1;
    if (tree.sockets > switches && !pcie.broken("sockets") && !pcie.broken("devices_per_switch")) {
      pcie.refuse("sockets", fmt::format("'sockets' must be at most {}, the number of PCIe "
                                         "switches",
                                         switches));
    }
    if (pcie.has("host") && tree.sockets == 1)
      pcie.refuse("host", "'host' joins sockets, and there is one; give 'sockets'");
    node_.pcie = tree;
  }

  /// Is what is needed there, and what is there needed?
  void check_use() {
    if (section_.broken("intra") || section_.broken("mesh") || section_.broken("pcie")) return;
    const bool intra = node_.attachment == Attachment::pcie;
    const bool nics = node_.nic_place != NicPlace::direct;
    const bool mesh = node_.attachment == Attachment::mesh;
    const Value& attached = section_.at("intra");
    if (intra && !node_.pcie)
      section_.diagnostics().add_error(attached, "'attachment: pcie' needs 'pcie'");
    if (nics && !node_.pcie) section_.refuse("inter", "'nics_at' other than direct needs 'pcie'");
    if (!mesh) return;
    if (node_.mesh.empty() && !section_.has("mesh"))
      return section_.diagnostics().add_error(attached, "'attachment: mesh' needs 'mesh'");
    if (const auto gap = unjoined_in_mesh(node_)) {
      section_.refuse("mesh",
                      fmt::format("GPUs {} and {} have no link, and there is no 'pcie' for them",
                                  gap->first, gap->second));
    }
  }

  const Section& section_;
  NodeSpec node_;
};

}  // namespace

int number_below(int limit, const std::string& word) {
  const int number = parse_number<int>(word).value_or(-1);
  return number < limit ? std::max(number, -1) : -1;
}

LinkSpec read_wire(const Section& section, LinkSpec link) {
  link.bytes_per_s = section.number("bandwidth").value_or(link.bytes_per_s);
  link.latency_s = section.number("latency").value_or(link.latency_s);
  link.full_duplex = section.choice("duplex").value_or(link.full_duplex ? 0 : 1) == 0;
  link.fifo = section.choice("sharing").value_or(link.fifo ? 1 : 0) == 1;
  return link;
}

LinkSpec read_link(const Section& parent, const std::string& key, const LinkSpec& start,
                   std::optional<Section>& section) {
  if (parent.at(key).kind == Value::Kind::scalar) {
    LinkSpec link = start;
    link.bytes_per_s = parent.number(key).value_or(link.bytes_per_s);
    return link;
  }
  section.emplace(parent.at(key), "link", parent.diagnostics());
  return read_wire(*section, start);
}

LinkSpec read_plain_link(const Section& parent, const std::string& key, const LinkSpec& start) {
  std::optional<Section> section;
  if (!parent.has(key)) return start;
  const LinkSpec link = read_link(parent, key, start, section);
  refuse_keys(section, {"attachment", "nics", "nics_at"}, key);
  return link;
}

void refuse_keys(const std::optional<Section>& section, std::initializer_list<const char*> keys,
                 const std::string& where) {
  for (const char* key : keys) {
    if (section && section->has(key))
      section->refuse(key, fmt::format("'{}' has no meaning for '{}'", key, where));
  }
}

void read_device_keys(const Section& section, Library& library, DeviceSpec& device) {
  if (section.has("device")) {
    if (const Value* found = library.resolve(section.at("device"), "device", "models/devices"))
      device = read_device(Section(*found, "device", section.diagnostics()));
  }
  if (const auto memory = section.number("memory"))
    replace_memory(section, std::llround(*memory), device);
}

NodeSpec read_node(const Section& section, const NodeSpec& start, Library& library) {
  return NodeReader(section, start).read(library);
}

}  // namespace penstock
