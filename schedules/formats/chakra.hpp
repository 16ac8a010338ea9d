// SPDX-License-Identifier: Apache-2.0
// Chakra execution traces (Sridharan et al., arXiv:2305.14516; MLCommons' schema et_def.proto), as
// ASTRA-sim's feeder reads them: a file per device, protobuf messages each after its length as a
// varint, GlobalMetadata first and then the Nodes.
//
//   COMP_NODE                       duration_micros; attributes num_ops (FLOPs), duration_nanos
//   COMM_SEND_NODE, COMM_RECV_NODE  attributes comm_size (bytes), comm_src, comm_dst, comm_tag
//   COMM_COLL_NODE                  ALL_REDUCE of comm_size bytes, or a BARRIER, of the group
//   pg_name
//
// All dependencies are data_deps: the feeder follows no others.
#pragma once

#include "schedules/formats/activities.hpp"

#include <map>

namespace penstock {

/// The groups that devices reduce gradients in, by the names that nodes give (pg_name).
using ChakraGroups = std::map<std::vector<int>, int>;
ChakraGroups chakra_groups(const ActivityGraph& graph);

/// As the JSON that ASTRA-sim takes for its communicator groups: {"1": [0, 4], ...}.
std::string groups_json(const ChakraGroups& groups);

/// The file of one device, bytes.
std::string to_chakra(const ActivityGraph& graph, int device, const ChakraGroups& groups);

}  // namespace penstock
