#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts Sailor's published measurements (Strati et al., SOSP'25) into a table of training runs,
which `penstock validate` reads (docs/validation.md); `penstock validate FILE.json` calls it itself.

    validate/sailor_runs.py [--profiles DIR] [--model NAME] [--problems json] PLAN.json... > runs.csv

A plan is one configuration that was run, with its iteration time and peak memory:

    plan      {"pipeline_list": [{"layers_per_stage": [[0, 1, ...], ...], "dp": [...],
              "tmp_per_stage": [stage][replica][[[GPU, GPUs of a node, zone]], tensor degree]}],
              "mbs", "gbs": sequences, "real": s, "max_mem": bytes}

What it takes and holds follows from the folders around it:

    profiles/MODEL/GPU/profile.json   {microbatch size: {tensor degree: {layer: [forward_s,
              backward_s, update_s]}}}; `profiles` beside or above the plan. Layer 0 is the
              embedding, the last one the LM head.
    configs/training_config*.json     the models' shapes; `configs` beside `profiles`
    configs/network_coeffs_all_homo.json   {"inter": {GPU: {GPUs that send: [[a, b, c], most
              bytes/s]}}}: together they move a x^2 + b x + c GB/s in messages of 2^x MB each

Each row is a scenario of abstract costs (column `scenario_json`):

    times     of a stage, the sum of its layers', of the slowest kind of GPU among its replicas
    1F1B messages  DeepSpeed's pipeline engine sends and receives one after the other with both ends
              waiting, in fp32: transfers are coupled, four times the bytes of fp16
    update    a ring all-reduce of fp32 gradients over links as fast as the NICs were measured to be,
              then STEP: a third of the profile's, which times PyTorch's Adam kernel by kernel; a fused
              one reads and writes every tensor once instead of about three times
    memory    of a rank: 18 bytes per parameter (weights 2, gradients 4, Adam 12), activations
              (Korthikanti et al., MLSys'23, equation 2), three times 2 b a s^2 / t bytes of attention
              while a layer's backward runs (gradients of dropout's and softmax's output and input),
              14 bytes per logit on the last stage (fp16 2, fp32 4, softmax 4, their gradient 4)
    the rest  latency, what an update has beside this, how GPUs differ, what a process holds: by the
              stack `deepspeed-profiled`

A profile whose layers are not those of its model (GPT-Neo-2.7's on GH-96 is a copy of OPT-350's) is
left out; its times are estimated from the model's on another kind of GPU and from what other models
gain between the two, and column `note` says so.
"""
import argparse
import csv
import dataclasses
import functools
import gzip
import json
import math
import os
import pathlib
import sys

MOST_LAYERS, MOST_SEQUENCES, SHORTEST_S = 1 << 16, 1 << 20, 1e-9
LARGEST_FILE = 256 << 20
UPDATE_SHARE = 1 / 3
EXCHANGE = 4  # fp32, and one direction after the other
SCORE_COPIES, LOGITS_BYTES = 3, 14
WEIGHTS, GRADIENTS, OPTIMIZER, REDUCED = 2, 4, 12, 4  # bytes of a parameter
ELEMENT = 2  # bytes of an activation
VOCABULARY_MULTIPLE = 128  # Megatron's make_vocab_size_divisible_by, times the tensor degree


class Refused(Exception):
    """What is wrong with an input: [file or flag, line, column, message] each."""

    def __init__(self, problems):
        super().__init__(problems)
        self.problems = problems


def refuse(origin, message):
    raise Refused([[str(origin), 0, 0, message]])


# --- JSON whose every problem is named


class Checked:
    """A document and what is wrong with it, each with its place."""

    def __init__(self, path):
        self.path, self.problems = path, []
        self.json = read_json(path)

    def problem(self, place, message):
        self.problems.append([str(self.path), 0, 0, f"{place}: {message}" if place else message])

    def wrong(self, place, must, seen):
        shown = json.dumps(seen)
        kind = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}.get(type(seen), "number")
        self.problem(place, f"must be {must}, got {shown if len(shown) <= 40 else kind}")

    def settle(self):
        """Raises Refused if anything is wrong so far."""
        if len(self.problems) > 20:
            self.problems[20:] = [[str(self.path), 0, 0, f"and {len(self.problems) - 20} more"]]
        if self.problems:
            raise Refused(self.problems)

    def field(self, json_map, place, key, required=True):
        if not isinstance(json_map, dict):
            return None
        if key not in json_map and required:
            self.problem(place, f"'{key}' is missing")
        return json_map.get(key)

    def integer(self, json_map, key, least, most, required=True):
        value = self.field(json_map, "", key, required)
        if key not in json_map or (value is None and not required):
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.wrong(key, f"an integer from {least} to {most}", value)
        return None

    def numbered(self, json_map, place, what):
        """Yields (number, value, place) of an object whose keys are integers from 1."""
        if not isinstance(json_map, dict) or not json_map:
            return self.problem(place, "must be an object")
        for key, value in json_map.items():
            if key.isascii() and key.isdigit() and 1 <= int(key[:12]) < 1 << 31:
                yield int(key), value, f"{place}.{key}" if place else key
            else:
                self.problem(f"{place}.{key}" if place else key, f"'{key}' is not a {what}")


def without_repetition(pairs):
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"has the key '{next(k for k in keys if keys.count(k) > 1)}' twice")
    return dict(pairs)


def no_number(text):
    raise ValueError(f"'{text}' is no number")


def read_json(path):
    try:
        data = pathlib.Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            refuse(path, "is too large")
        return json.loads(data.decode(), object_pairs_hook=without_repetition, parse_constant=no_number)
    except json.JSONDecodeError as error:
        raise Refused([[str(path), error.lineno, error.colno, "is not JSON from here on"]]) from None
    except RecursionError:
        refuse(path, "is nested more than 128 deep")
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        refuse(path, str(error).splitlines()[0])
    except OSError as error:
        refuse(path, f"cannot be read: {error.strerror}")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# --- Plans


@dataclasses.dataclass(frozen=True)
class Replica:
    """The GPUs that hold one replica of a stage: tensor-parallel ranks of one node."""
    gpu: str
    tensor: int
    zone: str


@dataclasses.dataclass(frozen=True)
class Pipeline:
    layers: list  # [stage][...]
    replicas: list  # [stage][replica]


@dataclasses.dataclass(frozen=True)
class Plan:
    file: str
    pipelines: list  # side by side; their gradients are added
    microbatch_size: int
    batch_size: int  # sequences per update
    measured_s: float  # iteration
    max_bytes: int  # peak of the fullest GPU

    @property
    def name(self):
        return pathlib.Path(self.file).stem

    @property
    def depth(self):
        return len(self.pipelines[0].layers)

    @property
    def width(self):
        return sum(len(pipeline.replicas[0]) for pipeline in self.pipelines)

    @property
    def layers(self):
        return self.pipelines[0].layers[-1][-1] + 1

    @property
    def microbatches(self):
        """Of a replica and an update."""
        return -(-self.batch_size // (self.microbatch_size * self.width))

    def replicas(self):
        return [replica for pipeline in self.pipelines for stage in pipeline.replicas for replica in stage]

    def gpus(self):
        return sorted({replica.gpu for replica in self.replicas()})


def replica_in(document, place, json_list):
    match json_list:
        case [[[str(gpu), _, str(zone)]], int(tensor)] if tensor >= 1 and not isinstance(tensor, bool):
            return Replica(gpu, tensor, zone)
    document.wrong(place, "[[[GPU, GPUs of a node, zone]], tensor degree] on one node", json_list)
    return None


def lists_in(document, place, json_map, key, item):
    """The items of lists of lists, each read by `item(document, place, value)`."""
    outer = document.field(json_map, place, key)
    place = f"{place}.{key}"
    if not isinstance(outer, list) or any(not isinstance(inner, list) for inner in outer):
        if key in json_map:
            document.wrong(place, "a list of lists", outer)
        return []
    return [[item(document, f"{place}[{i}][{k}]", value) for k, value in enumerate(inner)] for i, inner in enumerate(outer)]


def layer_in(document, place, value):
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_LAYERS:
        return value
    document.wrong(place, f"an integer from 0 to {MOST_LAYERS - 1}", value)
    return None


def what_is_wrong_with(pipeline):
    """Stages have as many replicas each, and layers in order."""
    layers, replicas = pipeline.layers, pipeline.replicas
    if not layers or len(layers) != len(replicas):
        return (f"'layers_per_stage' has {len(layers)} stages, 'tmp_per_stage' {len(replicas)}; they must have equally many, "
                "at least one")
    if not all(layers):
        return "a stage has no layers"
    flat = [layer for stage in layers for layer in stage]
    if flat != list(range(len(flat))):
        return "layers must be 0, 1, 2, ... over the stages"
    if not all(replicas):
        return "a stage has no replicas"
    if len({len(stage) for stage in replicas}) > 1:
        return "stages with different numbers of replicas are not modelled"
    return None


def pipeline_in(document, place, json_map):
    before = len(document.problems)
    if not isinstance(json_map, dict):
        document.wrong(place, "an object", json_map)
        return None
    pipeline = Pipeline(lists_in(document, place, json_map, "layers_per_stage", layer_in),
                        lists_in(document, place, json_map, "tmp_per_stage", replica_in))
    if len(document.problems) == before and (why := what_is_wrong_with(pipeline)):
        document.problem(place, why)
    return pipeline


def object_of(path):
    """Returns a file of one object, checked, and that object."""
    document = Checked(path)
    if not isinstance(document.json, dict):
        document.wrong("", "an object", document.json)
        document.settle()
    return document, document.json


def read_plan(path):
    document, json_map = object_of(path)
    listed = document.field(json_map, "", "pipeline_list")
    if "pipeline_list" in json_map and not isinstance(listed, list):
        document.wrong("pipeline_list", "a list", listed)
    pipelines = [pipeline_in(document, f"pipeline_list[{i}]", one)
                 for i, one in enumerate(listed if isinstance(listed, list) else [])]
    mbs, gbs = (document.integer(json_map, key, 1, MOST_SEQUENCES) for key in ("mbs", "gbs"))
    measured_s = document.field(json_map, "", "real", False)
    if measured_s is not None and not (is_number(measured_s) and SHORTEST_S <= measured_s <= 1e30):
        document.wrong("real", f"a number from {SHORTEST_S:g} on", measured_s)
    max_bytes = document.integer(json_map, "max_mem", 1, 1 << 44, False)
    document.settle()
    plan = Plan(str(path), pipelines, mbs, gbs, measured_s, max_bytes)
    if not pipelines:
        document.problem("pipeline_list", "holds no pipeline")
    elif len({len(pipeline.layers) for pipeline in pipelines}) > 1:
        document.problem("", "pipelines of different depths are not modelled")
    if len({replica.zone for replica in plan.replicas()}) > 1:
        document.problem("", "plans over several zones are not modelled")
    document.settle()
    return plan


# --- Profiles


class Profile:
    """Layer times of one model on one kind of GPU: table[microbatch size][tensor degree][layer] is
    (forward, backward, update) in seconds."""

    def __init__(self, origin, layers, table):
        self.origin, self.layers, self.table = origin, layers, table

    @classmethod
    def read(cls, path):
        document, table = Checked(path), {}
        for size, degrees, place in document.numbered(document.json, "", "microbatch size"):
            for degree, times, at in document.numbered(degrees, place, "tensor degree"):
                table.setdefault(size, {})[degree] = cls.layer_times(document, at, times)
        document.settle()
        counts = {len(times) for degrees in table.values() for times in degrees.values()}
        if len(counts) != 1:
            document.problem("", "every size and degree must have the same layers")
        document.settle()
        return cls(str(path), counts.pop(), dict(sorted(table.items())))

    @staticmethod
    def layer_times(document, place, json_map):
        if not isinstance(json_map, dict) or not json_map:
            document.problem(place, "must be {layer: [forward, backward, update]}")
            return []
        times = [json_map.get(str(layer)) for layer in range(len(json_map))]
        for layer, time in enumerate(times):
            if not (isinstance(time, list) and len(time) == 3 and all(is_number(t) and t >= 0 for t in time)):
                document.problem(place, f"layer {layer} must have [forward, backward, update] in seconds")
        return times

    def has_updates(self):
        """Was the optimizer timed? Profiles without it were taken in another way, some of them in
        fp32: they are ten times slower than others of the same GPU."""
        return all(time[2] > 0 for degrees in self.table.values() for times in degrees.values() for time in times)

    def at(self, size, tensor):
        if size not in self.table:
            refuse(self.origin, f"has no times for microbatches of {size}; it has {', '.join(map(str, self.table))}")
        if tensor not in self.table[size]:
            degrees = ", ".join(map(str, sorted(self.table[size])))
            refuse(self.origin, f"has no times for microbatches of {size} on {tensor} GPUs; it has tensor degrees {degrees}")
        return self.table[size][tensor]

    def without_launches(self, size, tensor, layer, part):
        """A measured time, or the least one of this or a larger microbatch and this or a smaller
        tensor degree where the same op was faster on more sequences: the host's launches were
        measured instead of the GPU then, and neither changes how many there are."""
        measured = self.at(size, tensor)[layer][part]
        larger = [(degree, times[layer][part]) for other, degrees in self.table.items() if other >= size
                  for degree, times in degrees.items()]
        if all(time >= measured for degree, time in larger if degree == tensor):
            return measured
        return min(time for degree, time in larger if degree <= tensor)

    def times(self, size, tensor, layer):
        return (self.without_launches(size, tensor, layer, 0), self.without_launches(size, tensor, layer, 1),
                self.at(size, tensor)[layer][2])


def gain(start, end):
    """What an op gains, to multiply up; 1 where one of the two was not measured."""
    return end / start if start > 0 and end > 0 else 1


def estimated(elsewhere, references, origin):
    """Returns the times of a model on a kind of GPU where it was not profiled: those on another,
    times the geometric mean of what the references' embedding, middle block and head gain from there
    to here. Sizes and degrees are those that every profile has; there may be none."""
    table = {}
    for size, degrees in elsewhere.table.items():
        for degree, measured in degrees.items():
            pairs = [(start.table.get(size, {}).get(degree), end.table.get(size, {}).get(degree)) for start, end in references]
            if not pairs or any(one is None or other is None for one, other in pairs):
                continue
            scaled = [list(time) for time in measured]
            for start, end in pairs:
                for layer, time in enumerate(scaled):
                    role = 0 if layer == 0 else len(start) - 1 if layer + 1 == len(scaled) else len(start) // 2
                    for part in range(3):
                        time[part] *= gain(start[role][part], end[role][part]) ** (1 / len(pairs))
            table.setdefault(size, {})[degree] = scaled
    return Profile(origin, elsewhere.layers, table)


# --- Models and networks


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    heads: int
    groups: int  # of keys and values
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool = False  # Llama: gated MLP, RMS norms, no biases, no dropout, no table of positions

    def kv_size(self):
        return self.hidden // self.heads * self.groups

    def inner(self):
        """The width that the MLP's first product makes."""
        return (2 if self.gated else 1) * self.ffn

    # On each of t GPUs that share a stage, divided as Megatron does (arXiv:1909.08053, section 3):

    def vocabulary_rows(self, t):
        if t == 1:
            return self.vocabulary
        return -(-self.vocabulary // (VOCABULARY_MULTIPLE * t)) * VOCABULARY_MULTIPLE

    def norm_parameters(self):
        return (1 if self.gated else 2) * self.hidden

    def block_parameters(self, t):
        h, qkv = self.hidden, self.hidden + 2 * self.kv_size()
        divided = h * (qkv + h) + h * (self.inner() + self.ffn) + (0 if self.gated else qkv + self.inner())
        return divided // t + 2 * self.norm_parameters() + (0 if self.gated else 2 * h)

    def embedding_parameters(self, t):
        return (self.vocabulary_rows(t) + (0 if self.gated else self.sequence)) * self.hidden

    def head_parameters(self, t):
        return self.vocabulary_rows(t) * self.hidden + self.norm_parameters()

    def block_activation_bytes(self, b, t):
        """Inputs of norms and additions are whole on each GPU; what products make, and the softmax
        (with dropout its output and mask, too), are divided."""
        tokens = b * self.sequence
        divided = 2 * self.hidden + 2 * self.kv_size() + self.inner() + self.ffn
        pair = ELEMENT if self.gated else 2 * ELEMENT + 1
        masks = 0 if self.gated else 2
        return ((tokens * ELEMENT * (4 * self.hidden) + tokens * ELEMENT * divided / t) +
                (masks * tokens * self.hidden + tokens * self.sequence * self.heads * pair / t))


# OPT: Zhang et al., 2022, table 1 (with 2048 positions); GPT-Neo 2.7B and Llama 3 8B: their
# published config.json. Llama's layer times are those of 8192 positions: its head's rate and the
# sizes that fitted into memory admit no fewer.
KNOWN_SHAPES = {shape.name: shape for shape in (
    Shape("OPT-350", 24, 1024, 16, 16, 4096, 50272, 2048),
    Shape("OPT-30", 48, 7168, 56, 56, 28672, 50272, 2048),
    Shape("GPT-Neo-2.7", 32, 2560, 20, 20, 10240, 50257, 2048),
    Shape("LLAMA-3-8", 32, 4096, 32, 8, 14336, 128256, 8192, gated=True))}


def read_shape(path):
    document, json_map = object_of(path)
    name = document.field(json_map, "", "model")
    if "model" in json_map and not isinstance(name, str):
        document.wrong("model", "a text", name)
    layers = document.integer(json_map, "num_layers", 1, MOST_LAYERS)
    hidden, heads, vocabulary, sequence = (document.integer(json_map, key, 1, 1 << 30)
                                           for key in ("hidden_size", "heads", "vocab_size", "sequence_length"))
    document.settle()
    return Shape(name, layers, hidden, heads, heads, 4 * hidden, vocabulary, sequence)


class Network:
    """What the NICs of a node deliver, by kind of GPU and how many of its GPUs send."""

    def __init__(self, path):
        document, self.origin, self.curves = Checked(path), str(path), {}
        by_gpu = document.field(document.json, "", "inter") if isinstance(document.json, dict) else None
        if not isinstance(by_gpu, dict):
            document.wrong("inter", "an object", by_gpu)
        document.settle()
        for gpu, by_senders in by_gpu.items():
            for senders, curve, place in document.numbered(by_senders, f"inter.{gpu}", "number of GPUs"):
                match curve:
                    case [[a, b, c], most] if all(map(is_number, (a, b, c, most))) and most > 0:
                        self.curves.setdefault(gpu, {})[senders] = (a, b, c, most)
                    case _:
                        document.wrong(place, "[[a, b, c], bytes/s]", curve)
        document.settle()

    def bytes_per_s(self, gpu, senders, size):
        """Bandwidth of each of `senders` GPUs of a node that send messages of `size` bytes at once."""
        if gpu not in self.curves:
            refuse(self.origin, f"has no bandwidths between nodes of {gpu}; it has {', '.join(sorted(self.curves))}")
        if senders not in self.curves[gpu]:
            known = ", ".join(map(str, sorted(self.curves[gpu])))
            refuse(self.origin, f"has no bandwidths for {senders} GPUs of a node of {gpu}; it has those for {known}")
        a, b, c, most = self.curves[gpu][senders]
        # The curve was fitted from 1 MB up to where it is largest; beyond either end it is constant.
        x = max(0.0, math.log2(size / 1e6))
        if a < 0:
            x = min(x, -b / (2 * a))
        return min(most, 1e9 * (a * x * x + b * x + c)) / senders


# --- The folders around a plan


def profiles_near(plan_file):
    """`profiles` in the plan's folder or the nearest folder above that has one."""
    for folder in pathlib.Path(os.path.abspath(plan_file)).parents:
        if (folder / "profiles").is_dir():
            return folder / "profiles"
    refuse(plan_file, "needs measured layer times, and there is no folder 'profiles' beside or above it; give one with "
                      "--profiles DIR (DIR/MODEL/GPU/profile.json)")


class Library:
    """The models that were profiled: shapes, profiles by kind of GPU, notes on them; the network."""

    def __init__(self, profiles):
        self.folder = pathlib.Path(profiles)
        if not self.folder.is_dir():
            refuse(self.folder, "is not a folder")
        self.configs = pathlib.Path(os.path.abspath(self.folder)).parent / "configs"
        self.profiles = {}
        for file in sorted(self.folder.glob("*/*/profile.json")):
            self.profiles.setdefault(file.parts[-3], {})[file.parts[-2]] = Profile.read(file)
        if not self.profiles:
            refuse(self.folder, "holds no MODEL/GPU/profile.json")
        self.notes = {name: [] for name in self.profiles}
        self.shapes = {name: KNOWN_SHAPES[name] for name in self.profiles if name in KNOWN_SHAPES}
        self.read_configurations()
        self.replace_contradictions()

    def read_configurations(self):
        network = self.configs / "network_coeffs_all_homo.json"
        if not network.exists():
            refuse(network, "is missing: the bandwidths between nodes are read from it")
        self.network = Network(network)
        for file in sorted(self.configs.glob("training_config*.json")):
            shape = read_shape(file)
            if shape.name in self.profiles:
                self.shapes[shape.name] = shape

    def replace_contradictions(self):
        """Profiles must have their model's blocks, an embedding, a head and perhaps a norm between."""
        left_out = [(name, gpu) for name, shape in sorted(self.shapes.items()) for gpu, profile in self.profiles[name].items()
                    if profile.layers - shape.layers not in (2, 3)]
        for name, gpu in left_out:
            layers = self.profiles[name].pop(gpu).layers
            self.notes[name].append(f"the profile of {name} on {gpu} is left out: it has {layers} layers, the model "
                                    f"{self.shapes[name].layers} blocks")
        for name, gpu in left_out:
            self.estimate(name, gpu)

    def estimate(self, name, gpu):
        table = {}
        for elsewhere, profile in sorted(self.profiles[name].items()):
            others = [of for other, of in sorted(self.profiles.items()) if other != name and elsewhere in of and gpu in of]
            references = [(of[elsewhere], of[gpu]) for of in others if of[elsewhere].has_updates() and of[gpu].has_updates()]
            if not profile.has_updates():
                continue
            for size, degrees in estimated(profile, references, "").table.items():
                for degree, times in degrees.items():
                    table.setdefault(size, {}).setdefault(degree, times)
            layers = profile.layers
        if not table:
            return
        self.notes[name].append(f"times of {name} on {gpu} are estimated: those on another GPU, times what other models gain "
                                "from there")
        origin = f"{self.folder}: {name} on {gpu}, estimated"
        self.profiles[name][gpu] = Profile(origin, layers, dict(sorted(table.items())))

    def model_of(self, plan, given):
        """The model a plan was run with: `given`, or the one that has as many layers and was profiled
        on the plan's GPUs."""
        names = ", ".join(sorted(self.profiles))
        if given:
            if given not in self.profiles:
                refuse("--model", f"'{given}' has no profile in {self.folder}; there are {names}")
            return given
        fitting = [name for name, of in sorted(self.profiles.items())
                   if all(gpu in of and of[gpu].layers == plan.layers for gpu in plan.gpus())]
        what = f"{plan.layers} layers on {' and '.join(plan.gpus())}"
        if not fitting:
            refuse(plan.file, f"no profile in {self.folder} has {what}; its models are {names}")
        if len(fitting) > 1:
            refuse(plan.file, f"several models have {what}: {', '.join(fitting)}; say which with --model")
        return fitting[0]

    def check(self, plan, name):
        """Refuses a plan whose times or layers are not there."""
        profiles, shape = self.profiles[name], self.shapes.get(name)
        if shape is None:
            refuse(name, "has layer times but no training configuration; put a training_config_*.json with its shape into "
                         f"{self.configs}")
        for gpu in plan.gpus():
            if gpu not in profiles:
                why = f" ({'; '.join(self.notes[name])})" if self.notes[name] else ""
                refuse(plan.file, f"{name} has no usable profile on {gpu}; it has those on {', '.join(sorted(profiles))}{why}")
            if profiles[gpu].layers != plan.layers:
                refuse(plan.file, f"has {plan.layers} layers, but the profile of {name} on {gpu} has {profiles[gpu].layers}")
        if plan.layers < shape.layers + 2:
            refuse(plan.file, f"has {plan.layers} layers; {name} has {shape.layers} blocks, an embedding and a head")


library_in = functools.lru_cache(maxsize=None)(Library)


# --- Scenarios


def slowest(stages):
    """The largest of each number."""
    return [max(part) for part in zip(*stages)]


def stage_numbers(plan, layers, replica, shape, profile):
    """(forward, backward, step in seconds; parameters; activation and workspace in bytes) of a stage
    on the GPUs of one replica, per microbatch where that matters."""
    b, t, blocks = plan.microbatch_size, replica.tensor, [l for l in layers if 1 <= l <= shape.layers]
    last = layers[-1] == plan.layers - 1
    times = [profile.times(b, t, layer) for layer in layers]
    parameters = len(blocks) * shape.block_parameters(t)
    parameters += shape.embedding_parameters(t) if layers[0] == 0 else 0
    parameters += shape.head_parameters(t) if last else 0
    workspace = SCORE_COPIES * ELEMENT * b * shape.sequence**2 * shape.heads / t if blocks else 0
    workspace += LOGITS_BYTES * b * shape.sequence * shape.vocabulary_rows(t) if last else 0
    return (*(added(part) for part in zip(*times)), parameters, len(blocks) * shape.block_activation_bytes(b, t), workspace)


def added(numbers):
    """From the first to the last; Python's own sum rounds otherwise from 3.12 on."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def scenario_of(plan, name, library):
    library.check(plan, name)
    shape = library.shapes[name]
    profiles = library.profiles[name]
    stages = [slowest(stage_numbers(plan, pipeline.layers[s], replica, shape, profiles[replica.gpu])
                      for pipeline in plan.pipelines for replica in pipeline.replicas[s])
              for s in range(plan.depth)]
    message = EXCHANGE * ELEMENT * plan.microbatch_size * shape.sequence * shape.hidden
    # What the slowest NIC delivers of messages between stages or, where there are none, of the parts
    # of gradients that go round.
    moved = message if plan.depth > 1 else REDUCED * stages[0][3] / plan.width
    bandwidth = min(library.network.bytes_per_s(replica.gpu, replica.tensor, moved) for replica in plan.replicas())

    def seconds(part, factor=1):
        return [f"{factor * stage[part]!r} s" for stage in stages]

    def size(part, factor=1):
        return [f"{math.floor(factor * stage[part] + 0.5)} B" for stage in stages]

    return {"name": plan.name,
            "model": {"forward": seconds(0), "backward": seconds(1), "step": seconds(2, UPDATE_SHARE), "output": f"{message} B",
                      "parameters": size(3, WEIGHTS), "gradients": size(3, GRADIENTS), "optimizer": size(3, OPTIMIZER),
                      "activation": size(4), "workspace": size(5)},
            "cluster": {"devices": plan.depth * plan.width, "device": {"name": " and ".join(plan.gpus())},
                        "link": {"bandwidth": f"{bandwidth!r} B/s"}},
            "stack": "deepspeed-profiled", "schedule": "1f1b", "transfers": "coupled",
            "pipeline": {"stages": plan.depth, "width": plan.width, "microbatch_size": plan.microbatch_size,
                         "microbatches": plan.microbatches, "reduction": {"algorithm": "formula"}}}


def row_of(path, profiles, given_model):
    plan = read_plan(path)
    library = library_in(profiles or profiles_near(path))
    name = library.model_of(plan, given_model)
    return {"id": plan.name, "model": name, "pp": plan.depth,
            "scenario_json": json.dumps(scenario_of(plan, name, library)),
            "iteration_s": "" if plan.measured_s is None else repr(plan.measured_s),
            "peak_gib": "" if plan.max_bytes is None else repr(plan.max_bytes / 2**30),
            "peak_of": "GPU", "note": "; ".join(library.notes[name])}


def main():
    parser = argparse.ArgumentParser(description="Sailor's measurements as a table of training runs")
    parser.add_argument("--profiles", default="", help="the folder with MODEL/GPU/profile.json; default: near each plan")
    parser.add_argument("--model", default="", help="of the plans; default: by layers and GPU")
    parser.add_argument("--problems", choices=["text", "json"], default="text", help="how what is wrong is said")
    parser.add_argument("plans", nargs="+")
    arguments = parser.parse_args()
    try:
        rows = [row_of(path, arguments.profiles, arguments.model) for path in arguments.plans]
    except Refused as refused:
        if arguments.problems == "json":
            print(json.dumps(refused.problems))
        else:
            for origin, line, column, message in refused.problems:
                print(f"{origin}:{line}:{column}: {message}" if line else f"{origin}: {message}", file=sys.stderr)
        return 2
    table = csv.DictWriter(sys.stdout, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
