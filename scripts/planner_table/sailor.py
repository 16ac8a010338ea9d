# SPDX-License-Identifier: Apache-2.0
"""Sailor's models on its kinds of nodes: tables of layers with the times that it measured.

A row of a table is a transformer block; the first one has the embedding with it, the last one the
head. Times are per sample, of the largest microbatch measured up to MOST_SAMPLES. Where a model
was only measured on t GPUs together (tensor parallelism), they count as one device with the memory
of all. Parameters and activations follow from the shape (Korthikanti et al., MLSys'23, equation 2;
without flash attention but for Llama). Nodes: configs/ says GPUs, memory and bandwidths."""
import dataclasses
import json

from .row import Row, flow

MOST_SAMPLES = 4
FP32 = 4


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    groups: int
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool  # Llama: gated MLP, no biases, flash attention, no table of positions
    batch: int  # samples per update
    nodes: int

    def block_parameters(self):
        attention = 2 * self.hidden**2 * (1 + self.groups / self.heads)
        if self.gated:
            return attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        return attention + 2 * self.hidden * self.ffn + 9 * self.hidden + self.ffn

    def embedding_parameters(self):
        return self.hidden * (self.vocabulary + (0 if self.gated else self.sequence))

    def output_bytes(self):
        return 2 * self.sequence * self.hidden

    def stash_bytes(self, tensor):
        """Of a block and a sample on all of `tensor` GPUs, without its output."""
        tokens = self.sequence * self.hidden
        scores = 0 if self.gated else 5 * self.heads * self.sequence**2
        return tokens * (10 * tensor + 24) + scores - self.output_bytes()

    def yaml(self, name):
        return {"name": name, "family": "llama" if self.gated else "gpt",
                "num_layers": self.layers, "hidden_size": self.hidden,
                "num_attention_heads": self.heads, "num_query_groups": self.groups,
                "ffn_hidden_size": self.ffn, "vocab_size": self.vocabulary,
                "seq_length": self.sequence, "precision": "mixed-fp16"}


# The published shapes, as in validate/sailor_runs.py; batches of configs/, where they are there.
SHAPES = {
    "OPT-350": Shape(24, 1024, 16, 16, 4096, 50272, 2048, False, 1024, 4),
    "GPT-Neo-2.7": Shape(32, 2560, 20, 20, 10240, 50257, 2048, False, 1024, 4),
    "OPT-30": Shape(48, 7168, 56, 56, 28672, 50272, 2048, False, 1024, 16),
    "LLAMA-3-8": Shape(32, 4096, 32, 8, 14336, 128256, 8192, True, 1024, 8)}
MIXED = ("A100-40", "V100-16")  # side by side, by shape: layers have one time each


def read(path):
    with path.open() as file:
        return json.load(file)


@dataclasses.dataclass
class Machines:
    nodes: dict
    inter: dict
    intra: dict

    @classmethod
    def of(cls, configs):
        return cls(read(configs / "basic_cluster_config.json"),
                   read(configs / "network_coeffs_all_homo.json")["inter"],
                   read(configs / "intra_node_bandwidths.json"))

    def node(self, gpu, tensor=1):
        """A node of one kind, as a map; a device is `tensor` GPUs."""
        gpus = self.nodes[gpu]["gpus_per_node"]
        one, most = self.inter[gpu]["1"][1], self.inter[gpu][str(gpus)][1]
        devices = gpus // tensor
        # As many NICs as the node's rate is times that of one sender.
        nics = max(n for n in range(1, devices + 1) if devices % n == 0 and n <= most / one + 0.5)
        memory = self.nodes[gpu]["mem_per_gpu"] * tensor
        return {"devices_per_node": devices, "memory": f"{memory} B",
                "intra": {"attachment": "switch",
                          "bandwidth": f"{self.intra[gpu]['2'][1] * tensor:.0f} B/s"},
                "inter": {"bandwidth": f"{most / nics:.0f} B/s", "nics": nics}}


def chosen(profile):
    """The least tensor degree, and its largest microbatch up to MOST_SAMPLES."""
    tensor = min(int(t) for sizes in profile.values() for t in sizes)
    sizes = [int(size) for size in profile if str(tensor) in profile[size]]
    size = max((s for s in sizes if s <= MOST_SAMPLES), default=min(sizes))
    return tensor, size


def layer_table(profile, shape, tensor, size):
    times = profile[str(size)][str(tensor)]
    lines = ["layer,forward,backward,activation,stash,parameters"]
    order = sorted(map(int, times))
    for block in range(1, shape.layers + 1):
        first, last = block == 1, block == shape.layers
        layers = [block] + ([order[0]] if first else []) + (order[block + 1:] if last else [])
        forward, backward = (sum(times[str(l)][i] for l in layers) / size for i in (0, 1))
        parameters = shape.block_parameters()
        parameters += shape.embedding_parameters() if first else 0
        parameters += shape.hidden * shape.vocabulary if last else 0
        lines.append(f"{block},{forward:.9f} s,{backward:.9f} s,{shape.output_bytes()} B,"
                     f"{shape.stash_bytes(tensor)} B,{FP32 * parameters:.0f} B")
    return "\n".join(lines) + "\n"


def measured_rows(profiles, machines, folder):
    for name, shape in SHAPES.items():
        for file in sorted((profiles / name).glob("*/profile.json")):
            profile, gpu = read(file), file.parent.name
            tensor, size = chosen(profile)
            # GPT-Neo's on GH-96 is a copy of OPT-350's.
            if len(profile[str(size)][str(tensor)]) not in (shape.layers + 2, shape.layers + 3):
                continue
            table = folder / f"{name}-{gpu}.csv"
            table.write_text(layer_table(profile, shape, tensor, size))
            node = machines.node(gpu, tensor)
            gpus = shape.nodes * machines.nodes[gpu]["gpus_per_node"]
            kind = f"{gpus} x {gpu}" + (f", {tensor} a device" if tensor > 1 else "")
            yield Row("Sailor", name, kind,
                      (str(table), "--cluster", flow({"nodes": shape.nodes, **node}),
                       "--batch", str(shape.batch)))


def mixed_rows(machines):
    for name, shape in SHAPES.items():
        groups = [{"nodes": shape.nodes // 2, "device": gpu, **machines.node(gpu)} for gpu in MIXED]
        for group in groups:
            del group["memory"]  # the device's
        kind = " + ".join(f"{g['nodes'] * g['devices_per_node']} x {g['device']}" for g in groups)
        inter = groups[0]["inter"]
        yield Row("Sailor, by shape", name, kind,
                  (flow(shape.yaml(name)), "--cluster", flow({"inter": inter, "groups": groups}),
                   "--batch", str(shape.batch)))


def rows(data, folder):
    sailor = data / "measured" / "sailor"
    if not (sailor / "profiles").is_dir():
        return
    machines = Machines.of(sailor / "configs")
    yield from measured_rows(sailor / "profiles", machines, folder)
    yield from mixed_rows(machines)
