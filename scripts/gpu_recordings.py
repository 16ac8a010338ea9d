#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What to record on a GPU machine, and what becomes of it (VALIDATION: one GPU, SM partitions).

  scripts/gpu_recordings.py prepare FOLDER [--gpu h200] [--small]
  scripts/gpu_first.sh FOLDER/session.tgz OUT           # there: the first ten minutes
  scripts/gpu_second.sh FOLDER/session.tgz OUT          # there, as often as there is time
  scripts/gpu_recordings.py collect OUT TRACES          # e.g. traces/recorded/h200

`prepare` writes scenarios, exports each as a program, asks for a calibration of every partition
count, link and precision they need, lists the runs by priority, and packs all of it. Weights are
checked by programs of three updates of their own; runs that are timed are not, because the reference takes as
long as they do. A scenario names its profile, `gpt-1024-p4-pinned.yaml`: until it has been measured, a
file with the model's shape alone. `collect` makes the profiles from what was measured, copies the
recordings and the machine's description, and leaves a folder for `penstock validate`. --small: a
model that threads can run, to try all of this without a GPU. The program is $PENSTOCK, or ./penstock.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PENSTOCK = os.environ.get("PENSTOCK", str(ROOT / "penstock"))
ITERATIONS = 22  # of which validate leaves out the first
CHECKED_UPDATES = 3

MAIN = ("gpipe", "1f1b", "pipedream-2bw", "pipedream")
MORE = ("interleaved-1f1b", "zb-h2", "zb-v", "v-min", "dualpipe", "dualpipev", "chimera", "hanayo")
WHOLE_MODEL = ("data-parallel", "asp")  # replicas, which one GPU's partitions are not

# hidden size -> layers, heads: as many layers as eight devices of two chunks need
SHAPES = {1024: (16, 16), 2048: (16, 16), 4096: (16, 32), 8192: (16, 64)}
SMALL = {1024: (16, 2)}
SEQUENCE, MICROBATCH_SIZE = 512, 2

Gpu = collections.namedtuple("Gpu", "room_bytes memory flops_per_s")
# For one calibration, beside context, code and workspaces; for a stage's scenario; dense bf16.
GPUS = {"h100": Gpu(60e9, "72 GiB", 989e12), "h200": Gpu(110e9, "130 GiB", 989e12)}
SESSION_BYTES = 40 << 20  # a machine that is lent may take 64 MiB at most
LAYER_SEQUENCE, LAYER_SIZE = 2048, 1  # of the op times of one layer

Profile = collections.namedtuple("Profile", "hidden partitions link precision")
Run = collections.namedtuple("Run", "schedule partitions microbatches recompute profile")


def name_of(profile):
    return (f"gpt-{profile.hidden}-p{profile.partitions}-{profile.link}"
            + ("" if profile.precision == "bf16" else f"-{profile.precision}"))


def run_name(run):
    return (f"{run.schedule}-p{run.partitions}-m{run.microbatches}"
            + ("" if run.recompute == "none" else f"-{run.recompute}")
            + f"-{run.profile.link}-{run.profile.precision}"
            + ("" if run.profile.hidden == 1024 else f"-h{run.profile.hidden}"))


def planned_runs(schedules, shapes):
    """Priority 0 is for the first ten minutes; 1 is what nobody should go home without."""
    def profile(p, link="pinned", precision="bf16", hidden=1024):
        return Profile(hidden, p, link, precision)

    def size(schedule, m):
        return 1 if schedule == "pipedream" else m

    priorities = {}

    def plan(priority, schedule, p, m, recompute="none", of=None):
        run = Run(schedule, p, size(schedule, m), recompute, of or profile(p))
        priorities[run] = min(priority, priorities.get(run, priority))

    for schedule in (*MAIN, "zb-h1", "v-half"):
        plan(0, schedule, 4, 8)
    for schedule in MAIN:
        for p in (2, 4, 8):
            for m in (8, 16, 32, 64):
                plan(1 if m == 16 or (p, m) == (4, 32) else 2, schedule, p, m)
            for m in (8, 32):
                plan(2, schedule, p, m, of=profile(p, "d2d"))
        plan(1, schedule, 4, 8, recompute="full")
        plan(2, schedule, 4, 8, of=profile(4, precision="fp32"))
        for hidden in sorted(set(shapes) & {2048, 4096}):
            plan(2, schedule, 4, 8, of=profile(4, hidden=hidden))
    for schedule in ("1f1b", "pipedream-2bw"):
        plan(1, schedule, 4, 8, of=profile(4, "d2d"))
    for schedule in schedules:
        if schedule in MAIN or schedule in WHOLE_MODEL:
            continue
        for p in (4, 2, 8):
            plan(1 if p == 4 and schedule in MORE else 2, schedule, p, 2 * p)
    return priorities


def calibrations(runs, shapes):
    """Profiles and their priorities: those of the runs, and those of other hidden sizes and
    precisions, for their own sake."""
    wanted = {}
    for run, priority in sorted(runs.items(), key=lambda entry: (entry[1], entry[0])):
        wanted.setdefault(run.profile, priority)
    for hidden in sorted(shapes):
        for p in (2, 4, 8):
            for precision in ("bf16", "fp32"):
                wanted.setdefault(Profile(hidden, p, "pinned", precision), 2)
    return wanted


def fits(profile, layers, size, room_bytes):
    """Stages of so many layers on every partition at once, each with its weights, gradients and
    optimizer, and the activations of three microbatches (Korthikanti et al., 2022, equation 1, less
    the probabilities, which flash attention does not store)."""
    hidden = profile.hidden
    activations = SEQUENCE * size * hidden * 34
    if profile.precision == "fp32":
        activations *= 2
    return profile.partitions * layers * (12 * hidden**2 * 18 + 3 * activations) < room_bytes


def penstock(*arguments):
    done = subprocess.run([PENSTOCK, *map(str, arguments)], text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr.strip()


def must(*arguments):
    code, out, err = penstock(*arguments)
    if code != 0:
        sys.exit(f"penstock {' '.join(map(str, arguments))}: status {code}\n{err}")
    return out


def write_shape(path, profile, shapes, gpu, small):
    """The profile before it is measured: a model and a cluster without measured times."""
    layers, heads = shapes[profile.hidden]
    hidden, length, vocabulary = (32, 16, 64) if small else (profile.hidden, SEQUENCE, 8192)
    precision = "mixed-bf16" if profile.precision == "bf16" else "fp32"
    path.write_text(
        f"model: {{name: gpt-{hidden}, family: gpt, num_layers: {layers}, hidden_size: {hidden},\n"
        f"        num_attention_heads: {heads}, vocab_size: {vocabulary}, seq_length: {length},\n"
        f"        tie_embeddings: false, flash_attention: true, precision: {precision}}}\n"
        f"cluster: {{devices: {profile.partitions}, device: {gpu}, memory: {GPUS[gpu].memory},\n"
        f"          link: {{latency: 10 us, bandwidth: 20 GB/s}}}}\n")


def scenario_of(run, iterations=ITERATIONS):
    profile = f"{name_of(run.profile)}.yaml"
    batches = iterations if run.microbatches > 1 else 8 * iterations
    recompute = "" if run.recompute == "none" else f", recompute: {run.recompute}"
    return (f"name: {run_name(run)}\nmodel: {profile}\ncluster: {profile}\n"
            f"schedule: {run.schedule}\nbatches: {batches}\n"
            f"pipeline: {{stages: {run.partitions}, microbatch_size: {MICROBATCH_SIZE}, "
            f"microbatches: {run.microbatches}{recompute}}}\n")


def ask(profile, priority, gpu, folder):
    """False: it has no room."""
    full = profile.hidden == 1024 and profile.precision == "bf16"
    layers = [1, 8] if full else [1, 2]
    sizes = [size for size in ((1, 2, 4) if full else (1, 2, 4, 16))
             if fits(profile, layers[1], size, GPUS[gpu].room_bytes)]
    if not sizes:
        return False
    request = folder / "programs" / f"calibrate-{priority}-{name_of(profile)}.json"
    must("calibrate", folder / f"{name_of(profile)}.yaml", "--backend", "cuda", "--precision",
         profile.precision, "--link", profile.link, "--workers", profile.partitions,
         "--microbatch-sizes", ",".join(map(str, sizes)), "--recompute",
         "none,full" if full else "none", "--request", request)
    # Some 40 stages, alone and under load.
    asked = json.loads(request.read_text()) | {"stage_s": 0.5, "layer_counts": layers}
    request.write_text(json.dumps(asked, indent=1) + "\n")
    return True


def ask_layer(hidden, shapes, folder, small):
    """Ops of one layer alone on the whole GPU: for its share of the peak."""
    heads = shapes[hidden][1]
    request = folder / "programs" / f"layer-{hidden}.json"
    shape = folder / f"gpt-{hidden}-p2-pinned.yaml"
    if not shape.exists():
        return
    must("calibrate", shape, "--backend", "cuda", "--precision", "bf16", "--workers", 1,
         "--microbatch-sizes", f"{LAYER_SIZE},{2 * LAYER_SIZE}", "--request", request)
    asked = json.loads(request.read_text())
    asked |= {"stage_s": 0.5, "layer_counts": [1, 2], "message_bytes": [], "max_repetitions": 45}
    if not small:
        asked["model"] |= {"seq_length": LAYER_SEQUENCE, "num_attention_heads": heads}
    request.write_text(json.dumps(asked, indent=1) + "\n")


def export(run, folder, name, iterations):
    """Its program; False, with the reason said, where it cannot be."""
    path = folder / f"{name}.run.yaml"
    path.write_text(scenario_of(run, iterations))
    program = folder / "programs" / f"{name}.json"
    code, _, err = penstock("export", path, "--to", "program", "-o", program)
    path.unlink()
    if code != 0:
        print(f"left out: {name}: {err.splitlines()[0]}", file=sys.stderr)
    return code == 0


def pack(folder):
    """session.tgz: programs and what runs them."""
    packed = folder / "session.tgz"
    with tarfile.open(packed, "w:gz") as tar:
        for part in ("bin", "programs"):
            tar.add(folder / part, f"session/{part}")
    size = packed.stat().st_size
    if size > SESSION_BYTES:
        sys.exit(f"{packed}: {size / 2**20:.0f} MiB are more than {SESSION_BYTES >> 20}")
    return size


def prepare(folder, gpu, small):
    shapes = SMALL if small else SHAPES
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    schedules = [s["name"] for s in json.loads(must("list", "schedules", "--format", "json"))]
    runs = planned_runs(schedules, shapes)
    profiles = calibrations(runs, shapes)
    for profile, priority in profiles.items():
        write_shape(folder / f"{name_of(profile)}.yaml", profile, shapes, gpu, small)
        if not ask(profile, priority, gpu, folder):
            print(f"left out: the calibration of {name_of(profile)}: no room", file=sys.stderr)
    for hidden in sorted(set(shapes) & {1024, 2048, 4096}):
        ask_layer(hidden, shapes, folder, small)
    lines = [f"{priority} {run_name(run)} {run.profile.link} {run.profile.precision}"
             for run, priority in runs.items() if export(run, folder, run_name(run), ITERATIONS)]
    (folder / "programs" / "runs.txt").write_text("\n".join(lines) + "\n")
    checked = Profile(min(shapes), 4, "pinned", "bf16")
    checks = [schedule for schedule in schedules if schedule not in WHOLE_MODEL and
              export(Run(schedule, 4, 1 if schedule == "pipedream" else 8, "none", checked), folder,
                     f"check-{schedule}", CHECKED_UPDATES)]
    subprocess.run([ROOT / "scripts/bundle_run.sh", "--without-cublas", folder / "bin"], check=True)
    test = ROOT / "build/tests/hw/cuda_test"  # its cases say more there than anywhere else
    if test.exists():
        shutil.copy(test, folder / "bin")
    print(f"{len(profiles)} calibrations, {len(checks)} checks and {len(lines)} runs in {folder}, "
          f"{pack(folder) / 2**20:.1f} MiB packed")


def layer_s(result, kind, size, load):
    """Seconds that one more layer adds to an op, without recomputation; None: not measured."""
    times = {}
    for op in result["ops"]:
        stage = op["stage"]
        if (stage["role"], stage["recompute"], stage["microbatch_size"]) == (
                "middle", "none", size) and (op["op"], op["load"]) == (kind, load):
            times[stage["layers"]] = op["time"]["median_s"]
    if len(times) < 2:
        return None
    few, many = min(times), max(times)
    return (times[many] - times[few]) / (many - few)


def launch_table(results):
    """Twice the sequences take twice as long where the GPU limits, and as long where launches do."""
    lines = []
    for path in results:
        result = json.loads(path.read_text())
        request = result["request"]
        sizes = sorted(request["microbatch_sizes"])
        for load in sorted({op["load"] for op in result["ops"]}):
            for few, more in zip(sizes, sizes[1:]):
                for kind in "FB":
                    one, two = (layer_s(result, kind, size, load) for size in (few, more))
                    if one and two:
                        lines.append(f"{path.name.split('.')[0]}, {load} at work, {kind} of a layer: "
                                     f"{few} to {more} sequences, {two / one:.2f} times the time")
    return lines


def layer_table(results, peak_flops_per_s):
    """Forward and backward of one layer: what a second one adds, and its share of the peak."""
    lines = []
    for path in results:
        result = json.loads(path.read_text())
        model = result["request"]["model"]
        f, b = (layer_s(result, kind, LAYER_SIZE, 1) for kind in "FB")
        if f is None or b is None:
            continue  # cut off
        hidden, length = model["hidden_size"], model["seq_length"]
        flops = length * LAYER_SIZE * (24 * hidden**2 + 4 * length * hidden)
        share = 3 * flops / (f + b) / peak_flops_per_s
        lines.append(f"hidden {hidden}, sequence {length}: F {f * 1e3:.3f} ms, B {b * 1e3:.3f} ms, "
                     f"{share:.1%} of the peak")
    return lines


def collect(out, traces, gpu):
    out = out / "results" if (out / "results").is_dir() else out
    if not any(out.glob("*.json*")):
        sys.exit(f"{out}: no results of scripts/gpu_first.sh are there")
    traces.mkdir(parents=True, exist_ok=True)
    for result in sorted(out.glob("calibrate-*.result.json")):
        name = result.name.removesuffix(".result.json").split("-", 2)[2]
        code, text, err = penstock("calibrate", "--result", result, "-o", traces / f"{name}.yaml")
        if code != 0:
            print(f"left out: {result.name}: {err}", file=sys.stderr)
            continue
        (traces / f"{name}.txt").write_text(text)
    if lines := layer_table(sorted(out.glob("layer-*.result.json")), GPUS[gpu].flops_per_s):
        (traces / "layers.txt").write_text("\n".join(lines) + "\n")
    if lines := launch_table(sorted(out.glob("*.result.json"))):
        (traces / "launches.txt").write_text("\n".join(lines) + "\n")
    recordings = sorted(out.glob("*.json.gz"))
    for path in recordings:
        with gzip.open(path, "rt") as file:
            recording = json.load(file)
        if " x " not in recording["description"].get("partitions", ""):
            print(f"{path.name}: its stages were no partitions", file=sys.stderr)
        profile = recording["scenario"].split("model: ")[1].split("\n")[0]
        if not (traces / profile).exists():
            print(f"left out: {path.name}: {profile} was not measured", file=sys.stderr)
            continue
        with gzip.GzipFile(traces / path.name, "wb", mtime=0) as file:
            file.write(json.dumps(recording, separators=(",", ":")).encode())
    for pattern in ("nvidia-smi*.txt", "gpu.txt", "examination.log", "session.log"):
        for path in out.glob(pattern):
            shutil.copy(path, traces)
    print(f"{len(recordings)} recordings in {traces}; now: penstock validate {traces}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("--small", action="store_true")
    two = commands.add_parser("collect")
    for argument in ("out", "traces"):
        two.add_argument(argument, type=pathlib.Path)
    for command in (one, two):
        command.add_argument("--gpu", choices=sorted(GPUS), default="h200")
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder, arguments.gpu, arguments.small)
    else:
        collect(arguments.out, arguments.traces, arguments.gpu)


if __name__ == "__main__":
    main()
