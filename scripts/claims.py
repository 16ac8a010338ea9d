#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/claims.md: what the papers claim, one by one, with our command, our number and theirs.

    scripts/claims.py [--check]

Every number of ours is what a command prints now; --check changes nothing, shows what differs and ends with 1.
$PENSTOCK_BINARY is the program (default: ./penstock). The rows about losses are those of docs/convergence/runs.csv,
which take most of an hour to make (scripts/convergence.py)."""
import concurrent.futures
import difflib
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/claims.md"
BINARY = os.environ.get("PENSTOCK_BINARY", str(ROOT / "penstock"))
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "scripts"))
import convergence  # noqa: E402


# Running ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def ran(command):
    """What `penstock ...` prints, as JSON."""
    words = [BINARY, *shlex.split(command)[1:], "--format", "json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PENSTOCK_HOME": str(ROOT)})
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stderr}")
    return json.loads(done.stdout)


def simulate(scenario, **keys):
    """The command."""
    return " ".join([f"penstock simulate {scenario}", *(f"--set {shlex.quote(f'{k}={v}')}" for k, v in keys.items())])


def all_of(commands):
    """Their results, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(ran, commands))


def rate(result):
    return result["throughput_samples_per_s"]


def peak_gb(result):
    return max(d["peak_memory_bytes"] for d in result["devices"]) / 1e9


def activations_gb(result):
    return max(d["memory"]["activations"] for d in result["devices"]) / 1e9


def stash(result):
    return max(d["stash_peak"] for d in result["devices"])


def table(head, rows):
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in lines)


def wrapped(words):
    return textwrap.fill(words, 128, break_long_words=False, break_on_hyphens=False)


def section(title, says, commands, body, verdict):
    shown = ["\n".join(f"    {c}" for c in commands)] if commands else []
    return "\n\n".join([f"## {title}", wrapped(f"*{says}*"), *shown, body, wrapped(verdict)]) + "\n"


def percent(share, digits=0):
    return f"{100 * share:.{digits}f} %"


def losses(rows):
    """Rows of docs/convergence.md: the reference's loss, the other's, their difference and its interval."""
    return [[f"loss: {r.row.name}", convergence.spread(r.reference), convergence.spread(r.ends),
             r.apart or convergence.more_diverge(r)[0]]
            for r in convergence.results(convergence.Facts(None), rows)]


LOSS_HEAD = ["held-out loss, nats", "reference", "this", "difference (95 % interval)"]


# PipeDream-2BW ------------------------------------------------------------------------------------------------------


def two_bw_speed():
    name = "gpt-3.8b-2bw-64"
    tensor = {"schedule": "1f1b", "stages": 1}
    rows = [  # what, keys at batch 512, keys at batch 2048, the figure's bars
        ("PipeDream-2BW, 16 stages x 4", {}, {"microbatches": 64}, (127, 135)),
        ("PipeDream-Flush", {"schedule": "1f1b"}, {"schedule": "1f1b", "microbatches": 64}, (75, 115)),
        ("GPipe, as many microbatches as fit (6)", {"schedule": "gpipe", "microbatches": 6},
         {"schedule": "gpipe", "microbatches": 6}, (38, 38)),
        ("inter-layer model parallel", {"schedule": "model-parallel", "microbatches": 1},
         {"schedule": "model-parallel", "microbatches": 4}, (10, 12)),
        ("tensor model parallel, 8 GPUs x 8", tensor | {"tensor": 8, "width": 8, "microbatches": 8},
         tensor | {"tensor": 8, "width": 8, "microbatches": 32}, None),
        ("tensor model parallel, 16 GPUs x 4", tensor | {"tensor": 16}, tensor | {"tensor": 16, "microbatches": 64}, (8, 8)),
        ("the same with all of a NIC, 25 Gb/s", tensor | {"tensor": 16, "cluster.inter": "25Gbps"},
         tensor | {"tensor": 16, "microbatches": 64, "cluster.inter": "25Gbps"}, (8, 8)),
        ("tensor model parallel, 32 GPUs x 2", tensor | {"tensor": 32, "width": 2, "microbatches": 32},
         tensor | {"tensor": 32, "width": 2, "microbatches": 128}, None)]
    small = all_of([simulate(name, **keys) for _, keys, _, _ in rows])
    large = all_of([simulate(name, **keys) for _, _, keys, _ in rows])
    lines = []
    for (what, _, _, bars), a, b in zip(rows, small, large):
        ours = [rate(small[0]) / rate(a), rate(large[0]) / rate(b)]
        theirs = "–" if bars is None else f"{bars[0]} / {bars[1]}"
        factor = "–" if bars is None else f"{127 / bars[0]:.1f} / {135 / bars[1]:.1f}"
        lines.append([what, f"{rate(a):.1f} / {rate(b):.1f}", theirs, f"{ours[0]:.1f} / {ours[1]:.1f}", factor])
    gpipe = [rate(small[0]) / rate(small[2]), rate(large[0]) / rate(large[2])]
    across, whole = (rate(small[0]) / rate(small[k]) for k in (5, 6))
    return section(
        "2BW: up to 20x over model parallelism, up to 3.2x over pipelined baselines",
        "Narayanan et al., ICML'21, abstract and section 5.2: up to 20x over non-pipelined baselines, up to 3.2x over GPipe, "
        "GPT-3.8B on 64 V100, batches 512 / 2048.",
        [simulate(name), simulate(name, **rows[2][1]), simulate(name, **rows[5][1])],
        table(["sequences/s, batch 512 / 2048", "ours", "figure 6", "2BW is faster: ours", "theirs"], lines),
        f"The 3.2x is GPipe: {gpipe[0]:.1f}x and {gpipe[1]:.1f}x here. The 20x is tensor model parallelism whose layers go over "
        f"several servers: {across:.0f}x here with 16 GPUs a layer, where the bars of the figure give 16x and 17x. The cause is the "
        "NIC: 10 of 25 Gb/s was fitted on this figure's pipelined bars, whose messages are single flows, and a flow gets at most 10 Gb/s "
        "there (AWS, EC2 instance network bandwidth, cluster placement groups). An all-reduce can use several flows; with all "
        f"of the 25 Gb/s it is {whole:.0f}x. How many flows the paper's NCCL had is not published, so no number between is chosen. "
        "Tensor parallelism within servers, which the figure does not show, is far better.")


def two_bw_versions():
    command = simulate("gpt-2.2b-2bw")
    result = ran(command)
    versions = max(d["weight_versions_peak"] for d in result["devices"])
    stale = max(d["staleness_max"] for d in result["devices"])
    pipedream = max(d["weight_versions_peak"] for d in ran("penstock simulate gpt-2.2b-pipedream")["devices"])
    wanted = [*(r for r in convergence.markov() if "AdamW" in r.name), *convergence.on_text()[:2]]
    body = table(["", "ours", "paper"], [
        ["weight versions held, at most", versions, 2], ["updates that a gradient is behind, at most", stale, 1],
        ["weight versions of PipeDream at as many stages", pipedream, "8"]])
    body += "\n\n" + table(["held-out loss, nats", "vanilla", "2BW", "difference (95 % interval)"], losses(wanted))
    return section(
        "2BW: at most two weight versions, and a loss like vanilla's",
        "Narayanan et al., ICML'21, section 3.1 and table 1 (MNLI 87.77 against 87.82 %, RACE 80.06 against 79.48 %).",
        [command, "penstock schedule show 2bw --versions"], body,
        "On a Markov chain, whose entropy of 1.2130 is known, the difference shrinks as training converges (the first rows); on text, far from "
        "converged, it is large, and much less so with Muon ([convergence.md](convergence.md)). Fine-tuning BERT to a published "
        "accuracy cannot be shown here.")


def one_step_delay():
    found = {r.name: r for r in convergence.on_text()}
    names = ["2BW, AdamW", "2BW, AdamW, error feedback", "2BW, Muon, against vanilla Muon",
             "2BW, Muon, error feedback, against vanilla Muon", "2BW, basis rotation, against vanilla basis rotation"]
    published = ["over +0.2", "–", "+0.012", "–", "–"]
    gap = {r.row.name: r.apart.mean for r in convergence.results(convergence.Facts(None), list(found.values()))}
    back = [1 - gap[corrected] / gap[plain] for plain, corrected in (names[2:4], names[:2])]
    lines = [[*line, paper] for line, paper in zip(losses([found[n] for n in names]), published)]
    return section(
        "A delay of one update: AdamW degrades, Muon holds, an error feedback closes the gap",
        "Zmushko et al., ICML 2026, arXiv:2606.30634, of PipeDream-2BW's delay: losses rise by more than 0.2 with AdamW, by 0.012 with Muon; a "
        "10-billion-parameter MoE ends at 1.906 synchronous, 1.911 delayed and 1.906 corrected (second-hand, of reports of the paper). Jung et al., "
        "ICML 2026, arXiv:2602.03515: Adam in a rotated basis is not sensitive to delays.",
        [convergence.example(found[names[3]].tried, "training.data=jargon.txt").strip()],
        table([*LOSS_HEAD[:1], "vanilla", "2BW", LOSS_HEAD[3], "paper"], lines),
        "The order is the paper's at a thousandth of its size: Muon loses a fraction of what AdamW loses, and the error feedback takes back "
        f"{100 * back[0]:.0f} % of that and {100 * back[1]:.0f} % of AdamW's loss. Basis rotation is hurt by the delay here, too, half as much as AdamW. "
        "[convergence.md](convergence.md) says how the correction is defined, and has "
        "others (predicted weights, look-ahead).")


def early_backward():
    lines, commands = [], []
    for name, schedule in (("GPipe", "gpipe"), ("DAPPLE, P_A", "dapple"), ("DAPPLE, P_B", "dapple-pb")):
        for m in (2, 8, 16):
            command = simulate("gpt-355m-data-parallel", cluster="p3.16xlarge", schedule=schedule, stages=2, width=1, microbatch_size=2,
                               microbatches=m, **{"model.num_layers": 48})
            commands.append(command)
            r = ran(command)
            paper = {("gpipe", 2): "5.10, 12.1", ("dapple", 2): "5.10, 10.6", ("dapple", 8): "7.60, 10.6", ("dapple", 16): "8.18, 10.6",
                     ("gpipe", 8): "does not fit", ("gpipe", 16): "does not fit"}.get((schedule, m), "–")
            lines.append([f"{name}, {m} microbatches of 2", f"{rate(r):.1f}", f"{activations_gb(r):.1f}",
                          f"{peak_gb(r):.1f}" + ("" if r["feasible"] else " (no)"), paper])
    return section(
        "An early backward bounds the activations",
        "Fan et al., PPoPP'21: early backward scheduling, of BERT-48 (640 million parameters) on two stages: 1.6x GPipe's throughput and 12 % less "
        "memory (abstract); the rows of its table are from memory of it, and agree with the abstract.",
        [commands[0], commands[5]],
        table(["48 layers of 1024, 2 V100", "samples/s", "activations GB", "peak GB", "paper: samples/s, GB"], lines),
        "*(no)*: does not fit in 16 GB less what CUDA takes. GPipe holds all microbatches, 1F1B at most as many as there are stages, so it can have more of "
        "them, which is where its throughput is from: with as many microbatches both are equally fast. The model here is a GPT of that shape in fp16 on other "
        "GPUs; ratios are the claim.")


def hidden_messages():
    lines, commands = [], []
    for name, scenario, keys in (
            ("2BW, 8 V100", "gpt-2.2b-2bw", {}), ("2BW, 8 V100, transfers not overlapped", "gpt-2.2b-2bw", {"transfers": "coupled"}),
            ("model parallel, 8 V100", "gpt-2.2b-model-parallel", {}),
            ("2BW, 64 V100", "gpt-3.8b-2bw-64", {"transfers": "overlapped"}),
            ("2BW, 64 V100, transfers not overlapped", "gpt-3.8b-2bw-64", {}),
            ("model parallel, 64 V100", "gpt-3.8b-2bw-64", {"schedule": "model-parallel", "microbatches": 1})):
        command = simulate(scenario, **keys)
        commands.append(command)
        r = ran(command)
        sent = r["communication"]["pp"]
        device_s = r["makespan_s"] * len(r["devices"])
        lines.append([name, percent(sent["total_s"] / device_s, 2), percent(sent["exposed_s"] / device_s, 2),
                      percent(1 - sent["exposed_s"] / sent["total_s"])])
    return section(
        "Communication is hidden behind computation",
        "Narayanan et al., SOSP'19, section 3: stages compute other microbatches while activations and gradients are sent.",
        commands[:2],
        table(["share of all devices' time", "messages between stages", "waited for", "hidden"], lines),
        "Within a server messages are short. Between servers of 10 Gb/s they take a good part of the time, and a pipeline "
        "hides what the bandwidth of the NICs, which four pipelines share, allows.")


def partitions():
    cluster = "'{base: p3.16xlarge-x8, inter: 10 Gbps}'"
    lines, commands = [], []
    for what, planned_on in (("links as they are", cluster), ("all links alike", "'{base: p3.16xlarge-x8, inter: 200 Gbps}'")):
        command = f"penstock plan gpt-3.8b --cluster {planned_on} --stack none --batch 512 --search 2bw"
        commands.append(command)
        p = ran(command)["plans"][0]
        r = ran(simulate("gpt-3.8b-2bw-64", stages=p["depth"], width=p["width"], microbatch_size=p["microbatch_size"],
                         microbatches=p["microbatches"], recompute=p["recompute"], transfers="overlapped"))
        lines.append([f"GPT-3.8B, 64 V100, planned for {what}", f"{p['depth']} x {p['width']}, microbatches of {p['microbatch_size']}",
                      f"{rate(r):.0f}", "yes" if r["feasible"] else "no"])
    for what, search in (("without a limit of memory (PipeDream's planner)", "pipedream"), ("within the memory (2BW's planner)", "2bw")):
        command = f"penstock plan gpt-2.2b --cluster p3.16xlarge --stack none --search {search}" + (" --batch 64" if search == "2bw" else "")
        commands.append(command)
        p = ran(command)["plans"][0]
        simulated = p["simulated_samples_per_s"]
        lines.append([f"GPT-2.2B, 8 V100, planned {what}", f"{p['depth']} x {p['width']}, recomputation {p['recompute']}",
                      f"{simulated:.0f}" if simulated else "–", "yes" if simulated else "no: " + p["simulated_why_not"]])
    return section(
        "Partitions that know the memory and the topology",
        "Narayanan et al., ICML'21, section 4, and SOSP'19, section 3.1: planners respect the memory of a device and the levels of the network.",
        commands,
        table(["", "stages x replicas", "samples/s on the cluster as it is", "fits"], lines),
        "What a planner leaves out it pays for when the plan is simulated on the real cluster.")


def stale_families():
    lines, commands = [], []
    for name, schedule in (("1F1B", "1f1b"), ("2BW", "pipedream-2bw"), ("PipeDream", "pipedream"), ("PipeMare", "pipemare"),
                           ("TiMePReSt", "timeprest"), ("V-TiMePReSt", "v-timeprest"), ("I-TiMePReSt", "i-timeprest"), ("GPipe", "gpipe")):
        command = simulate("gpt-2.2b-pipedream") if schedule == "pipedream" else simulate("gpt-2.2b-2bw", schedule=schedule)
        commands.append(command)
        r = ran(command)
        versions = max(d["weight_versions_peak"] for d in r["devices"])
        lines.append([name, f"{rate(r):.1f}", versions, f"{activations_gb(r):.1f}", f"{peak_gb(r):.1f}"
                      + ("" if r["feasible"] else " (no)")])
    rows = [r for r in convergence.depth() if r.name.startswith(("PipeMare", "TiMePReSt"))]
    return section(
        "PipeMare: no bubble and one weight version; TiMePReSt: fewer versions than PipeDream",
        "Yang et al., MLSys'21, abstract (arXiv's): up to 2.7x less memory or 4.3x higher utilization than synchronous pipelines, similar quality. Dutta et "
        "al., TiMePReSt and arXiv:2509.23241: V-TiMePReSt trains on the latest weights in all passes, without stashing.",
        [commands[3], commands[4]],
        table(["GPT-2.2B, 8 V100, batch 64", "samples/s", "weight versions", "activations GB", "peak GB"], lines) + "\n\n"
        + table([*LOSS_HEAD[:1], "vanilla", "this", LOSS_HEAD[3]], losses(rows)),
        "*(no)*: does not fit. The papers' factors are against GPipe at their own depths (utilization 1/(1 + (p-1)/m)); ours is here for this pipeline. "
        "TiMePReSt's backward of a whole minibatch makes the stages wait where it is long, as here. The quality is not similar at this size and length of "
        "training ([convergence.md](convergence.md)); the papers' tasks are out of reach.")


def naive_pipelining():
    lines, commands = [], []
    for name, keys in (("naive: no stashing", {"stashing": "none"}), ("stashing", {}), ("vertical sync", {"vertical_sync": "true"})):
        command = simulate("gpt-2.2b-pipedream", **keys)
        commands.append(command)
        r = ran(command)
        lines.append([name, f"{rate(r):.1f}", max(d["weight_versions_peak"] for d in r["devices"]), f"{peak_gb(r):.1f}"
                      + ("" if r["feasible"] else " (no)")])
    return section(
        "Naive pipelining does not converge, stashing does",
        "Narayanan et al., SOSP'19, section 3.3: without stashing a backward uses other weights than its forward, the gradient is invalid, and training "
        "may not converge.",
        commands[:2],
        table(["PipeDream, GPT-2.2B on 8 V100", "samples/s", "weight versions", "peak GB"], lines) + "\n\n"
        + table(["held-out loss, nats", "stashing", "no stashing", LOSS_HEAD[3]], losses(convergence.naive())),
        "*(no)*: does not fit. On a product of eight matrices, where the rate is the largest that is stable, far more runs diverge without stashing. "
        "Of the language models none is shown to: what costs there is the delay, which both have ([convergence.md](convergence.md)).")


def sosp_speed_ups():
    lines = [["VGG-16, B, 16 GPUs", 2.98, 1.28, 2.66, "7 to 13", "5 to 14"], ["AlexNet, B, 16 GPUs", 2.04, 1.36, 2.47, "9.2 to 22", "12 and more"],
             ["GNMT-16, B, 16 GPUs", 3.14, 0.71, 1.52, "3.7 to 6.2", "3.9 to 7.0"]]
    return section(
        "PipeDream over data parallelism: 1.2 to 5.3 times, not reached here",
        "Narayanan et al., SOSP'19, table 1. All rows and their errors (-9 to -77 %): "
        "[validation.md](validation.md#pipedream-against-data-parallelism-sosp19-table-1).", [],
        table(["speed-up over data parallelism", "paper", "25 Gb/s", "10 Gb/s", "Gb/s for 25 %, reductions beside the backward", "after it"], lines),
        "Tried: NICs of 10 Gb/s, which is what a flow gets between servers of a cluster placement group (AWS, EC2 instance network bandwidth), and what these "
        "servers deliver in the figure of 2BW; reductions after the backward; shorter sentences of GNMT. 10 Gb/s is a setting from sources: it brings VGG-16 and "
        "AlexNet within 25 % and leaves GNMT-16 at -52 %. That no rate of the NICs brings all three within 25 % is a proof by cases, which "
        "`tests/published/pipedream_sosp19_test.cpp` makes: AlexNet needs more than 9 Gb/s and GNMT-16 less than 6.3, or, with reductions after the backward, more than 10.5 and "
        "less than 7.1. On cluster A a slower NIC slows the pipeline as well, so that AlexNet stays below -35 % at any rate. "
        "What the released runtime has and is not modelled: a process group per stage and message, gloo over PCIe and host memory for "
        "messages, images decoded by the host, and the data-parallel baselines as measured, whose buckets and versions are not known.")


# PipeDream and the survey: why not data parallelism ------------------------------------------------------------------


def data_parallel_overhead():
    models = ("gpt-355m", "gpt-1.3b", "gpt-2.2b", "gpt-3.8b")
    commands = [simulate("gpt-355m-data-parallel", model=m) for m in models]
    lines = []
    for model, r in zip(models, all_of(commands)):
        lines.append([model, percent(r["communication"]["dp"]["exposed_fraction"]), f"{r['iteration_time_s']:.2f}",
                      f"{peak_gb(r):.1f}", "yes" if r["feasible"] else "no"])
    return section(
        "Data parallelism: overhead grows with the model, and workers a model exceeds",
        "Narayanan et al., SOSP'19, figure 1 (from memory of it): communication takes up to 90 % of the time, and more with "
        "faster GPUs; ICML'21: a model must fit in each worker.",
        [commands[0], commands[-1]],
        table(["64 V100 of 16 GB, 1024 sequences an update", "reduction not hidden", "s per update", "GB per GPU", "fits"], lines),
        "The share hardly grows with the model, because the time to compute grows as its bytes do; what grows is memory: none "
        "but the smallest fits. SOSP'19's shares are of image and translation models, whose profiles are in "
        "[validation.md](validation.md).")


PUBLISHED_LARGEST = {1: 1.2, 2: 1.7, 4: 2.5, 8: 4.5, 16: 8.6, 32: 15.5, 64: 28.5}  # ICML'21, figure 9, read off


def largest_models():
    def command(depth, layers):
        return simulate("gpt-2.2b-2bw", cluster="p3.16xlarge-x8", model="gpt-355m", batches=2, stages=depth, microbatches=depth,
                        microbatch_size=1, **{"model.num_layers": layers})

    def largest(depth):
        """Layers, as many on each stage."""
        low, high = 1, 128
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ran(command(depth, middle * depth))["feasible"] else (low, middle)
        return low * depth

    def billions(layers):
        return (layers * (12 * 1024 * 1024 + 13 * 1024) + 50304 * 1024) / 1e9

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(largest, PUBLISHED_LARGEST))
    lines = [[depth, layers, f"{billions(layers):.1f}", published, f"{100 * (billions(layers) / published - 1):+.0f} %"]
             for (depth, published), layers in zip(PUBLISHED_LARGEST.items(), found)]
    return section(
        "The largest model that fits",
        "Narayanan et al., ICML'21, figure 9, read off: parameters that fit on d V100 with 2BW (hidden size 1024).",
        [command(8, found[3])], table(["stages", "layers", "ours, 10^9 parameters", "paper", "error"], lines),
        "On one and two GPUs the paper holds more than its own bytes allow: 1.2 on one would leave 13 bytes a parameter, where fp16 "
        "weight and gradient, fp32 copy and Adam's moments alone are 16 (2BW here: 24). Microbatches of 1, all layers recomputed.")


def missed_without_a_pipeline():
    commands, lines = [], []
    for stages in (4, 8, 10, 16):
        command = f"penstock schedule show model-parallel --set stages={stages}"
        commands.append(command)
        lines.append([f"{stages} equal stages", percent(ran(command)["bubble_fraction"], 1)])
    mp, pipe = (rate(ran(f"penstock simulate gpt-2.2b-{name}")) for name in ("model-parallel", "2bw"))
    lines.append(["GPT-2.2B on 8 V100, of 2BW's throughput", percent(1 - mp / pipe, 1)])
    return section(
        "Up to 90 % of the throughput is missed without a pipeline",
        "Narayanan et al., SOSP'19, of FlexFlow and Mesh-TensorFlow: splitting single iterations leaves as much as 90 % of "
        "performance on the table.",
        [commands[-2], "penstock compare scenarios/gpt-2.2b-2bw.yaml scenarios/gpt-2.2b-model-parallel.yaml"],
        table(["stages one after the other", "missed"], lines),
        "1 - 1/p of p stages: 90 % are ten stages.")


def pipeline_bytes():
    lines, commands = [], []
    for model, batch in (("gpt-355m", 64), ("gpt-355m", 256), ("gpt-2.2b", 64), ("gpt-2.2b", 256)):
        pipe = simulate("gpt-2.2b-flush", model=model, batches=1, microbatch_size=4, microbatches=batch // 4)
        data = simulate("gpt-355m-data-parallel", model=model, cluster="p3.16xlarge", width=8, batches=1, microbatch_size=4,
                        microbatches=batch // 32, algorithm="ring")
        commands = commands or [pipe, data]
        a, b = all_of([pipe, data])
        sent, reduced = a["communication"]["pp"]["bytes"], b["communication"]["dp"]["bytes"]
        lines.append([f"{model}, batch {batch}", f"{sent / 8e9:.2f}", f"{reduced / 8e9:.2f}", percent(1 - sent / reduced)])
    return section(
        "A pipeline sends fewer bytes than data parallelism",
        "Narayanan et al., SOSP'19, section 5.4: up to 95 % fewer (88 % for AWD-LM, 85 % for S2VT).",
        commands, table(["8 V100", "pipeline, GB per GPU and update", "data parallel, ring", "fewer"], lines),
        "A pipeline's bytes grow with the batch, a reduction's with the model. AWD-LM and S2VT have no public profile, so their "
        "numbers cannot be shown.")


def reductions():
    lines, commands = [], []
    for name, keys in (("ring", {"algorithm": "ring"}), ("hierarchical", {"algorithm": "hierarchical"}),
                       ("two trees", {"algorithm": "tree"}), ("one parameter server", {"algorithm": "server"}),
                       ("16 parameter servers", {"algorithm": "server", "servers": 16}),
                       ("all-to-all", {"algorithm": "all-to-all"})):
        command = simulate("gpt-355m-data-parallel", cluster="pipedream-b", width=16, overlap="none", **keys)
        commands.append(command)
        r = ran(command)
        reduced = r["communication"]["dp"]
        lines.append([name, f"{r['iteration_time_s']:.3f}", percent(reduced["exposed_fraction"]),
                      f"{reduced['bytes'] / 1e9 / r['batches'] / 16:.2f}"])
    return section(
        "Parameter server, ring, all-to-all",
        "Data-parallel workers exchange gradients through parameter servers, rings, or directly; a central server is the "
        "bottleneck, a ring sends 2 (n-1)/n of the bytes, a direct exchange n-1 times as many (Patarasuk and Yuan, 2009; SOSP'19, section 2).",
        [commands[0], commands[-1]],
        table(["GPT-355M on 16 V100 of two servers", "s per update", "reduction", "GB sent per GPU and update"], lines),
        "As many servers as workers are the exchange in two steps: each sends the others their part, then its sum.")


def stragglers():
    lines, commands = [], []
    for slow in (None, 1.5, 2, 4):
        keys = {"perturbations": f"{{slow_devices: [{{device: 3, factor: {slow}}}]}}"} if slow else {}
        bsp = simulate("gpt-355m-data-parallel", cluster="pipedream-b", width=16, algorithm="server", servers=16, overlap="none",
                       microbatches=32, **keys)
        asp = simulate("gpt-355m-asp", microbatches=32, batches=12, **keys)
        a, b = all_of([bsp, asp])
        commands = [bsp, asp]
        missed = re.search(r"missed ([\d.]+) updates", " ".join(b["notes"]))[1]
        stalest = max(d["staleness_max"] for d in b["devices"])
        lines.append([f"one GPU {slow}x slower" if slow else "all alike", f"{rate(a):.1f}", f"{rate(b):.1f}",
                      f"{rate(b) / rate(a):.2f}x", missed, stalest])
    return section(
        "Bulk-synchronous against asynchronous under stragglers",
        "Asynchronous workers do not wait for slow ones, at the price of stale gradients; PipeDream found them 7.4x slower to 48 % accuracy "
        "(VGG-16, SOSP'19).",
        commands,
        table(["GPT-355M, 16 V100, 16 servers, samples/s", "BSP", "ASP", "ASP / BSP", "updates missed, mean", "most"], lines),
        "Both move the same bytes over the same links. The slow GPU's own updates are the stale ones. ImageNet to 48 % cannot be "
        "shown. What the missed updates do to a loss: `penstock train` with `schedule: asp`, whose "
        "staleness comes from this timeline ([execution.md](execution.md#training)).")


# Controllable memory ------------------------------------------------------------------------------------------------


def building_blocks():
    lines, commands = [], []
    for stages in (8, 16, 64):
        def of(name):
            command = f"penstock schedule show {name} --set stages={stages} --set microbatches={4 * stages}"
            commands.append(command)
            return ran(command)
        base = of("1f1b")
        for name, paper in (("v-min", "1/3"), ("v-half", "1/2"), ("v-zb", "1"), ("1f1b-v", "2/3")):
            if name == "1f1b-v" and stages % 3 == 0:
                continue
            r = of(name)
            # Two chunks: an activation is half of 1F1B's.
            lines.append([f"{name}, {stages} stages", f"{stash(r) / 2 / stash(base):.3f}", paper,
                          percent(r["stage_bubble_fraction"], 1), percent(r["bubble_fraction"], 1),
                          percent(base["stage_bubble_fraction"], 1), percent(base["bubble_fraction"], 1)])
    return section(
        "Building blocks: a half and a third of 1F1B's activations; almost no bubble at 1F1B's",
        "Qi et al., NeurIPS'24, abstract and table 1.",
        commands[1:4], table(["equal F, I, W; 4 p microbatches", "activations / 1F1B's", "paper", "stage bubble", "bubble of the makespan", "1F1B: stage",
               "1F1B: makespan"], lines),
        "A third and a half are what many stages come to: V-Min holds 2 floor((p+4)/3) of 2p chunks, V-Half 2 floor((p+2)/2). The "
        "*stage bubble* is idle time between a device's first start and last end, which is the paper's for schedules whose optimizer steps do not wait for a "
        "flush of all devices; that of the makespan counts the skew at both ends, too. V-ZB has none of the first at 1F1B's activations.")


MODELS = {"9.6B": (16, 30, 5120, 40), "21B": (24, 46, 6144, 48), "38.5B": (32, 62, 7168, 64), "98.5B": (40, 78, 10240, 80)}
SHOWN = [("1f1b", 1), ("interleaved-1f1b", 2), ("zb-1p", 1), ("zb-2p", 1), ("v-min", 2), ("v-half", 2), ("v-zb", 2)]
PUBLISHED_9_6B = {"1f1b": (23, 43.5), "interleaved-1f1b": (36, 48.5), "zb-1p": (25, 48.5), "zb-2p": (48, 52.5),
                  "v-min": (10, 40.5), "v-half": (14, 46.5), "v-zb": (23, 51)}


def split_of(stages, chunks, layers):
    """The paper's: embedding and LM head count as a layer each."""
    each = (layers + 2) // (stages * chunks)
    return [each - 1, *[each] * (stages * chunks - 2), each - 1]


def on_a100(model, schedule, chunks, **more):
    stages, layers, hidden, heads = MODELS[model]
    keys = {} if model == "9.6B" else {"cluster.nodes": stages // 8, "model.num_layers": layers, "model.hidden_size": hidden,
                                       "model.num_attention_heads": heads, "stages": stages}
    if schedule != "1f1b":
        keys |= {"schedule": schedule}
    if chunks > 1:
        keys |= {"chunks": chunks}
    if keys:
        keys |= {"split": str(split_of(stages, chunks, layers)).replace(" ", "")}
    return simulate("docs/claims/a100.yaml", **keys, **more)


def paper_models():
    commands = {(m, s): on_a100(m, s, v, **({} if m == "9.6B" else {"microbatches": 4 * MODELS[m][0], "microbatch_size": 1}))
                for m in MODELS for s, v in SHOWN}
    results = dict(zip(commands, all_of(list(commands.values()))))
    lines = []
    for (model, schedule), r in results.items():
        base = results[model, "1f1b"]
        published = PUBLISHED_9_6B.get(schedule) if model == "9.6B" else None
        lines.append([f"{model}, {schedule}", f"{rate(r) / MODELS[model][0]:.3f}", percent(r["mfu"], 1),
                      f"{rate(r) / rate(base):.2f}", f"{activations_gb(r):.1f}", f"{peak_gb(r):.1f}" + ("" if r["feasible"] else " (no)"),
                      *((f"{published[1]} %", f"{published[1] / 43.5:.2f}", published[0]) if published else ("–", "–", "–"))])
    return section(
        "Throughput, MFU and total memory of the building blocks on A100",
        "Qi et al., NeurIPS'24: models of 9.6 to 98.5 billion parameters as pure pipelines on 16 to 40 A100 of 80 GB; figure 7a has "
        "the 9.6B (64 microbatches of 2), read off and second-hand.",
        [commands["9.6B", "1f1b"], commands["9.6B", "v-half"]],
        table(["model, schedule", "samples/s/GPU", "MFU", "over 1F1B", "activations GB", "total GB", "paper: MFU", "over 1F1B",
               "activations GB"], lines),
        "*(no)*: does not fit in 80 GB less what CUDA and the allocator take. The larger models: 4 p microbatches of one, as the "
        "paper's tables were not at hand. Nothing is fitted on these rows. MFU is above the paper's throughout: kernels here know "
        "a device's curve of whole layers, nothing of these sequences of 1024; ratios are the claim.")


def gains():
    lines, commands = [], []
    for model, (stages, *_) in MODELS.items():
        cells = []
        for times in (1, 2, 4, 10):
            pair = [on_a100(model, s, v, microbatches=times * stages, microbatch_size=1) for s, v in (("1f1b", 1), ("v-zb", 2))]
            commands = commands or pair
            a, b = all_of(pair)
            cells.append(f"+{percent(rate(b) / rate(a) - 1)}")
        lines.append([model, *cells])
    return section(
        "+7 to +55 % over 1F1B in pure pipelines",
        "Qi et al., NeurIPS'24, abstract: 7 to 55 % more throughput than 1F1B in grid search with pure pipelines, across models and batches.",
        commands, table(["V-ZB over 1F1B, microbatches:", "p", "2 p", "4 p", "10 p"], lines),
        "The gain is 1F1B's bubble, (p-1)/(m+p-1), less V-ZB's, so it depends on m/p alone: the paper's range is that from about "
        "10 p microbatches to p.")


GRID = [(8, 5, 1), (4, 10, 1), (4, 5, 2), (2, 20, 1), (2, 10, 2), (2, 5, 4), (1, 40, 1), (1, 20, 2), (1, 10, 4), (1, 5, 8)]
HYBRID = [("1F1B", "1f1b", 1, {}, 49.81), ("1F1B, recomputation", "1f1b", 1, {"recompute": "full"}, 37.15),
          ("ZB-1P", "zb-1p", 1, {}, 54.52), ("V-Half", "v-half", 2, {}, 52.60), ("V-Min", "v-min", 2, {}, 48.02),
          ("V-ZB", "v-zb", 2, {}, 57.58)]


def hybrid_command(schedule, chunks, keys, tensor, stages, width, size):
    _, layers, hidden, heads = MODELS["98.5B"]
    return simulate("docs/claims/a100.yaml", **{
        "cluster.nodes": 5, "model.num_layers": layers, "model.hidden_size": hidden, "model.num_attention_heads": heads,
        "schedule": schedule, "chunks": chunks, "stages": stages, "tensor": tensor, "width": width, "microbatch_size": size,
        "microbatches": 160 // width // size, "sequence_parallel": str(tensor > 1).lower(),
        "distributed_optimizer": "true", "split": str(split_of(stages, chunks, layers)).replace(" ", ""), **keys})


def hybrid():
    lines, best_command = [], None
    bests = {}
    for name, schedule, chunks, keys, published in HYBRID:
        commands = {}
        for tensor, stages, width in GRID:
            for size in (1, 2, 4):
                if 160 % (width * size) == 0 and 160 // width // size >= 2 * stages:
                    commands[tensor, stages, width, size] = hybrid_command(schedule, chunks, keys, tensor, stages, width, size)
        fitting = [(rate(r), where, r) for where, r in zip(commands, all_of(list(commands.values()))) if r["feasible"]]
        if not fitting:
            lines.append([name, "none fits", "", "", f"{published} %", f"{published / 49.81:.2f}"])
            continue
        speed, where, r = max(fitting, key=lambda one: one[0])
        bests[name] = speed
        best_command = commands[where]
        tensor, stages, width, size = where
        lines.append([name, f"t{tensor} p{stages} w{width} b{size}", percent(r["mfu"], 1), f"{peak_gb(r):.1f}",
                      f"{published} %", f"{published / 49.81:.2f}"])
        lines[-1].insert(3, f"{speed / bests['1F1B']:.2f}" if "1F1B" in bests else "–")
    (a, b) = (ran(hybrid_command(s, v, {}, 4, 5, 2, 2)) for s, v in (("1f1b", 1), ("v-zb", 2)))
    return section(
        "+16 % in hybrid search",
        "Qi et al., NeurIPS'24, table 3: the 98.5B model on 40 A100, sequences of 1024, 160 an update, the best of tensor, pipeline and "
        "data parallelism and microbatch size for each schedule (second-hand).",
        [best_command],
        table(["schedule", "best", "MFU", "over 1F1B", "total GB", "paper: MFU", "over 1F1B"], lines),
        "The grid: " + ", ".join(f"{t} x {p} x {w}" for t, p, w in GRID) + " (tensor x stages x replicas), microbatches of 1, 2 and 4, "
        "at least 2 p of them; sequence parallelism with tensor parallelism, the optimizer divided over replicas. The paper's 1F1B was best "
        f"at t4 p5 w2 b2, which needs {peak_gb(a):.0f} GB here and does not fit; it would reach {percent(a['mfu'], 1)}, and V-ZB there "
        f"{percent(b['mfu'], 1)}. With all schedules free to choose deep pipelines, 1F1B loses less: 160 microbatches for 20 stages.")


# Other systems' dimensions --------------------------------------------------------------------------------------------


DIMENSIONS = [  # FlexFlow's, Mesh-TensorFlow's, our keys, what is missing
    ("sample", "batch", ["pipeline.width", "pipeline.microbatch_size"], "–"),
    ("operator", "– (no pipeline, one iteration at a time)", ["pipeline.stages", "pipeline.chunks", "pipeline.split"],
     "operators within a layer on different GPUs: a layer is the smallest piece"),
    ("attribute", "length, height, width", ["pipeline.context", "pipeline.sequence_parallel"],
     "height and width of images: CNNs come as profiles, whose layers are not cut"),
    ("parameter", "model dimensions (hidden, heads, vocabulary)", ["pipeline.tensor", "pipeline.distributed_optimizer"],
     "one degree for all matrices of a stage; Mesh-TensorFlow chooses per dimension")]


def dimensions():
    schema = json.loads((ROOT / "scenarios/scenario.schema.json").read_text())
    text = json.dumps(schema)
    for _, _, keys, _ in DIMENSIONS:
        for key in keys:
            if f'"{key.split(".")[1]}"' not in text:
                sys.exit(f"'{key}' is no key any more")
    return section(
        "FlexFlow's and Mesh-TensorFlow's dimensions",
        "Jia et al., MLSys'19 (SOAP: sample, operator, attribute, parameter); Shazeer et al., NeurIPS'18.", [],
        table(["FlexFlow", "Mesh-TensorFlow", "keys", "missing"],
              [[a, b, ", ".join(f"`{k}`" for k in keys), missing] for a, b, keys, missing in DIMENSIONS]),
        "Both search over such splits of one iteration; `penstock plan` searches over widths, depths, tensor degrees, cuts, "
        "recomputation and schedules instead.")


HEAD = """# The papers' claims, one by one

Written by `scripts/claims.py`, which runs the commands below; a test fails where the page is not what it writes. Numbers of the papers
are from their text and tables, or read off their figures where it says so. Errors of other published numbers: [validation.md](validation.md).
"""
SECTIONS = [two_bw_speed, two_bw_versions, one_step_delay, naive_pipelining, stale_families, sosp_speed_ups, early_backward, hidden_messages,
            partitions, data_parallel_overhead, largest_models, missed_without_a_pipeline, pipeline_bytes,
            reductions, stragglers, building_blocks, paper_models, gains, hybrid, dimensions]


def main():
    wanted = sys.argv[1:]
    check = "--check" in wanted
    text = "\n".join([HEAD, *(make() for make in SECTIONS)])
    if not check:
        PAGE.write_text(text)
        return 0
    now = PAGE.read_text()
    sys.stdout.writelines(line + "\n" for line in difflib.unified_diff(now.split("\n"), text.split("\n"), "docs/claims.md",
                                                                        "as computed now", lineterm=""))
    return 0 if now == text else 1


if __name__ == "__main__":
    sys.exit(main())
