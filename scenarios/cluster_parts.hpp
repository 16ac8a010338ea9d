// Readers of the parts of a cluster: links, devices, nodes, and what joins the nodes.
#pragma once

#include "scenarios/library.hpp"

#include <initializer_list>

namespace penstock {

/// The keys that a link and the edge of a graph have in common; what is not given is as in `start`.
LinkSpec read_wire(const Section& section, LinkSpec start = {});

/// The link at a key of `parent`: a bandwidth alone, or a map, which is then left in `section`.
LinkSpec read_link(const Section& parent, const std::string& key, const LinkSpec& start,
                   Diagnostics& diagnostics, std::optional<Section>& section);

/// A link that has no keys but those of a wire.
LinkSpec read_plain_link(const Section& parent, const std::string& key, const LinkSpec& start,
                         Diagnostics& diagnostics);

/// Refuses these keys of a section, which may be missing.
void refuse_keys(const std::optional<Section>& section, std::initializer_list<const char*> keys,
                 const std::string& where, Diagnostics& diagnostics);

/// The device of a cluster or of a group of nodes, its memory replaced where 'memory' says so.
void read_device_keys(const Section& section, Library& library, DeviceSpec& device,
                      Diagnostics& diagnostics);

/// The node of a cluster, or of a group of nodes that inherits the keys of its cluster.
NodeSpec read_node(const Section& section, const NodeSpec& start, Library& library,
                   Diagnostics& diagnostics);

/// What joins the nodes of this cluster, which is read but for it.
FabricSpec read_fabric(const Section& cluster, const Cluster& c, Diagnostics& diagnostics);

}  // namespace penstock
