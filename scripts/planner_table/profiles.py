# SPDX-License-Identifier: Apache-2.0
"""Profiles of layers in PipeDream's and DAPPLE's format on the clusters of PipeDream's paper."""
import re

from .row import Row

# GPUs of a server and between servers, per direction: Narayanan et al., SOSP'19, table 2, with the
# bandwidths of its released optimizer's examples.
CLUSTERS = {"A": ["4x12GB/s", "4x1.25GB/s"], "B": ["8x30GB/s", "2x3.125GB/s"], "C": ["4x5GB/s"]}
MEMORY = "16GB"

# Samples of a profile's minibatch: what the activations of the first convolution say; of GNMT,
# docs/validation.md. DAPPLE's profiles have it in their names (pbs-N).
BATCHES = {"alexnet": 256, "densenet121": 64, "gnmt": 32, "gnmt_large": 64, "inception_v3": 128,
           "nasnetalarge": 16, "nasnetamobile": 128, "resnet101": 64, "resnet18": 256,
           "resnet50": 128, "resnext101": 64, "resnext50": 128, "squeezenet1_0": 256, "vgg16": 128}
FOLDERS = {"pipedream_profiles": "PipeDream", "dapple_profiles": "DAPPLE",
           "pipedream_profiles_compressed": "PipeDream, compressed"}


def rows_of(file, group="profile"):
    name = file.stem if file.stem != "graph" else file.parent.name
    named = re.search(r"-pbs-(\d+)", name)
    batch = int(named.group(1)) if named else BATCHES.get(name, 1)
    for cluster, levels in CLUSTERS.items():
        words = [str(file), "--profile-batch", str(batch), "--memory", MEMORY]
        yield Row(group, name, cluster,
                  tuple(words + [word for level in levels for word in ("--level", level)]))


def rows(data, _folder):
    for folder, group in FOLDERS.items():
        for file in sorted((data / folder).rglob("*.txt")):
            yield from rows_of(file, group)
