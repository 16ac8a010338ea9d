// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/chakra.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace penstock {
namespace {

// Numbers of et_def.proto.
enum NodeType : std::uint8_t {
  comp_node = 4,
  comm_send_node = 5,
  comm_recv_node = 6,
  comm_coll_node = 7
};
enum CollectiveType : std::uint8_t { all_reduce = 0, barrier = 9 };
struct NodeField {
  static constexpr int id = 1, name = 2, type = 3, data_deps = 5, duration_micros = 7, attr = 10;
};
struct AttributeField {
  static constexpr int name = 1, int32_val = 7, int64_val = 9, bool_val = 27, string_val = 29;
};
constexpr int kVersionField = 1;  // of GlobalMetadata

/// A protobuf message on its wire: fields as varints (type 0) or with their length (type 2).
class Message {
 public:
  void varint(int field, std::uint64_t value) {
    put(static_cast<std::uint64_t>(field) << 3);
    put(value);
  }
  void bytes(int field, std::string_view value) {
    put(static_cast<std::uint64_t>(field) << 3 | 2);
    put(value.size());
    text_ += value;
  }
  /// A repeated number, packed.
  void packed(int field, const std::vector<std::uint64_t>& values) {
    Message inside;
    for (const std::uint64_t v : values) inside.put(v);
    bytes(field, inside.text_);
  }
  const std::string& text() const { return text_; }
  /// After its length, as messages follow each other in a file.
  std::string delimited() const {
    Message length;
    length.put(text_.size());
    return length.text_ + text_;
  }

 private:
  void put(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

void add_attribute(Message& node, std::string_view name, int field, std::uint64_t value) {
  Message attribute;
  attribute.bytes(AttributeField::name, name);
  attribute.varint(field, value);
  node.bytes(NodeField::attr, attribute.text());
}

void add_attribute(Message& node, std::string_view name, std::string_view value) {
  Message attribute;
  attribute.bytes(AttributeField::name, name);
  attribute.bytes(AttributeField::string_val, value);
  node.bytes(NodeField::attr, attribute.text());
}

NodeType type_of(const Activity& a) {
  switch (a.kind) {
    case Activity::Kind::send: return comm_send_node;
    case Activity::Kind::receive: return comm_recv_node;
    case Activity::Kind::reduce: return comm_coll_node;
    default: return comp_node;
  }
}

void add_attributes(Message& node, const Activity& a, int device, const ChakraGroups& groups) {
  const auto number = [&](std::string_view name, int field, std::int64_t value) {
    add_attribute(node, name, field, static_cast<std::uint64_t>(value));
  };
  number("is_cpu_op", AttributeField::bool_val, 0);
  if (a.kind == Activity::Kind::compute) {
    if (a.flops > 0) number("num_ops", AttributeField::int64_val, std::llround(a.flops));
    number("duration_nanos", AttributeField::int64_val, std::llround(a.seconds * 1e9));
    return;
  }
  number("comm_size", AttributeField::int64_val, a.bytes);
  if (a.kind == Activity::Kind::reduce) {
    number("comm_type", AttributeField::int64_val, a.bytes == 0 ? barrier : all_reduce);
    add_attribute(node, "pg_name", std::to_string(groups.at(a.members)));
    return;
  }
  const bool sends = a.kind == Activity::Kind::send;
  number("comm_src", AttributeField::int32_val, sends ? device : a.peer);
  number("comm_dst", AttributeField::int32_val, sends ? a.peer : device);
  number("comm_tag", AttributeField::int32_val, a.tag);
}

}  // namespace

ChakraGroups chakra_groups(const ActivityGraph& graph) {
  std::set<std::vector<int>> all;
  for (int d = 0; d < graph.devices(); ++d) {
    for (const Activity& a : graph.activities_of(d))
      if (a.kind == Activity::Kind::reduce) all.insert(a.members);
  }
  ChakraGroups groups;
  for (const auto& members : all) groups.emplace(members, static_cast<int>(groups.size()) + 1);
  return groups;
}

std::string groups_json(const ChakraGroups& groups) {
  std::string text = "{";
  for (const auto& [members, name] : groups)
    text +=
        fmt::format("{}\"{}\": [{}]", text.size() > 1 ? ", " : "", name, fmt::join(members, ", "));
  return text + "}\n";
}

std::string to_chakra(const ActivityGraph& graph, int device, const ChakraGroups& groups) {
  Message metadata;
  metadata.bytes(kVersionField, "0.0.4");
  std::string file = metadata.delimited();
  std::uint64_t id = 0;  // nodes count from 1
  for (const Activity& a : graph.activities_of(device)) {
    Message node;
    node.varint(NodeField::id, ++id);
    node.bytes(NodeField::name, a.name);
    node.varint(NodeField::type, type_of(a));
    std::vector<std::uint64_t> needs;
    for (const std::uint32_t n : a.needs) needs.push_back(n + 1);
    if (!needs.empty()) node.packed(NodeField::data_deps, needs);
    if (a.kind == Activity::Kind::compute)
      node.varint(NodeField::duration_micros,
                  static_cast<std::uint64_t>(std::llround(a.seconds * 1e6)));
    add_attributes(node, a, device, groups);
    file += node.delimited();
  }
  return file;
}

}  // namespace penstock
