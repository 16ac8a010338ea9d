#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts every published data set and writes what came of it: scoreboard.md and scoreboard.html.

  scripts/scoreboard.py SHARED FOLDER     (scripts/scoreboard.sh says it shorter)

SETS says of each set its file, its form for `penstock validate`, and what the model knew of it, AIMS what was asked for.
Baselines are made here from the same rows: constant MFU with the bubble formula, a closed form, and `simulate` with the
neutral stack. The page is the program's own: `penstock validate FOLDER --as predicted --report`. Needs the program alone."""
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PENSTOCK = os.environ.get("PENSTOCK", str(ROOT / "penstock"))
NEUTRAL = "{name: neutral"
KERNELS_ALONE = "{base: megatron-kernels"  # nothing of it was fitted on training runs
EAGER_KERNELS = "{base: eager-kernels"  # but the host's times, on nanotron's
PEAKS = {"h100": 989.4e12, "a100-80": 312e12, "v100-32": 125e12, "v100-16": 125e12, "b200": 2250e12, "gb200": 2500e12,
         "b300": 2250e12, "gb300": 2500e12, "mi355x": 2500e12, "h200": 989.4e12, "a100-40": 312e12}
# Bytes/s that a GPU can send within its node, and by data sheet to others; a set whose clusters say less has `nic`.
LINKS = {"h100": (450e9, 50e9), "a100-80": (300e9, 25e9), "v100-32": (50e9, 12.5e9), "v100-16": (50e9, 12.5e9),
         "b200": (900e9, 50e9), "gb200": (900e9, 50e9), "b300": (900e9, 100e9), "gb300": (900e9, 100e9), "mi355x": (537.6e9, 50e9), "h200": (450e9, 50e9), "a100-40": (300e9, 12.5e9), "gh200": (150e9, 25e9)}
NODE = 8   # GPUs
TITAN = "torchtitan, Llama 3 8B to 405B on 8 to 512 A100, H100 and H200"
FOUNDRY = "llm-foundry, MPT 125M to 70B under FSDP on 8 to 512 A100 and H100"
RECIPES, RECIPES_SHORT = "NVIDIA's recipes, bf16 and fp8, 8 to 2,304 H100 and GB200", "NVIDIA's recipes"
FREE = "matrix_efficiency,forward_traffic,iteration_overhead"
TOO_SLOW = "not fitted: hundreds of predictions of these rows take too long"
FOLDS = 10


def column(name, *values):
    return lambda row: row[name] in values


def tensor(least, most):
    return lambda row: least <= int(row["tp"]) <= most


def deep(row):
    return int(row["pp"] or 1) > 1


# Title, file under SHARED (or the project's own), form, what was known to the model, classes, files of classes by id, rows left out and why.
# For the table of three columns: `kernels`, why measured kernels alone say nothing of it; `others`, the stack that was fitted on other
# sets (of the program that is most alike, not the one that errs least) and on which, or why there is none; `fitted`, what the
# board's own prediction had seen of these rows, or `fit`, a stack and its numbers that are fitted on the others of five folds, or why not;
# `by_class`: its classes have lines of their own there; `graphs`: all runs launch kernels as CUDA graphs.
SETS = [
    {"title": "nanotron, H100 (Ultra-Scale Playbook), class C", "file": "data/field/nanotron_A.csv", "form": "runs",
     "known": "13 + 5 numbers of the stack, fitted on these rows; each half by a fit on the other 4.3 % (median)",
     "classes_of": "data/field/nanotron_classes_A.csv", "class": "C",
     "others": ("megatron", RECIPES_SHORT), "fitted": "on these rows", "by_class": True, "eager": True,
     "left_out": "classes T, P, N, X: host-bound tensor parallelism, an old point-to-point code, 64 nodes, excluded by its author",
     "classes": [("tensor <= 8, depth > 1", lambda row: tensor(1, 8)(row) and deep(row)), ("tensor <= 8", tensor(1, 8)),
                 ("tensor 16", tensor(16, 16)), ("tensor 32", tensor(32, 32))]},
    {"title": "nanotron, H100, all classes", "file": "data/field/nanotron_A.csv", "form": "runs",
     "known": "the same; the other classes: nothing", "left_out": "", "classes_of": "data/field/nanotron_classes_A.csv",
     "plot": "nanotron, H100, classes T, P, N and X", "classes": []},
    {"title": "nanotron, H100, finished or not", "file": "data/field/nanotron_finished_A.csv", "form": "runs",
     "known": "nothing of whether they finished", "left_out": "", "classes": []},
    {"title": "bigscience, A100", "file": "data/field/bigscience_A.csv", "form": "runs",
     "known": "8 numbers of the stack, fitted on 62 of these rows; in ten folds 3.0 % (median)",
     "others": ("megatron-a100-node", "vTrain, one node"), "fitted": "on 62 of these rows",
     "nic": 6.25e9, "only": column("gpu", "a100-80"), "left_out": "rows on V100, which are a set of their own",
     "classes": [("heads of a multiple of 8", lambda row: int(row["hidden"]) // int(row["heads"]) % 8 == 0),
                 ("other heads", lambda row: int(row["hidden"]) // int(row["heads"]) % 8 != 0)]},
    {"title": "bigscience, V100", "file": "data/field/bigscience_A.csv", "form": "runs",
     "kernels": "no kernels of V100 were measured", "others": ("megatron-deepspeed", "bigscience, A100"),
     "fit": TOO_SLOW,
     "known": "the stack fitted on A100; nothing of V100", "only": column("gpu", "v100-32", "v100-16"), "left_out": "",
     "classes": []},
    {"title": "SimuMax, dense Llama-3 layers on 8 B200", "file": "data/field/simumax_b200.csv", "form": "runs",
     "known": "measured products and attention; 9 + 4 numbers of the stack, fitted on these rows",
     "others": ("megatron", RECIPES_SHORT), "fitted": "on these rows",
     "left_out": "interleaved ones, which SimuMax leaves out, too",
     "classes": [("tensor 8", tensor(8, 8)), ("depth 2", deep)]},
    {"title": "SimuMax, context parallelism on 8 B200", "file": "data/field/simumax_b200_A.json", "form": "simumax",
     "known": "that stack, nothing of these rows; their all-to-all is a ring here", "chosen": lambda row: "_cp" in row["name"],
     "others": ("megatron-b200-node", "its dense rows"), "fit": "too few rows",
     "left_out": "", "classes": []},
    {"title": "Selene, 22 billion to 1 trillion parameters", "own": "tests/published/selene.csv", "form": "runs",
     "known": "2 numbers of the stack, each row by a fit on the others", "left_out": "", "classes": [],
     "others": ("megatron-a100-nodes", "vTrain"), "fitted": "by the others",
     "folds": ["megatron-2022", "matrix_efficiency,attention_efficiency"]},
    {"title": "Zero Bubble, 1.5 to 28.3 billion parameters on A100", "own": "tests/published/zero_bubble.csv", "form": "runs",
     "known": "no stack; 3 points of the A100's curve are of this paper's layers", "in_curve": "3 of its points",
     "others": ("megatron", RECIPES_SHORT), "fit": TOO_SLOW,
     "left_out": "interleaved 1F1B, of a number of chunks that is not said",
     "classes": [("1F1B", column("schedule", "1f1b")), ("ZB-1p", column("schedule", "zb-1p")),
                 ("ZB-2p", column("schedule", "zb-2p"))]},
    {"title": "PipeDream-2BW, GPT and BERT on 8 and 64 V100", "own": "tests/published/pipedream_2bw.csv", "form": "runs",
     "known": "no stack; a point of the V100's curve is of GPT-2.2B's bars, what a NIC delivers of those of 64 GPUs",
     "in_curve": "one point and the NIC", "kernels": "no kernels of V100 were measured",
     "others": ("megatron-deepspeed", "bigscience"),
     "fit": "its rows say samples/s, and time is fitted", "nic": 10e9 / 8 / 8, "left_out": "inter-layer model parallelism on 64 GPUs, which fits no single configuration",
     "classes": [("GPT-2.2B on 8", lambda row: row["gpus"] == "8" and row["family"] == "gpt"),
                 ("BERT-2.2B on 8", lambda row: row["gpus"] == "8" and row["family"] == "bert"),
                 ("64 GPUs", column("gpus", "64"))]},
    {"title": "Llama 3 405B on 8,192 and 16,384 H100", "own": "tests/published/llama3.csv", "form": "runs",
     "known": "nothing: no stack, and the H100's curve of smaller models; times are FLOPs over the TFLOP/s it states, attention by half",
     "others": ("megatron", RECIPES_SHORT), "fit": "3 rows are too few",
     "left_out": "", "classes": [("sequences of 8,192", column("seq", "8192")), ("of 131,072", column("seq", "131072"))]},
    {"title": RECIPES, "file": "data/field/dgxc_A.csv", "form": "runs",
     "known": "measured kernels and collectives; 3 numbers of the stack `nemo`, fitted on these rows", "left_out": "",
     "others": ("megatron-b200-node", "SimuMax"), "fitted": "on these rows", "by_class": True,
     "classes": [("bf16, H100", lambda row: row["precision"] != "fp8" and row["gpu"] == "h100"),
                 ("fp8, H100", lambda row: row["precision"] == "fp8" and row["gpu"] == "h100"),
                 ("bf16, GB200", lambda row: row["precision"] != "fp8" and row["gpu"] == "gb200"),
                 ("fp8, GB200", lambda row: row["precision"] == "fp8" and row["gpu"] == "gb200"),
                 ("H100, whole sequences", lambda row: row["cp"] == "1" and row["gpu"] == "h100"),
                 ("H100, divided sequences", lambda row: row["cp"] != "1" and row["gpu"] == "h100"),
                 ("GB200", column("gpu", "gb200"))]},
    {"title": "MLPerf Training 4.0 to 5.1, fp8 and nvfp4", "file": "data/field/mlperf_A.csv", "form": "runs",
     "known": "the stack `nemo`: nothing of these rows; kernels of MI355X are assumed", "left_out": "",
     "others": ("nemo", RECIPES_SHORT), "fit": TOO_SLOW, "by_class": True,
     "classes": [("Llama 3.1 405B and GPT-3, up to 11,616 GPUs", lambda row: row["model"] != "Llama-3.1-8B"),
                 ("405B and GPT-3, H100", lambda row: row["model"] != "Llama-3.1-8B" and row["gpu"] == "h100"),
                 ("Llama 3.1 8B, fp8", lambda row: row["model"] == "Llama-3.1-8B" and row["precision"] == "fp8"),
                 ("Llama 3.1 8B, nvfp4", lambda row: row["model"] == "Llama-3.1-8B" and row["precision"] == "nvfp4")]},
    {"title": "MLPerf Training 6.0, Llama 3.1", "file": "data/field/mlperf6_A.csv", "form": "runs", "summary": True,
     "known": "the same", "left_out": "", "classes": [], "graphs": True, "chosen": lambda row: row["name"].startswith("l"),
     "others": ("nemo", RECIPES_SHORT), "fit": "4 rows are too few"},
    {"title": "MLPerf Training 6.0, mixtures of experts on 8 to 4,096 GPUs", "file": "data/field/mlperf6_A.csv", "form": "runs",
     "summary": True, "known": "the stack `nemo`, of dense runs; routing is taken to be balanced", "left_out": "",
     "chosen": lambda row: not row["name"].startswith("l"),
     "classes": [("DeepSeek-V3 on GB300, tensor 1", lambda row: row["name"].startswith("ds-gb300")),
                 ("DeepSeek-V3 on GB200, tensor 2", lambda row: row["name"].startswith("ds-gb200")),
                 ("GPT-OSS 20B", lambda row: row["name"].startswith("gptoss"))]},
    {"title": "NVIDIA's recipes, Grok-1 on 64 to 1,024 H100 and GB200", "file": "data/field/dgxc_moe_A.csv", "form": "runs",
     "summary": True, "known": "the stack `nemo`, of dense runs", "left_out": "",
     "classes": []},
    {"title": "SimuMax, DeepSeek-V2 and V3 of 4 layers on 8 B200", "file": "data/field/simumax_b200_A.json", "form": "runs",
     "summary": True, "known": "the stack `nemo`, of dense runs, on the machine that it measured", "left_out": "", "classes": [],
     "chosen": lambda row: row["name"].startswith("deepseek")},
    {"title": "Megatron-Bridge's summary, mixtures of experts", "file": "data/field/bridge_A.csv", "form": "runs",
     "summary": True, "known": "the stack `nemo`, of dense runs; how passes overlap is assumed", "left_out": "",
     "chosen": lambda row: "LLAMA" not in row["name"],
     "classes": [("DeepSeek-V3", lambda row: "DeepSeek" in row["name"]), ("Qwen3 30B", lambda row: "30B" in row["name"]),
                 ("Qwen3 235B", lambda row: "235B" in row["name"]), ("GPT-OSS 120B", lambda row: "OSS" in row["name"])]},
    {"title": "Megatron-Bridge's summary, Llama 3, fp8 and mxfp8", "file": "data/field/bridge_A.csv", "form": "runs",
     "summary": True, "known": "the stack `nemo`: nothing of these rows", "left_out": "", "chosen": lambda row: "LLAMA" in row["name"],
     "classes": [("H100", lambda row: "H100" in row["name"]), ("B200, GB200, GB300", lambda row: "H100" not in row["name"])],
     "others": ("nemo", RECIPES_SHORT), "fit": "its table holds mixtures of experts, too"},
    {"title": TITAN, "file": "data/field/torchtitan_A.csv", "form": "runs",
     "known": "2 numbers of the stack, fitted on these rows; in five folds about 7 % (median)",
     "others": ("nanotron", "nanotron"), "fit": ("torchtitan", "matrix_efficiency,attention_efficiency"), "left_out": "",
     "classes": [("bf16", column("precision", "mixed-bf16")), ("float8", column("precision", "fp8")),
                 ("float8 by rows", column("precision", "fp8-rowwise")), ("over context ranks", lambda row: int(row["cp"]) > 1),
                 ("tensor 8", tensor(8, 8))]},
    {"title": "InternEvo, 7B on 8 to 1,024 A100, ZeRO-1 over all or a node", "file": "data/field/internevo_A.csv", "form": "runs",
     "known": "nothing: no stack, and the A100's curve", "left_out": "",
     "others": ("megatron", RECIPES_SHORT), "fit": ("megatron-b200-node", FREE),
     "classes": [("states over a node", lambda row: row["shard_group"] == "8" and int(row["dp"]) > 8),
                 ("states over all", lambda row: row["shard_group"] == row["dp"])]},
    {"title": FOUNDRY, "file": "data/field/foundry_A.csv", "form": "runs",
     "known": "5 numbers of the stack, fitted on these rows; in five folds about 7 % (median)",
     "in_curve": "its points", "others": ("nanotron", "nanotron"), "eager": True,
     "fit": ("llm-foundry", "matrix_efficiency,attention_efficiency,logits_traffic,link_efficiency,link_latency"),
     "only": column("precision", "mixed-bf16"), "left_out": "rows in fp8",
     "classes": [("sequences to 2,048", lambda row: int(row["seq"]) <= 2048), ("longer", lambda row: int(row["seq"]) > 2048),
                 ("over nodes", lambda row: int(row["gpus"]) > 8)]},
    {"title": "VocabularyParallelism, GPT 4B on 8 A100, from op times", "file": "data/field/vocab_parallel_A.csv", "form": "op-times",
     "known": "each device's F and B, measured in another run of the schedule", "left_out": "", "classes": []},
    {"title": "VocabularyParallelism, GPT 4B on 8 A100, from shapes", "file": "data/field/vocab_parallel_A.csv", "form": "runs",
     "known": "nothing: no stack, and the A100's curve", "only": column("schedule", "1f1b"),
     "left_out": "vocabulary layers divided among all stages, of which there is no schedule", "classes": [],
     "others": ("megatron", RECIPES_SHORT), "fit": "8 rows are too few"},
    {"title": "torchtitan, Llama 3.1 8B on H100", "own": "tests/published/torchtitan.csv", "form": "runs",
     "known": "these rows were seen by the stack's fit", "others": ("nanotron", "nanotron"), "fitted": "on these rows",
     "left_out": "rows in float8, all those with pipelines among them",
     "classes": [("compiled", column("stack", "torchtitan")), ("eager", column("stack", "torchtitan-eager"))]},
    {"title": "vTrain, one node of A100", "file": "data/measured/vtrain/single.csv", "form": "vtrain",
     "known": "11 numbers of the stack, 10-fold cross-validation", "left_out": "", "classes": [],
     "others": ("megatron-deepspeed", "bigscience"), "fitted": "ten folds",
     "folds": ["megatron-a100-node", "matrix_efficiency,attention_efficiency,misaligned_head,logits_traffic,forward_host,"
               "backward_host,tensor_host,link_efficiency,node_latency,optimizer_traffic,iteration_overhead"]},
    {"title": "vTrain, 64 to 512 A100", "file": "data/measured/vtrain/multi.csv", "form": "vtrain",
     "known": "one node's stack, and 5 numbers, 10-fold cross-validation", "left_out": "", "classes": [],
     "others": ("megatron-a100-node", "vTrain, one node"), "fitted": "ten folds",
     "nic": 12.5e9, "folds": ["megatron-a100-nodes",
               "matrix_efficiency,attention_efficiency,tensor_host,optimizer_traffic,iteration_overhead"]},
    {"title": "Sailor, OPT-350 on GH200", "file": "data/measured/sailor/OPT-350", "form": "sailor",
     "known": "measured layers; 3 + 1 shared numbers, each row by a fit on the others", "left_out": "", "classes": [],
     "kernels": "whole layers are measured: the next column", "others": "no other set has measured layers",
     "fitted": "by the others",
     "folds": ["deepspeed-profiled", "link_latency,iteration_overhead,speed_spread"], "memory": "reserved", "parts": "15"},
]

# Kernels: title, file under SHARED, mean error on a quarter of its shapes that a fit on the others had not seen (scripts/device_kernels
# --check). The files of the devices are fitted on all of these rows.
KERNELS = [("matrix products, 8 GPUs, bf16, fp8, fp8 by blocks, nvfp4", "data/kernels/gemm.csv.gz", "4.2 %"),
           ("layers of experts, with routing and permutation", "data/kernels/grouped_gemm.csv.gz", "7.6 %"),
           ("attention: causal, full and latent, bf16 and fp8", "data/kernels/attention.csv.gz", "4.7 %"),
           ("NCCL collectives among 2, 4 and 8 GPUs of a node", "data/kernels/collectives.csv", "3.9 %")]

# Kinds of runs whose errors are said with predictions like them (results/expected_error.hpp), the most particular first: title,
# class, what they are called, stack, chip, GPUs from and to, tensor degrees from and to, and flags: all in pipelines, sequences
# divided, layers measured, fitted on them, by a stack carried from another chip, of mixtures of experts, some in 8 or 4 bits, or predicted
# with the neutral stack (of the baselines).
KINDS = [
    ("nanotron, H100 (Ultra-Scale Playbook), class C", "tensor <= 8, depth > 1",
     "nanotron on H100 (Ultra-Scale Playbook, regular ones), tensor <= 8, in pipelines", "nanotron", "H100", 8, 256, 1, 8,
     {"pipelined", "fitted"}),
    ("nanotron, H100 (Ultra-Scale Playbook), class C", "tensor <= 8",
     "nanotron on H100 (Ultra-Scale Playbook, regular ones), tensor <= 8", "nanotron", "H100", 8, 256, 1, 8, {"fitted"}),
    ("nanotron, H100 (Ultra-Scale Playbook), class C", "tensor 16",
     "nanotron on H100 (Ultra-Scale Playbook, regular ones), tensor 16", "nanotron", "H100", 16, 256, 16, 16, {"fitted"}),
    ("nanotron, H100 (Ultra-Scale Playbook), class C", "tensor 32",
     "nanotron on H100 (Ultra-Scale Playbook, regular ones), tensor 32", "nanotron", "H100", 32, 256, 32, 32, {"fitted"}),
    (RECIPES, "H100, whole sequences", "NeMo on H100 (NVIDIA's recipes)", "nemo", "H100", 32, 2048, 2, 8, {"fitted", "narrow"}),
    (RECIPES, "H100, divided sequences", "NeMo with divided sequences on H100 (NVIDIA's recipes)", "nemo", "H100", 8, 2304, 1, 8,
     {"fitted", "narrow", "context"}),
    (RECIPES, "GB200", "NeMo on GB200 (NVIDIA's recipes)", "nemo", "B200", 128, 512, 4, 8, {"fitted", "narrow", "pipelined"}),
    ("MLPerf Training 4.0 to 5.1, fp8 and nvfp4", "405B and GPT-3, H100",
     "NeMo, 405B and GPT-3 on H100 (MLPerf)", "nemo", "H100", 512, 11616, 4, 8, {"narrow", "pipelined", "context"}),
    ("NVIDIA's recipes, Grok-1 on 64 to 1,024 H100 and GB200", None, "NeMo, Grok-1 on H100 and GB200 (NVIDIA's recipes)", "nemo", "H100",
     64, 1024, 4, 4, {"narrow", "context", "experts"}),
    ("MLPerf Training 6.0, mixtures of experts on 8 to 4,096 GPUs", "DeepSeek-V3 on GB300, tensor 1",
     "NeMo, DeepSeek-V3 on GB300 (MLPerf)", "nemo", "B300", 256, 2048, 1, 1, {"narrow", "pipelined", "experts"}),
    ("Megatron-Bridge's summary, mixtures of experts", None, "Megatron-Bridge's pages, mixtures of experts on H100 to GB300", "nemo",
     "B200", 8, 1024, 1, 4, {"narrow", "experts"}),
    ("SimuMax, dense Llama-3 layers on 8 B200", None, "Megatron on 8 B200 (SimuMax, layers of Llama 3)", "megatron-b200-node", "B200", 8, 8,
     1, 8, {"fitted"}),
    ("SimuMax, context parallelism on 8 B200", None, "Megatron with divided sequences on 8 B200 (SimuMax)", "megatron-b200-node", "B200", 8,
     8, 1, 2, {"context"}),
    ("bigscience, A100", None, "Megatron-DeepSpeed on A100 (bigscience)", "megatron-deepspeed", "A100", 8, 384, 4, 8, {"fitted"}),
    ("bigscience, V100", None, "Megatron-DeepSpeed on V100 (bigscience), by a stack fitted on A100", "megatron-deepspeed", "V100", 8,
     128, 1, 4, {"carried"}),
    ("Selene, 22 billion to 1 trillion parameters", None, "Megatron of 2022 on A100 (Selene)", "megatron-2022", "A100", 8, 512, 8, 8,
     set()),
    ("torchtitan, Llama 3.1 8B on H100", "compiled", "torchtitan, compiled, on H100", "torchtitan", "H100", 8, 128, 1, 1, {"fitted"}),
    ("torchtitan, Llama 3.1 8B on H100", "eager", "torchtitan, eager, on H100", "torchtitan-eager", "H100", 8, 128, 1, 1, set()),
    ("vTrain, one node of A100", "depth > 1", "Megatron-DeepSpeed on up to 8 A100 (vTrain), in pipelines", "megatron-a100-node", "A100",
     2, 8, 1, 4, {"pipelined"}),
    ("vTrain, one node of A100", None, "Megatron-DeepSpeed on up to 8 A100 (vTrain)", "megatron-a100-node", "A100", 2, 8, 1, 8, set()),
    ("vTrain, 64 to 512 A100", "depth > 1", "Megatron-DeepSpeed on 64 to 512 A100 (vTrain), in pipelines", "megatron-a100-nodes",
     "A100", 64, 512, 1, 8, {"pipelined"}),
    ("vTrain, 64 to 512 A100", None, "Megatron-DeepSpeed on 64 to 512 A100 (vTrain)", "megatron-a100-nodes", "A100", 64, 512, 1, 16,
     set()),
    ("Zero Bubble, 1.5 to 28.3 billion parameters on A100", None, "Megatron on A100 (Zero Bubble), predicted without a stack", "",
     "A100", 8, 32, 1, 1, {"pipelined"}),
    ("PipeDream-2BW, GPT and BERT on 8 and 64 V100", None, "PipeDream-2BW's paper on V100, predicted without a stack", "", "V100", 8,
     64, 1, 1, set()),
    ("Llama 3 405B on 8,192 and 16,384 H100", None, "Llama 3 405B on H100, predicted without a stack", "", "H100", 8192, 16384, 8, 8,
     {"pipelined"}),
    ("nanotron, H100 (Ultra-Scale Playbook), class C", None, "nanotron on H100 (Ultra-Scale Playbook), predicted without a stack", "",
     "H100", 8, 256, 1, 32, {"neutral"}),
    ("bigscience, A100", None, "Megatron-DeepSpeed on A100 (bigscience), predicted without a stack", "", "A100", 8, 384, 4, 8,
     {"neutral"}),
    ("vTrain, one node of A100", None, "Megatron-DeepSpeed on up to 8 A100 (vTrain), predicted without a stack", "", "A100", 2, 8, 1, 8,
     {"neutral"}),
    ("SimuMax, dense Llama-3 layers on 8 B200", None, "Megatron on 8 B200 (SimuMax), predicted without a stack", "", "B200", 8, 8, 1, 8,
     {"neutral"}),
    ("Sailor, OPT-350 on GH200", None, "DeepSpeed on GH200 whose layers were measured (Sailor)", "deepspeed-profiled", "GH200", 4, 128,
     1, 4, {"profiled"}),
]

# Times of the stack megatron are nemo's, memory is not.
KINDS += [(title, name, called, "megatron", *rest, flags | {"times"}) for title, name, called, stack, *rest, flags in KINDS if stack == "nemo"]

STATISTICS = {"mean": statistics.mean, "median": statistics.median, "largest": max}
PREDICTED = ("name", "depth", "class", "measured_s", "predicted_s", "measured_bytes", "predicted_bytes")
NANOTRON = "nanotron, H100 (Ultra-Scale Playbook), class C"
TWO_BW = "PipeDream-2BW, GPT and BERT on 8 and 64 V100"

# What was asked for, and of each why it stands where it does.
AIMS = [
    {"what": "nanotron class C, tensor <= 8, depth > 1: time", "title": NANOTRON, "class": "tensor <= 8, depth > 1", "of": "time",
     "most": (("median", 5), ("mean", 7)), "aim": "median <= 5 %, mean <= 7 %", "why": ""},
    {"what": "– memory of stage 0", "title": NANOTRON, "class": "tensor <= 8, depth > 1", "of": "memory",
     "most": (("median", 6),), "aim": "median <= 6 %",
     "why": "near: two rows (+124, +76 %) used less than any of their kin; tensor 8 with microbatches of 16 and 32 goes both "
            "ways (-27 to +20 %), as inputs kept or gathered again would. A column of that, or each run's commit, would decide"},
    {"what": "all of nanotron C, tensor 16 and 32 with it", "title": NANOTRON, "of": "time", "most": (("median", 7),),
     "aim": "median <= 7 %", "why": ""},
    {"what": "out of memory: right, false alarms", "title": "nanotron, H100, finished or not", "finished": True,
     "aim": ">= 90 %, <= 1 %",
     "why": "near: 84 of the 119 missed have a stage without layers, and may have stopped for another reason: the runs' error "
            "messages would decide"},
    {"what": "bigscience A100", "title": "bigscience, A100", "of": "time", "most": (("median", 6),), "aim": "median <= 6 %",
     "why": ""},
    {"what": "vTrain, one node, depth > 1, cross-validated", "title": "vTrain, one node of A100", "class": "depth > 1",
     "of": "time", "most": (("mean", 4.5),), "aim": "mean <= 4.5 %", "why": ""},
    {"what": "vTrain, many nodes, depth > 1, cross-validated", "title": "vTrain, 64 to 512 A100", "class": "depth > 1",
     "of": "time", "most": (("mean", 5.5),), "aim": "mean <= 5.5 %",
     "why": "at the edge: other seeds of the folds give 5.50 to 5.65 %. Four rows (tensor 2 on 512 GPUs, tensor 4) make half "
            "of it; it goes with layers, not with messages or gradients ([validation.md](validation.md)): a profile of one such "
            "run would decide"},
    {"what": "Sailor, depth > 1: time", "title": "Sailor, OPT-350 on GH200", "class": "depth > 1", "of": "time",
     "most": (("mean", 6),), "aim": "<= 6 %", "why": "of OPT-350 alone: its other models and clusters are kept elsewhere"},
    {"what": "– memory", "title": "Sailor, OPT-350 on GH200", "class": "depth > 1", "of": "memory",
     "most": (("mean", 4),), "aim": "<= 4 %", "why": "as above"},
    {"what": "NVIDIA's dense recipes, one stack for all", "title": RECIPES, "of": "time", "most": (("median", 4),),
     "aim": "median <= 4 %", "why": "three numbers fitted on these rows; unlike them, MLPerf's and Bridge's below were not seen"},
    {"what": "MLPerf 405B and GPT-3, 256 to 11,616 GPUs, not fitted", "title": "MLPerf Training 4.0 to 5.1, fp8 and nvfp4",
     "class": "Llama 3.1 405B and GPT-3, up to 11,616 GPUs", "of": "time", "most": (("median", 10), ("largest", 25)),
     "aim": "median <= 10 %, none over 25 %", "why": "by the stack fitted on the recipes"},
    {"what": "Llama 3 405B on 8,192 and 16,384 H100", "title": "Llama 3 405B on 8,192 and 16,384 H100", "of": "time",
     "most": (("mean", 5),), "aim": "<= 5 %", "why": ""},
    {"what": "Megatron-Bridge, Llama 3, H100", "title": "Megatron-Bridge's summary, Llama 3, fp8 and mxfp8", "class": "H100", "of": "time",
     "most": (("median", 8),), "aim": "median <= 8 %", "why": ""},
    {"what": "Megatron-Bridge, mixtures of experts", "title": "Megatron-Bridge's summary, mixtures of experts", "of": "time",
     "most": (("median", 12),), "aim": "median <= 12 %",
     "why": "one job (Qwen3 30B on 8 GB300) differs by 1.6x between its releases: launches, waits for counts of tokens, copies between "
            "permutations. Which of them a row has would decide"},
    {"what": "Grok-1", "title": "NVIDIA's recipes, Grok-1 on 64 to 1,024 H100 and GB200", "of": "time", "most": (("median", 10),),
     "aim": "median <= 10 %", "why": "nothing of mixtures was fitted"},
    {"what": "DeepSeek-V3 and GPT-OSS of MLPerf 6.0", "title": "MLPerf Training 6.0, mixtures of experts on 8 to 4,096 GPUs", "of": "time",
     "most": (("mean", 6), ("largest", 12)), "aim": "mean <= 6 %, none over 12 %",
     "why": "DeepSeek-V3 with tensor 2 on GB200 (-6, -18 %) takes longer than its kernels and exchanges here; the one on GB300 is up to "
            "13 % too slow since exchanges occupy multiprocessors. A trace of one of its layers would decide"},
    {"what": "llm-foundry", "title": FOUNDRY, "of": "time", "most": (("median", 8),), "aim": "median <= 8 %",
     "why": "one stack, fitted on these rows. Long sequences on H100 are too fast: attention's kernels of 2023 reach 27 % of an A100's peak, "
            "15 % of an H100's, and the stack has one number"},
    {"what": "torchtitan", "title": TITAN, "of": "time", "most": (("median", 10),), "aim": "median <= 10 %",
     "why": "one stack, fitted on these rows: most of their GPUs are limited to 500 W, so the row on A100 is 51 % too slow; float8 by "
            "rows, whose kernels no table has, is up to 48 % too fast"},
    {"what": "InternEvo", "title": "InternEvo, 7B on 8 to 1,024 A100, ZeRO-1 over all or a node", "of": "time", "most": (("median", 10),),
     "aim": "median <= 10 %", "why": ""},
    {"what": "SimuMax dense B200: time", "title": "SimuMax, dense Llama-3 layers on 8 B200", "of": "time",
     "most": (("mean", 4),), "aim": "<= 4 %", "why": "fitted on these rows; in ten folds 3.2 %"},
    {"what": "– memory", "title": "SimuMax, dense Llama-3 layers on 8 B200", "of": "memory", "most": (("mean", 3),),
     "aim": "<= 3 %", "why": "fitted on these rows; in ten folds 1.7 %"},
    {"what": "Selene, 8 points", "title": "Selene, 22 billion to 1 trillion parameters", "of": "time",
     "most": (("mean", 3.5),), "aim": "<= 3.5 %", "why": "each by a fit on the others"},
    {"what": "2BW's figures, GPT-2.2B on 8 V100: rates", "title": TWO_BW, "class": "GPT-2.2B on 8", "of": "rate",
     "most": (("largest", 6),), "aim": "as before: each bar within 6 %", "why": ""},
    {"what": "– GPT and BERT on 64 V100: rates", "title": TWO_BW, "class": "64 GPUs", "of": "rate",
     "most": (("mean", 8), ("largest", 20)), "aim": "as before: mean < 8 %, largest < 20 %",
     "why": "the NIC's rate is fitted on these bars"},
    {"what": "– BERT-2.2B on 8 V100: rates", "title": TWO_BW, "class": "BERT-2.2B on 8", "of": "rate",
     "most": (("largest", 15),), "aim": "as before: each bar within 15 %",
     "why": "as before, three bars miss it, Flush and GPipe at 64 and GPipe at 256, below"},
    {"what": "Zero Bubble's table 4", "title": "Zero Bubble, 1.5 to 28.3 billion parameters on A100", "of": "time",
     "most": (("mean", None),), "aim": "as before: no time was compared then",
     "why": "the paper's bubble rates are reproduced (`tests/schedules`); of 1.5 billion the last stage, two layers and the LM "
            "head, comes out as the slowest. The vocabulary, which the paper does not say, or op times by stage, of which its "
            "table 9 has the mean alone, would decide"},
]

# On rows that are predicted and that no aim names, what was followed.
AFTER_AIMS = """Half A alone was seen by any fit and by any choice here; what it is worth on the other half is for whoever holds that.
In-sample are nanotron's, bigscience's and SimuMax's rows (their folds: [validation.md](validation.md)).

Far off, and no aim:
* *nanotron's classes T, P and N* (505 of its 887 rows, 78 % median): hosts, an old point-to-point code and 64 nodes took the time, and
  no column says when. Not modelled: it would be a number per run.
* *Tensor 32* (15 % median): two kinds of runs, that gather inputs again or do not. A column, or the commit of each run, would decide.
* *bigscience's memory* (-21 %): nvidia-smi shows 10 GiB more throughout, buffers of ZeRO-1 or what the allocator keeps; its
  `max_reserved` would tell them apart.
* *2BW's BERT, GPipe at batch 256 on 8 V100* (-46 %): 32 microbatches in one go, which do not fit here, would be faster; the bar is
  the one of batch 64, so that it ran in parts. *BERT's Flush and GPipe at 64* (-14, -18 %): a flush costs more there than
  (p - 1) / (m + p - 1); an op trace of one update would tell.
* *Llama's context of 131,072 tokens* (-5.2 %): documents are masked from one another, so that context ranks of one sequence have unlike
  attention and wait for the slowest, which is not modelled. Its step in seconds would tell which FLOPs its TFLOP/s count, too.
* *SimuMax's context parallelism* (up to -10 %): all-to-alls of heads, which attention waits for, are a ring beside it here; an
  option for them would decide.
* *torchtitan, eager* (-10, -12 %): the kernels of `torch.compile` are assumed to move half of what eager ones do; a trace of a layer
  with and without it would decide.
"""

BASELINES = """Neutral stack: `simulate` with the device's curve of whole layers, knowing nothing of the
software. Constant MFU: (m + p - 1) / m F / (n e P) with F the FLOPs of an iteration, n GPUs of peak P; e is fitted on the rows
themselves. Closed form: the same and behind it an all-reduce of 4 bytes for each of a GPU's parameters by the ring's formula,
2 (d - 1) / d S / B, over NVLink where a stage's replicas share a node, else over a GPU's share of its node's NICs; e is the median
of the rows in the nine other folds. It knows no tensor parallelism, launches, messages or shapes."""

# The same job on more GPUs: what it is, its table, form and the ids of its runs, the smallest first, and why a ratio stands where it does.
GROWTH = [
    ("405B in fp8 on H100, NVIDIA", "data/field/mlperf_A.csv", ("eos-dfw_n64_ngc25.01_nemo-llama31_405b", "eos-dfw_n256_ngc25.01_nemo-llama31_405b",
                                                                "eos-dfw_n1024_ngc25.01_nemo-llama31_405b"),
     ""),
    ("405B in fp8 on GB200, NVIDIA, then IBM and CoreWeave", "data/field/mlperf_A.csv",
     ("tyche_ngpu256_ngc25.04_nemo-llama31_405b", "carina_ngpu2048_ngc25.04_nemo-llama31_405b", "carina_ngpu2496_ngc25.04_nemo-llama31_405b"), ""),
    ("405B in nvfp4 on GB300, NVIDIA, then CoreWeave", "data/field/mlperf6_A.csv", ("l405-gb300-512", "l405-gb300-4096-cw"),
     "another cluster, RoCE for InfiniBand; both times are 20 to 35 % too long"),
]
GROWTH_AIM = 5  # % of the measured ratio

LEFT_OUT = [
    "* Megatron-LM's golden values (467 rows): models of a few layers, whose times measure launches, and memory of the last rank; their "
    "table says neither the vocabulary nor the optimizer's flags, and `validate` lists each row with that reason.",
    "* DeepSeek-V3's step on 2,048 H800 (19.926 s) is the scenario `deepseek-v3`, [predicted](experts.md); its memory by part, DualPipe's trace and the "
    "bandwidth of DeepEP are not compared.",
    "* Sailor's other models and clusters, and the other half of every set: kept elsewhere, for a check from outside.",
]

THREE = """Error of the time, mean / median. *Measured kernels*: the stack `megatron-kernels`, of which nothing was fitted on training runs;
it is Megatron-LM with fused kernels, so too fast for software that is not; where the column says eager, `eager-kernels`, whose traffic is
counted and whose host is nanotron's. *The device's curve*: `stack: none`; a curve of whole layers was
read from published training runs, where of these is said in brackets. *Fitted on other sets*: the stack of the program that is most
alike, not the one that errs least. *Fitted on half A*: what is in brackets says whether the rows were among those; five folds fit
some numbers of a stack on four fifths and predict the fifth; ten folds as said above."""

# What others state of their own predictions, and of which rows.
OTHERS = """| tool | rows | error of time | error of memory |
|---|---|---|---|
| vTrain (MICRO'24) | its own, one node / many | 8.4 % / 14.7 % mean | – |
| Calculon | Selene's 8 points | 3.7 % mean, 8.9 % largest | 2.1 % mean (activations) |
| Calculon, run on vTrain's rows | one node / many | 38.9 % / 11.1 % mean | – |
| Sailor (SOSP'25) | its own, GH200 | 8.9 to 9.4 % mean | 5.9 to 7.4 % mean |
| SimuMax, nothing fitted on rows (side by side with ours of measured kernels and fitted, above) | its own on 8 B200, whose kernels it measured: dense / context / experts | 4.75 / 6.99 / 6.57 % mean | 0.5 % mean, 1.4 % largest |
| llm-cluster-simulator | its own | +2.3 % (a layout in its stead) to +32 % on mixtures of experts it is calibrated for; +108 to +224 % are its control rows, bound by their framework | – |
| Charon | its own | below 5.35 % (no code is public) | – |
| PrismLLM | its own | 0.58 % (it emulates the job on GPUs) | – |
| estimate-train-time | its own | 4.98 % and 9.38 % | – |
| Primus (AMD) | its own | up to 10 % | – |
"""


def answer(table, *command):
    done = subprocess.run([PENSTOCK, *command, "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{table}: {done.stderr}")
    return json.loads(done.stdout)


def validated(table, form, *options):
    return answer(table, "validate", str(table), "--as", form, *options)


def in_folds(table, stack, numbers, *options):
    """Each row as a fit on the other folds predicts it; of a few rows, each is a fold of its own."""
    return answer(table, "calibrate", "--from", str(table), "--stack", stack, "--numbers", numbers, *options)["rows"]


def judged(path, one):
    """The rows of a set that is not a table of ours, or whose stack is fitted in folds."""
    if "folds" not in one:
        return [row for row in validated(path, one["form"])["rows"] if one.get("chosen", lambda row: True)(row)]
    rows = in_folds(path, *one["folds"], "--folds", one.get("parts", "10"))
    if "memory" in one:
        memory = in_folds(path, one["folds"][0], one["memory"], "--memory", "--folds", one.get("parts", "10"))
        rows = [row | {"memory_error": other["memory_error"]} for row, other in zip(rows, memory)]
    return rows


def stack_option(stack, one):
    """The stack of every row: `{base: NAME` or `{name: NAME`, as it is or launched as graphs."""
    return ["--set", f"stack={stack}{', cuda_graphs: true' if one.get('graphs') else ''}}}"]


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def vtrain_rows(path):
    """With the columns of the other tables."""
    names = {"hidden": "hidden size", "heads": "attention heads", "layers": "# layers", "seq": "sequence length",
             "tp": "tensor parallelism", "dp": "data parallelism", "pp": "pipeline parallelism",
             "microbatch": "micro batch"}
    rows = []
    for row in rows_of(path):
        microbatches = int(row["global batch"]) // int(row["micro batch"]) // int(row["data parallelism"])
        rows.append({name: row[theirs] for name, theirs in names.items()} |
                    {"family": "gpt", "vocab": "50257", "gpu": "a100-80", "recompute": "full",
                     "microbatches": str(microbatches)})
    return rows


def write_rows(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def layer_parameters(row):
    hidden = int(row["hidden"])
    kv = hidden // int(row["heads"]) * int(row.get("kv_heads") or row["heads"])
    wide = int(row.get("intermediate") or 4 * hidden)
    return 2 * hidden * (hidden + kv) + (3 if row.get("family", "llama") == "llama" else 2) * hidden * wide


def degrees(row):
    """Microbatches, stages, replicas, GPUs that share a layer and its sequences."""
    return (int(row["microbatches"]), int(row["pp"] or 1), int(row["dp"]), int(row["tp"]) * int(row.get("cp") or 1))


def flops(row):
    """Of an iteration, all GPUs: 6 and, recomputed, 8 per parameter and token, and attention."""
    layers, hidden, seq = int(row["layers"]), int(row["hidden"]), int(row["seq"])
    tokens = seq * int(row["microbatch"]) * int(row["microbatches"]) * int(row["dp"])
    passes = 4 if row.get("recompute") == "full" else 3
    attended = seq / 2 if row.get("tflops_attention") == "half" else seq
    return tokens * (passes * layers * (2 * layer_parameters(row) + 4 * attended * hidden) + 6 * hidden * int(row["vocab"]))


def compute_s(row):
    """At the peak, with the bubble of a flush."""
    microbatches, stages, replicas, shared = degrees(row)
    gpus = replicas * shared * stages
    return flops(row) / gpus / PEAKS[row["gpu"]] * (microbatches + stages - 1) / microbatches


def reduction_s(row, nic):
    """Of 4 bytes per parameter, by a ring's formula, on NVLink where a stage's replicas are in one node."""
    _, stages, replicas, shared = degrees(row)
    parameters = int(row["layers"]) * layer_parameters(row) + 2 * int(row["hidden"]) * int(row["vocab"])
    within, between = LINKS[row["gpu"]]
    rate = within if replicas * shared <= int(row.get("gpus_per_node") or NODE) else nic or between
    return 2 * (replicas - 1) / replicas * 4 * parameters / (shared * stages) / rate


def constant_mfu(rows):
    """Predicted times of rows that have one, at the share of peak that suits their median best."""
    share = statistics.median(compute_s(row) / row["measured_s"] for row in rows)
    return [compute_s(row) / share / row["measured_s"] - 1 for row in rows]


def closed_form(rows, nic=None):
    """(m + p - 1) / m F / (n e P) + the reduction; e, the efficiency, is the median of the rows in the other folds."""
    def efficiency(row):
        return compute_s(row) / max(row["measured_s"] - reduction_s(row, nic), 0.1 * row["measured_s"])

    errors = []
    for at, row in enumerate(rows):
        others = [other for k, other in enumerate(rows) if k % FOLDS != at % FOLDS] or rows
        share = statistics.median(map(efficiency, others))
        errors.append((compute_s(row) / share + reduction_s(row, nic)) / row["measured_s"] - 1)
    return errors


def figures(errors):
    if not errors:
        return "– | – | – | – | –"
    off = sorted(abs(error) for error in errors)
    tenth = off[min(len(off) - 1, int(0.9 * len(off)))]
    return " | ".join(f"{100 * value:.1f} %" for value in (statistics.mean(off), statistics.median(off), tenth, off[-1])) + \
        f" | {100 * statistics.mean(errors):+.1f} %"


def mean_and_median(errors):
    off = [100 * abs(error) for error in errors]
    return f"{statistics.mean(off):.1f} / {statistics.median(off):.1f} %" if off else "–"


def three_line(title, columns, marks, chosen):
    """Of predictions by column, or why there are none."""
    cells, count = [], 0
    for rows, mark in zip(columns, marks, strict=True):
        errors = [] if isinstance(rows, str) else errors_of(filter(chosen, rows), "error")
        count = max(count, len(errors))
        cells.append(f"{mean_and_median(errors)}{mark}" if errors else "–" if title.startswith("–") else rows)
    return f"| {title} | {count} | {' | '.join(cells)} |"


def errors_of(rows, key):
    return [row[key] for row in rows if row.get(key) is not None]


def errors_written(page, title, name):
    """Rows, median and p90 of the time and of the memory, as shares, that scoreboard.md says of a class of a set."""
    found = []
    for section in page.split("## Peak memory"):
        values = (0, 0.0, 0.0)
        at = section.find(f"| {title} |")
        for number, line in enumerate(section[at:].splitlines() if at >= 0 else ()):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            ends = number > 0 and not cells[0].startswith("–")
            if ends or len(cells) < 7:
                break
            if cells[0] == (f"– {name}" if name else title):
                _, median, tenth, _, _ = cells[-5:]
                share = lambda cell: round(float(cell.rstrip(" %")) / 100, 6)
                values = (int(cells[1]), share(median), share(tenth)) if median != "–" else values
        found.append(values)
    return found


def neutral_error(page, title):
    """The median error with the neutral stack, as a share, that scoreboard.md's baselines say of a set."""
    line = next(line for line in page.split("## Baselines")[1].splitlines() if line.startswith(f"| {title} |"))
    return round(float(line.split("|")[3].split("/")[1].strip().rstrip(" %")) / 100, 6)


def links_of(title):
    """Bytes/s of a GPU's links within its node and to others in a set's runs; 0 between nodes where all runs take one."""
    one = next(one for one in SETS if one["title"] == title)
    chip, most_gpus = next((chip, gpus) for kind, _, _, _, chip, _, gpus, *_ in KINDS if kind == title)
    within, between = next(LINKS[device] for device in LINKS if device.upper().startswith(chip + "-") or device.upper() == chip)
    return within, one.get("nic", between) if most_gpus > NODE else 0


def measured_runs(page):
    """results/measured_runs.inc, from what scoreboard.md says."""
    lines = ["// Made by scripts/scoreboard.py from docs/scoreboard.md; a test compares them. clang-format off"]
    for title, name, called, stack, chip, *ranges, flags in KINDS:
        (runs, median, tenth), (_, memory, memory_tenth) = errors_written(page, title, name)
        if not runs:
            sys.exit(f"scoreboard.md says nothing of {title}, {name}")
        if "neutral" in flags:
            median, tenth, memory, memory_tenth = neutral_error(page, title), 0.0, 0.0, 0.0
        if "times" in flags:
            memory, memory_tenth = 0.0, 0.0
        shown = ", ".join("true" if flag in flags else "false" for flag in ("pipelined", "context", "profiled", "fitted", "carried", "experts", "narrow"))
        within, between = links_of(title)
        lines.append(f'{{"{called}", "{stack}", "{chip}", {", ".join(map(str, ranges))}, {shown}, {within:g},\n {between:g}, {runs}, {median}, {tenth}, '
                     f"{memory}, {memory_tenth}}},")
    return "\n".join(lines) + "\n"


class Board:
    def __init__(self, shared):
        self.shared, self.lines, self.memory, self.baselines, self.notes = shared, [], [], [], []
        self.plots = {}     # rows by title, each with its class
        self.errors = {}    # of time and memory by (title, class)
        self.finished = {}  # by title
        self.kernels = []
        self.three = []

    def add_lines(self, title, known, rows, of=None):
        times, memory = errors_of(rows, "error"), errors_of(rows, "memory_error")
        self.errors[of or title, title if of else None] = {"time": times, "memory": memory,
                                                           "rate": [1 / (1 + error) - 1 for error in times]}
        shown = f"– {title}" if of else title
        if times:
            self.lines.append(f"| {shown} | {len(times)} | {known} | {figures(times)} |")
        if memory:
            self.memory.append(f"| {shown} | {len(memory)} | {figures(memory)} |")

    def add_kernels(self, title, file, unseen):
        errors = errors_of(validated(self.shared / file, "kernels")["rows"], "error")
        self.kernels.append(f"| {title} | {len(errors)} | {unseen} | {figures(errors)} |")

    def add(self, one):
        path = ROOT / one["own"] if "own" in one else self.shared / one["file"]
        if not path.exists():
            self.notes.append(f"* {one['title']}: the file is not there.")
            return
        if one["left_out"]:
            self.notes.append(f"* {one['title']}: left out are {one['left_out']}.")
        if one.get("summary"):
            self.add_summary(one, path)
        elif "folds" in one or one["form"] != "runs":
            self.add_folds(one, path)
        else:
            self.add_runs(one, self.chosen_rows(one, path))

    def chosen_rows(self, one, path):
        rows = [row for row in rows_of(path) if one.get("only", lambda row: True)(row)]
        if "classes_of" in one:
            classes = {row["id"]: row["class"] for row in rows_of(self.shared / one["classes_of"])}
            rows = [row | {"class": classes.get(row["id"], "")} for row in rows]
        if "class" in one:
            rows = [row for row in rows if row["class"] == one["class"]]
        return rows

    def add_folds(self, one, path):
        title, rows = one["title"], judged(path, one)
        self.add_lines(title, one["known"], rows)
        self.add_lines("depth > 1", "", [row for row in rows if row["depth"] > 1], of=title)
        self.plots[title] = rows
        if "others" in one:
            self.add_three(one, path, rows)
        if one["form"] in ("sailor", "simumax", "op-times"):
            return  # no table of shapes for the baselines
        shapes = vtrain_rows(path) if one["form"] == "vtrain" else rows_of(path)
        neutral = validated(path, one["form"], *stack_option(NEUTRAL, one))["rows"]
        self.add_baselines(one, shapes, rows, neutral)

    def add_summary(self, one, path):
        """Of a table that names models instead of their sizes, which the baselines would need."""
        result = validated(path, one["form"])
        rows = [row for row in result["rows"] if one.get("chosen", lambda row: True)(row)]
        self.add_lines(one["title"], one["known"], rows)
        for name, chosen in one["classes"]:
            self.add_lines(name, "", [row for row in rows if chosen(row)], of=one["title"])
        if "others" in one:
            self.note(one["title"], result["measured"][0])
            self.add_three(one, path, rows)
        self.plots[one["title"]] = [row for row in rows if row["error"] is not None]

    def add_runs(self, one, rows):
        title = one["title"]
        by_id = {row["id"]: row for row in rows}
        with tempfile.TemporaryDirectory() as place:
            table = pathlib.Path(place) / "rows.csv"
            write_rows(table, rows)
            result = validated(table, "runs")
            predicted = result["rows"]
            neutral = self.by_stack(one, table, NEUTRAL, rows)
            if "class" in one or "classes_of" not in one:
                self.add_three(one, table, predicted, rows)
        self.add_lines(title, one["known"], predicted)
        for name, chosen in one["classes"]:
            self.add_lines(name, "", [row for row in predicted if chosen(by_id[row["name"]])], of=title)
        self.note(title, result["measured"][0])
        if not errors_of(predicted, "error"):
            return
        self.add_baselines(one, [by_id[row["name"]] for row in predicted], predicted, neutral)
        for row in predicted:
            row["class"] = next((name for name, chosen in one["classes"] if chosen(by_id[row["name"]])), row["class"])
        self.plots[one.get("plot", title)] = [row for row in predicted if "plot" not in one or row["class"] != "C"]

    def by_stack(self, one, table, stack, shapes=()):
        """A set's rows by another stack. Those whose notes say CUDA graphs keep them: a column of the table says the stack."""
        if not any("CUDA graph" in (shape.get("flags") or "") for shape in shapes):
            rows = validated(table, one["form"], *stack_option(stack, one))["rows"]
            return [row for row in rows if one.get("chosen", lambda row: True)(row)]
        name = stack.split(": ")[1]
        with tempfile.TemporaryDirectory() as place:
            other = pathlib.Path(place) / "rows.csv"
            write_rows(other, [shape | {"stack": "none" if stack == NEUTRAL else name} for shape in shapes])
            return validated(other, one["form"])["rows"]

    def add_three(self, one, table, predicted, shapes=()):
        """What is said of a set with nothing fitted on training runs, by a stack of other sets, and fitted on it."""
        if not errors_of(predicted, "error"):
            return
        alone = EAGER_KERNELS if one.get("eager") else KERNELS_ALONE
        columns = [one.get("kernels") or self.by_stack(one, table, alone, shapes),
                   self.by_stack(one, table, NEUTRAL, shapes), one["others"], one.get("fit")]
        marks = [" (eager)" if one.get("eager") else "", f" (in the curve: {one['in_curve']})" if "in_curve" in one else "", "", ""]
        if not isinstance(one["others"], str):
            stack, of = one["others"]
            columns[2], marks[2] = self.by_stack(one, table, f"{{base: {stack}", shapes), f" (`{stack}`: {of})"
        if "fitted" in one:
            columns[3], marks[3] = predicted, f" ({one['fitted']})"
        elif not isinstance(one["fit"], str):
            columns[3], marks[3] = in_folds(table, *one["fit"], "--folds", "5"), " (five folds)"
        self.three.append(three_line(one["title"], columns, marks, lambda row: True))
        by_id = {row["id"]: row for row in shapes}
        for name, chosen in one["classes"] if one.get("by_class") else ():
            self.three.append(three_line(f"– {name}", columns, [""] * 4, lambda row: chosen(by_id[row["name"]])))

    def note(self, title, report):
        if report["finished"]["n"]:
            f = self.finished[title] = report["finished"]
            stopped = f["n"] - f["finished"]
            self.notes.append(f"* {title}: finished or not, {100 * f['right'] / f['n']:.1f} % of {f['n']} rows right; false "
                              f"alarms {100 * f['false_alarms'] / f['finished']:.1f} % of {f['finished']} that finished; "
                              f"missed {100 * f['missed'] / max(1, stopped):.1f} % of {stopped} that did not.")
        for note in report["notes"]:
            self.notes.append(f"* {title}: {note}")

    def add_baselines(self, one, shapes, predicted, neutral):
        timed = [shape | {"measured_s": row["measured_s"]} for shape, row in zip(shapes, predicted, strict=True)
                 if row["error"] is not None]
        cells = [errors_of(predicted, "error"), errors_of(neutral, "error"), closed_form(timed, one.get("nic")),
                 constant_mfu(timed)]
        self.baselines.append(f"| {one['title']} | {' | '.join(map(mean_and_median, cells))} |")

    def growth(self):
        """A line for each run of GROWTH but the first: the ratio of its time to the first one's, predicted over measured."""
        lines = []
        for what, file, ids, why in GROWTH:
            path = self.shared / file
            if not path.exists():
                continue
            rows = [row for row in rows_of(path) if row["id"].endswith(ids)]
            with tempfile.TemporaryDirectory() as place:
                table = pathlib.Path(place) / "rows.csv"
                write_rows(table, rows)
                predicted = {row["name"]: row for row in validated(table, "runs")["rows"]}
            first, *others = [next(row for row in rows if row["id"].endswith(name)) for name in ids]
            for row in others:
                measured, here = (predicted[row["id"]][key] / predicted[first["id"]][key] for key in ("measured_s", "predicted_s"))
                error = 100 * (here / measured - 1)
                missed = abs(error) > GROWTH_AIM
                lines.append(f"| {what} | {int(first['gpus']):,} to {int(row['gpus']):,} | {measured:.4f} | {here:.4f} | {error:+.1f} % | "
                             f"{'**missed**' if missed else 'met'} | {why if missed else ''} |")
        return lines

    def aims(self):
        """A line for each, met or not; what was not predicted here is not judged."""
        lines = []
        for aim in AIMS:
            if "finished" in aim:
                f = self.finished.get(aim["title"])
                shares = f and [100 * f["right"] / f["n"], 100 * f["false_alarms"] / f["finished"]]
                met, text = f and shares[0] >= 90 and shares[1] <= 1, f and "{:.1f} %, {:.1f} %".format(*shares)
            else:
                errors = self.errors.get((aim["title"], aim.get("class")), {}).get(aim["of"])
                values = [100 * STATISTICS[name](list(map(abs, errors))) for name, _ in aim["most"]] if errors else []
                met = all(most is None or value <= most for value, (_, most) in zip(values, aim["most"]))
                text = ", ".join(f"{name} {value:.2f} %" for value, (name, _) in zip(values, aim["most"]))
            if text:
                verdict = "–" if aim.get("most", [("", 0)])[0][1] is None else "met" if met else "**missed**"
                lines.append(f"| {aim['what']} | {aim['aim']} | {text} | {verdict} | {aim['why']} |")
        return lines

    def markdown(self):
        head = "rows | mean | median | p90 | largest | bias |"
        return "\n".join([
            "# Scoreboard", "",
            "Made by `scripts/scoreboard.sh` from the published rows that `docs/validation.md` names: halves A, every row as a",
            "scenario that `simulate` predicts (`penstock validate FILE --print N` shows it); where rows are cross-validated, the",
            "stack is fitted by `penstock calibrate --from FILE --folds 10`. Errors are predicted / measured - 1.",
            "`tests/validate/scoreboard_test.py` predicts most of it again. Every row, predicted over measured, is on the page",
            "that the script writes beside (`penstock validate FOLDER --as predicted --report scoreboard.html`).", "",
            "## Time of an iteration", "",
            "| data | rows | known to the model | mean | median | p90 | largest | bias |", "|---|--:|---|--:|--:|--:|--:|--:|",
            *self.lines, "", "## Peak memory", "", f"| data | {head}", "|---|--:|--:|--:|--:|--:|--:|", *self.memory, "",
            "## Kernels", "", "Each as its device's file says, which was fitted on these rows ([how](validation.md#measured-kernels));",
            "`unseen` is the mean error on a quarter of the shapes of a fit on the others.", "",
            "| kernels | rows | unseen | mean | median | p90 | largest | bias |", "|---|--:|--:|--:|--:|--:|--:|--:|", *self.kernels, "",
            "## Nothing fitted, fitted elsewhere, fitted here", "", THREE, "",
            "| data | rows | nothing fitted: measured kernels | the device's curve | fitted on other sets | fitted on half A |",
            "|---|--:|--:|--:|--:|--:|", *self.three, "",
            "## What was aimed at", "", "| rows | aim | here | | why, and what would decide it |", "|---|---|---|---|---|",
            *self.aims(), "", AFTER_AIMS,
            "## The same job on more GPUs", "", "The time of a step over that of the smallest run, predicted and measured; the aim is a ratio within "
            f"{GROWTH_AIM} %.", "", "| job | GPUs | measured | predicted | error | | why |", "|---|--:|--:|--:|--:|---|---|", *self.growth(), "",
            "## Baselines on the same rows", "", "Error of the time, mean / median. " + BASELINES, "",
            "| data | penstock | neutral stack | closed form | constant MFU |", "|---|--:|--:|--:|--:|", *self.baselines, "",
            "## What others state", "", OTHERS, "## Rows left out, and notes", "", *self.notes, *LEFT_OUT, ""])

    def page(self, path):
        """Every row of the board, by the program's own report."""
        with tempfile.TemporaryDirectory() as place:
            for title, rows in self.plots.items():  # whose headings are the files' names
                write_rows(pathlib.Path(place) / f"{title}.csv",
                           [{key: "" if row.get(key) is None else row[key] for key in PREDICTED} for row in rows])
            answer("page", "validate", place, "--as", "predicted", "--report", str(path))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    board = Board(pathlib.Path(sys.argv[1]))
    for one in SETS:
        board.add(one)
    for one in KERNELS:
        board.add_kernels(*one)
    folder = pathlib.Path(sys.argv[2])
    (folder / "scoreboard.md").write_text(board.markdown(), encoding="utf-8")
    if folder.resolve() == ROOT / "docs":
        (ROOT / "results" / "measured_runs.inc").write_text(measured_runs(board.markdown()), encoding="utf-8")
    page = (folder if folder.resolve() != ROOT / "docs" else pathlib.Path(tempfile.gettempdir())) / "scoreboard.html"
    board.page(page)
    print(f"{folder / 'scoreboard.md'}, {page}")


if __name__ == "__main__":
    main()
