#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ends penstock at random moments, again and again, and looks at what is left.

    scripts/kill_tests.py [--seed N] sweeps N | files N | ranks N

sweeps  SIGKILL of a sweep (CSV, JSON lines, SQLite, with and without a report), then --resume, often killed
        again: what is there in the end is what an uninterrupted sweep writes, byte for byte.
files   SIGINT, SIGTERM, SIGHUP and SIGKILL of commands that write a file over another one: it is the old one or
        the whole new one, and nothing lies beside it.
ranks   SIGKILL or SIGSTOP of a rank, or SIGKILL of the launcher, of a replay in processes: it ends within its
        deadline and says so; no process, no temporary file and no shared memory is left.

The last line says how many moments there were and how many of them left something wrong; exit status 1 then.
$PENSTOCK_BINARY and $PENSTOCK_RUN name the programs (default: those in build/, which `./check` made)."""
import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("PENSTOCK_BINARY", str(ROOT / "build/cli/penstock"))
RUN = os.environ.get("PENSTOCK_RUN", str(ROOT / "build/hw/penstock-run"))
SMALL = str(ROOT / "scenarios/small-1f1b.yaml")
ENVIRONMENT = os.environ | {"PENSTOCK_HOME": str(ROOT), "LC_ALL": "C.UTF-8"}
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL,
         "env": ENVIRONMENT}


def start(command, **options):
    return subprocess.Popen(list(map(str, command)), start_new_session=True, **(QUIET | options))


def timed(command, **options):
    """Seconds it takes when nobody ends it."""
    began = time.monotonic()
    process = start(command, **options)
    error = process.communicate()[1]
    assert process.returncode == 0, (command, error)
    return time.monotonic() - began


def end_somewhere(process, length, number, random_):
    """True when it was caught while it ran."""
    try:
        process.wait(random_.uniform(0, 1.1 * length))
        caught = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, number)
        caught = True
    process.communicate()
    return caught


class Wrong(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Wrong(what)


# --- sweeps

SWEEP = [BINARY, "sweep", SMALL, "--over", "stages=1:16", "--over", "microbatches=1:40", "--engine", "exact",
         "--jobs", "2"]


def content(path):
    if path.suffix != ".sqlite":
        return path.read_bytes()
    with sqlite3.connect(path) as base:
        return base.execute("SELECT * FROM sweep ORDER BY point").fetchall()


def replacing(path):
    """A whole report under its other name: of a process killed in the instant of replacing an older one."""
    return path.name.startswith("rows.html.part") and path.read_bytes().endswith(b"</html>\n")


def sweeps(count, folder, random_):
    kinds = ("csv", "jsonl", "sqlite")
    whole, length = {}, {}
    for kind in kinds:
        target = folder / f"whole.{kind}"
        length[kind] = timed([*SWEEP, "-o", target])
        whole[kind] = content(target)
    done = 0
    while done < count:
        kind = kinds[done % 3]
        place = folder / f"sweep-{done}"
        place.mkdir()
        target, report = place / f"rows.{kind}", place / "rows.html"
        more = ["--report", report] if random_.random() < 0.3 else []
        resume = []
        while done < count:
            done += 1
            if not end_somewhere(start([*SWEEP, *more, "-o", target, *resume]), length[kind],
                                 signal.SIGKILL, random_):
                break
            resume = ["--resume"]
            if random_.random() < 0.5:
                break
        last = start([*SWEEP, *more, "-o", target, "--resume"])
        error = last.communicate()[1].decode()
        try:
            expect(last.returncode == 0, f"--resume ends with {last.returncode}: {error}")
            expect(content(target) == whole[kind], "resumed rows differ")
            expected = {target.name, target.name + ".sweep", report.name}
            left = [p for p in place.iterdir() if p.name not in expected and not replacing(p)]
            expect(not left, f"left: {left}")
        except Wrong as wrong:
            yield done, f"{kind}: {wrong} (kept in {place})"
        else:
            shutil.rmtree(place)
            yield done, ""


# --- files

def commands(folder):
    """What is written where."""
    target = folder / "out"
    plan = folder / "layers.csv"
    plan.write_text("layer,time,activation,parameters\n" + "".join(
        f"l{i},{1 + i % 3} ms,1 MB,1 MB\n" for i in range(12)))
    real = ROOT / "scenarios/gpt-2.2b-2bw.yaml"
    exact = ["--engine", "exact", "--reproducible"]
    return {
        "result": ([BINARY, "simulate", real, *exact, "--format", "json", "--events", "-o", target], target),
        "trace": ([BINARY, "simulate", real, *exact, "--trace", folder / "t.json"], folder / "t.json"),
        "packed trace": ([BINARY, "simulate", real, *exact, "--trace", folder / "t.json.gz"],
                         folder / "t.json.gz"),
        "report": ([BINARY, "simulate", real, "--engine", "exact", "--report", folder / "r.html"],
                   folder / "r.html"),
        "program": ([BINARY, "export", SMALL, "--to", "program", "-o", target], target),
        "scenario": ([BINARY, "import", plan, "-o", target], target),
        "plan": ([BINARY, "plan", plan, "--level", "2x10GB/s", "--search", "pipedream", "--format", "json", "-o",
                  target], target),
        "comparison": ([BINARY, "compare", SMALL, "--over", "schedule=1f1b,gpipe", "--reproducible", "--engine",
                        "exact", "--format", "json", "-o", target], target),
    }


def files(count, folder, random_):
    table = []
    for name, (command, target) in commands(folder).items():
        before = {p.name for p in folder.iterdir()}
        length = timed(command)
        table.append((name, command, target, length, target.read_bytes()))
        beside = {p.name for p in folder.iterdir()} - before - {target.name}
        assert not beside, beside
        target.unlink()
    for done in range(1, count + 1):
        name, command, target, length, whole = random_.choice(table)
        old = b"what was there before\n"
        target.write_bytes(old)
        before = {p.name for p in folder.iterdir()}
        number = random_.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
        end_somewhere(start(command), length, number, random_)
        try:
            now = target.read_bytes()
            expect(now in (old, whole) or name == "report" and now.endswith(b"</html>\n"),
                   f"neither the old file nor the new one: {len(now)} of {len(whole)} bytes")
            left = {}
            for path in folder.iterdir():
                if path.name not in before:
                    left[path.name] = path.read_bytes()
                    path.unlink()
            # Killed in the instant of replacing: it has the other name.
            replacing = number == signal.SIGKILL and len(left) == 1 and all(
                part == whole or name == "report" and part.endswith(b"</html>\n") for part in left.values())
            expect(not left or replacing, f"left: {list(left)}")
        except Wrong as wrong:
            yield done, f"{name}, {signal.Signals(number).name}: {wrong}"
        else:
            yield done, ""
        target.unlink()


# --- ranks

STUCK = """name: killed
schedule: 1f1b
batches: 60
pipeline: {stages: 4, microbatches: 8}
model: {forward: 1 ms, backward: 2 ms, activation: 1 KiB, parameters: 1 KiB, output: 1 KiB}
cluster: {devices: 4, memory: 16 GiB, link: {latency: 1 us, bandwidth: 10 GB/s}}
"""
DEADLINE_S = 1


def processes_of(launcher):
    """Pids below it."""
    children = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after = (entry / "stat").read_text().rpartition(")")[2].split()
                if after[0] != "Z":
                    children[int(after[1])].append(int(entry.name))
            except OSError:
                continue
    found, new = [], [launcher]
    while new:
        new = [child for parent in new for child in children[parent]]
        found += new
    return found


def starved_s(pids):
    """Seconds that the one of them which waited longest for a processor has waited."""
    longest = 0
    for pid in pids:
        for task in pathlib.Path("/proc").glob(f"{pid}/task/*/schedstat"):
            try:
                longest = max(longest, int(task.read_text().split()[1]) * 1e-9)
            except (OSError, IndexError):
                continue
    return longest


def states(pids):
    """For who reads that something does not end."""
    found = []
    for pid in pids:
        try:
            after = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            where = pathlib.Path(f"/proc/{pid}/wchan").read_text()
            found.append(f"{pid}: {after[0]} in {where}, {int(after[11]) + int(after[12])} ticks used")
        except OSError:
            continue
    return "; ".join(found)


def is_there(pid):
    try:
        return (pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != "Z"
    except OSError:
        return False


def ranks(count, folder, random_):
    program = folder / "program.json"
    (folder / "s.yaml").write_text(STUCK)
    timed([BINARY, "export", folder / "s.yaml", "--to", "program", "-o", program])
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [RUN, program, "--processes", "--deadline", DEADLINE_S, "--check", "off"]
    environment = ENVIRONMENT | {"TMPDIR": str(temporary)}
    length = timed(command, env=environment)
    memory = set(os.listdir("/dev/shm"))
    for done in range(1, count + 1):
        run = start(command, env=environment)
        what = random_.choice(["SIGKILL of a rank", "SIGSTOP of a rank", "SIGKILL of the launcher"])
        time.sleep(random_.uniform(0, length))
        all_ranks = processes_of(run.pid)
        victim = run.pid if what.endswith("launcher") else random_.choice(all_ranks) if all_ranks else None
        if victim is not None:
            try:
                os.kill(victim, signal.SIGSTOP if "STOP" in what else signal.SIGKILL)
            except ProcessLookupError:
                victim = None
        try:
            error = run.communicate(timeout=length + 10 * DEADLINE_S + 10)[1].decode()
            expect(what.endswith("launcher") or victim is None or run.returncode in (0, 1),
                   f"status {run.returncode}: {error}")
            expect(run.returncode != 1 or "rank" in error or "device" in error, f"says: {error!r}")
            until = time.monotonic() + 5
            while any(map(is_there, all_ranks)) and time.monotonic() < until:
                time.sleep(0.01)
            expect(not any(map(is_there, all_ranks)), "a rank is left")
            expect(what.endswith("launcher") or not list(temporary.iterdir()),
                   f"left: {[p.name for p in temporary.iterdir()]}")
            expect(set(os.listdir("/dev/shm")) <= memory, "shared memory is left")
        except subprocess.TimeoutExpired:
            left = [run.pid, *processes_of(run.pid)]
            waited, what_they_do = starved_s(left), states(left)
            for pid in reversed(left):
                os.kill(pid, signal.SIGKILL)
            run.communicate()
            yield done, (f"{what}: it does not end ({what_they_do}; one of them waited {waited:.1f} s for a "
                         "processor)")
        except Wrong as wrong:
            yield done, f"{what}: {wrong}"
        else:
            yield done, ""
        for rest in temporary.iterdir():  # nobody is left who could, where the launcher was killed
            shutil.rmtree(rest)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("what", choices=["sweeps", "files", "ranks"])
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-kill-"))
    done = wrong = 0
    shown = time.monotonic()
    for done, why in globals()[options.what](options.count, folder, random.Random(seed)):
        if why:
            wrong += 1
            print(f"WRONG at {done}: {why}", flush=True)
        if time.monotonic() - shown > 15:
            shown = time.monotonic()
            print(f"{done} of {options.count}", flush=True)
    if wrong == 0:
        shutil.rmtree(folder)
    print(f"{done} moments, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
