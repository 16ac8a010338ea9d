# SPDX-License-Identifier: Apache-2.0
"""A slow, obviously right pipeline: when every op starts and ends, from the written semantics alone.

The order of ops per device is given; times follow from four sentences (docs/metrics.md, DESIGN):
  free        a message arrives when its op ends
  overlapped  messages of a channel (source, destination, F or B) leave one after the other, each
              occupying it for bytes / bandwidth, and arrive a latency after their last byte
  blocking    the same, but the sender's next op waits until its message has arrived
  coupled     the message starts when its op and the compute op before its receiver have ended (both
              ends have posted their batch); whatever its sender does next waits for it, too
After a device's last gradient of an update stand, in its order, REDUCE_GRAD (with replicas: starts
when all of them are there) and STEP, whether or not they take time.
"""

import functools
import re

TOKEN = re.compile(r"(\d+)(REDUCE_GRAD|STEP|F|B|I|W)(\d+)$")


@functools.lru_cache(maxsize=1 << 16)  # the same ops are looked at again and again
def parse(token):
    """('stage', 'kind', 'microbatch') of a token such as 2F5."""
    stage, kind, microbatch = TOKEN.match(token).groups()
    return int(stage), kind, int(microbatch)


class Reference:
    """Times of a run. `costs`: lists per stage (seconds, bytes); `link`: latency, bytes/s."""

    def __init__(self, order, costs, link, transfers, width, per_update, sync):
        self.costs, self.transfers = costs, transfers
        self.latency, self.bandwidth = link
        self.depth = len(costs["forward"])
        self.width, self.per_update, self.sync = width, per_update, sync
        self.order = [self.with_updates(device, ops) for device, ops in enumerate(order)]
        self.place = {(device, op): i for device, ops in enumerate(self.order)
                      for i, op in enumerate(ops)}
        self.start = functools.lru_cache(maxsize=None)(self.start)
        self.departure = functools.lru_cache(maxsize=None)(self.departure)

    def with_updates(self, device, ops):
        """The device's compute ops, with REDUCE_GRAD and STEP after each update's last backward."""
        out, left = [], {}
        update_of = lambda k: k // self.width // self.per_update
        for _, kind, k in ops:
            left[update_of(k)] = left.get(update_of(k), 0) + (kind == "B")
        for stage, kind, k in ops:
            out.append((stage, kind, k))
            if kind != "B":
                continue
            u = update_of(k)
            left[u] -= 1
            if left[u] == 0:
                number = u * self.width + device // self.depth
                if self.width > 1:
                    out.append((stage, "REDUCE_GRAD", number))
                out.append((stage, "STEP", number))
        return out

    # What an op is ------------------------------------------------------------------------------

    def duration(self, op):
        stage, kind, _ = op
        if kind == "REDUCE_GRAD":
            n = self.width
            one = self.latency + self.costs["gradients"][stage] / n / self.bandwidth
            return 2 * (n - 1) * one
        return self.costs[{"F": "forward", "B": "backward", "STEP": "step"}[kind]][stage]

    def receiver(self, device, op):
        """Where the message of an op goes: (device, op), or None."""
        stage, kind, k = op
        step = {"F": 1, "B": -1}.get(kind)
        if step is None or not 0 <= stage + step < self.depth:
            return None
        return device + step, (stage + step, kind, k)

    def sender(self, device, op):
        stage, kind, k = op
        step = {"F": -1, "B": 1}.get(kind)
        if step is None or not 0 <= stage + step < self.depth:
            return None
        return device + step, (stage + step, kind, k)

    def occupied(self, op):
        stage, kind, _ = op
        return self.costs["output"][stage if kind == "F" else stage - 1] / self.bandwidth

    # When it happens ----------------------------------------------------------------------------

    def end(self, device, i):
        return self.start(device, i) + self.duration(self.order[device][i])

    def free(self, device, i):
        """When the device can turn to its i-th op."""
        if i == 0:
            return 0.0
        before = self.order[device][i - 1]
        if self.transfers in ("blocking", "coupled") and self.receiver(device, before):
            return self.arrival(device, before)
        return self.end(device, i - 1)

    def start(self, device, i):
        op = self.order[device][i]
        if op[1] == "REDUCE_GRAD" or op[1] == "STEP" and self.sync == "global":
            return max(self.free(d, self.place[d, other]) for d, other in self.members(device, op))
        if op[1] == "STEP" and self.sync == "post-validation" and op[0] > 0:
            before = (op[0] - 1, "STEP", op[2])  # on the position before, of the same replica
            latency = 0.0 if self.transfers == "free" else self.latency
            norm = self.start(device - 1, self.place[device - 1, before]) + latency
            return max(self.free(device, i), norm)
        source = self.sender(device, op)
        return max(self.free(device, i), self.arrival(*source) if source else 0.0)

    def members(self, device, op):
        stage, kind, number = op
        update = number // self.width
        if kind == "REDUCE_GRAD":
            return [(r * self.depth + stage, (stage, kind, update * self.width + r))
                    for r in range(self.width)]
        return [(r * self.depth + s, (s, kind, update * self.width + r))
                for r in range(self.width) for s in range(self.depth)]

    def departure(self, device, op):
        """When the message of an op begins to occupy its channel."""
        ready = self.end(device, self.place[device, op])
        if self.transfers == "coupled":
            to, consumer = self.receiver(device, op)
            at = self.place[to, consumer] - 1
            while at >= 0 and self.order[to][at][1] in ("REDUCE_GRAD", "STEP"):
                at -= 1
            return max(ready, self.end(to, at) if at >= 0 else 0.0)
        if self.transfers == "overlapped":
            before = self.previous_message(device, op)
            if before is not None:
                ready = max(ready, self.departure(device, before) + self.occupied(before))
        return ready

    def previous_message(self, device, op):
        """The op whose message left on the same channel before."""
        for i in range(self.place[device, op] - 1, -1, -1):
            if self.order[device][i][1] == op[1]:
                return self.order[device][i]
        return None

    def arrival(self, device, op):
        if self.transfers == "free":
            return self.end(device, self.place[device, op])
        return self.departure(device, op) + self.occupied(op) + self.latency

    def times(self):
        """{(device, token): (start, end)} of every op."""
        out = {}
        for device, ops in enumerate(self.order):
            for i, (stage, kind, k) in enumerate(ops):
                out[device, f"{stage}{kind}{k}"] = (self.start(device, i), self.end(device, i))
        return out
