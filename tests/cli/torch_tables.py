# SPDX-License-Identifier: Apache-2.0
"""The tables of torch.distributed.pipelining by their rules, written a second time: what
`penstock schedule export` and `check` say is compared with this.

An action is a tuple (stage, kind, microbatch or None); a cell is a tuple of one action, of two (an
overlapped pair), or empty (a bubble).
"""

import re

WORD = re.compile(r"(\d+)(F|I|B|W|UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)(\d*)")


def read_action(word):
    match = WORD.fullmatch(word.strip())
    if not match:
        raise ValueError(word)
    return int(match[1]), match[2], int(match[3]) if match[3] else None


def read_cell(word):
    word = word.strip()
    if not word:
        return ()
    if word.startswith("("):
        inside, kind = word[1:].split(")")
        assert kind == "OVERLAP_F_B", word
        return tuple(read_action(part) for part in inside.split(";"))
    return (read_action(word),)


def read(text):
    """Rows of cells."""
    return [[read_cell(word) for word in line.split(",")] for line in text.splitlines()]


def write_action(action):
    stage, kind, microbatch = action
    return f"{stage}{kind}{'' if microbatch is None else microbatch}"


def write(rows):
    def cell(actions):
        text = ";".join(map(write_action, actions))
        return f"({text})OVERLAP_F_B" if len(actions) == 2 else text
    return "".join(",".join(map(cell, row)) + "\n" for row in rows)


def homes(rows):
    """Device of each (stage, microbatch)."""
    return {(a[0], a[2]): device for device, row in enumerate(rows) for cell in row for a in cell
            if a[1] == "F"}


def stages_ahead(cells, wanted=3):
    """The stages that compute next, in order: at least `wanted`, if there are so many."""
    ahead = []
    for cell in cells:
        for stage, _, _ in cell:
            if stage not in ahead:
                ahead.append(stage)
        if len(ahead) >= wanted:
            break
    return ahead


def add_parameters(row):
    """UNSHARD and RESHARD: parameters are there while their stage is among the next three."""
    out, there = [], set()  # CPython's order of a set of integers shows in the text
    for i, cell in enumerate(row):
        ahead = stages_ahead(row[i:])
        for stage in [s for s in there if s not in ahead]:
            there.remove(stage)
            out.append(((stage, "RESHARD", None),))
        for stage in [s for s in ahead if s not in there]:
            there.add(stage)
            out.append(((stage, "UNSHARD", None),))
        out.append(cell)
    return out + [((stage, "RESHARD", None),) for stage in there]


def add_reductions(row):
    """REDUCE_GRAD after the last gradient of each stage."""
    gradients = [a[0] for cell in row for a in cell if a[1] in "BW"]
    left = {stage: gradients.count(stage) for stage in set(gradients)}
    out = []
    for cell in row:
        out.append(cell)
        for stage, kind, _ in cell:
            if kind in ("B", "W"):
                left[stage] -= 1
                if left[stage] == 0:
                    out.append(((stage, "REDUCE_GRAD", None),))
    return out


def add_messages(rows, home):
    """One cell of each device in turn; a SEND follows its op at once, and the RECV is the next
    thing in the row of the peer."""
    last = max(stage for stage, _ in home)
    out = [[] for _ in rows]
    left = [list(row) for row in rows]
    there = set()  # inputs that a device has

    def ready(action):
        stage, kind, microbatch = action
        if kind == "F":
            return stage == 0 or ("F", stage, microbatch) in there
        if kind in ("B", "I"):
            return stage == last or ("B", stage, microbatch) in there
        return True

    while any(left):
        moved = False
        for device, row in enumerate(left):
            if not row or not all(map(ready, row[0])):
                continue
            cell = row.pop(0)
            moved = True
            out[device].append(cell)
            for stage, kind, microbatch in cell:
                forward = kind == "F"
                to = stage + 1 if forward else stage - 1
                if kind not in ("F", "B", "I") or not 0 <= to <= last:
                    continue
                letter = "F" if forward else "B"
                there.add((letter, to, microbatch))
                if home[to, microbatch] != device:
                    out[device].append(((stage, "SEND_" + letter, microbatch),))
                    out[home[to, microbatch]].append(((to, "RECV_" + letter, microbatch),))
        if not moved:
            raise ValueError("the order deadlocks")
    return out


def lower(rows):
    """A compute-only table with everything else a device does."""
    compute = [[cell for cell in row if cell] for row in rows]
    return add_messages([add_reductions(add_parameters(row)) for row in compute], homes(rows))


def runs(rows):
    """Does a table with communication run to its end, with the same messages at both ends? The
    slow way: every device tries again until nothing moves."""
    home = homes(rows)
    last = max(stage for stage, _ in home)
    done, sends, receives = set(), {}, {}
    at = [0] * len(rows)

    def peer(action):
        stage, kind, microbatch = action
        up = kind in ("SEND_F", "RECV_B")
        return home[stage + 1 if up else stage - 1, microbatch]

    def source_of(action, device):
        """The action whose message a compute action needs; None: nothing."""
        stage, kind, microbatch = action
        neighbour = stage - 1 if kind == "F" else stage + 1
        if kind == "W" or not 0 <= neighbour <= last:
            return None
        letter = "F" if kind == "F" else "B"
        if home[neighbour, microbatch] == device:
            return (neighbour, letter, microbatch)
        return (stage, "RECV_" + letter, microbatch)

    def has(action):
        stage, kind, microbatch = action
        if kind == "B":
            return action in done or (stage, "I", microbatch) in done
        if not kind.startswith("RECV"):
            return action in done
        for direction, queue in receives.items():
            if action in queue:
                return queue.index(action) < len(sends.get(direction, []))
        return False

    def ready(action, device):
        stage, kind, microbatch = action
        if kind == "W" and (stage, "I", microbatch) not in done:
            return False
        if kind in ("B", "I") and (stage, "F", microbatch) not in done:
            return False
        needed = source_of(action, device) if kind in ("F", "B", "I") else None
        return needed is None or has(needed)

    moved = True
    while moved:
        moved = False
        for device, row in enumerate(rows):
            while at[device] < len(row) and all(ready(a, device) for a in row[at[device]]):
                for action in row[at[device]]:
                    stage, kind, microbatch = action
                    if kind.startswith("SEND"):
                        made = {(stage, k, microbatch) for k in ("F" if kind[-1] == "F" else "BI")}
                        if not made & done:
                            return False  # sent before it is made
                        sends.setdefault((device, peer(action)), []).append(action)
                    elif kind.startswith("RECV"):
                        receives.setdefault((peer(action), device), []).append(action)
                    done.add(action)
                at[device] += 1
                moved = True
    if any(a < len(row) for a, row in zip(at, rows)):
        return False

    def arrives_as(action):
        stage, kind, microbatch = action
        return (stage + 1 if kind == "SEND_F" else stage - 1, "RECV_" + kind[-1], microbatch)
    return {d: list(map(arrives_as, q)) for d, q in sends.items()} == receives
