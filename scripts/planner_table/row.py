# SPDX-License-Identifier: Apache-2.0
"""One model on one cluster."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    group: str  # whose data
    model: str
    cluster: str
    words: tuple  # of `penstock plan`, behind its name

    @property
    def key(self):
        return f"{self.group} | {self.model} | {self.cluster}"


def flow(value):
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    return str(value)
