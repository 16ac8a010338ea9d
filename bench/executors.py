#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What spreading a sweep over Dask's workers costs: 11,520 points of `exact` by one worker and by two, by
turns, as many points as are asked for with the memory of who hands them out, and a search of plans with
and without them.

  PYTHONPATH=build/python bench/executors.py [--rounds N] [--share S] [--points MILLIONS] [--search N]

A scheduler and workers of one thread each are started here. Wall clocks compare one worker with two on a
machine with three idle cores, and say nothing on a busy one; beside them stands what depends on that less:
CPU seconds of workers, and of everything else (the program, its Python, the scheduler). With --share 0.5 a
worker gets half a core (a control group, which needs root): two workers then leave the rest of a machine of
two cores to the scheduler and the program, which have machines of their own where workers do."""
import argparse
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

import penstock

PYTHON = sys.executable
SCENARIO = """model: gpt-2.2b
stack: none
cluster: {base: dgx-a100, nodes: 8, intra: {attachment: pairs}}
schedule: 1f1b
pipeline: {stages: 8, microbatches: 64, split: balanced}
"""
#: 6 x 8 x 30 x 4 x 2 = 11,520 points
AXES = {"schedule": ["gpipe", "1f1b", "pipedream-2bw", "interleaved-1f1b", "zb-h1", "eager-1f1b"], "stages": range(4, 33, 4),
        "microbatches": range(64, 529, 16), "microbatch_size": [1, 2, 4, 8], "recompute": ["none", "full"]}


def cpu_s(pid):
    """User and system seconds of a process and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_rss(pid):
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10
    except (OSError, TypeError):
        return 0


def children(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += children(int(child))
    return found


class Share:
    """A control group for each process, with this part of a core, in slices that a point does not notice."""
    PERIOD_US = 5000

    def __init__(self, of_core):
        self.of_core, self.groups = of_core, []

    def limit(self, pid):
        old = pathlib.Path("/sys/fs/cgroup/cpu")
        group = (old if old.is_dir() else old.parent) / f"penstock-bench-{pid}"
        group.mkdir()
        self.groups.append(group)
        quota = round(self.of_core * self.PERIOD_US)
        if old.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {self.PERIOD_US}")
        (group / "cgroup.procs").write_text(str(pid))

    def end(self):
        for group in self.groups:
            group.rmdir()


class Cluster:
    def __init__(self, folder, share=None):
        self.folder, self.processes, self.share = folder, [], share
        self.scheduler = self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.address = self.said(self.scheduler, r"Scheduler at: *tcp://([0-9.:]+)")

    def start(self, module, *words):
        log = pathlib.Path(self.folder, f"{len(self.processes)}.log")
        # PYTHONPATH as it is here would name another folder there.
        package = str(pathlib.Path(penstock.__file__).resolve().parents[1])
        process = subprocess.Popen([PYTHON, "-m", f"distributed.cli.{module}", *words], cwd=self.folder,
                                   env=os.environ | {"PYTHONPATH": package},
                                   stdout=subprocess.DEVNULL, stderr=open(log, "w"))
        process.log = log
        self.processes.append(process)
        return process

    @staticmethod
    def said(process, pattern):
        while process.poll() is None:
            found = re.search(pattern, process.log.read_text())
            if found:
                return found[1]
            time.sleep(0.05)
        raise SystemExit(process.log.read_text())

    def worker(self):
        process = self.start("dask_worker", f"tcp://{self.address}", "--nthreads", "1", "--no-nanny", "--no-dashboard",
                             "--local-directory", self.folder)
        self.said(process, r"(Registered) to")
        if self.share:
            self.share.limit(process.pid)
        return process

    def lose(self, worker):
        worker.send_signal(signal.SIGTERM)
        worker.wait()

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if self.share:
            self.share.end()


def by_the_package(cluster, axes, output):
    """Seconds and CPU seconds of this process and the program, whose Python and client are there already."""
    import distributed
    with distributed.Client(f"tcp://{cluster.address}", set_as_default=False) as client:
        executor = client.get_executor()
        before, start = ours(), time.monotonic()
        penstock.sweep(pathlib.Path(cluster.folder, "sweep.yaml"), over=axes, engine="exact", output=output, force=True,
                       executor=executor)
        took = time.monotonic() - start, ours() - before
    rows = pathlib.Path(output).read_text().splitlines()
    failed = [row for row in rows if ",failed," in row]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(rows) - 1} points failed, so this measures nothing: {failed[0]}")
    return took


def ours():
    return sum(used.ru_utime + used.ru_stime
               for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def without_workers(folder):
    """How much faster two threads of the program itself are than one: what this machine gives anybody."""
    times = {}
    for jobs in (2, 1):
        start = time.monotonic()
        penstock.sweep(pathlib.Path(folder, "sweep.yaml"), over=AXES, engine="exact", output=f"{folder}/own.csv", force=True,
                       jobs=jobs)
        times[jobs] = time.monotonic() - start
    return times[1] / times[2]


def two_against_one(cluster, folder, rounds):
    output = f"{folder}/rows.csv"
    workers = [cluster.worker(), cluster.worker()]
    by_the_package(cluster, AXES, output)  # everybody has read everything
    for _ in range(rounds):
        times = {}
        for count in (2, 1):
            if count == 1:
                cluster.lose(workers.pop())
            before = sum(cpu_s(w.pid) for w in workers), cpu_s(cluster.scheduler.pid)
            seconds, used = by_the_package(cluster, AXES, output)
            theirs = sum(cpu_s(w.pid) for w in workers) - before[0]
            rest = used + cpu_s(cluster.scheduler.pid) - before[1]
            times[count] = seconds
            print(f"{count} worker(s): {seconds:.2f} s, {11_520 / seconds:.0f} points/s; CPU: workers {theirs:.2f} s "
                  f"({theirs / seconds / count / (cluster.share.of_core if cluster.share else 1):.1%} of what they may), all else {rest:.2f} s", flush=True)
        print(f"two against one: {times[1] / times[2]:.2f} times as fast, two threads of the program against one "
              f"{without_workers(folder):.2f}, on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
              flush=True)
        workers.append(cluster.worker())
    for worker in workers:
        cluster.lose(worker)


def many(cluster, folder, millions):
    """By the command and two workers; its most memory and its Python's is looked at all the time."""
    workers = [cluster.worker(), cluster.worker()]
    steps = round(millions * 1e6 / 4)
    path = pathlib.Path(folder, "many.yaml")
    path.write_text(pathlib.Path(penstock._core.data_folder(), "scenarios/small-1f1b.yaml").read_text())
    process = subprocess.Popen([penstock.program(), "sweep", str(path), "--over", "stages=1:4", "--over",
                                f"model.forward=1ms:{steps}ms:+1ms", "--engine=exact", "-o", f"{folder}/many.csv",
                                "--on", f"dask://{cluster.address}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peaks = {}
    while process.poll() is None:
        for pid in children(process.pid):
            peaks[pid] = max(peaks.get(pid, 0), peak_rss(pid))
        time.sleep(0.2)
    said = process.stderr.read()
    if process.returncode:
        raise SystemExit(said)
    most = " and ".join(f"{p / 1e6:.0f} MB" for p in sorted(peaks.values()))
    rate = next(line for line in said.splitlines() if "points/s" in line)
    print(f"{rate}; most memory: program and its Python {most}, scheduler "
          f"{peak_rss(cluster.scheduler.pid) / 1e6:.0f} MB", flush=True)
    for worker in workers:
        cluster.lose(worker)


def search(cluster, rounds):
    """What a whole search of plans takes here alone, and with one and two workers; the plans are the same."""
    import distributed
    asked = dict(cluster="{base: dgx-a100, nodes: 32}", batch=1536, search="full", time_limit=1e9)
    workers = []
    with distributed.Client(f"tcp://{cluster.address}", set_as_default=False) as client:
        for _ in range(rounds + 1):  # the first: everybody has read everything
            while len(workers) < 2:
                workers.append(cluster.worker())
            plans = {}
            for count in (2, 1, 0):
                if len(workers) > max(1, count):
                    cluster.lose(workers.pop())
                before, start = (ours(), sum(cpu_s(w.pid) for w in workers)), time.monotonic()
                plans[count] = penstock.plan("gpt3-175b", executor=client.get_executor() if count else None, **asked)
                print(f"search, {count} worker(s): {time.monotonic() - start:.2f} s; CPU: here {ours() - before[0]:.2f} s, "
                      f"workers {sum(cpu_s(w.pid) for w in workers) - before[1]:.2f} s", flush=True)
            if not plans[0] == plans[1] == plans[2]:
                raise SystemExit("the plans differ")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--share", type=float)
    options.add_argument("--points", type=float, default=0)
    options.add_argument("--search", type=int, default=0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "sweep.yaml").write_text(SCENARIO)
        cluster = Cluster(folder, Share(given.share) if given.share else None)
        try:
            if given.rounds:
                two_against_one(cluster, folder, given.rounds)
            if given.points:
                many(cluster, folder, given.points)
            if given.search:
                search(cluster, given.search)
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
