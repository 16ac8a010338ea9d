#!/usr/bin/env python3
"""What to record on a GPU machine, and what becomes of it (VALIDATION: one GPU, SM partitions).

  scripts/gpu_recordings.py prepare FOLDER [--small]
  scripts/record_gpu.sh FOLDER/bin FOLDER/programs OUT         # there; FOLDER is all it needs
  scripts/gpu_recordings.py collect OUT TRACES                 # e.g. traces/recorded/h200

`prepare` writes scenarios, exports each as a program, asks for a calibration of every partition
count, link and precision they need, and lists the runs by priority. A scenario names its profile,
`gpt-1024-p4-pinned.yaml`: until it has been measured, a file with the model's shape alone. `collect` makes
the profiles from what was measured, puts the repeats of a run into one recording, copies the
machine's description, and leaves a folder for `penstock validate`. --small: a model that threads can
run, to try all of this without a GPU. The program is $PENSTOCK, or ./penstock.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
PENSTOCK = os.environ.get("PENSTOCK", str(ROOT / "penstock"))
ITERATIONS = 22  # of which validate leaves out the first

MAIN = ("gpipe", "1f1b", "pipedream-2bw", "pipedream")
WHOLE_MODEL = ("data-parallel", "asp")  # replicas, which one GPU's partitions are not

# hidden size -> layers, heads: as many layers as eight devices of two chunks need
SHAPES = {1024: (16, 16), 2048: (16, 16), 4096: (16, 32), 8192: (16, 64)}
SMALL = {1024: (16, 2)}
SEQUENCE, MICROBATCH_SIZE = 512, 2
ROOM_BYTES = 100e9  # of an H200's, for one calibration

Profile = collections.namedtuple("Profile", "hidden partitions link precision")
Run = collections.namedtuple("Run", "priority schedule partitions microbatches recompute profile")


def name_of(profile):
    return (f"gpt-{profile.hidden}-p{profile.partitions}-{profile.link}"
            + ("" if profile.precision == "bf16" else f"-{profile.precision}"))


def run_name(run):
    return (f"{run.schedule}-p{run.partitions}-m{run.microbatches}"
            + ("" if run.recompute == "none" else f"-{run.recompute}")
            + f"-{run.profile.link}-{run.profile.precision}"
            + ("" if run.profile.hidden == 1024 else f"-h{run.profile.hidden}"))


def planned_runs(schedules, shapes):
    """Priority 1 is what nobody should go home without."""
    def profile(p, link="pinned", precision="bf16", hidden=1024):
        return Profile(hidden, p, link, precision)

    runs = []
    for schedule in MAIN:
        for p in (2, 4, 8):
            for m in (1,) if schedule == "pipedream" else (8, 16, 32, 64):
                runs.append(Run(1, schedule, p, m, "none", profile(p)))
            for m in (1,) if schedule == "pipedream" else (8, 32):
                runs.append(Run(2, schedule, p, m, "none", profile(p, "d2d")))
        m = 1 if schedule == "pipedream" else 8
        for recompute in ("full", "selective"):
            runs.append(Run(1, schedule, 4, m, recompute, profile(4)))
        runs.append(Run(2, schedule, 4, m, "none", profile(4, precision="fp32")))
        for hidden in sorted(set(shapes) & {2048, 4096}):
            runs.append(Run(2, schedule, 4, m, "none", profile(4, hidden=hidden)))
    for schedule in schedules:
        if schedule in MAIN or schedule in WHOLE_MODEL:
            continue
        for p, priority in ((4, 1), (2, 2), (8, 2)):
            runs.append(Run(priority, schedule, p, 2 * p, "none", profile(p)))
    return runs


def calibrations(runs, shapes):
    """Profiles and their priorities: those of the runs, and those of other hidden sizes and
    precisions, for their own sake."""
    wanted = {}
    for run in sorted(runs):
        wanted.setdefault(run.profile, run.priority)
    for hidden in sorted(shapes):
        for p in (2, 4, 8):
            for precision in ("bf16", "fp32"):
                wanted.setdefault(Profile(hidden, p, "pinned", precision), 2)
    return wanted


def fits(profile, heads, layers, size):
    """Stages of so many layers on every partition at once, each with its weights, gradients and
    optimizer, and the activations of three microbatches (Korthikanti et al., 2022, equation 1)."""
    hidden = profile.hidden
    activations = SEQUENCE * size * hidden * (34 + 5 * heads * SEQUENCE / hidden)
    if profile.precision == "fp32":
        activations *= 2
    return profile.partitions * layers * (12 * hidden**2 * 18 + 3 * activations) < ROOM_BYTES


def penstock(*arguments):
    done = subprocess.run([PENSTOCK, *map(str, arguments)], text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr.strip()


def must(*arguments):
    code, out, err = penstock(*arguments)
    if code != 0:
        sys.exit(f"penstock {' '.join(map(str, arguments))}: status {code}\n{err}")
    return out


def write_shape(path, profile, shapes, small):
    """The profile before it is measured: a model and a cluster without measured times."""
    layers, heads = shapes[profile.hidden]
    hidden, length, vocabulary = (32, 16, 64) if small else (profile.hidden, SEQUENCE, 8192)
    precision = "mixed-bf16" if profile.precision == "bf16" else "fp32"
    path.write_text(
        f"model: {{name: gpt-{hidden}, family: gpt, num_layers: {layers}, hidden_size: {hidden},\n"
        f"        num_attention_heads: {heads}, vocab_size: {vocabulary}, seq_length: {length},\n"
        f"        tie_embeddings: false, precision: {precision}}}\n"
        f"cluster: {{devices: {profile.partitions}, device: h200, memory: 130 GiB,\n"
        f"          link: {{latency: 10 us, bandwidth: 20 GB/s}}}}\n")


def scenario_of(run):
    profile = f"{name_of(run.profile)}.yaml"
    batches = ITERATIONS if run.microbatches > 1 else 8 * ITERATIONS
    recompute = "" if run.recompute == "none" else f", recompute: {run.recompute}"
    return (f"name: {run_name(run)}\nmodel: {profile}\ncluster: {profile}\n"
            f"schedule: {run.schedule}\nbatches: {batches}\n"
            f"pipeline: {{stages: {run.partitions}, microbatch_size: {MICROBATCH_SIZE}, "
            f"microbatches: {run.microbatches}{recompute}}}\n")


def ask(profile, priority, shapes, folder):
    """False: it has no room."""
    full = profile.hidden == 1024 and profile.precision == "bf16"
    layers = [1, 8] if full else [1, 2]
    sizes = [size for size in ((1, 2, 4) if full else (1, 2, 4, 16))
             if fits(profile, shapes[profile.hidden][1], layers[1], size)]
    if not sizes:
        return False
    request = folder / "programs" / f"calibrate-{priority}-{name_of(profile)}.json"
    must("calibrate", folder / f"{name_of(profile)}.yaml", "--backend", "cuda", "--precision",
         profile.precision, "--link", profile.link, "--workers", profile.partitions,
         "--microbatch-sizes", ",".join(map(str, sizes)), "--recompute",
         "none,selective,full" if full else "none", "--request", request)
    # Some 40 stages, alone and under load.
    asked = json.loads(request.read_text()) | {"stage_s": 0.5, "layer_counts": layers}
    request.write_text(json.dumps(asked, indent=1) + "\n")
    return True


def export(run, folder):
    """Its line in the list of runs; None, with the reason said, where it cannot be."""
    path = folder / f"{run_name(run)}.run.yaml"
    path.write_text(scenario_of(run))
    program = folder / "programs" / f"{run_name(run)}.json"
    code, _, err = penstock("export", path, "--to", "program", "-o", program)
    path.unlink()
    if code != 0:
        print(f"left out: {run_name(run)}: {err.splitlines()[0]}", file=sys.stderr)
        return None
    return f"{run.priority} {run_name(run)} {run.profile.link} {run.profile.precision}"


def prepare(folder, small):
    shapes = SMALL if small else SHAPES
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    schedules = [s["name"] for s in json.loads(must("list", "schedules", "--format", "json"))]
    runs = planned_runs(schedules, shapes)
    profiles = calibrations(runs, shapes)
    for profile, priority in profiles.items():
        write_shape(folder / f"{name_of(profile)}.yaml", profile, shapes, small)
        if not ask(profile, priority, shapes, folder):
            print(f"left out: the calibration of {name_of(profile)}: no room", file=sys.stderr)
    lines = [line for run in runs if (line := export(run, folder))]
    (folder / "programs" / "runs.txt").write_text("\n".join(lines) + "\n")
    subprocess.run([ROOT / "scripts/bundle_run.sh", "--without-cublas", folder / "bin"], check=True)
    test = ROOT / "build/tests/hw/cuda_test"  # its cases say more there than anywhere else
    if test.exists():
        shutil.copy(test, folder / "bin")
    print(f"{len(profiles)} calibrations and {len(lines)} runs in {folder}")


def merged(recordings):
    """The repeats of one run as one recording."""
    whole = None
    for path in recordings:
        with gzip.open(path, "rt") as file:
            one = json.load(file)
        if whole is None:
            whole = one
        else:
            whole["runs"] += one["runs"]
    return whole


def collect(out, traces):
    if not any(out.glob("*.json*")):
        sys.exit(f"{out}: no results of scripts/record_gpu.sh are there")
    traces.mkdir(parents=True, exist_ok=True)
    for result in sorted(out.glob("calibrate-*.result.json")):
        name = result.name.removesuffix(".result.json").split("-", 2)[2]
        (traces / f"{name}.txt").write_text(
            must("calibrate", "--result", result, "-o", traces / f"{name}.yaml"))
    repeats = collections.defaultdict(list)
    for path in sorted(out.glob("*.json.gz")):
        repeats[path.name.rsplit(".", 3)[0]].append(path)
    for name, paths in repeats.items():
        recording = merged(paths)
        if " x " not in recording["description"].get("partitions", ""):
            print(f"{name}: its stages were no partitions", file=sys.stderr)
        profile = recording["scenario"].split("model: ")[1].split("\n")[0]
        if not (traces / profile).exists():
            print(f"left out: {name}: {profile} was not measured", file=sys.stderr)
            continue
        with gzip.GzipFile(traces / f"{name}.json.gz", "wb", mtime=0) as file:
            file.write(json.dumps(recording, separators=(",", ":")).encode())
    for path in out.glob("nvidia-smi*.txt"):
        shutil.copy(path, traces)
    print(f"{len(repeats)} recordings in {traces}; now: penstock validate {traces}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=pathlib.Path)
    one.add_argument("--small", action="store_true")
    two = commands.add_parser("collect")
    for argument in ("out", "traces"):
        two.add_argument(argument, type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder, arguments.small)
    else:
        collect(arguments.out, arguments.traces)


if __name__ == "__main__":
    main()
