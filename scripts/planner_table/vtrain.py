# SPDX-License-Identifier: Apache-2.0
"""vTrain's models on its clusters. Its times are of whole iterations, not of layers: models come by
their shape, with the layer times of penstock's device."""

import csv

from .row import Row, flow

NODE = 8  # GPUs
VOCABULARY = 50257
SMALL_BATCH = 32  # samples per update on one node, where many are measured


def rows(data, _folder):
    seen = set()
    for file in ("single.csv", "multi.csv"):
        path = data / "measured" / "vtrain" / file
        if not path.exists():
            continue
        with path.open(newline="") as lines:
            for line in csv.DictReader(lines):
                row = row_of(line, None if file == "multi.csv" else NODE)
                if row.key not in seen:
                    seen.add(row.key)
                    yield row


def row_of(line, gpus):
    batch = int(line["global batch"]) if gpus is None else SMALL_BATCH
    gpus = gpus or int(line["# GPUs"])
    hidden, layers = int(line["hidden size"]), int(line["# layers"])
    shape = {"family": "gpt", "num_layers": layers, "hidden_size": hidden,
             "num_attention_heads": line["attention heads"], "vocab_size": VOCABULARY,
             "seq_length": line["sequence length"], "precision": "mixed-fp16"}
    cluster = {"base": "dgx-a100", "nodes": gpus // NODE}
    return Row("vTrain", f"GPT h {hidden}, {layers} layers", f"{gpus} x A100-80",
               (flow(shape), "--cluster", flow(cluster), "--batch", str(batch)))
