# SPDX-License-Identifier: Apache-2.0
"""Readers of what `penstock export` writes for other simulators, and a replay of it: Chakra's
protobuf messages decoded from the bytes, GOAL as its grammar has it.

A graph is, per rank, a dict from id to (kind, seconds or bytes, peer, tag, what it needs); kinds
are calc, send, recv and coll (where `peer` is the group).
"""

import re


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(data):
    """Field -> list of values: numbers, or bytes."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "cut short"
        else:
            raise ValueError(f"wire type {tag & 7}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def messages(data):
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        assert size > 0 and at + size <= len(data)
        yield message(data[at:at + size])
        at += size


def packed(values):
    out = []
    for value in values:
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            out.append(number)
    return out


def read_chakra_rank(data):
    """(version, nodes): a node is {id, name, type, deps, micros, attributes}."""
    first, *rest = messages(data)
    assert set(first) == {1}
    nodes = []
    for fields in rest:
        assert set(fields) <= {1, 2, 3, 5, 7, 10}, fields
        attributes = {}
        for raw in fields.get(10, []):
            attribute = message(raw)
            [name] = attribute.pop(1)
            [(kind, [value])] = attribute.items()
            assert kind in {7, 9, 27, 29}, kind  # int32, int64, bool, string
            attributes[name.decode()] = value.decode() if kind == 29 else value
        nodes.append({"id": fields[1][0], "name": fields[2][0].decode(), "type": fields[3][0],
                      "deps": packed(fields.get(5, [])), "micros": fields.get(7, [0])[0],
                      "attributes": attributes})
    return first[1][0].decode(), nodes


def graph_of_chakra(ranks):
    """`ranks`: the nodes of each."""
    graph = []
    for nodes in ranks:
        out = {}
        for n in nodes:
            a = n["attributes"]
            if n["type"] == 4:
                out[n["id"]] = ("calc", a["duration_nanos"] * 1e-9, None, None, n["deps"])
            elif n["type"] == 5:
                out[n["id"]] = ("send", a["comm_size"], a["comm_dst"], a["comm_tag"], n["deps"])
            elif n["type"] == 6:
                out[n["id"]] = ("recv", a["comm_size"], a["comm_src"], a["comm_tag"], n["deps"])
            else:
                assert n["type"] == 7
                out[n["id"]] = ("coll", a["comm_size"], a["pg_name"], None, n["deps"])
        graph.append(out)
    return graph


def read_goal(text):
    """As txt2bin reads it: one statement a line, labels before they are required."""
    lines = text.splitlines()
    count = int(re.fullmatch(r"num_ranks (\d+)", lines[0])[1])
    graph, rank = [None] * count, None
    for line in lines[1:]:
        if match := re.fullmatch(r"rank (\d+) \{", line):
            assert rank is None and graph[int(match[1])] is None
            rank = graph[int(match[1])] = {}
        elif line == "}":
            rank = None
        elif match := re.fullmatch(r"(l\d+): calc (\d+)", line):
            rank[match[1]] = ("calc", int(match[2]) * 1e-9, None, None, [])
        elif match := re.fullmatch(r"(l\d+): (send|recv) (\d+)b (to|from) (\d+) tag (\d+)", line):
            assert (match[2] == "send") == (match[4] == "to")
            rank[match[1]] = (match[2], int(match[3]), int(match[5]), int(match[6]), [])
        else:
            match = re.fullmatch(r"(l\d+) requires (l\d+)", line)
            assert match, line
            assert match[2] in rank
            rank[match[1]][4].append(match[2])
    assert rank is None and None not in graph
    return graph


def makespan(graph):
    """With messages and collectives that cost nothing: the longest chain. None when it never ends.
    Every message has one sender, one receiver and one size."""
    sends, receives, meetings, end = {}, {}, {}, {}
    for rank, activities in enumerate(graph):
        met = {}
        for name, (kind, size, peer, tag, _) in activities.items():
            if kind == "send":
                assert sends.setdefault((rank, peer, tag), (rank, name)) == (rank, name)
            elif kind == "recv":
                assert receives.setdefault((peer, rank, tag), (rank, name)) == (rank, name)
            elif kind == "coll":  # the k-th of a group meets the k-th of the others
                k = met[peer] = met.get(peer, -1) + 1
                meetings.setdefault((peer, k), []).append((rank, name))
    assert set(sends) == set(receives)
    for key, (rank, name) in receives.items():
        assert graph[rank][name][1] == graph[key[0]][sends[key][1]][1], "sizes differ"

    group_of = {member: members for members in meetings.values() for member in members}
    left = [(rank, name) for rank, activities in enumerate(graph) for name in activities]
    while left:
        stay = []
        for rank, name in left:
            kind, amount, peer, tag, needs = graph[rank][name]
            wanted = [(rank, n) for n in needs]
            if kind == "recv":
                wanted.append(sends[peer, rank, tag])
            if kind == "coll":
                wanted = [(r, n) for r, member in group_of[rank, name] for n in graph[r][member][4]]
            if all(w in end for w in wanted):
                start = max((end[w] for w in wanted), default=0)
                end[rank, name] = start + (amount if kind == "calc" else 0)
            else:
                stay.append((rank, name))
        if len(stay) == len(left):
            return None
        left = stay
    return max(end.values())
