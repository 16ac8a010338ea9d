# SPDX-License-Identifier: Apache-2.0
"""penstock as its users run it: the real binary, its output, its exit codes.

What is only a command line and a text is in commands_test.cpp, all in one process. Needs
$PENSTOCK_BINARY and $PENSTOCK_SOURCE. One class of cases may be named as an argument.
"""

import collections
import concurrent.futures
import csv
import gzip
import fcntl
import io
import json
import math
import os
import pathlib
import pty
import struct
import termios
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import yaml

sys.dont_write_bytecode = True  # the source tree stays clean
import reference

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
# SimGrid plays the flows of 8,192 and 16,384 GPUs for half a minute each: tests/published has those.
SCENARIOS = sorted(p.relative_to(SOURCE).as_posix() for p in SOURCE.glob("scenarios/*.yaml")
                   if not p.name.startswith(("llama-3-405b", "deepseek-v3")))
# Under a sanitizer, where each takes many times as long, every third where any will do.
SOME = SCENARIOS[::3] if os.environ.get("PENSTOCK_SANITIZED") else SCENARIOS
SMALL = "scenarios/small-1f1b.yaml"
# 768 and 1,024 devices: without --events here
LARGE = ("scenarios/gpt3-175b-1f1b.yaml", "scenarios/opt-66b-1024.yaml")
TENSOR = "scenarios/gpt3-175b-tensor.yaml"  # neighbours share a NIC
CONTENDED = "scenarios/gpt-3.8b-2bw-64.yaml"
# What `exact` refuses: the key that makes links shared, and the first one that is.
SHARED = {s: ("cluster.inter", "nic0") for s in (CONTENDED, TENSOR, *LARGE)} | {
    "scenarios/gpt-2.2b-mixed.yaml": ("cluster.intra.attachment", "gpu9 in"),
    "scenarios/gpt-2.2b-two-racks.yaml": ("cluster.pcie", "gpu0 pcie out"),
    "scenarios/gpt-355m-asp.yaml": ("cluster.intra.attachment", "the update of replica 0 and "
                                    "the update of replica 1"),
    "scenarios/gpt-355m-uneven.yaml": ("cluster.pcie", "gpu0 pcie out"),
    "scenarios/llama-3-70b-nvl72.yaml": ("cluster.intra.attachment", "gpu0 out"),
    "scenarios/llama-3-70b-h100.yaml": ("cluster.inter", "nic0")}
CHANGING_LINKS = "scenarios/perturbed-links.yaml"
# Those that the slow reference of these tests knows.
BASELINES = ["model-parallel", "gpipe", "gpipe-fifo", "1f1b", "dapple-pb", "pipedream",
             "pipedream-2bw", "data-parallel", "asp"]
SCHEDULES = ["model-parallel", "gpipe", "gpipe-fifo", "torchgpipe", "1f1b", "dapple-pb",
             "eager-1f1b", "pipedream", "pipedream-2bw", "interleaved-1f1b",
             "interleaved-1f1b-torch", "looped-bfs", "zb-h1", "zb-h2", "zb", "zb-1p", "zb-2p",
             "interleaved-zb", "zb-v", "zb-v-search", "v-min", "v-half", "v-zb", "v-search",
             "1f1b-v", "search", "dualpipe", "dualpipev", "chimera", "hanayo", "timeprest",
             "v-timeprest", "i-timeprest", "pipemare", "data-parallel", "asp"]
NEVER_FLUSHING = ["pipedream", "pipedream-2bw", "timeprest", "v-timeprest", "i-timeprest",
                  "pipemare", "asp"]
FLUSHING = [s for s in SCHEDULES if s not in NEVER_FLUSHING]
# Virtual stages there and back over the devices.
SNAKES = ["zb-v", "zb-v-search", "v-min", "v-half", "v-zb", "v-search", "1f1b-v", "search",
          "dualpipev", "hanayo"]
MIRRORED = ["dualpipe", "chimera"]  # a device has the stages of its mirror, too
PAIRING = ["dualpipe", "dualpipev"]  # run an F and a B at once
WHOLE_BACKWARD = ["timeprest", "v-timeprest", "i-timeprest"]  # one B of all N microbatches
ONE_VERSION = FLUSHING + ["pipemare", "v-timeprest"]
# LeakSanitizer's own tracer crashes now and then in one of many short-lived processes; leaks are
# looked for in the GoogleTest programs.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {
    "ASAN_OPTIONS": "detect_leaks=0",
    "PENSTOCK_HOME": str(SOURCE), "LC_ALL": "C.UTF-8", "TERM": "xterm"}


def run(*arguments, cwd=SOURCE, text=True):
    """The finished process of `penstock ARGUMENTS`."""
    return subprocess.run([BINARY, *arguments], cwd=cwd, env=ENVIRONMENT, text=text,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


def shell(script):
    return subprocess.run(["bash", "-c", script], cwd=SOURCE, text=True, capture_output=True,
                          env=ENVIRONMENT | {"PENSTOCK": BINARY}, timeout=120)


def on_terminal(*arguments, columns=0, **environment):
    """What `penstock ARGUMENTS` prints on a terminal of so many columns (0: it does not say)."""
    ours, theirs = pty.openpty()
    if columns:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([BINARY, *arguments], cwd=SOURCE, env=ENVIRONMENT | environment,
                               stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(theirs)
    out = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # EIO: the other end is closed
            break
        if not part:
            break
        out += part
    os.close(ours)
    process.stderr.close()
    process.wait(timeout=60)
    return out.decode()


def keys(*pairs):
    """Options that set them."""
    return [word for pair in pairs for word in ("--set", pair)]


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-cli-"))
        self.addCleanup(self.remove_folder)

    def remove_folder(self):
        for path in self.folder.rglob("*"):
            path.unlink()
        self.folder.rmdir()

    def ok(self, *arguments, **options):
        """Standard output of a command that succeeds and says nothing else."""
        done = run(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, type(done.stderr)()), arguments)
        return done.stdout

    def result(self, *arguments):
        return json.loads(self.ok("simulate", *arguments, "--format", "json", "--reproducible"))

    def refused(self, code, *arguments):
        """What a command that fails says; nothing of it on standard output."""
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), (arguments, done.stderr))
        return done.stderr

    def scenario(self, text, name="scenario.yaml"):
        path = self.folder / name
        path.write_text(text)
        return str(path)


# Results ------------------------------------------------------------------------------------------


class Shipped(Case):
    """Every scenario that comes with penstock."""

    def test_there_is_one_of_every_schedule(self):
        self.assertGreaterEqual(len(SCENARIOS), len(SCHEDULES))
        named = {yaml.safe_load((SOURCE / s).read_text())["schedule"] for s in SCENARIOS}
        self.assertLessEqual(set(SCHEDULES), named)

    def test_both_engines_give_the_same_result(self):
        for scenario in SOME:
            with self.subTest(scenario):
                simgrid = self.result(scenario, "--engine", "simgrid")
                self.assertEqual(simgrid.pop("engine"), "simgrid")
                if scenario == CHANGING_LINKS:
                    self.assertIn("perturbations.links", self.refused(
                        2, "simulate", scenario, "--engine", "exact"))
                    continue
                if scenario in SHARED:
                    why = self.refused(2, "simulate", scenario, "--engine", "exact")
                    for word in SHARED[scenario]:
                        self.assertIn(word, why)
                    continue
                exact = self.result(scenario, "--engine", "exact")
                self.assertEqual(exact.pop("engine"), "exact")
                self.assertEqual(exact, simgrid)

    def test_devices_that_are_several_gpus_say_so(self):
        table = self.ok("simulate", TENSOR)
        self.assertIn("1f1b, 12 stages of 8 GPUs, 60 microbatches per update", table)
        result = self.result(TENSOR, "--set", "sequence_parallel=true")
        self.assertEqual(result["tensor"], 8)
        self.assertEqual([d["gpus"] for d in result["devices"]],
                         [list(range(8 * d, 8 * d + 8)) for d in range(12)])
        self.assertEqual(self.result(SMALL)["devices"][1]["gpus"], [1])

    def test_auto_is_exact_where_that_is_valid(self):
        self.assertEqual(self.result(SMALL, "--engine", "auto")["engine"], "exact")
        self.assertEqual(self.result(CONTENDED, "--engine", "auto")["engine"], "fluid")
        self.assertEqual(self.result(SMALL)["engine"], "simgrid")

    def test_tables_say_fit_speed_and_why_in_120_columns(self):
        for scenario in SOME:
            with self.subTest(scenario):
                table = self.ok("simulate", scenario, "--engine", "auto")
                for word in ("Fits?", "How fast?", "Why?", "samples/s", "critical path"):
                    self.assertIn(word, table)
                for line in table.splitlines():
                    limit = 160 if line.startswith("Fits?      NO") else 120
                    self.assertLessEqual(len(line), limit, line)

    def test_long_tables_leave_devices_out_but_not_the_fullest(self):
        sizes = ", ".join("9 GB" if stage == 23 else "1 GB" for stage in range(40))
        path = self.scenario(f"model: {{forward: 1 s, backward: 2 s, parameters: [{sizes}]}}\n"
                             "schedule: 1f1b\npipeline: {stages: 40, microbatches: 4}\n")
        table = self.ok("simulate", path)
        self.assertIn("device 23 needs 8.38 GiB", table)
        devices = re.findall(r"(?m)^([\d,-]+|\.\.\.)(?: |$)", table)
        shown = [str(d) for d in range(16)] + ["...", "23", "...", "39"]
        self.assertEqual(devices, shown + ["0-22,24-39", "23"])  # of memory alike ones are said once
        self.assertIn("(18 of 40 rows; --format json has all)", table)

    def test_a_scenario_that_does_not_fit_is_a_result(self):
        r = self.result("scenarios/gpt-2.2b-pipedream.yaml")
        self.assertFalse(r["feasible"])
        self.assertRegex(r["infeasible_because"][0],
                         r"^device 0 needs 17\.9 GiB, has 14\.0 GiB \(weight versions 9\.70 GiB")
        self.assertIn("Fits?      NO: device 0 needs",
                      self.ok("simulate", "scenarios/gpt-2.2b-pipedream.yaml"))


class Reproducible(Case):
    """The same command twice gives the same bytes."""

    def test_results_and_traces(self):
        for scenario in (SMALL, "scenarios/gpt-2.2b-2bw.yaml", CONTENDED):
            for form in ("table", "json", "csv"):
                for more in ((), ("--events",)):
                    with self.subTest(scenario, form=form, more=more):
                        command = ("simulate", scenario, "--reproducible", "--format", form, *more)
                        self.assertEqual(self.ok(*command), self.ok(*command))

    def test_traces(self):
        for ending in (".json", ".json.gz"):
            contents = []
            for name in ("a", "b"):
                path = self.folder / (name + ending)
                self.ok("simulate", CONTENDED, "--reproducible", "--trace", str(path))
                contents.append(path.read_bytes())
                self.assertIn("no violations", self.ok("trace", "check", str(path)))
            self.assertEqual(*contents)
        plain = (self.folder / "a.json").read_bytes()
        self.assertEqual(gzip.decompress((self.folder / "a.json.gz").read_bytes()), plain)
        self.assertTrue(json.loads(plain)["traceEvents"])

    def test_report_pages(self):
        path = self.folder / "run.html"
        cluster = ["--cluster", "p3.16xlarge-x8", "--batch", "512"]
        kinds = {("simulate", CONTENDED, "--reproducible"): {"timeline", "time", "table"},
                 ("compare", CONTENDED, "--reproducible"): {"comparison", "timeline"},
                 ("sweep", SMALL, "--reproducible", "--over", "microbatches=1:9:*3"): {"sweep"},
                 ("plan", "gpt-3.8b", *cluster, "--search", "2bw"): {"comparison", "table"},
                 ("plan", "scenarios/gpt-2.2b-2bw.yaml", "--search", "2bw"): {"comparison", "table"}}
        for command, expected in kinds.items():
            contents = []
            for _ in range(2):
                done = run(*command, "--report", str(path))
                self.assertEqual(done.returncode, 0, done.stderr)
                contents.append(path.read_text())
            self.assertEqual(*contents)
            footer = contents[0][contents[0].index("<footer>"):contents[0].index("</footer>")]
            self.assertIn(f"penstock {command[0]} ", footer)
            self.assertRegex(footer, r"<p>penstock \d")
            if command[1].endswith(".yaml"):
                self.assertIn("<details><summary>The scenario</summary>", footer)
            data = re.search(r'id="data">(.*?)</script>', contents[0], re.S)[1]
            sections = json.loads(data)
            self.assertEqual({section["kind"] for section in sections} - {"memory"}, expected)
            if command[0] == "sweep":
                columns = {c["name"]: c for c in sections[0]["columns"]}
                self.assertEqual(columns["microbatches"]["values"], [1, 3, 9])
                self.assertEqual([n for n, c in columns.items() if c["role"] == "axis"],
                                 ["microbatches"])
                self.assertEqual(columns["makespan"]["values"], [15, 22, 45])
        said = self.refused(2, "simulate", SMALL, "--report", str(self.folder / "none" / "run.html"))
        self.assertIn("--report: there is no folder", said)
        full = self.folder / "full.html"
        full.symlink_to("/dev/full")
        self.assertIn("No space left on device",
                      self.refused(1, "simulate", SMALL, "--report", str(full)))

    def test_engine_seconds_is_what_varies(self):
        full = json.loads(self.ok("simulate", SMALL, "--format", "json"))
        self.assertGreater(full.pop("engine_seconds"), 0)
        self.assertEqual(full, self.result(SMALL))
        self.assertNotIn("CPU", self.ok("simulate", SMALL, "--reproducible"))
        self.assertIn("CPU", self.ok("simulate", SMALL))


class Perturbed(Case):
    """What disturbs a run, and what that costs."""

    JITTER = "scenarios/perturbed-jitter.yaml"
    DEVICES = "scenarios/perturbed-devices.yaml"
    FAILURES = "scenarios/perturbed-failures.yaml"

    def test_percentiles_are_those_of_the_runs(self):
        for engine in ("exact", "simgrid"):
            r = self.result(self.JITTER, "--engine", engine)
            self.assertEqual((r["runs"]["n"], r["runs"]["errors"]), (100, []))
            for field in ("iteration_time_s", "makespan_s"):
                p = r["runs"][field]
                ascending = [p["min"], p["p5"], p["p50"], p["p95"], p["max"]]
                self.assertEqual(ascending, sorted(set(ascending)))
                self.assertLess(p["min"], p["mean"])
                self.assertGreater(p["min"], r["perturbations"]["undisturbed"][field])
                self.assertEqual(r["perturbations"]["disturbed"][field], p["mean"])
            self.assertGreaterEqual(r["makespan_s"], r["runs"]["makespan_s"]["min"])
            self.assertLessEqual(r["makespan_s"], r["runs"]["makespan_s"]["max"])

    def test_one_device_alone_has_the_percentiles_of_its_distribution(self):
        # 400 ops of 1 s with 10 % each: the sum is normal, 400 s with a deviation of 2 s.
        path = self.scenario("model: {forward: 1 s, backward: 1 s}\nschedule: 1f1b\n"
                             "pipeline: {stages: 1, microbatches: 200}\n"
                             "perturbations: {jitter: {spread: 10%, runs: 2000}}\n")
        p = self.result(path, "--engine", "exact")["runs"]["makespan_s"]
        self.assertAlmostEqual(p["mean"], 400, delta=5 * 2 / 2000 ** 0.5)
        self.assertAlmostEqual(p["p50"], 400, delta=0.3)
        self.assertAlmostEqual(p["p5"], 400 - 1.645 * 2, delta=0.5)
        self.assertAlmostEqual(p["p95"], 400 + 1.645 * 2, delta=0.5)

    def test_a_seed_gives_the_same_numbers_and_another_others(self):
        seed = lambda n: self.result(self.JITTER, "--engine", "exact", "--set",
                                     f"jitter.seed={n}")["runs"]
        self.assertEqual(seed(5), seed(5))
        self.assertNotEqual(seed(5), seed(6))

    def test_each_key_is_compared_with_the_run_without_it(self):
        both = self.result(self.DEVICES)
        only = {"slow_devices": self.result(self.DEVICES, "--set",
                                            "perturbations={slow_devices: [{device: 3, factor: 1.1}]}"),
                "throttle": self.result(self.DEVICES, "--set", "perturbations={throttle: [{device: "
                                        "2, at: 1 s, until: 2 s, speed: 70%}]}")}
        costs = {c["key"]: c for c in both["perturbations"]["costs"]}
        self.assertEqual(list(costs), ["slow_devices", "throttle"])
        for field in ("iteration_time_s", "makespan_s"):
            self.assertEqual(both["perturbations"]["disturbed"][field], both[field])
            for key, other in (("slow_devices", "throttle"), ("throttle", "slow_devices")):
                self.assertEqual(costs[key][field], both[field] - only[other][field])
            alone = only["throttle"]["perturbations"]
            self.assertEqual(alone["costs"][0][field], alone["disturbed"][field]
                             - alone["undisturbed"][field])

    def test_a_link_that_never_recovers_is_infeasible_and_no_hang(self):
        change = ("--set", "perturbations.links=[{link: 5->6 F, at: 2 s, failed: true}]")
        r = self.result(CHANGING_LINKS, *change, "--events")
        self.assertFalse(r["feasible"])
        self.assertIn("the link '5->6 F' fails and never recovers", r["infeasible_because"][0])
        self.assertIsNone(r["iteration_time_s"])
        self.assertIsNone(r["perturbations"]["disturbed"]["makespan_s"])
        self.assertLess(len(r["events"]), 8 * 5 * 33)
        self.assertIn("Ends?      NO: the link", self.ok("simulate", CHANGING_LINKS, *change))

    def test_goodput_adds_up(self):
        r = self.result(self.FAILURES)
        g = r["goodput"]
        self.assertEqual(g["batch_s"], r["iteration_time_s"])
        self.assertAlmostEqual(sum(g[part] for part in ("useful_s", "lost_s", "checkpoint_s",
                                                        "restart_s", "unfinished_s")), 86400)
        self.assertAlmostEqual(g["fraction"], g["useful_batches"] * g["batch_s"] / 86400)
        self.assertAlmostEqual(g["young_interval_s"], (2 * 2 * 10800) ** 0.5)
        self.assertIn("Goodput?   ", self.ok("simulate", self.FAILURES))

    def test_a_run_whose_process_dies_is_an_error_row(self):
        result = self.folder / "result.json"
        process = subprocess.Popen(
            [BINARY, "simulate", self.JITTER, "--format", "json", "-o", str(result), "--set",
             "batches=400", "--set", "jitter.runs=12"],
            cwd=SOURCE, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        seen = []  # first the undisturbed run, without which there is nothing to compare with
        while process.poll() is None:
            for child in children.read_text().split() if children.exists() else []:
                if child not in seen:
                    seen.append(child)
                if 2 <= len(seen) <= 4:
                    try:
                        os.kill(int(child), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        self.assertEqual(process.returncode, 0)
        runs = json.loads(result.read_text())["runs"]
        self.assertEqual(runs["n"], 12)
        self.assertTrue(runs["errors"])
        self.assertIn("ended without a result", runs["errors"][0]["error"])

    def test_compare_and_csv_have_what_they_cost(self):
        table = list(csv.DictReader(io.StringIO(self.ok("simulate", self.JITTER, "--format", "csv"))))
        self.assertEqual(len(table), 1)
        r = self.result(self.JITTER)
        self.assertEqual(float(table[0]["runs_iteration_time_s_p95"]),
                         r["runs"]["iteration_time_s"]["p95"])
        self.assertIn("runs", self.ok("compare", self.JITTER, SMALL, "--format", "json"))

    def test_a_trace_shows_the_throttled_ops_longer(self):
        path = self.folder / "trace.json"
        self.ok("simulate", self.DEVICES, "--trace", str(path))
        self.assertIn("no violations", self.ok("trace", "check", str(path)))
        slices = [e for e in json.loads(path.read_text())["traceEvents"]
                  if e["ph"] == "X" and e["name"].startswith("F ")]
        of_stage = lambda stage: {round(e["dur"]) for e in slices if e["args"]["stage"] == stage}
        self.assertLessEqual({10_000, 14_286}, of_stage(2))  # 10 ms, at 70 % of the speed
        self.assertEqual(of_stage(3), {11_000})
        self.assertEqual(of_stage(4), {10_000})


NUMBER, TEXT, WHOLE, LIST, MAP = (int, float), str, int, list, dict
NUMBER_OR_NULL, WHOLE_OR_NULL = (int, float, type(None)), (int, type(None))
FIELDS = {
    "schema_version": WHOLE, "scenario": TEXT, "engine": TEXT, "schedule": TEXT, "transfers": TEXT,
    "feasible": (bool, type(None)), "infeasible_because": LIST, "makespan_s": NUMBER,
    "iteration_time_s": NUMBER_OR_NULL, "throughput_samples_per_s": NUMBER,
    "throughput_microbatches_per_s": NUMBER, "tokens_per_s_per_device": NUMBER_OR_NULL,
    "tokens_per_s": NUMBER_OR_NULL, "tokens_per_s_per_gpu": NUMBER_OR_NULL, "tflops_per_gpu": NUMBER_OR_NULL,
    "tflops_per_device": NUMBER_OR_NULL, "mfu": NUMBER_OR_NULL, "hfu": NUMBER_OR_NULL,
    "bubble_fraction": NUMBER, "stage_bubble_fraction": NUMBER, "bubble": MAP, "communication": MAP,
    "critical_path": LIST, "ops": WHOLE, "devices": LIST, "links": LIST}
DEVICE_FIELDS = {
    "device": WHOLE, "stages": LIST, "busy_s": NUMBER, "idle_s": NUMBER, "stage_time_s": NUMBER,
    "peak_memory_bytes": WHOLE, "capacity_bytes": WHOLE_OR_NULL, "memory": MAP,
    "stash_peak": WHOLE, "weight_versions_peak": WHOLE, "staleness_max": WHOLE}
LINK_FIELDS = {"name": TEXT, "bytes": WHOLE, "busy_fraction": NUMBER}
EVENT_FIELDS = {"device": WHOLE, "op": TEXT, "start_s": NUMBER, "end_s": NUMBER,
                "weight_version": WHOLE_OR_NULL}
CAUSES = ["warmup", "imbalance", "transfer_wait", "drain", "gradient_reduction"]
OWNERS = ["weights", "weight_versions", "gradients", "optimizer", "activations", "buffers",
          "workspace"]
STEPPING = """
model: {forward: 13 ms, backward: 29 ms, step: 7 ms, output: 3 MB, parameters: 1 GB,
        gradients: 2 GB, optimizer: 3 GB, activation: 5 MB, workspace: 1 MB}
cluster: {link: {latency: 1 ms, bandwidth: 2 GB/s}}
"""


class Result(Case):
    """The fields of `simulate --format json --events`, recomputed from its events."""

    RAN = {}  # once for all tests: it is the slowest part

    def runs(self):
        """Results to look at, one subtest each."""
        stepping = self.scenario(STEPPING + "schedule: 1f1b\npipeline: {stages: 3}\n")
        many = [[s] for s in SOME if s not in LARGE]
        many += [[stepping, *keys("microbatches=5", "batches=3", "width=2", "transfers=coupled")],
                 [stepping, *keys("microbatches=4", "batches=2", "optimizer_sync=global",
                                  "transfers=blocking", "schedule=gpipe")],
                 [stepping, *keys("schedule=pipedream", "batches=40", "width=2", "stages=4")],
                 [stepping, *keys("schedule=pipedream", "batches=8", "vertical_sync=true")],
                 [stepping, *keys("schedule=2bw", "microbatches=6", "batches=9", "stages=4")],
                 [stepping, *keys("schedule=2bw", "microbatches=3", "batches=2")],
                 [stepping, *keys("schedule=dapple-pb", "microbatches=7", "transfers=free")],
                 [stepping, *keys("schedule=interleaved-1f1b", "microbatches=6", "chunks=3",
                                  "batches=3", "width=2")],
                 [stepping, *keys("schedule=v-half", "microbatches=9", "batches=2",
                                  "optimizer_sync=global")],
                 [stepping, *keys("schedule=zb-h1", "microbatches=6", "batches=3", "width=2",
                                  "optimizer_sync=post-validation", "transfers=blocking")],
                 [stepping, *keys("schedule=chimera", "stages=4", "microbatches=8", "batches=2",
                                  "optimizer_sync=post-validation")],
                 [stepping, *keys("schedule=hanayo", "stages=4", "chunks=4", "microbatches=8",
                                  "width=2", "transfers=free")],
                 [stepping, *keys("schedule=dualpipe", "stages=4", "microbatches=10", "batches=3")],
                 [stepping, *keys("schedule=dualpipev", "microbatches=7", "batches=2", "width=2")],
                 [stepping, *keys("schedule=chimera", "stages=4", "microbatches=12", "batches=2")],
                 [stepping, *keys("schedule=zb-h2", "microbatches=8", "batches=2",
                                  "transfers=blocking")],
                 [stepping, *keys("schedule=pipemare", "microbatches=3", "batches=9", "stages=5")],
                 *([stepping, *keys(f"schedule={s}", "microbatches=3", "batches=20", "stages=8")]
                   for s in WHOLE_BACKWARD)]
        keyed = {(a[0] == stepping or a[0], *a[1:]): a for a in many}
        new = [key for key in keyed if key not in self.RAN]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            self.RAN.update(zip(new, pool.map(lambda key: self.result(*keyed[key], "--events"), new)))
        for key, arguments in keyed.items():
            with self.subTest(arguments):
                yield self.RAN[key]

    def of_type(self, thing, fields):
        for name, kind in fields.items():
            self.assertIn(name, thing)
            self.assertIsInstance(thing[name], kind, name)
            if bool not in (kind if isinstance(kind, tuple) else (kind,)):
                self.assertNotIsInstance(thing[name], bool, name)

    def test_has_every_field(self):
        for r in self.runs():
            self.of_type(r, FIELDS)
            self.assertEqual(sorted(r["bubble"]), sorted(CAUSES))
            for index, device in enumerate(r["devices"]):
                self.of_type(device, DEVICE_FIELDS)
                self.assertEqual(list(device["memory"]), OWNERS)
                self.assertEqual(device["device"], index)
            self.assertEqual([d["stages"] for d in r["devices"]],
                             [stages_at(r, position) for replica in range(max(widths(r)))
                              for position, width in enumerate(widths(r)) if replica < width])
            for link in r["links"]:
                self.of_type(link, LINK_FIELDS)
            for event in r["events"]:
                self.of_type(event, EVENT_FIELDS)
                self.assertRegex(event["op"], r"^\d+(F|B|I|W|REDUCE_GRAD|STEP)\d+$")

    def test_recomputing_where_most_microbatches_wait_is_faster_than_everywhere(self):
        """Device i of 1F1B holds the activations of 4 - i microbatches, and 3.5 GiB."""
        scenario = self.scenario("""
model: {forward: 1 s, backward: 2 s, activation: 1 GiB, output: 1 MiB}
cluster: {devices: 4, memory: 3.5 GiB, link: {latency: 0, bandwidth: 1000 GB/s}}
schedule: 1f1b
transfers: free
pipeline: {stages: 4, microbatches: 8}
""")
        def result(recompute):
            return self.result(scenario, "--engine", "exact", "--set",
                               f"pipeline.recompute={recompute}")
        none, full, first = map(result, ("none", "full", "[full, none, none, none]"))
        self.assertEqual([r["feasible"] for r in (none, full, first)], [False, True, True])
        # The first stage is the slowest. Its first B waits for F on four stages and B on three;
        # then it is busy with eight B and the other four F.
        self.assertAlmostEqual(none["makespan_s"], (8 + 3) * 3)
        self.assertAlmostEqual(full["makespan_s"], (8 + 3) * 4)
        self.assertAlmostEqual(first["makespan_s"], 4 + 3 * 2 + 8 * 3 + 4)
        self.assertLess(first["makespan_s"], full["makespan_s"])
        held = [[d["memory"]["activations"] for d in r["devices"]] for r in (none, full, first)]
        self.assertEqual(held[2], [held[1][0], *held[0][1:]])
        self.assertEqual(held[0], [n * 2**30 for n in (4, 3, 2, 1)])
        self.assertEqual(held[1], [n * 2**20 for n in (4, 3, 2, 1)])
        self.assertIn("recompute [full, none, none, none]\n", self.ok(
            "simulate", scenario, "--set", "recompute=[full, none, none, none]", "--engine", "exact"))
        self.assertIn("recompute full\n", self.ok(
            "simulate", scenario, "--set", "recompute=[full, full, full, full]", "--engine", "exact"))

    def test_bubble_is_what_is_not_busy(self):
        for r in self.runs():
            area = len(r["devices"]) * r["makespan_s"]
            busy = [d["busy_s"] for d in r["devices"]]
            self.assertAlmostEqual(r["bubble_fraction"], 1 - sum(busy) / area, delta=1e-9)
            self.assertAlmostEqual(sum(r["bubble"].values()), r["bubble_fraction"], delta=1e-9)
            for cause, share in r["bubble"].items():
                self.assertGreaterEqual(share, -1e-12, cause)
            span = max(d["stage_time_s"] for d in r["devices"])
            self.assertAlmostEqual(r["stage_bubble_fraction"], 1 - max(busy) / span, delta=1e-9)
            for d in r["devices"]:
                self.assertAlmostEqual(d["busy_s"] + d["idle_s"], r["makespan_s"],
                                       delta=1e-9 * r["makespan_s"])

    def test_times_of_devices_follow_from_their_events(self):
        for r in self.runs():
            warmup = drain = 0
            self.assertAlmostEqual(max(e["end_s"] for e in r["events"]), r["makespan_s"])
            for d, both in zip(r["devices"], by_device(r)):
                events = pairs_as_one(r, both)
                busy = sum(e["end_s"] - e["start_s"] for e in events if "REDUCE" not in e["op"])
                self.assertAlmostEqual(d["busy_s"], busy, delta=1e-9 * r["makespan_s"])
                self.assertAlmostEqual(d["stage_time_s"],
                                       events[-1]["end_s"] - events[0]["start_s"])
                for before, after in zip(events, events[1:]):
                    self.assertGreaterEqual(after["start_s"], before["end_s"])
                warmup += events[0]["start_s"]
                drain += r["makespan_s"] - events[-1]["end_s"]
            area = len(r["devices"]) * r["makespan_s"]
            self.assertAlmostEqual(r["bubble"]["warmup"], warmup / area, delta=1e-9)
            self.assertAlmostEqual(r["bubble"]["drain"], drain / area, delta=1e-9)

    def test_iteration_time_follows_from_the_events(self):
        seen = set()
        for r in self.runs():
            of = steady_iteration if is_asynchronous(r) else flushed_iteration
            expected = (lone_iteration if r["schedule"] == "asp" else of)(r)
            seen.add((is_asynchronous(r), expected is None))
            if expected is None:
                self.assertIsNone(r["iteration_time_s"])
                self.assertIn("too few batches", " ".join(r["notes"]))
                expected = r["makespan_s"] / r["batches"]
            else:
                self.assertAlmostEqual(r["iteration_time_s"] / expected, 1, delta=1e-9)
                # Sequences one by one are few tokens, which is noted for another reason.
                self.assertEqual([n for n in r["notes"] if "tokens are small" not in n
                                  and "half of a backward" not in n
                                  and "is assumed, " not in n
                                  and "depends on the software" not in n
                                  and "searches within" not in n
                                  and "costs are those of each of" not in n
                                  and "vocabulary of" not in n
                                  and "updates of other replicas" not in n
                                  and "would fit; without it" not in n], [])
            microbatches = r["microbatches"] * math.lcm(*widths(r))
            rate = microbatches * r["microbatch_size"] / expected
            self.assertAlmostEqual(r["throughput_samples_per_s"] / rate, 1, delta=1e-9)
            self.assertAlmostEqual(r["throughput_microbatches_per_s"] * r["microbatch_size"] / rate,
                                   1, delta=1e-9)
        self.assertEqual(seen, {(True, True), (True, False), (False, False)})

    def test_too_few_batches_says_how_many_are_needed(self):
        for schedule, m, p in (("pipedream", 1, 4), ("2bw", 4, 4), ("2bw", 6, 4), ("2bw", 5, 3),
                               ("pipemare", 3, 4), ("timeprest", 3, 4), ("i-timeprest", 2, 3)):
            sets = ["--set", f"schedule={schedule}", "--set", f"microbatches={m}", "--set",
                    f"stages={p}", "--set", "cluster={devices: 4}"]
            note = self.result(SMALL, *sets, "--set", "batches=1")["notes"][0]
            needed = int(re.search(r"at least (\d+) are needed", note).group(1))
            enough = self.result(SMALL, *sets, "--set", f"batches={needed}")
            self.assertIsNotNone(enough["iteration_time_s"])
            few = self.result(SMALL, *sets, "--set", f"batches={needed - 1}")
            self.assertIsNone(few["iteration_time_s"])

    def test_peak_memory_is_the_sum_of_its_owners(self):
        for r in self.runs():
            fits = True
            for d in r["devices"]:
                self.assertEqual(sum(d["memory"].values()), d["peak_memory_bytes"])
                if d["capacity_bytes"] is not None:
                    fits = fits and d["peak_memory_bytes"] <= d["capacity_bytes"]
            known = not any(d["capacity_bytes"] is None for d in r["devices"])
            self.assertEqual(r["feasible"], fits if known or not fits else None)
            self.assertEqual(r["infeasible_because"] == [], fits)

    def test_stash_and_versions_follow_from_the_events(self):
        for r in self.runs():
            for d, events in zip(r["devices"], by_device(r)):
                stash = peak = 0
                for e in events:
                    kind = kind_of(e)
                    freed = r["microbatches"] if r["schedule"] in WHOLE_BACKWARD else 1
                    stash += {"F": 1, "B": -freed, "W": -freed}.get(kind, 0)
                    peak = max(peak, stash)
                self.assertEqual((d["stash_peak"], stash), (peak, 0))
                if r["schedule"] != "asp":
                    self.check_versions(r, d, events)

    def test_asynchronous_replicas_use_the_weights_of_their_last_update(self):
        r = self.result("scenarios/small-asp.yaml", "--events")
        # Replica 0, the server's own, updates every 3 s, the others every 4 s; no STEP takes time.
        ends = sorted((3 if d == 0 else 4) * (u + 1) * 100 + d for d in range(4) for u in range(8))
        made = {(end % 100, end // 100): i for i, end in enumerate(ends)}
        for d, events in zip(r["devices"], by_device(r)):
            each = 3 if d["device"] == 0 else 4
            stale = [made[d["device"], each * (u + 1)]
                     - (made[d["device"], each * u] + 1 if u else 0) for u in range(8)]
            self.assertEqual(d["staleness_max"], max(stale))
            used = [e["weight_version"] for e in events if kind_of(e) == "F"]
            self.assertEqual(used, [0] + [made[d["device"], each * u] + 1 for u in range(1, 8)])
        self.assertAlmostEqual(r["iteration_time_s"], 4 / (1 / 3 + 3 / 4))

    def check_versions(self, r, device, events):
        """The weight version of every F, B, I and W is what DESIGN's table of update rules says."""
        width = widths(r)[position_of(r, device["stages"][0])]
        compute = [e for e in events if e["weight_version"] is not None]
        used = {reference.parse(e["op"]): e["weight_version"] for e in compute}
        self.assertEqual(len(used), len(compute))
        self.assertTrue(any(all(version == rule(stage, kind, k // width)
                                for (stage, kind, k), version in used.items())
                            for rule in version_rules(r, events)), device)
        made, oldest = updates_made(r, events), {}
        for (_, _, k), version in used.items():
            update = k // width // per_update(r)
            oldest[update] = min(version, oldest.get(update, version))
        self.assertEqual(device["staleness_max"], max(u - v for u, v in oldest.items()))
        held, later = 0, set()  # what ops from i on use
        for i in range(len(events), -1, -1):
            if i < len(events):
                later.add(events[i]["weight_version"])
            known = {v for v in later if v is not None and v <= made[i]}
            held = max(held, len({made[i]} | known))
        self.assertEqual(device["weight_versions_peak"], held)
        if r["schedule"] in ONE_VERSION:
            self.assertEqual(held, 1)
        if r["schedule"] in FLUSHING:
            self.assertEqual(device["staleness_max"], 0)
        if r["schedule"] == "pipedream-2bw" and r["batches"] > 1:
            self.assertEqual((held, device["staleness_max"]), (2, 1))

    def test_critical_path_leads_from_start_to_end(self):
        for r in self.runs():
            path = r["critical_path"]
            self.assertEqual(path[0]["start_s"], 0)
            self.assertAlmostEqual(path[-1]["end_s"], r["makespan_s"])
            for before, after in zip(path, path[1:]):
                self.assertAlmostEqual(before["end_s"], after["start_s"],
                                       delta=1e-9 * r["makespan_s"])
            self.assertLessEqual({p["kind"] for p in path}, {"compute", "transfer", "reduction"})

    def test_rates_follow_from_the_published_flops(self):
        r = self.result("scenarios/gpt-2.2b-2bw.yaml")
        layers, h, s, v, b, devices = 32, 2304, 512, 50304, 8, 8
        forward = b * layers * (24 * s * h * h + 4 * s * s * h)  # once more with recomputation
        model = 3 * (forward + 2 * b * s * h * v)
        rate = r["throughput_microbatches_per_s"] / devices
        for field, right in (("tflops_per_device", model * rate / 1e12),
                             ("tflops_per_gpu", model * rate / 1e12),
                             ("tokens_per_s_per_gpu", b * s * rate),
                             ("tokens_per_s", devices * b * s * rate),
                             ("mfu", model * rate / 125e12),
                             ("hfu", (model + forward) * rate / 125e12),
                             ("tokens_per_s_per_device", b * s * rate)):
            self.assertAlmostEqual(r[field] / right, 1, delta=1e-9, msg=field)
        self.assertIsNone(self.result(SMALL)["mfu"])

    def test_links_are_busy_for_a_share_of_the_time_and_never_when_free(self):
        sets = ("--set", "cluster.link.bandwidth=1 GB/s", "--engine", "exact")
        r = self.result(SMALL, *sets)
        for link in r["links"]:
            self.assertAlmostEqual(link["busy_fraction"], link["bytes"] / 1e9 / r["makespan_s"])
            self.assertLessEqual(link["busy_fraction"], 1)
        free = self.result(SMALL, *sets, "--set", "transfers=free")
        self.assertEqual({link["busy_fraction"] for link in free["links"]}, {0})

    def test_a_batch_of_uneven_replicas_is_that_of_all(self):
        uneven, even = "scenarios/gpt-355m-uneven.yaml", "scenarios/small-data-parallel.yaml"
        self.assertEqual(self.result(uneven)["samples_per_update"], 24)
        rows = list(csv.DictReader(io.StringIO(
            self.ok("compare", uneven, even, "--format", "csv", "--reproducible"))))
        self.assertEqual([row["width"] for row in rows], ["3 1", "4"])
        self.assertEqual([row["schedule"] for row in rows], ["pipedream", "data-parallel"])
        self.assertIn(" 24 ", self.ok("compare", uneven, even).splitlines()[1])

    def test_a_device_holds_what_its_smallest_gpu_does(self):
        path = self.scenario(
            "model: gpt-355m\nstack: none\nschedule: 1f1b\n"
            "cluster: {inter: 25 Gbps, intra: 50 GB/s, devices_per_node: 1, "
            "groups: [{device: A100-80}, {device: V100-16}]}\n"
            "pipeline: {stages: 1, width: 2, replication: split, microbatch_size: 2}\n")
        for placement in ("[0, 1]", "[1, 0]"):
            device = self.result(path, "--set", f"placement={placement}")["devices"][0]
            self.assertLess(device["capacity_bytes"], 16 << 30)

    def test_links_carry_the_messages(self):
        r = self.result(SMALL)
        names = {f"{a}->{a + 1} F" for a in range(3)} | {f"{a + 1}->{a} B" for a in range(3)}
        self.assertEqual({link["name"]: link["bytes"] for link in r["links"]},
                         {name: 8 * (64 << 20) for name in names})
        self.assertEqual(r["ops"], 2 * 4 * 8 + 2 * 3 * 8)

    def test_formats_agree(self):
        r = self.result("scenarios/gpt-2.2b-2bw.yaml", "--events")
        table = list(csv.DictReader(io.StringIO(
            self.ok("simulate", "scenarios/gpt-2.2b-2bw.yaml", "--format", "csv",
                    "--reproducible"))))
        self.assertEqual(len(table), 1)
        self.assertEqual(table[0]["scenario"], r["scenario"])  # it has commas
        for field in ("makespan_s", "iteration_time_s", "mfu", "bubble_fraction"):
            self.assertEqual(float(table[0][field]), r[field])
        self.assertEqual(float(table[0]["bubble_drain"]), r["bubble"]["drain"])
        self.assertEqual(int(table[0]["peak_memory_bytes"]),
                         max(d["peak_memory_bytes"] for d in r["devices"]))
        events = list(csv.DictReader(io.StringIO(
            self.ok("simulate", "scenarios/gpt-2.2b-2bw.yaml", "--format", "csv", "--events"))))
        self.assertEqual([(int(e["device"]), e["op"], float(e["start_s"]), float(e["end_s"]))
                          for e in events],
                         [(e["device"], e["op"], e["start_s"], e["end_s"]) for e in r["events"]])


def kind_of(event):
    return re.sub(r"\d", "", event["op"])


def by_device(r):
    lists = [[] for _ in r["devices"]]
    for e in r["events"]:
        lists[e["device"]].append(e)
    return lists


def parsed(event):
    return reference.parse(event["op"])


def is_asynchronous(r):
    """Never flushes, yet its devices are stages of one pipeline."""
    return r["schedule"] in NEVER_FLUSHING and r["schedule"] != "asp"


def virtual_stages(r):
    return 1 + max(stage for d in r["devices"] for stage in d["stages"])


def position_of(r, stage):
    """The position of the pipeline where a virtual stage lives (mirrored: that of the first of two)."""
    p = r["stages"]
    there = stage % (2 * p)
    return 2 * p - 1 - there if r["schedule"] in SNAKES and there >= p else stage % p


def stages_at(r, position):
    if r["schedule"] in MIRRORED:
        return sorted({position, r["stages"] - 1 - position})
    return [s for s in range(virtual_stages(r)) if position_of(r, s) == position]


def pairs_as_one(r, events):
    """The events of a device; of an F and a B that run at once, only the first."""
    if r["schedule"] not in PAIRING:
        return events
    out = []
    for e in events:
        span = (e["start_s"], e["end_s"])
        together = out and span == (out[-1]["start_s"], out[-1]["end_s"])
        if not (together and {kind_of(out[-1]), kind_of(e)} == {"F", "B"}):
            out.append(e)
    return out


def per_update(r):
    """Microbatches between two updates of a replica; PipeDream makes one after each."""
    return 1 if r["schedule"] == "pipedream" else r["microbatches"]


def updates_made(r, events):
    """Before each event of a device, and after the last: the updates that it has made."""
    update_of = lambda k: k // widths(r)[0] // per_update(r)
    gradients = lambda e: update_of(parsed(e)[2]) if kind_of(e) in ("B", "W") else None
    left = collections.Counter(map(gradients, events))
    made = [0]
    for e in events:
        left[gradients(e)] -= 1
        done = gradients(e) is not None and left[gradients(e)] == 0
        made.append(made[-1] + done)
    return made


def version_rules(r, events):
    """Functions of (stage, kind, microbatch), one of which gives the versions a device uses."""
    p, m, schedule = r["stages"], r["microbatches"], r["schedule"]
    if schedule == "pipedream":
        stashing = lambda s, kind, k: max(k - (p - 1 - s), 0)
        synchronized = lambda s, kind, k: max(k - (p - 1), 0)
        return [stashing, synchronized] if r["scenario"] == "scenario" else [stashing]
    if schedule == "pipedream-2bw":
        return [lambda s, kind, k: max(k // m - 1, 0)]
    if schedule in ("pipemare", "v-timeprest"):  # what is there
        latest = dict(zip(((kind, k) for _, kind, k in map(parsed, events)),
                          updates_made(r, events)))
        return [lambda s, kind, k: latest[kind, k]]
    if schedule in WHOLE_BACKWARD:
        first = by_device(r)[0]
        entered = {parsed(e)[2]: made for e, made in zip(first, updates_made(r, first))
                   if kind_of(e) == "F"}
        behind = (p - 1) // (m + 1)
        backward = {"timeprest": lambda j: max(j - behind, 0),
                    "i-timeprest": lambda j: entered[j * m]}[schedule]
        return [lambda s, kind, k: entered[k] if kind == "F" else backward(k // m)]
    return [lambda s, kind, k: k // m]


def lone_iteration(r):
    """Replicas that wait for no other: w updates at the sum of their rates while all work."""
    ends = [sorted(update_ends(r, events).values()) for events in by_device(r)]
    skipped = -(-2 // r["microbatches"])
    if min(map(len, ends)) <= skipped:
        return None
    until = min(e[-1] for e in ends)
    rate = 0
    for e in ends:
        steady = [t for t in e[skipped - 1:] if t <= until]
        steady = steady if len(steady) > 1 else e[skipped - 1:skipped + 1]
        rate += (len(steady) - 1) / (steady[-1] - steady[0])
    return len(ends) / rate


def widths(r):
    """Replicas of each stage that take turns."""
    if r["replication"] == "split":
        return [1] * r["stages"]
    return r["width"] if isinstance(r["width"], list) else [r["width"]] * r["stages"]


def update_ends(r, events):
    """{update: when a device has made it}: the end of its last gradient, reduction or step."""
    ends = collections.defaultdict(float)
    for e in events:
        stage, kind, k = reference.parse(e["op"])
        local = k // widths(r)[position_of(r, stage)]
        update = local if kind in ("STEP", "REDUCE_GRAD") else local // r["microbatches"]
        if kind != "F":
            ends[update] = max(ends[update], e["end_s"])
    return ends


def flushed_iteration(r):
    """The mean interval between the ends of batches after the first."""
    devices = [update_ends(r, events) for events in by_device(r)]
    ends = [max(d[u] for d in devices) for u in range(r["batches"])]
    return ends[0] if len(ends) == 1 else (ends[-1] - ends[0]) / (len(ends) - 1)


def steady_iteration(r):
    """The mean interval between updates of device 0 after the first 2p microbatches, over a
    multiple of p microbatches, before the drain where the run is long enough."""
    events = by_device(r)[0]
    ends = update_ends(r, events)
    p, m = r["stages"], r["microbatches"]
    first = math.ceil(2 * p / m) - 1
    last_forward = max(i for i, e in enumerate(events) if kind_of(e) == "F")
    seen = collections.Counter()
    for e in events[:last_forward]:
        _, kind, k = reference.parse(e["op"])
        seen[k // widths(r)[0] // m] += kind == "B"
    whole = 1 if r["schedule"] in WHOLE_BACKWARD else m
    before_drain = sum(count == whole for count in seen.values())
    for available in (before_drain, r["batches"]):
        lasts = [u for u in range(first + 1, available) if (u - first) * m % p == 0]
        if lasts:
            return (ends[lasts[-1]] - ends[first]) / (lasts[-1] - first)
    return None


SHARED_NICS = """
model: {forward: 10 ms, backward: 20 ms, step: 1 ms, output: 200 MB, gradients: 100 MB}
cluster: {nodes: 4, devices_per_node: 4, intra: 50 GB/s, inter: {bandwidth: 10 GB/s, latency: 5 us}}
"""


class Reports(Case):
    """Why it takes as long as it does: idle time, communication, contention, what would help."""

    def variations(self):
        """Results of every shipped scenario, and of what none of them has."""
        shared = self.scenario(SHARED_NICS + "schedule: 1f1b\npipeline: {stages: 4, microbatches: 6}\n")
        pipedream = self.scenario(
            SHARED_NICS + "schedule: pipedream\nbatches: 12\npipeline: {stages: 2, width: [3, 1]}\n",
            "uneven.yaml")
        for arguments in [
                *([s] for s in SOME),
                [shared, *keys("width=4", "batches=2")],
                [shared, *keys("width=4", "batches=2", "transfers=blocking",
                               "reduction.overlap=backward")],
                [shared, *keys("width=4", "batches=2", "rank_order=pipeline-first",
                               "model.gradients=2 GB")],
                [shared, *keys("stages=3", "width=[4, 2, 1]", "microbatches=4", "batches=2")],
                [shared, *keys("stages=3", "width=[1, 2, 4]", "microbatches=4", "batches=2",
                               "transfers=coupled", "reduction.overlap=backward")],
                [shared, *keys("width=4", "schedule=2bw", "batches=5",
                               "reduction.overlap=next-batch")],
                [shared, *keys("width=4", "schedule=2bw", "batches=5", "transfers=coupled",
                               "reduction.overlap=next-batch")],
                [pipedream], [pipedream, *keys("transfers=blocking")],
                [pipedream, *keys("stages=3", "width=[13, 2, 1]", "batches=2")]]:
            with self.subTest(arguments):
                yield self.result(*arguments)

    def test_causes_of_idle_time_add_up_and_have_room_for_exposed_communication(self):
        for r in self.variations():
            area = len(r["devices"]) * r["makespan_s"]
            idle = sum(d["idle_s"] for d in r["devices"])
            bubble, parts = r["bubble"], r["communication"]
            self.assertEqual(sorted(bubble), sorted(CAUSES))
            self.assertGreaterEqual(min(bubble.values()), 0)
            self.assertAlmostEqual(sum(bubble.values()) * area, idle, delta=1e-9 * area)
            self.assertEqual(list(parts), ["pp", "dp", "tp", "cp"])
            for part in parts.values():
                self.assertGreaterEqual(part["exposed_s"], 0)
                self.assertLessEqual(part["exposed_s"], part["total_s"] * (1 + 1e-9))
                self.assertAlmostEqual(part["exposed_fraction"], part["exposed_s"] / area)
            self.assertLessEqual(parts["pp"]["exposed_fraction"],
                                 bubble["transfer_wait"] + bubble["warmup"] + 1e-9)
            self.assertLessEqual(parts["dp"]["exposed_fraction"],
                                 bubble["gradient_reduction"] + 1e-9)

    def test_critical_path_leads_from_start_to_end_and_names_shared_links(self):
        contended = set()
        for r in self.variations():
            path, links = r["critical_path"], {link["name"] for link in r["links"]}
            self.assertEqual(path[0]["start_s"], 0)
            self.assertAlmostEqual(path[-1]["end_s"], r["makespan_s"])
            for before, after in zip(path, path[1:]):
                self.assertAlmostEqual(before["end_s"], after["start_s"],
                                       delta=1e-9 * r["makespan_s"])
            for p in path:
                self.assertNotEqual(p["kind"], "wait")
                self.assertGreaterEqual(p["end_s"] - p["start_s"], p["contended_s"])
                self.assertEqual(p["link"] is not None, p["contended_s"] > 0)
                if p["contended_s"] > 0:
                    self.assertIn(p["link"], links)
                    contended.add(p["kind"])
        self.assertEqual(contended, {"transfer", "reduction"})

    def test_exchange_of_tensor_ranks_is_exposed(self):
        r = self.result(TENSOR)
        tensor = r["communication"]["tp"]
        self.assertGreater(tensor["bytes"], 0)
        self.assertEqual(tensor["total_s"], tensor["exposed_s"])
        self.assertLess(tensor["total_s"], sum(d["busy_s"] for d in r["devices"]))
        self.assertEqual(self.result(SMALL)["communication"]["tp"]["total_s"], 0)

    def test_no_cell_of_a_csv_is_a_formula(self):
        path = self.folder / "formula.yaml"
        text = (SOURCE / SMALL).read_text()
        for name in ("=1+1", "+1", "-1", "@A1"):
            path.write_text(re.sub(r"(?m)^name:.*", f'name: "{name}"', text))
            table = self.ok("simulate", path, "--format", "csv")
            row = next(csv.DictReader(io.StringIO(table)))
            self.assertEqual(row["scenario"], f"'{name}")

    def test_bytes_are_those_of_the_links(self):
        r = self.result(SMALL)
        self.assertEqual(r["communication"]["pp"]["bytes"], sum(l["bytes"] for l in r["links"]))
        table = list(csv.DictReader(io.StringIO(self.ok("simulate", SMALL, "--format", "csv"))))
        self.assertEqual(float(table[0]["communication_pp_exposed_s"]),
                         r["communication"]["pp"]["exposed_s"])

    def test_what_would_help_on_shared_links_equals_a_run_of_the_change(self):
        path = self.scenario(SHARED_NICS + "schedule: 1f1b\nbatches: 2\n"
                             "pipeline: {stages: 4, width: 4, microbatches: 6}\n")
        run = self.result(path)
        found = {h["change"]: h["iteration_time_s"] for h in run["what_would_help"]}
        within, between = ("--set", "cluster.intra=100 GB/s"), ("--set", "inter.bandwidth=20 GB/s")
        changes = {"links within nodes of twice the bandwidth": within,
                   "links between nodes of twice the bandwidth": between,
                   "links of twice the bandwidth": (*within, *between)}
        self.assertLessEqual(set(changes), set(found))
        for change, sets in changes.items():
            again = self.result(path, *sets, "--engine", "fluid")["iteration_time_s"]
            self.assertEqual(found[change], again, change)
        self.assertLess(found["links between nodes of twice the bandwidth"],
                        run["iteration_time_s"])
        longer = self.result(path, "--set", "microbatches=12", "--engine", "fluid")
        self.assertEqual([t for c, t in found.items() if c.startswith("twice the micro")],
                         [longer["iteration_time_s"] / 2])

    def test_reductions_alone_can_share_a_link(self):
        path = self.scenario(
            "model: {forward: 10 ms, backward: 20 ms, output: 2 MB, gradients: 2 GB}\n"
            "cluster: {nodes: 2, devices_per_node: 2, intra: 50 GB/s, inter: 10 GB/s}\n"
            "schedule: 1f1b\n"
            "pipeline: {stages: 2, width: 2, microbatches: 4, rank_order: pipeline-first}\n")
        why = self.refused(2, "simulate", path, "--engine", "exact")
        self.assertIn("the gradient reduction of stage 0", why)
        self.assertIn("cluster.inter makes them share", why)

    def test_what_would_help_says_when_a_run_is_too_large_for_it(self):
        r = self.result(LARGE[0])
        self.assertEqual(r["what_would_help"], [])
        self.assertRegex(r["help_not_tried"], r"^(\d+) of \d+ runs with something changed, to save time \(--advice full\)$")


class CrossCheck(Case):
    """Every start and end against reference.py, which knows the written semantics only."""

    def test_random_runs_under_every_transfer_semantics(self):
        for seed in range(64):
            transfers = ("overlapped", "free", "blocking", "coupled")[seed % 4]
            with self.subTest(seed=seed, transfers=transfers):
                self.check(*random_run(random.Random(seed), transfers))

    def check(self, scenario, costs, link, shape):
        path = self.scenario(scenario)
        for engine in ("exact", "simgrid"):
            r = self.result(path, "--events", "--engine", engine)
            order = [[reference.parse(e["op"]) for e in events if e["weight_version"] is not None]
                     for events in by_device(r)]
            expected = reference.Reference(order, costs, link, **shape).times()
            compute = sum(len(ops) for ops in order)
            self.assertEqual(compute, 2 * r["stages"] * r["microbatches"] * r["batches"]
                             * r["width"])
            for e in r["events"]:
                start, end = expected.pop((e["device"], e["op"]))
                for seen, right in ((e["start_s"], start), (e["end_s"], end)):
                    self.assertAlmostEqual(
                        seen, right, delta=1e-9 * max(right, 1e-3),
                        msg=f"{engine}: {e['op']} on device {e['device']}\n{scenario}")
            for (device, op), (start, end) in expected.items():  # what takes no time is no event
                self.assertEqual(start, end, (device, op))

    def test_replicas_on_unequal_links_reduce_together(self):
        path = self.scenario(
            "model: {forward: 1 s, backward: 2 s, output: 1 MB, gradients: 1 MB}\n"
            "cluster: {nodes: 2, devices_per_node: 3, intra: {latency: 250 ms}, "
            "inter: {latency: 3 s}}\n"
            "schedule: 1f1b\ntransfers: coupled\nbatches: 2\n"
            "pipeline: {stages: 2, width: 2, microbatches: 3}\n")
        exact, simgrid = (self.result(path, "--events", "--engine", engine)["events"]
                          for engine in ("exact", "simgrid"))
        self.assertEqual(exact, simgrid)
        starts = collections.defaultdict(set)
        for e in exact:
            if "REDUCE" in e["op"]:
                stage, _, number = reference.parse(e["op"])
                starts[stage, number // 2].add(e["start_s"])
        self.assertTrue(all(len(together) == 1 for together in starts.values()), starts)


def random_run(rng, transfers):
    """A scenario's text, and what the reference needs: costs, link and shape."""
    schedule = rng.choice([s for s in BASELINES if s != "asp"])  # nobody waits for another there
    p = 1 if schedule == "data-parallel" else rng.randint(2, 6)
    width = rng.choice((1, 1, 1, 2, 3))
    m = {"pipedream": 1, "pipedream-2bw": p + rng.randint(0, 3)}.get(schedule, rng.randint(1, 7))
    batches = rng.randint(1, 12) if schedule == "pipedream" else rng.randint(1, 3)
    sync = (rng.choice(("device", "device", "global", "post-validation"))
            if schedule in FLUSHING else "device")
    milliseconds = lambda low, high: [rng.randint(low, high) / 10 for _ in range(p)]
    times = {"forward": milliseconds(10, 200), "backward": milliseconds(20, 400),
             "step": milliseconds(10, 90) if rng.random() < 0.6 else [0.0] * p}
    sizes = {"output": [rng.randint(0, 40) for _ in range(p)],
             "gradients": [rng.randint(0, 400) for _ in range(p)]}
    latency, bandwidth = rng.randint(0, 60) / 10, rng.randint(5, 30) / 10
    listed = lambda values, unit: "[" + ", ".join(f"{v} {unit}" for v in values) + "]"
    model = ", ".join([f"{k}: {listed(v, 'ms')}" for k, v in times.items()]
                      + [f"{k}: {listed(v, 'MB')}" for k, v in sizes.items()])
    text = (f"model: {{{model}}}\n"
            f"cluster: {{link: {{latency: {latency} ms, bandwidth: {bandwidth} GB/s}}}}\n"
            f"schedule: {schedule}\ntransfers: {transfers}\nbatches: {batches}\n"
            f"pipeline: {{stages: {p}, microbatches: {m}, width: {width}, "
            "reduction: {overlap: none}, "
            f"optimizer_sync: {sync}}}\n")
    costs = {k: [v / 1e3 for v in values] for k, values in times.items()}
    costs |= {k: [v * 1e6 for v in values] for k, values in sizes.items()}
    shape = {"transfers": transfers, "width": width, "per_update": m, "sync": sync}
    return text, costs, (latency / 1e3, bandwidth * 1e9), shape


# The command line ---------------------------------------------------------------------------------


class Usage(Case):
    """Wrong usage is exit code 2, with a suggestion, on standard error."""

    def test_what_cannot_be_written_fails_and_leaves_nothing(self):
        before = sorted(self.folder.iterdir())
        for option in ("--output", "--trace"):
            for place, what in ((self.folder / "missing" / "x.json", "there is no folder"), (self.folder, "is a folder")):
                self.assertIn(f"{option}: ", self.refused(2, "simulate", SMALL, option, str(place)))
                self.assertIn(what, self.refused(2, "simulate", SMALL, option, str(place)))
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_output_is_kept_when_it_cannot_be_replaced(self):
        path = self.folder / "result.json"
        path.write_text("before")
        self.refused(2, "simulate", SMALL, "--set", "stages=9", "-o", str(path))
        self.assertEqual(path.read_text(), "before")
        self.assertEqual(self.ok("simulate", SMALL, "-o", str(path)), "")
        self.assertIn("How fast?", path.read_text())
        self.assertEqual(len(list(self.folder.iterdir())), 1)

    def test_a_full_disk_is_a_failure(self):
        for command in ("doctor", "completion bash", "list models", "init", f"simulate {SMALL}"):
            done = shell(f'"$PENSTOCK" {command} >/dev/full')
            self.assertEqual(done.returncode, 1, command)
            self.assertIn("No space left", done.stderr)

    def test_a_full_disk_is_a_failure_of_help_and_tables_of_sweeps_too(self):
        for command in ("--help", "--version", "simulate --help", f"sweep {SMALL} --over stages=1,2",
                        f"compare {SMALL}"):
            done = shell(f'"$PENSTOCK" {command} >/dev/full')
            self.assertEqual(done.returncode, 1, (command, done.stderr))
            self.assertIn("No space left", done.stderr)

    def test_errors_that_nobody_can_read_have_their_exit_code(self):
        for command, code in (("simulate missing.yaml", 2), ("simulat", 2), ("", 2),
                              ("simulate --help >/dev/full", 1), (f"simulate {SMALL} >&-", 1)):
            for stream in ("2>/dev/full", "2>&-"):
                done = shell(f'"$PENSTOCK" {command} {stream}')
                self.assertEqual(done.returncode, code, (command, stream))

    def test_a_planted_link_is_not_written_through(self):
        out, victim = self.folder / "out.json", self.folder / "victim"
        victim.write_text("mine")
        done = shell(f'ln -s {victim} {out}.part$$; exec "$PENSTOCK" simulate {SMALL} -o {out}')
        self.assertEqual((done.returncode, victim.read_text()), (0, "mine"), done.stderr)
        self.assertIn("How fast?", out.read_text())
        self.assertFalse(out.is_symlink())

    def test_head_ends_it_quietly(self):
        for scenario in (SMALL, "scenarios/gpt-2.2b-2bw.yaml"):
            done = shell(f'"$PENSTOCK" simulate {scenario} --format json --events | head -1')
            self.assertEqual((done.stdout, done.stderr), ("{\n", ""))

    def test_interrupts_end_it_as_they_should(self):
        path = self.scenario("model: {forward: 1 ms, backward: 2 ms, output: 16 MiB}\n"
                             "cluster: {devices: 1024, link: {latency: 10 us, bandwidth: 50 GB/s}}\n"
                             "schedule: 1f1b\npipeline: {stages: 1024, microbatches: 2048}\n")
        for wait in (0.2, 0.5, 0.9):
            process = subprocess.Popen([BINARY, "simulate", path], env=ENVIRONMENT, cwd=SOURCE,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            with process:
                try:
                    process.wait(wait)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGINT)
                self.assertEqual(process.stderr.read(), b"")
            self.assertEqual(process.returncode, -signal.SIGINT)


class Completion(Case):
    def complete(self, line):
        """What bash offers for the last word of a line."""
        words = line.split(" ")
        quoted = " ".join(f"'{w}'" for w in words)
        done = shell('source <("$PENSTOCK" completion bash)\n'
                     f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
                     '_penstock\nprintf "%s\\n" "${COMPREPLY[@]}"')
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

    def test_is_bash(self):
        path = self.folder / "completion.bash"
        path.write_text(self.ok("completion", "bash"))
        done = shell(f"bash -n {path}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_commands(self):
        self.assertEqual(self.complete("penstock sim"), {"simulate"})
        self.assertEqual(self.complete("penstock comp"), {"compare", "completion"})
        self.assertEqual(self.complete("penstock schedule s"), {"show"})
        self.assertIn("--version", self.complete("penstock --"))

    def test_options_and_choices(self):
        self.assertEqual(self.complete("penstock simulate x.yaml --rep"),
                         {"--report", "--reproducible"})
        self.assertEqual(self.complete("penstock simulate x.yaml --format j"), {"json"})
        self.assertEqual(self.complete("penstock simulate --engine "),
                         {"auto", "exact", "fluid", "simgrid"})
        self.assertEqual(self.complete("penstock simulate --format = c"), {"csv"})
        self.assertEqual(self.complete("penstock simulate --format ="), {"table", "json", "csv"})
        self.assertEqual(self.complete("penstock simulate --set sched"), {"schedule="})
        self.assertEqual(self.complete("penstock schedule show 1f1b --set tran"),
                         {"transfer=", "transfers=", "transfers_divided="})
        self.assertEqual(self.complete("penstock list mo"), {"models"})

    def test_schedules_and_files(self):
        self.assertEqual(self.complete("penstock schedule show dapple-p"), {"dapple-pa", "dapple-pb"})
        self.assertEqual(self.complete("penstock simulate scenarios/small-1"),
                         {SMALL, "scenarios/small-1f1b-v.yaml"})
        self.assertEqual(self.complete("penstock compare a.yaml scenarios/small-1"),
                         {SMALL, "scenarios/small-1f1b-v.yaml"})


class OtherCommands(Case):
    def rows(self, *command):
        """The rows of a command's json; its csv and table have the same number and names."""
        rows = json.loads(self.ok(*command, "--format", "json"))
        sheet = list(csv.reader(io.StringIO(self.ok(*command, "--format", "csv"))))
        self.assertEqual(sheet[0], list(rows[0]))
        self.assertEqual([row[0] for row in sheet[1:]], [str(next(iter(r.values()))) for r in rows])
        self.assertEqual({len(row) for row in sheet}, {len(sheet[0])})
        table = self.ok(*command)
        self.assertLessEqual(max(map(len, table.splitlines())), 200)
        for row in rows:
            self.assertIn(str(next(iter(row.values()))), table)
        return rows

    def test_a_trace_and_a_report_of_a_part_of_the_run(self):
        whole, part, page = (self.folder / name for name in ("whole.json", "part.json", "p.html"))
        self.ok("simulate", SMALL, "--trace", whole)
        end = max(e["ts"] + e["dur"] for e in self.events(whole))
        first, last = round(end * 0.4), round(end * 0.6)
        self.ok("simulate", SMALL, "--trace", part, "--report", page, "--window",
                f"{first}us:{last}us")
        self.assertIn("no violations", self.ok("trace", "check", part))
        inside = [e for e in self.events(whole) if e["ts"] + e["dur"] >= first and e["ts"] <= last]
        self.assertEqual(self.events(part), inside)
        self.assertLess(len(inside), len(self.events(whole)) * 3 / 4)
        self.assertRegex(page.read_text(), r"Only [0-9.]+ \w+ to [0-9.]+ \w+ of ")
        for words, said in ((["--window", "1s:2s"], "neither is asked for"),
                            (["--window", "2s:1s", "--trace", part], "two times such as 10s:12s"),
                            (["--window", "1", "--trace", part], "two times such as 10s:12s")):
            self.assertIn(said, self.refused(2, "simulate", SMALL, *words))

    @staticmethod
    def events(path):
        return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]

    def test_reports_of_long_updates_open_on_their_beginning(self):
        def timelines(*command):
            page = self.folder / "page.html"
            self.ok(*command, "--report", page)
            data = re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1]
            return [s for s in json.loads(data) if s["kind"] == "timeline"]

        for many, share in ((40, 1), (400, 0.1)):
            sets = ["--set", f"microbatches={many}"]
            one, = timelines("simulate", SMALL, *sets)
            opened = one["open_to_s"] or one["end_s"]
            self.assertLessEqual(opened, share * one["end_s"])
            several = timelines("compare", SMALL, *sets, "--over", "schedule=1f1b,gpipe")
            self.assertEqual(len({s["window_s"] for s in several}), 1)
            self.assertLessEqual(several[0]["window_s"], share * several[0]["axis_s"])

    def test_how_large_a_run_is_is_said_before_it_and_limited(self):
        large = run("simulate", SMALL, "--engine", "exact", "--set", "batches=200000")
        self.assertEqual(large.returncode, 0)
        self.assertRegex(large.stderr, r"^simulating [0-9,]+ ops, which take about [0-9.]+ [GM]iB")
        error = self.refused(2, "simulate", SMALL, "--set", "batches=20000000")
        self.assertIn("lift the limit with most_ops: ", error)
        self.assertIn("more than 1,000", self.refused(2, "simulate", SMALL, "--set", "most_ops=1000",
                                                      "--set", "batches=1000"))

    def test_init_gives_a_scenario_that_runs(self):
        path = self.scenario(self.ok("init"))
        self.assertTrue(self.result(path)["feasible"])
        other = self.folder / "other.yaml"
        done = run("init", str(other))
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("try: penstock simulate", done.stderr)
        self.assertEqual(other.read_text(), pathlib.Path(path).read_text())
        self.assertIn("exists already", self.refused(2, "init", str(other)))

    def test_list(self):
        models = {m["name"]: m for m in self.rows("list", "models")}
        self.assertEqual(models["llama-3-8b"]["parameters"], 8_030_261_248)
        devices = {d["name"]: d for d in self.rows("list", "devices")}
        self.assertEqual(devices["v100-16"]["usable_bytes"],
                         int((16160 * 2**20 - 900_000_000) * 0.94))
        clusters = {c["name"]: c for c in self.rows("list", "clusters")}
        self.assertEqual(clusters["p3.16xlarge-x8"]["inter_bytes_per_s"], 25e9 / 8)
        self.assertEqual([s["name"] for s in self.rows("list", "schedules")], SCHEDULES)

    def test_schedule_list(self):
        self.assertEqual(self.rows("schedule", "list"), self.rows("list", "schedules"))
        by_name = {s["name"]: s for s in self.rows("schedule", "list")}
        self.assertIn("pipedream-flush", by_name["1f1b"]["aliases"])
        self.assertTrue(by_name["gpipe"]["flush"])
        self.assertEqual([s["name"] for s in by_name.values() if not s["flush"]], NEVER_FLUSHING)
        self.assertEqual(by_name["hanayo"]["chunks"], "2, 4, 6, ...")
        self.assertEqual((by_name["zb"]["memory_limit"], by_name["1f1b"]["memory_limit"]), (2, None))
        for width in (60, 80, 160):
            text = self.ok("schedule", "list", "--width", str(width))
            self.assertLessEqual(max(map(len, text.splitlines())), width)
            self.assertEqual([s for s in SCHEDULES if not re.search(rf"(?m)^{s}( |$)", text)], [])
        self.assertFalse(by_name["pipedream-2bw"]["flush"])

    def test_doctor(self):
        findings = {f["what"]: f for f in self.rows("doctor")}
        self.assertTrue(findings["engine exact"]["works"])
        self.assertTrue(findings["engine simgrid"]["works"])
        models = len(list((SOURCE / "models").glob("*.yaml")))
        self.assertIn(f"{models} models", findings["shipped models"]["detail"])
        self.assertTrue(findings["backend host"]["works"], findings["backend host"]["detail"])
        self.assertIn("blas", findings["backend host"]["detail"])
        if not findings["backend cuda"]["works"]:
            self.assertIn("use --backend host", findings["backend cuda"]["detail"])

    def test_compare_puts_scenarios_side_by_side(self):
        pair = ("scenarios/small-gpipe.yaml", SMALL)
        results = json.loads(self.ok("compare", *pair, "--format", "json", "--reproducible"))
        for result, scenario in zip(results, pair):
            alone = self.result(scenario)
            studies = ("what_would_help", "what_to_change")
            self.assertEqual({k: v for k, v in alone.items() if k not in studies},
                             {k: v for k, v in result.items() if k not in studies})
        table = self.ok("compare", *pair)
        self.assertRegex(table, r"(?m)^small gpipe +gpipe +8 +yes +36\.0 s +0\.2222 +1\.00x")
        self.assertRegex(table, r"(?m)^small 1f1b +1f1b +8 +yes +41\.0 s +0\.1951 +0\.88x")
        sheet = list(csv.DictReader(io.StringIO(self.ok("compare", *pair, "--format", "csv"))))
        self.assertEqual([row["schedule"] for row in sheet], ["gpipe", "1f1b"])

    def test_compare_does_not_change_saved_results(self):
        saved = str(self.folder / "small.json")
        self.ok("simulate", SMALL, "--format", "json", "-o", saved)
        done = run("compare", saved, SMALL, "--set", "microbatches=2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("which --set and --over cannot change", done.stderr)

    def test_compare_reads_saved_results(self):
        saved = []
        for name in ("gpt-2.2b-2bw", "gpt-2.2b-pipedream"):
            saved.append(str(self.folder / f"{name}.json"))
            self.ok("simulate", f"scenarios/{name}.yaml", "--format", "json", "--reproducible", "-o",
                    saved[-1])
        from_results = self.ok("compare", *saved)
        from_scenarios = self.ok("compare", "scenarios/gpt-2.2b-2bw.yaml",
                                 "scenarios/gpt-2.2b-pipedream.yaml")
        self.assertEqual(from_results, from_scenarios)
        self.assertRegex(from_results, r"note, .*: split: .* would fit; ")
        self.assertIn("device 0 needs 17.9 GiB", from_results)
        not_one = self.scenario("{}", "other.json")
        done = run("compare", saved[0], not_one)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is not a result", done.stderr)

    def test_compare_refuses_results_it_cannot_show(self):
        whole = self.result(SMALL)
        short = self.scenario(json.dumps({k: v for k, v in whole.items()
                                          if k != "iteration_time_s"}), "short.json")
        self.assertRegex(self.ok("compare", str(short)), r"(?m)^small 1f1b +1f1b +8 +yes +- ")
        for key, value in (("scenario", 7), ("schedule", []), ("feasible", "maybe"),
                           ("overrides", [1]), ("notes", [{}]), ("infeasible_because", [3]),
                           ("devices", [{"stash_peak": "much"}, {"stash_peak": "more"}])):
            wrong = self.scenario(json.dumps(whole | {key: value}), "wrong.json")
            done = run("compare", str(wrong))
            self.assertEqual(done.returncode, 2, (key, done.stdout, done.stderr))
            self.assertIn(f"{wrong}: is a result whose values are of other types", done.stderr)

    def test_trace_check_finds_what_is_wrong(self):
        path = self.scenario('{"traceEvents": [{"ph": "X", "ts": -1}]}', "bad.json")
        done = run("trace", "check", path, "--format", "json")
        self.assertEqual(done.returncode, 1)
        self.assertGreater(json.loads(done.stdout)["violations"], 0)


class SeveralStages(Case):
    """What the stages of one device, all of another size, need and move together."""

    WEIGHTS = [100, 200, 400, 800]
    GRADIENTS = [1000, 3000, 9000, 27000]
    PIPELINES = {  # schedule and its shape: the pipelines of a run
        "interleaved-1f1b": (2, "stages: 2, chunks: 2, width: 2, microbatches: 4"),
        "looped-bfs": (2, "stages: 1, chunks: 4, width: 2, microbatches: 4"),
        "v-half": (2, "stages: 2, width: 2, microbatches: 5"),
        "hanayo": (2, "stages: 2, chunks: 2, width: 2, microbatches: 4"),
        "dualpipe": (1, "stages: 4, microbatches: 8"),
        "chimera": (1, "stages: 4, microbatches: 8")}

    def ran(self, schedule, batches=1):
        model = ", ".join(f"{key}: [{', '.join(f'{b} B' for b in sizes)}]" for key, sizes in
                          (("parameters", self.WEIGHTS), ("gradients", self.GRADIENTS)))
        return self.result(self.scenario(f"""
model: {{forward: 1 s, backward: 2 s, {model}}}
cluster: {{devices: 4, link: {{bandwidth: 1 GB/s}}}}
schedule: {schedule}
batches: {batches}
pipeline: {{{self.PIPELINES[schedule][1]}, reduction: {{algorithm: ring}}}}
"""))

    def test_are_held_together(self):
        for schedule in self.PIPELINES:
            with self.subTest(schedule):
                devices = self.ran(schedule)["devices"]
                self.assertTrue(any(len(d["stages"]) > 1 for d in devices))
                for d in devices:
                    for key, sizes in (("weights", self.WEIGHTS), ("gradients", self.GRADIENTS)):
                        self.assertEqual(d["memory"][key], sum(sizes[s] for s in d["stages"]))

    def test_reduce_all_their_gradients_in_every_update(self):
        # In a ring of two each of them sends all bytes: two halves.
        for schedule in self.PIPELINES:
            for batches in (1, 3):
                with self.subTest(schedule, batches=batches):
                    moved = sum(link["bytes"] for link in self.ran(schedule, batches)["links"])
                    self.assertEqual(moved, 2 * sum(self.GRADIENTS) * batches)

    def test_flops_of_a_microbatch_do_not_depend_on_how_backwards_are_joined(self):
        def per_microbatch(schedule, recompute):
            r = self.result(self.scenario(f"""
model: gpt-355m
stack: none
cluster: {{base: p3.16xlarge}}
schedule: {schedule}
batches: 6
pipeline: {{stages: 4, microbatches: 4, recompute: {recompute}}}
"""))
            return [r[key] / r["throughput_microbatches_per_s"] for key in ("mfu", "hfu")]
        for recompute in ("none", "full"):
            each = per_microbatch("gpipe", recompute)
            self.assertEqual(each[1] > each[0], recompute == "full")
            for schedule in WHOLE_BACKWARD:
                with self.subTest(schedule, recompute=recompute):
                    for one, joined in zip(each, per_microbatch(schedule, recompute)):
                        self.assertAlmostEqual(joined / one, 1, 12)


class Versions(Case):
    """The weight version that each op uses, as the papers draw their buffers."""

    def versions(self, *words):
        """By device, the versions of F and of B in the order of its ops; each takes several columns."""
        text = self.ok("schedule", "show", *words, "--versions", "--width", "2000", *keys("batches=3"))
        lines = [line for line in text.splitlines() if line.startswith("device ")]
        return [{kind: [int(n) for n in re.findall(rf"{kind}(\d+)", line)] for kind in "FB"} for line in lines]

    def test_a_flush_uses_what_the_last_one_made(self):
        for device in self.versions("1f1b", *keys("stages=3", "microbatches=4")):
            self.assertEqual(device, {"F": [0] * 4 + [1] * 4 + [2] * 4, "B": [0] * 4 + [1] * 4 + [2] * 4})

    def test_the_double_buffer_is_one_version_behind(self):
        for device in self.versions("2bw", *keys("stages=3", "microbatches=4")):
            self.assertEqual(device, {"F": [0] * 8 + [1] * 4, "B": [0] * 8 + [1] * 4})

    def test_pipemare_differs_between_forward_and_backward(self):
        first, *_, last = self.versions("pipemare", *keys("stages=3", "microbatches=2", "forward=1", "backward=1"))
        self.assertEqual(first["B"], [0, 0, 1, 1, 2, 2])
        self.assertEqual(first["F"], [0, 0, 0, 0, 0, 0])  # five microbatches behind
        self.assertEqual(last["F"], [0, 0, 0, 1, 1, 2])


class Show(Case):
    """`schedule show` of every schedule."""

    def shown(self, schedule, *overrides):
        return json.loads(self.ok("schedule", "show", schedule, *keys(*overrides), "--format",
                                  "json"))

    def test_every_op_is_in_its_place_in_the_drawing(self):
        for schedule in SCHEDULES:
            with self.subTest(schedule):
                text = self.ok("schedule", "show", schedule, "--width", "2000")
                events = self.shown(schedule)["events"]
                for device in range(4):
                    (drawn,) = re.findall(rf"(?m)^device {device} ([^h\n]*?[·=-].*)$",
                                          text.split("building block")[0])
                    own = [reference.parse(e["op"]) for e in events if e["device"] == device]
                    labels = re.findall(r"([A-Za-z])(\d*)", drawn)
                    self.assertEqual([(kind.upper(), int(k)) for kind, k in labels],
                                     [(kind, k) for _, kind, k in own])
                    pairs = {(stage, kind.islower()) for (stage, *_), (kind, _) in zip(own, labels)}
                    self.assertEqual(len(pairs), len({stage for stage, _ in pairs}))
                    several = len(pairs) > 1
                    self.assertEqual({case for _, case in pairs}, {False, True} if several else {False})

    def test_a_drawing_that_is_cut_is_the_same_drawing(self):
        for schedule in ("interleaved-1f1b", "dualpipev", "v-min"):
            parts = collections.defaultdict(str)
            for line in self.ok("schedule", "show", schedule, "--width", "60").split("building")[0] \
                            .splitlines():
                if line.startswith("device "):
                    parts[line[:9]] += line[9:]
            ops = {d: re.findall(r"[A-Za-z]\d+", row) for d, row in parts.items()}
            events = self.shown(schedule)["events"]
            self.assertEqual({d: len(o) for d, o in ops.items()},
                             {f"device {d} ": sum(e["device"] == d for e in events)
                              for d in range(4)})

    def test_claims_hold_wherever_they_are_made(self):
        made = collections.Counter()
        for schedule in SCHEDULES:
            for p, m in ((2, 4), (3, 6), (4, 9), (6, 12), (6, 5)):
                many = "batches=64" if schedule in NEVER_FLUSHING else f"microbatches={m}"
                sets = keys(f"stages={p}", many, "forward=3", "backward_input=3",
                            "backward_weight=3")
                done = run("schedule", "show", schedule, *sets, "--format", "json")
                if done.returncode != 0:  # not admitted
                    self.assertRegex(done.stderr, r"must be|is (\d|legal)|nearest|even")
                    continue
                r = json.loads(done.stdout)
                if r["ideal_bubble"] is not None and r["simulated_bubble"] is not None:
                    self.assertAlmostEqual(r["ideal_bubble"], r["simulated_bubble"], 12, schedule)
                    made[schedule] += 1
                for d, peak in zip(r["devices"], r["ideal_peak"]):
                    self.assertIn(peak, (None, d["stash_peak"]), schedule)
        self.assertGreater(len(made), 20)

    def test_nothing_is_claimed_of_what_formulas_do_not_cover(self):
        for override in ("transfer=0.5", "step=1", "forward=[1, 2, 1, 1]", "batches=2",
                         "transfers=coupled"):
            r = self.shown("1f1b", override)
            self.assertIsNone(r["ideal_bubble"], override)
            self.assertEqual(r["ideal_peak"], [4, 3, 2, 1])
        self.assertIsNotNone(self.shown("dualpipe")["ideal_bubble"])
        self.assertIsNone(self.shown("dualpipe", "forward_backward=2.5")["ideal_bubble"])
        self.assertIsNone(self.shown("torchgpipe")["ideal_bubble"])
        self.assertIsNotNone(self.shown("torchgpipe", "checkpoint=always")["ideal_bubble"])

    def test_microbatches_are_the_nearest_that_are_admitted(self):
        for schedule, stages, expected in (("1f1b", 4, 8), ("dualpipe", 8, 16), ("dualpipev", 6, 12),
                                           ("interleaved-1f1b", 6, 6), ("pipedream-2bw", 7, 7)):
            r = self.shown(schedule, f"stages={stages}")
            self.assertEqual((schedule, r["microbatches"]), (schedule, expected))

    def test_building_blocks_are_shown_with_their_bound_and_the_peak(self):
        for schedule in ("v-min", "v-half", "v-zb", "1f1b-v"):
            for p in (3, 4, 7):
                r = self.shown(schedule, f"stages={p}", f"microbatches={4 * p}")
                block = r["building_block"]
                for device, bound in enumerate(block["bound"]):
                    spans = [block["lifespans"][s] for s in (device, 2 * p - 1 - device)]
                    self.assertEqual(bound, sum(math.ceil(s / block["interval"]) for s in spans))
                peaks = [d["stash_peak"] for d in r["devices"]]
                self.assertLessEqual(max(peaks), max(block["bound"]))
                text = self.ok("schedule", "show", schedule, *keys(f"stages={p}",
                                                                   f"microbatches={4 * p}"))
                self.assertIn("held in the order above: " + " ".join(map(str, peaks)), text)
                self.assertIn("slots 0 to" if p == 7 else "interval 6 slots", text)
        self.assertNotIn("building_block", self.shown("1f1b"))

    def test_a_block_of_ones_own_is_shown(self):
        path = self.scenario("{layout: loop, forward: [0, 1], backward: [4, 2]}", "mine.yaml")
        text = self.ok("schedule", "show", path)
        self.assertIn("building block, interval 3 slots", text)
        self.assertIn("device 0 holds at most 2 activations", text)
        self.assertIn("held in the order above: 2 1", text)

    def test_numbers_need_no_unit(self):
        r = self.shown("1f1b", "activation=[3, 2, 1, 5]", "activation_after_input=1")
        self.assertEqual([d["memory"]["activations"] for d in r["devices"]], [12, 6, 2, 5])
        for schedule, override, makespan in (
                ("dualpipe", "forward_backward=2.5", 24), ("zb", "memory_limit=1", 27),
                ("interleaved-1f1b", "group=8", 57), ("torchgpipe", "checkpoint=never", 33),
                ("hanayo", "chunks=4", 114)):
            self.assertEqual(self.shown(schedule, override)["makespan_s"], makespan, schedule)

    def test_searches_know_what_a_transfer_takes(self):
        for search, published, shape in (
                ("zb-v-search", "zb-v", ["microbatches=12", "transfer=0.5"]),
                ("zb-1p", "zb-h1", ["stages=8", "microbatches=12", "transfer=1", "forward=1",
                                    "backward_input=3", "backward_weight=2"]),
                ("zb-1p", "zb-h1", ["microbatches=6", "transfer=0.3", "forward=1.5",
                                    "backward_input=2", "backward_weight=0.7"])):
            self.assertLessEqual(self.shown(search, *shape)["makespan_s"],
                                 self.shown(published, *shape)["makespan_s"] * (1 + 1e-9), shape)


class Terminal(Case):
    """Colour on a terminal only."""

    def test_show_is_coloured_on_a_terminal(self):
        self.assertIn("\x1b[", on_terminal("schedule", "show", "1f1b"))
        self.assertNotIn("\x1b", on_terminal("schedule", "show", "1f1b", NO_COLOR="1"))

    def test_tables_keep_to_the_terminal(self):
        for command, first in [(("simulate", "scenarios/gpt-2.2b-2bw.yaml"), ("device ", "stage")),
                               (("compare", "scenarios/gpt-2.2b-2bw.yaml", SMALL), ("scenario ",)),
                               (("plan", "gpt-355m", "--cluster", "dgx-a100", "--batch", "64",
                                 "--search", "full", "--effort", "20", "--stages", "2"), ("plan ",))]:
            def table(text):
                """Lines of tables: from a head until a line of other than cells."""
                lines = text.replace("\r", "").splitlines()
                heads = [i for i, line in enumerate(lines) if line.strip().startswith(first)]
                self.assertTrue(heads, text)
                return [lines[i + row] for i in heads for row in (0, 1)]

            narrow = on_terminal(*command, columns=80)
            self.assertLessEqual(max(map(len, table(narrow))), 80, narrow)
            self.assertIn("(no room for ", narrow)
            wide = on_terminal(*command, columns=200)
            self.assertNotIn("(no room for ", wide)
            self.assertEqual(table(wide), table(self.ok(*command)))

    def test_files_are_plain(self):
        path = self.folder / "show.txt"
        self.assertEqual(on_terminal("schedule", "show", "1f1b", "-o", str(path)), "")
        self.assertEqual(path.read_text(), self.ok("schedule", "show", "1f1b"))

    def test_other_output_is_plain(self):
        self.assertNotIn("\x1b", on_terminal("simulate", SMALL))


class Narrow(Case):
    """What people read keeps to $COLUMNS and to the terminal; in pipes and files lines stay whole."""

    GPT, SPLIT = "gpt-2.2b-2bw", ["llama-3-70b-h100", "--set", "split=balanced"]
    COMMANDS = [
        [], ["--help"], ["schedule", "--help"], ["help", "nothing"], ["doctor"],
        *(["list", what] for what in ("scenarios", "models", "devices", "clusters", "stacks", "schedules", "nothing")),
        ["simulate", GPT], ["simulate", "perturbed-links"], ["simulate", "perturbed-failures"],
        ["simulate", GPT, "--set", "stages=2"], ["simulate", "gpt-355m-uneven"],
        ["simulate", "nothing"], ["simulate", GPT, "--nothing"], ["simulate", GPT, "--set", "width=1000"],
        ["compare", GPT, "gpt-2.2b-flush", "small-1f1b"], ["compare", GPT, "--over", "schedule=1f1b,gpipe,zb-h1"],
        ["sweep", GPT], ["sweep", GPT, "--over", "stages=2,4,8", "--over", "microbatch_size=1:8:*2"],
        ["sweep", *SPLIT, "--over", "tensor=4,8", "--over", "stages=4,8"],
        ["plan", "gpt-355m", "--cluster", "dgx-a100", "--batch", "64", "--effort", "20", "--stages", "2"],
        ["plan", "gpt-2.2b", "--cluster", "p3.16xlarge"], ["validate"], ["validate", "nothing.csv"],
        *(["schedule", "show", name] for name in ("1f1b", "zb-h1", "interleaved-1f1b", "v-half", "pipedream-2bw")),
        ["import", "megatron-args", "-", "--cluster", "dgx-a100"]]
    JOB = ("run --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --bf16 --vocab-size 51200 "
           "--micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 4 --overlap-grad-reduce "
           "--num-experts 8 --use-flash-attn --nnodes 1 --nproc-per-node 8")

    def said(self, *command, **environment):
        done = subprocess.run([BINARY, *command], cwd=SOURCE, env=ENVIRONMENT | environment, text=True,
                              capture_output=True, input=self.JOB, timeout=120)
        return done.stderr if command[:1] == ("import",) else done.stdout + done.stderr

    @staticmethod
    def cannot_be_broken(line):
        """A command to paste, or one word."""
        return re.match(r" +penstock", line) or " " not in line.strip()

    def commands(self):
        helped = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", self.said("--help"), re.M)
        self.assertGreater(len(helped), 15)
        return [*self.COMMANDS, *(["help", *name.split()] for name in helped)]

    def test_no_line_is_longer_than_columns(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            asked = [(width, command) for width in (60, 80) for command in self.commands()]
            texts = pool.map(lambda one: self.said(*one[1], COLUMNS=str(one[0])), asked)
        for (width, command), text in zip(asked, texts):
            self.assertTrue(text, command)
            for line in text.splitlines():
                if len(line) > width:
                    self.assertTrue(self.cannot_be_broken(line), f"{width}: {command}: {line}")

    def test_the_same_words_are_said_in_lines_of_any_width(self):
        for command in (["list", "scenarios"], ["doctor"], ["help", "plan"], ["simulate", "nothing"],
                        ["sweep", self.GPT]):
            whole = self.said(*command)
            self.assertGreater(max(map(len, whole.splitlines())), 60)
            self.assertCountEqual(self.said(*command, COLUMNS="60").split(), whole.split())

    def test_pipes_and_files_have_whole_lines(self):
        for command in (["list", "clusters"], ["simulate", self.GPT, "--reproducible"]):
            whole = self.said(*command)
            self.assertGreater(max(map(len, whole.splitlines())), 90)
            file = self.folder / "result.txt"
            self.said(*command, "-o", str(file), COLUMNS="60")
            self.assertEqual(file.read_text(), whole)

    def test_a_terminal_is_as_good_as_columns(self):
        for command in (["list", "models"], ["help", "sweep"]):
            self.assertEqual(on_terminal(*command, columns=60).replace("\r", ""), self.said(*command, COLUMNS="60"))

    def test_what_programs_read_stays_whole(self):
        for command in (["list", "clusters", "--format", "csv"], ["simulate", self.GPT, "--reproducible", "--format", "csv"],
                        ["export", "gpt3-175b-1f1b", "--to", "megatron-args", "--set", "transfers=coupled", "--set",
                         "stack=megatron"], ["init", "-"]):
            self.assertEqual(self.said(*command, COLUMNS="40"), self.said(*command), command)
        wrong = self.said("simulate", self.GPT, "--set", "width=1000", COLUMNS="40", PENSTOCK_ERRORS="json")
        self.assertEqual(json.loads(wrong)["kind"], "input")


if __name__ == "__main__":
    sys.setrecursionlimit(100_000)
    unittest.main(verbosity=2)
