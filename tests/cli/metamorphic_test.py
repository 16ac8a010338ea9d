"""Relations that must hold between the answers to random jobs, whatever the answers are.

Comparing engines with one another cannot see what they share: the cost model, the memory, the tables.
A job has a random shape, stack, degrees and number type; each test changes one thing of it and asks for
what everyone knows of the two answers. PENSTOCK_THOROUGH takes more jobs; METAMORPHIC_SEED other ones.
Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE; the package for Python is asked too where it was built.
"""

import concurrent.futures
import copy
import csv
import io
import json
import os
import pathlib
import random
import re
import subprocess
import unittest

try:
    import penstock
except ImportError:
    penstock = None

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_HOME": str(SOURCE), "LC_ALL": "C.UTF-8"}
JOBS = 1000 if os.environ.get("PENSTOCK_THOROUGH") else 60
SEED = int(os.environ.get("METAMORPHIC_SEED", "1"))
STACKS = ["none", "megatron", "torchtitan", "nanotron", "deepspeed"]
TIMES = {"forward_host": "0.5 ms", "backward_host": "1 ms", "tensor_host": "0.1 ms", "link_latency": "20 us",
         "node_latency": "10 us", "iteration_overhead": "10 ms"}  # of a stack, in seconds


def run(*arguments, text=None):
    done = subprocess.run([BINARY, *arguments], input=text, text=True, env=ENVIRONMENT, capture_output=True, timeout=300)
    if done.returncode:
        raise AssertionError(f"{arguments}: {done.stderr}\n{text}")
    return done.stdout


def simulate(job, *options):
    return json.loads(run("simulate", "-", "--format", "json", "--reproducible", *options, text=json.dumps(job)))


def quantity(value, unit):
    return f"{value!r} {unit}"


def cluster(peak=1e15, memory=3e12, launch=4e-6, intra=400e9, inter=50e9, latency=5e-6, nodes=4):
    """One whose rates and latencies are all stated."""
    device = {"name": "X", "memory": "10000 GiB", "memory_bandwidth": quantity(memory, "B/s"), "launch": quantity(launch, "s"),
              "peak": {kind: quantity(peak / share, "FLOP/s") for kind, share in
                       (("fp16", 1), ("bf16", 1), ("tf32", 2), ("fp32", 16))},
              "efficiency": [[256, "10%"], [2048, "40%"], [8192, "60%"]]}
    return {"device": device, "nodes": nodes, "devices_per_node": 8,
            "intra": {"attachment": "switch", "bandwidth": quantity(intra, "B/s"), "latency": quantity(latency, "s")},
            "inter": {"bandwidth": quantity(inter, "B/s"), "latency": quantity(2 * latency, "s"), "nics": 8}}


def random_job(seed):
    pick = random.Random(seed)
    tensor = pick.choice([1, 1, 2, 4])
    stages = pick.choice([1, 2, 2, 4])
    width = pick.choice([w for w in (1, 2, 4) if w * tensor * stages <= 32])
    schedule = pick.choice(["gpipe", "1f1b", "1f1b", "interleaved-1f1b", "zb-h1"]) if stages > 1 else "1f1b"
    heads = pick.choice([8, 16, 32])
    family = pick.choice(["gpt", "llama"])
    model = {"family": family, "num_layers": 8 * pick.choice([1, 2, 4]), "hidden_size": heads * pick.choice([64, 128]),
             "num_attention_heads": heads, "num_query_groups": pick.choice([heads, 8]),
             "vocab_size": 128 * pick.randint(50, 1000), "seq_length": 1024 * pick.choice([1, 2, 4, 8]),
             "flash_attention": pick.random() < 0.7, "tie_embeddings": False,
             "precision": pick.choice(["mixed-bf16", "mixed-bf16", "mixed-fp16", "fp32"])}
    pipeline = {"stages": stages, "tensor": tensor, "width": width, "microbatch_size": pick.choice([1, 2, 4]),
                "microbatches": stages * pick.choice([1, 2, 4]),
                "recompute": pick.choice(["none", "none", "selective", "full"])}
    if schedule == "interleaved-1f1b":
        pipeline["chunks"] = 2
    if tensor > 1:
        pipeline["sequence_parallel"] = pick.random() < 0.5
    if width > 1:
        pipeline["distributed_optimizer"] = pick.random() < 0.5
    stack = pick.choice(STACKS)
    return {"name": f"job {seed}", "model": model, "cluster": cluster(), "schedule": schedule, "batches": 1,
            "stack": stack if stack == "none" else {"base": stack, **TIMES}, "pipeline": pipeline}


def changed(job, **keys):
    out = copy.deepcopy(job)
    for key, value in keys.items():
        *path, last = key.split("__")
        into = out
        for name in path:
            into = into[name]
        into[last] = value
    return out


def peaks(result):
    return [d["peak_memory_bytes"] for d in result["devices"]]


class Metamorphic(unittest.TestCase):
    def of_every_job(self, check, jobs=JOBS):
        """Every job's failure is reported with its seed."""
        def tried(seed):
            try:
                check(random_job(seed))
            except AssertionError as failure:
                return f"job {seed}: {failure}"
        seeds = range(SEED * 100_000, SEED * 100_000 + jobs)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = [f for f in pool.map(tried, seeds) if f]
        self.assertFalse(failures, f"{len(failures)} of {jobs}: " + "\n".join(failures[:5]))

    def test_doubled_rates_halve_every_time(self):
        def check(job):
            faster = changed(job, cluster=cluster(2e15, 6e12, 2e-6, 800e9, 100e9, 2.5e-6))
            if isinstance(job["stack"], dict):
                halves = {name: quantity(float(t.split()[0]) / 2, t.split()[1]) for name, t in TIMES.items()}
                faster["stack"] = {**job["stack"], **halves}
            for key in ("iteration_time_s", "makespan_s"):
                self.assertAlmostEqual(simulate(faster)[key] / simulate(job)[key], 0.5, delta=1e-9)
        self.of_every_job(check)

    def test_faster_links_never_slow(self):
        """Where every stage does the same in a fixed order. (Shared links admit anomalies of some
        per cent: a message that arrives earlier may delay another; 3 % is allowed for them.)"""
        def check(job):
            faster = changed(job, cluster=cluster(intra=800e9, inter=100e9))
            self.assertLessEqual(simulate(faster)["iteration_time_s"], 1.03 * simulate(job)["iteration_time_s"])
            free = changed(job, cluster=cluster(intra=1e18, inter=1e18, latency=1e-12))
            self.assertLessEqual(simulate(free)["iteration_time_s"], simulate(job)["iteration_time_s"] * (1 + 1e-9))
        self.of_every_job(check)

    def test_memory_grows_with_the_microbatch(self):
        def check(job):
            larger = changed(job, pipeline__microbatch_size=2 * job["pipeline"]["microbatch_size"])
            for a, b in zip(peaks(simulate(job)), peaks(simulate(larger))):
                self.assertLess(a, b)
        self.of_every_job(check)

    def test_recomputation_keeps_less_and_takes_longer(self):
        def check(job):
            none, selective, full = (simulate(changed(job, pipeline__recompute=r)) for r in ("none", "selective", "full"))
            for less, more in ((none, selective), (selective, full)):
                self.assertLessEqual(less["iteration_time_s"], more["iteration_time_s"] * (1 + 1e-9))
                for a, b in zip(less["devices"], more["devices"]):
                    self.assertGreaterEqual(a["memory"]["activations"], b["memory"]["activations"])
        self.of_every_job(check)

    def test_wider_numbers_need_more(self):
        def check(job):
            half, whole = (simulate(changed(job, model__precision=p)) for p in ("mixed-bf16", "fp32"))
            self.assertLess(half["iteration_time_s"], whole["iteration_time_s"])
            for a, b in zip(half["devices"], whole["devices"]):
                self.assertLess(a["memory"]["weights"], b["memory"]["weights"])
                self.assertLess(a["memory"]["activations"], b["memory"]["activations"])
        self.of_every_job(check)

    def test_weights_do_not_depend_on_the_split(self):
        """Of a model without what tensor ranks repeat, all devices together hold the same weights."""
        def total(job):
            pipeline = job["pipeline"]
            return sum(d["memory"]["weights"] for d in simulate(job)["devices"]) / pipeline["width"]

        def check(job):
            one = changed(job, schedule="1f1b")
            one["pipeline"] = {"stages": 1, "microbatch_size": 1, "microbatches": 1, "width": 1}
            for stages in (2, 4, 8):
                parts = changed(one, pipeline__stages=stages)
                self.assertEqual(total(parts), total(one), stages)
        self.of_every_job(check, JOBS // 4)

    def test_rates_follow_from_the_time(self):
        def check(job):
            r = simulate(job)
            p = job["pipeline"]
            samples = p["width"] * p["microbatches"] * p["microbatch_size"]
            rate = samples / r["iteration_time_s"]
            self.assertAlmostEqual(r["throughput_samples_per_s"] / rate, 1, delta=1e-12)
            gpus = p["width"] * p["stages"] * p["tensor"]
            tokens = rate * job["model"]["seq_length"] / gpus
            self.assertAlmostEqual(r["tokens_per_s_per_device"] / tokens, 1, delta=1e-12)
        self.of_every_job(check, JOBS // 2)

    def test_csv_and_sweep_say_what_json_says(self):
        def check(job):
            r = simulate(job)
            rows = list(csv.DictReader(io.StringIO(run("simulate", "-", "--format", "csv", "--reproducible", text=json.dumps(job)))))
            row = json.loads(run("sweep", "-", "--over", f"microbatches={job['pipeline']['microbatches']}", "--jobs", "1",
                                 "--engine", "simgrid", "--format", "json", text=json.dumps(job)).splitlines()[0])
            for key in ("iteration_time_s", "makespan_s", "throughput_samples_per_s", "bubble_fraction"):
                self.assertEqual(float(rows[0][key]), r[key], key)
                self.assertEqual(float(row[key]), r[key], key)
        self.of_every_job(check, JOBS // 4)

    def test_the_table_says_what_json_says(self):
        units = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}

        def check(job):
            r = simulate(job)
            table = run("simulate", "-", "--reproducible", text=json.dumps(job))
            fast = re.search(r"How fast\?  ([\d.]+) (us|ms|s|min|h) per update, ([\d.]+) samples/s, ([\d.]+) tokens/s/GPU", table)
            self.assertTrue(fast, table)
            for shown, exact in ((float(fast[1]) * units[fast[2]], r["iteration_time_s"]),
                                 (float(fast[3]), r["throughput_samples_per_s"]), (float(fast[4]), r["tokens_per_s_per_device"])):
                self.assertLessEqual(abs(shown - exact), max(0.005 * exact, 0.51 * (exact > 100)), (shown, exact))
            peak = max(peaks(r)) / 2**30
            fits = re.search(r"Fits\?.* uses ([\d.]+) of|Fits\?.* uses ([\d.]+) MiB", table)
            self.assertTrue(fits, table)
            shown = float(fits[1]) if fits[1] else float(fits[2]) / 1024
            self.assertAlmostEqual(shown / peak, 1, delta=0.005)
        self.of_every_job(check, JOBS // 4)

    @unittest.skipUnless(penstock, "the package for Python was not built")
    def test_python_says_what_json_says(self):
        for seed in range(SEED, SEED + JOBS // 4):
            job = random_job(seed)
            r, p = simulate(job), penstock.simulate(job)
            self.assertEqual(p.iteration_time_s, r["iteration_time_s"])
            self.assertEqual([d["peak_memory_bytes"] for d in p.devices], peaks(r))


if __name__ == "__main__":
    unittest.main()
