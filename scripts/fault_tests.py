#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes calls of penstock fail, one after the other, and looks at what comes of it.

    scripts/fault_tests.py [--points N] [--kind KIND,...] [--seed N] [--jobs N] [--messages] [COMMAND...]

Each command (all of them, or those that are named; --list lists them) runs without a fault, which counts its
calls; then again with a fault at N of its calls (default 40; 0: at every call), evenly spread, from a random
one on, once where this call alone fails and once where all from it on do. Kinds (default: all):

memory   malloc, operator new, mmap and their kin
io       open, read, write, sync, rename, link, unlink, close, mkdir and their kin
short    nothing fails, but reads and writes do half of what they were given
process  fork, pipe, socket, dup

Promises: the exit code is one of --help's and no bug's; 0 means the same output as without a fault, and else
there is a message of ours; an output file is the old one or the whole new one; nothing else is left, unless
what failed was to remove it; a sweep's --resume afterwards makes what an undisturbed sweep does.

The last line says how many faults there were and how many were answered wrongly; exit status 1 then. A row of
the table: calls of the run, faults, how many of them were survived (exit 0), ended with a message, were wrong.
$PENSTOCK_BINARY and $PENSTOCK_FAULTS name the program and the preloaded library (default: those in build/)."""
import argparse
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("PENSTOCK_BINARY", str(ROOT / "build/cli/penstock"))
LIBRARY = os.environ.get("PENSTOCK_FAULTS", str(ROOT / "build/tests/faults/libfaults.so"))
SMALL = str(ROOT / "scenarios/small-1f1b.yaml")
REAL = str(ROOT / "scenarios/gpt-355m-uneven.yaml")
LAYERS = str(ROOT / "docs/tasks/layers.csv")
ENVIRONMENT = os.environ | {"PENSTOCK_HOME": str(ROOT), "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1",
                            "OPENBLAS_NUM_THREADS": "1"}
KINDS = {"memory": 1, "io": 2, "short": 3, "process": 4}
STATE = struct.Struct("<IIQQQQ32s256s")  # tests/faults/faults.cpp has the same
REMOVES, SYNCS = 1, 4
OLD = b"what was there before\n"
TIME_LIMIT_S = 60


class Command:
    """What is run in a folder of its own, and what it writes there."""

    def __init__(self, *words, files=(), given=None, sweep=None, code=0, heavy=False, whole=None):
        self.words = [str(w) for w in words]
        self.files = files      # written over what was there before
        self.given = given or {}  # files that are there before, by name
        self.sweep = sweep      # its output, which `--resume` completes
        self.code = code
        self.heavy = heavy      # measures or starts others: a tenth of the faults
        self.whole = whole      # tells a complete output, where two runs differ


EXACT = ["--engine", "exact", "--reproducible"]
SWEEP = ["sweep", SMALL, "--over", "stages=1:4", "--over", "microbatches=4,8", "--engine", "exact", "--jobs", "1",
         "--reproducible"]
TINY = """name: tiny
schedule: 1f1b
batches: 1
pipeline: {stages: 2, microbatches: 2}
model: {forward: 1 ms, backward: 2 ms, activation: 1 KiB, parameters: 1 KiB, output: 1 KiB}
cluster: {devices: 2, memory: 16 GiB, link: {latency: 1 us, bandwidth: 10 GB/s}}
"""
MODEL = """name: t
schedule: 1f1b
pipeline: {stages: 2, microbatches: 2}
stack: none
model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, seq_length: 8, vocab_size: 32}
cluster: dgx-a100
"""


def penstock(*words, folder):
    """Output of a run without faults."""
    return subprocess.run([BINARY, *map(str, words)], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True,
                          stdin=subprocess.DEVNULL).stdout


def half_a_sweep(folder, kind):
    """What is left of a sweep that was killed, with one row that failed."""
    target = folder / f"half.{kind}"
    penstock(*SWEEP, "-o", target, folder=folder)
    if kind == "sqlite":
        with sqlite3.connect(target) as base:
            base.execute("DELETE FROM sweep WHERE point > 3")
        base.close()
        return {"rows.sqlite": target.read_bytes()}
    lines = target.read_bytes().splitlines(keepends=True)
    return {f"rows.{kind}": b"".join(lines[:len(lines) - 3]) + lines[-2][:9],
            f"rows.{kind}.sweep": pathlib.Path(f"{target}.sweep").read_bytes()}


def commands(folder):
    """All of them, by name; `folder` gets what they are given."""
    csv = penstock("schedule", "export", "1f1b", "--set", "stages=2", "--set", "microbatches=4", folder=folder)
    (folder / "tiny.yaml").write_text(TINY)
    penstock("replay", "tiny.yaml", "--clock", "virtual", "--record", "run.json.gz", folder=folder)
    recording = {"run.json.gz": (folder / "run.json.gz").read_bytes()}
    results = {}
    for name in ("a", "b"):
        penstock("simulate", SMALL, *EXACT, "--format", "json", "-o", f"{name}.json", folder=folder)
        results[f"{name}.json"] = (folder / f"{name}.json").read_bytes()
    trace = penstock("simulate", SMALL, *EXACT, "--trace", "t.json", folder=folder)
    trace = {"t.json": (folder / "t.json").read_bytes()}
    tiny = {"tiny.yaml": TINY.encode()}
    return {
        "simulate": Command("simulate", SMALL, *EXACT),
        "simulate a model": Command("simulate", REAL, "--reproducible"),
        "simulate simgrid": Command("simulate", SMALL, "--reproducible"),
        "simulate json": Command("simulate", SMALL, *EXACT, "--format", "json", "--events", "-o", "out.json",
                                 files=["out.json"]),
        "simulate csv": Command("simulate", SMALL, *EXACT, "--format", "csv"),
        "simulate trace": Command("simulate", SMALL, *EXACT, "--trace", "out.json", files=["out.json"]),
        "simulate packed trace": Command("simulate", SMALL, *EXACT, "--trace", "out.json.gz", files=["out.json.gz"]),
        "simulate report": Command("simulate", SMALL, *EXACT, "--report", "out.html", files=["out.html"]),
        "compare": Command("compare", SMALL, "--over", "schedule=1f1b,gpipe", *EXACT, "-o", "out.txt",
                           files=["out.txt"]),
        "compare results": Command("compare", "a.json", "b.json", "--reproducible", given=results),
        "compare report": Command("compare", SMALL, "--over", "schedule=1f1b,gpipe", *EXACT, "--report", "out.html",
                                  files=["out.html"]),
        "sweep": Command(*SWEEP, "--format", "csv"),
        "sweep csv": Command(*SWEEP, "-o", "rows.csv", sweep="rows.csv"),
        "sweep jsonl": Command(*SWEEP, "-o", "rows.jsonl", sweep="rows.jsonl"),
        "sweep sqlite": Command(*SWEEP, "-o", "rows.sqlite", sweep="rows.sqlite"),
        "sweep report": Command(*SWEEP, "-o", "rows.csv", "--report", "out.html", sweep="rows.csv",
                                files=["out.html"]),
        "resume csv": Command(*SWEEP, "-o", "rows.csv", "--resume", sweep="rows.csv",
                              given=half_a_sweep(folder, "csv")),
        "resume jsonl": Command(*SWEEP, "-o", "rows.jsonl", "--resume", sweep="rows.jsonl",
                                given=half_a_sweep(folder, "jsonl")),
        "resume sqlite": Command(*SWEEP, "-o", "rows.sqlite", "--resume", sweep="rows.sqlite",
                                 given=half_a_sweep(folder, "sqlite")),
        "plan": Command("plan", LAYERS, "--level", "2x10GB/s", "--search", "pipedream", "--format", "json", "-o", "out.json",
                        files=["out.json"]),
        "plan full": Command("plan", LAYERS, "--level", "2x10GB/s", "--batch", "8", "--search", "full", "--effort",
                             "20", "--write", "plans", whole=lambda text: text.endswith(b"\n"), heavy=True),
        "validate": Command("validate", "run.json.gz", "--format", "json", "-o", "out.json", files=["out.json"],
                            given=recording),
        "validate report": Command("validate", "run.json.gz", "--report", "out.html", files=["out.html"],
                                   given=recording),
        "import layers": Command("import", LAYERS, "-o", "out.yaml", files=["out.yaml"]),
        "import megatron": Command("import", "megatron-args", ROOT / "docs/tasks/train_gpt_20b.sh", "-o", "out.yaml",
                                   files=["out.yaml"]),
        "import layout": Command("import", "layout", "Et|t|t|tL", "--stages", "2"),
        "export program": Command("export", SMALL, "--to", "program", "-o", "out.json", files=["out.json"]),
        "export torch": Command("export", SMALL, "--to", "torch-csv", "-o", "out.csv", files=["out.csv"]),
        "export chakra": Command("export", SMALL, "--to", "chakra", "-o", "out",
                                 files=[f"out.{i}.et" for i in range(4)]),
        "export goal": Command("export", SMALL, "--to", "goal", "-o", "out.goal", files=["out.goal"]),
        "schedule list": Command("schedule", "list"),
        "schedule show": Command("schedule", "show", "zb-h1", "--set", "stages=2", "--set", "microbatches=4"),
        "schedule check": Command("schedule", "check", "order.csv", given={"order.csv": csv}),
        "trace check": Command("trace", "check", "t.json", given=trace),
        "replay": Command("replay", "tiny.yaml", "--clock", "virtual", "--reproducible", "--deadline", "5",
                          "--record", "out.json", files=["out.json"], given=tiny, heavy=True,
                          whole=lambda text: text.endswith(b"\n")),
        "replay processes": Command("replay", "tiny.yaml", "--processes", "--deadline", "5", given=tiny, heavy=True,
                                    whole=lambda text: text.endswith(b"\n")),
        "calibrate request": Command("calibrate", "--request", "out.json", files=["out.json"]),
        "calibrate": Command("calibrate", "model.yaml", "--microbatch-sizes", "1", "--workers", "2", "--repetitions", "1",
                             "-o", "out.yaml", files=["out.yaml"], given={"model.yaml": MODEL.encode()}, heavy=True,
                             whole=lambda text: text.endswith(b"\n")),
        "init": Command("init", "out.yaml"),
        "list": Command("list", "models", "--format", "csv", "-o", "out.csv", files=["out.csv"]),
        "completion": Command("completion", "bash"),
        "help": Command("help", "--man"),
        "doctor": Command("doctor", heavy=True, whole=lambda text: text.endswith(b"\n")),
        "wrong input": Command("simulate", "tiny.yaml", code=2, given={"tiny.yaml": TINY.encode()[:-20]}),
    }


class Wrong(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Wrong(what)


class Run:
    """A command in a new folder, with a fault."""

    def __init__(self, command, parent, kind="memory", at=0, everything=False, trace=False):
        self.command = command
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=parent))
        for place in ("work", "tmp"):
            (self.folder / place).mkdir()
        self.work = self.folder / "work"
        for name in command.files:
            (self.work / name).write_bytes(OLD)
        for name, content in command.given.items():
            (self.work / name).write_bytes(content)
        state = self.folder / "state"
        state.write_bytes(STATE.pack(KINDS[kind], everything, at, 0, 0, 0, b"", b""))
        environment = ENVIRONMENT | {"PENSTOCK_FAULT_STATE": str(state), "LD_PRELOAD": LIBRARY,
                                     "TMPDIR": str(self.folder / "tmp")}
        if trace:
            environment["PENSTOCK_FAULT_TRACE"] = "1"
        process = subprocess.Popen([BINARY, *command.words], cwd=self.work, env=environment, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.ended = True
        try:
            self.output, error = process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.output, error = process.communicate()
            self.ended = False
        self.error = error.decode(errors="replace")
        self.code = process.returncode
        _, _, _, self.calls, self.failed, self.which, first, what = STATE.unpack(state.read_bytes())
        self.first = first.rstrip(b"\0").decode()
        self.what = what.rstrip(b"\0").decode(errors="replace")
        self.left = {str(p.relative_to(self.work)): p for p in self.work.rglob("*") if p.is_file()}

    def content(self, name):
        path = self.left.get(name)
        return rows(path) if name == self.command.sweep else None if path is None else path.read_bytes()

    def remove(self):
        shutil.rmtree(self.folder)


def rows(path):
    """Of a sweep; None without a file."""
    if path is None:
        return None
    if path.suffix != ".sqlite":
        return path.read_bytes()
    base = sqlite3.connect(path)
    try:
        return base.execute("SELECT * FROM sweep ORDER BY point").fetchall()
    except sqlite3.OperationalError:  # no table yet
        return None
    finally:
        base.close()


def without_failed(content):
    """What is not to be redone: a point that failed is a row, and the exit code 0."""
    if isinstance(content, list):
        return [row for row in content if "failed" not in row]
    return [line for line in content.splitlines() if b",failed," not in line and b'"failed"' not in line]


def same(command, name, now, then):
    if name == command.sweep:
        return now is not None and set(without_failed(now)) <= set(without_failed(then))
    if command.sweep and name.endswith(".html"):  # it shows points that failed, too
        return now is not None and now.endswith(b"</html>\n")
    if command.whole is not None:
        return now is not None and command.whole(now)
    return now == then or (gzip.decompress(now) == gzip.decompress(then) if name.endswith(".gz") else False)


def judge(run, reference, kind):
    """Raises Wrong where a promise is not kept."""
    command = run.command
    expect(run.ended, f"does not end in {TIME_LIMIT_S} s")
    expect(run.code >= 0, f"ended by {signal.Signals(-run.code).name if run.code < 0 else ''}: {run.error[-300:]}")
    expect(run.code in (command.code, 1, 2, 4), f"exit code {run.code}: {run.error[-300:]}")
    expect(kind != "memory" or run.code in (command.code, 1), f"exit code {run.code}: {run.error[-300:]}")
    expect("this is a bug" not in run.error and "terminate called" not in run.error, run.error[-300:])
    if kind == "short":
        expect(run.code == command.code, f"exit code {run.code}: {run.error[-300:]}")
    if run.code == command.code:
        if command.whole is None:
            complete = "what would help is not complete: " not in run.output.decode()  # said, not silent
            alike = (run.output == reference.output if command.words[0] != "sweep" else
                     set(without_failed(run.output)) <= set(without_failed(reference.output)))
            expect(command.sweep or not complete or alike, "another standard output")
        elif reference.output:
            expect(command.whole(run.output), "a part of standard output")
        for name in reference.left:
            expect(same(command, name, run.content(name), reference.content(name)), f"exit code 0, another {name}")
    else:
        expect(run.error.strip(), f"exit code {run.code} without a message")
        for name in command.files:
            now = run.content(name)
            expect(now == OLD or same(command, name, now, reference.content(name)) or "left out" in run.error,
                   f"{name} is neither the old file nor the new one")
    removed = run.which & REMOVES
    extra = set(run.left) - set(reference.left) - {f"{command.sweep}-journal"}
    expect(removed or not extra, f"left: {sorted(extra)}")
    temporary = os.listdir(run.folder / "tmp")
    expect(removed or not temporary, f"left in the temporary folder: {temporary}")
    if command.sweep:
        judge_resumed(run, reference)


def judge_resumed(run, reference):
    """What is there is continued; where nothing was begun, that is said."""
    words = [w for w in run.command.words if w != "--resume"] + ["--resume"]
    done = subprocess.run([BINARY, *words], cwd=run.work, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=TIME_LIMIT_S)
    expect(done.returncode == 0, f"--resume ends with {done.returncode}: {done.stderr.decode()}")
    expect(rows(run.work / run.command.sweep) == reference.content(run.command.sweep), "resumed rows differ")


def spread(calls, points, random_):
    """Numbers of calls, evenly, from a random one on."""
    if points == 0 or points >= calls:
        return list(range(1, calls + 1))
    step = calls / points
    first = random_.random() * step
    return [1 + int(first + i * step) for i in range(points)]


def faults(command, kind, calls, points, random_):
    """(call, all from it on)"""
    points = points if not command.heavy else 0 if points == 0 else max(2, points // 10)
    if kind == "short":
        return [(at, False) for at in spread(calls, points, random_)] + [(1, True)]
    return [(at, everything) for at in spread(calls, points, random_) for everything in (False, True)]


def message_of(run):
    """The end of what it said, without what differs from run to run."""
    text = run.error.strip().splitlines()[0] if run.error.strip() else "(nothing)"
    return re.sub(r"part\d+|penstock-\w{6}|/tmp/\S*/work|\d+", "#", text)[:150]


class Tests:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.messages = collections.Counter()
        self.done = self.wrong = 0

    def one(self, command, reference, kind, at, everything):
        """(was it reached, its exit code, its message, what was wrong)"""
        run = Run(command, self.folder, kind, at, everything)
        try:
            if run.failed == 0:
                return False, run.code, "", "" if run.ended else "does not end"
            try:
                judge(run, reference, kind)
            except Wrong as wrong:
                return True, run.code, message_of(run), f"{run.first} {run.what}: {wrong}"
            except subprocess.TimeoutExpired:
                return True, run.code, message_of(run), f"{run.first} {run.what}: --resume does not end"
            return True, run.code, message_of(run), ""
        finally:
            run.remove()

    def all_of(self, name, command, kind, pool, random_):
        reference = Run(command, self.folder, kind)
        assert reference.code == command.code and reference.ended, (name, reference.code, reference.error)
        jobs = {pool.submit(self.one, command, reference, kind, *fault): fault
                for fault in faults(command, kind, reference.calls, self.options.points, random_)}
        counts = collections.Counter()
        for job in concurrent.futures.as_completed(jobs):
            reached, code, message, why = job.result()
            at, everything = jobs[job]
            counts["faults"] += reached
            counts["survived" if code == command.code else "ended"] += reached and not why
            counts["wrong"] += bool(why)
            if reached:
                self.messages[(name, kind, code, message)] += 1
            if why:
                print(f"WRONG: {name}, {kind} {'from' if everything else 'at'} {at}: {why}", flush=True)
        self.done += counts["faults"]
        self.wrong += counts["wrong"]
        reference.remove()
        print(f"{name:22} {kind:8} {reference.calls:7} {counts['faults']:7} {counts['survived']:9} "
              f"{counts['ended']:6} {counts['wrong']:6}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--kind", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--messages", action="store_true", help="what was said, how often")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--at", type=int, help="only this call, and show where it is and what it says")
    parser.add_argument("--all", action="store_true", help="with --at: and all after it")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    random_ = random.Random(seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-faults-"))
    try:
        (folder / "given").mkdir()
        table = commands(folder / "given")
        if options.list:
            print("\n".join(table))
            return 0
        unknown = set(options.command) - set(table)
        if unknown:
            sys.exit(f"there is no command {sorted(unknown)}: --list lists them")
        chosen = {name: table[name] for name in options.command or table}
        if options.at is not None:
            return show(chosen, folder, options)
        print(f"seed {seed}")
        print(f"{'command':22} {'kind':8} {'calls':>7} {'faults':>7} {'survived':>9} {'ended':>6} {'wrong':>6}")
        tests = Tests(options, folder)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for name, command in chosen.items():
                for kind in options.kind.split(","):
                    tests.all_of(name, command, kind, pool, random_)
        if options.messages:
            for (name, kind, code, message), count in sorted(tests.messages.items()):
                print(f"{count:6} {name}, {kind}: {code}: {message}")
        print(f"{tests.done} faults, {tests.wrong} wrong, {time.monotonic() - began:.0f} s")
        return 1 if tests.wrong else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(chosen, folder, options):
    """One fault, for whoever mends what it shows."""
    for name, command in chosen.items():
        run = Run(command, folder, options.kind.split(",")[0], options.at, options.all, trace=True)
        error = re.sub(r"^(\S+)\(\+(0x\w+)\)\[0x\w+\]$", lambda m: m.group(1) + " " + subprocess.run(
            ["addr2line", "-Cfe", m.group(1), m.group(2)], capture_output=True, text=True).stdout.split("\n")[0],
            run.error, flags=re.M)
        print(f"{name}: {run.first} {run.what}, exit code {run.code}, left {sorted(run.left)}\n{error}")
        run.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
