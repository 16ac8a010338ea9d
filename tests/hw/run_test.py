# SPDX-License-Identifier: Apache-2.0
"""penstock-run and `penstock replay` as their users run, interrupt, kill and misuse them.

Needs $PENSTOCK_BINARY, $PENSTOCK_RUN and $PENSTOCK_SOURCE. One class of cases may be named as an
argument. Nothing here measures time: a program that does not end fails by its time-out.
"""

import contextlib
import copy
import itertools
import json
import os
import pathlib
import pty
import random
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

# Under nohup or in the background of a script, signals are ignored, and programs inherit that.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
RUN = os.environ["PENSTOCK_RUN"]
SMALL = sorted(p.relative_to(SOURCE).as_posix() for p in SOURCE.glob("scenarios/small-*.yaml"))
LAUNCHERS = re.compile("^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_.*|OMPI_.*|SLURM_.*|PMIX_.*|TORCH.*|"
                       "PENSTOCK_(RENDEZVOUS|HOSTNAME|INTERFACE))$")
# As in tests/cli/cli_test.py: leaks are looked for in the GoogleTest programs.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not LAUNCHERS.match(k)} | {
    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_leaks=0"),
    "PENSTOCK_HOME": str(SOURCE), "LC_ALL": "C.UTF-8", "TERM": "xterm"}
TIMEOUT = 300

TENSOR = """
name: tensor
model: {family: gpt, num_layers: 4, hidden_size: 64, num_attention_heads: 4, vocab_size: 511, seq_length: 32, precision: fp32}
cluster: {base: p3.16xlarge, nodes: 1}
stack: none
batches: 2
"""
TRANSFORMER = """
stack: none
model: {num_layers: 8, hidden_size: 16, num_attention_heads: 2, vocab_size: 40, seq_length: 8,
        precision: fp32}
cluster: {devices: 8, memory: 16 GiB, link: {latency: 1 us, bandwidth: 10 GB/s}, device: v100-32}
"""


UNEVEN = """
model: {forward: [1 ms, 4 ms, 2 ms, 1 ms], backward_input: [1 ms, 2 ms, 1 ms, 3 ms],
        backward_weight: [1 ms, 9 ms, 1 ms, 1 ms], step: [3 ms, 1 ms, 2 ms, 1 ms],
        activation: 1 KiB, parameters: 1 KiB, gradients: 1 KiB, output: 1 KiB}
cluster: {devices: 4, memory: 16 GiB, link: {latency: 700 us, bandwidth: 1 GB/s}}
batches: 3
"""


def stand_in(forward="1 us", backward="2 us", output="1 KiB"):
    return f"""
model: {{forward: {forward}, backward: {backward}, activation: 1 KiB, parameters: 1 KiB,
        output: {output}}}
cluster: {{devices: 8, memory: 16 GiB, link: {{latency: 1 us, bandwidth: 10 GB/s}}}}
"""


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-run-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.temporary = self.folder / "tmp"  # what the programs leave there is theirs
        self.temporary.mkdir()
        self.environment = ENVIRONMENT | {"TMPDIR": str(self.temporary)}

    def tearDown(self):
        left = sorted(p.name for p in self.temporary.iterdir())
        self.assertEqual(left, [], "temporary files are left")

    def start(self, *command, **options):
        options = {"env": self.environment, "cwd": SOURCE, "text": True, "stdin": subprocess.DEVNULL,
                   "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen([str(c) for c in command], **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def finish(self, process):
        """(exit status, stdout, stderr)"""
        out, err = process.communicate(timeout=TIMEOUT)
        return process.returncode, out, err

    def run_program(self, *arguments, **options):
        return self.finish(self.start(RUN, *arguments, **options))

    def penstock(self, *arguments, **options):
        return self.finish(self.start(BINARY, *arguments, **options))

    def scenario(self, text, name="s.yaml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def program(self, schedule="1f1b", stages=4, microbatches=4, batches=3, model=None,
                recompute="none", microbatch_size=1, width=1, **changes):
        """The path of a program file; changes replace fields of it."""
        size = f", microbatch_size: {microbatch_size}" if microbatch_size > 1 else ""
        size += f", width: {width}" if width > 1 else ""
        again = f", recompute: {recompute}" if recompute != "none" else ""
        scenario = self.scenario(f"""
name: test
schedule: {schedule}
batches: {batches}
pipeline: {{stages: {stages}, microbatches: {microbatches}{again}{size}}}
{model or stand_in()}""")
        path = self.folder / "program.json"
        code, _, err = self.penstock("export", scenario, "--to", "program", "-o", path)
        self.assertEqual((code, err), (0, ""))
        if changes:
            plan = json.loads(path.read_text())
            for key, change in changes.items():
                change(plan[key])
            path.write_text(json.dumps(plan))
        return path

    def stuck(self, stages=4, seconds=3600):
        """A program whose last stage's backward lasts an hour; all before it is short."""
        def slow(costs):
            costs[-1]["backward"]["compute_s"] = seconds
        return self.program(stages=stages, costs=slow)

    def refused(self, code, *arguments, program=RUN):
        """The one line that is said; nothing on standard output."""
        status, out, err = self.finish(self.start(program, *arguments))
        self.assertEqual((status, out), (code, ""), (arguments, err))
        return err

    def one_line(self, code, *arguments, program=RUN):
        err = self.refused(code, *arguments, program=program)
        self.assertEqual(err.count("\n"), 1, err)
        return err

    # Ranks started by hand -----------------------------------------------------------------------

    def rank(self, program, number, size, *arguments, variables=("RANK", "WORLD_SIZE"), **options):
        environment = self.environment | {variables[0]: str(number), variables[1]: str(size)}
        environment |= options.pop("extra", None) or {"PENSTOCK_RENDEZVOUS": str(self.meeting())}
        return self.start(RUN, program, *arguments, env=environment, **options)

    def meeting(self):
        path = self.folder / "meeting"
        path.mkdir(exist_ok=True)
        return path

    def wait_for(self, holds, what):
        end = time.monotonic() + TIMEOUT
        while not holds():
            self.assertLess(time.monotonic(), end, f"still waiting for {what}")
            time.sleep(0.01)

    def descendants(self, pid):
        found = []
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *self.descendants(int(child))]
        return found

    def executors(self, pid):
        """Descendants whose devices have begun to run."""
        def runs(p):
            names = []
            for task in pathlib.Path(f"/proc/{p}/task").glob("*"):
                with contextlib.suppress(OSError):
                    names.append((task / "comm").read_text())
            return any(n.startswith("device") for n in names)
        return [p for p in [pid, *self.descendants(pid)] if runs(p)]

    def started(self, process, count):
        """The processes that execute, once there are so many of them."""
        self.wait_for(lambda: process.poll() is not None or
                      len(self.executors(process.pid)) >= count, "the run to begin")
        self.assertIsNone(process.poll())
        return self.executors(process.pid)

    def assert_gone(self, pids):
        def alive(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
            except OSError:
                return False
        self.assertEqual([p for p in pids if alive(p)], [])


class Weights(Case):
    """The weights of several processes equal, bit for bit, those of a sequential run."""

    def assert_equal_weights(self, program, *arguments):
        code, out, err = self.run_program(program, "--processes", *arguments)
        self.assertEqual((code, err), (0, ""))
        self.assertIs(json.loads(out)["weights_equal"], True)

    def shape(self, schedule, stages):
        # PipeDream updates after each microbatch.
        return {"stages": stages, "microbatches": 1 if schedule == "pipedream" else max(stages, 2),
                "batches": 3 * stages if schedule == "pipedream" else 3}

    def every_process_count(self, schedule):
        for stages, clock in itertools.product((1, 2, 4, 8), ("wall", "virtual")):
            program = self.program(schedule, **self.shape(schedule, stages))
            with self.subTest(stages=stages, clock=clock):
                self.assert_equal_weights(program, "--clock", clock)
        for stages, recompute in [*itertools.product((1, 2, 4, 8), ("none", "full")),
                                  (4, "[full, none, selective, full]")]:
            program = self.program(schedule, **self.shape(schedule, stages), model=TRANSFORMER,
                                   recompute=recompute, microbatch_size=2)
            with self.subTest(stages=stages, recompute=recompute):
                self.assert_equal_weights(program)
        self.assert_equal_weights(program, "--clock", "virtual")

    def test_gpipe(self):
        self.every_process_count("gpipe")

    def test_one_f_one_b(self):
        self.every_process_count("1f1b")

    def test_pipedream(self):
        self.every_process_count("pipedream")

    def test_pipedream_2bw(self):
        self.every_process_count("pipedream-2bw")

    def test_replicas(self):
        for schedule, stages in (("1f1b", 2), ("pipedream-2bw", 2), ("pipedream", 2), ("data-parallel", 1)):
            shape = self.shape(schedule, stages)
            for model in (None, TRANSFORMER):
                program = self.program(schedule, **shape, model=model, width=3)
                with self.subTest(schedule, transformer=model is not None):
                    self.assert_equal_weights(program)

    def test_replicas_that_wait_for_no_other(self):
        record = self.folder / "r.json"
        for model in (None, TRANSFORMER):
            program = self.program("asp", stages=1, microbatches=2, batches=4, model=model, width=3)
            for processes in ((), ("--processes",)):
                with self.subTest(processes, transformer=model is not None):
                    code, out, err = self.run_program(program, *processes, "--record", record)
                    self.assertEqual((code, err), (0, ""))
                    self.assertIs(json.loads(out)["weights_equal"], True)
                    ops = json.loads(record.read_text())["runs"][0]["ops"]
                    forwards = [op for op in ops if "F" in op["op"]]
                    self.assertEqual(len(forwards), 3 * 4 * 2)
                    # Each replica has what came of its last update, at least.
                    for device in range(3):
                        versions = [op["weight_version"] for op in forwards
                                    if op["device"] == device]
                        self.assertEqual(versions, sorted(versions))
                        self.assertEqual((len(set(versions)), versions[0]), (4, 0))

    def test_several_stages_per_device_mirrors_pairs_and_stored_microbatches(self):
        for schedule, stages in (("chimera", 4), ("dualpipe", 4), ("dualpipev", 2), ("hanayo", 2),
                                 ("interleaved-1f1b", 2), ("v-half", 2), ("torchgpipe", 4)):
            for model in (None, TRANSFORMER):
                program = self.program(schedule, stages=stages, microbatches=8, batches=2,
                                       model=model)
                with self.subTest(schedule, transformer=model is not None):
                    self.assert_equal_weights(program)


class Launching(Case):
    """Ranks that torchrun, mpirun, srun or a person starts."""

    def together(self, processes):
        results = [self.finish(p) for p in processes]
        self.assertEqual([(r[0], r[2]) for r in results], [(0, "")] * len(results))
        self.assertIs(json.loads(results[0][1])["weights_equal"], True)
        self.assertEqual([r[1] for r in results[1:]], [""] * (len(results) - 1))

    def free_port(self):
        # Rank 0 listens on the first of four from here that it gets.
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return min(s.getsockname()[1], 65000)

    def test_by_hand_with_an_address_and_a_port(self):
        program, port = self.program(), self.free_port()
        extra = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.together([self.rank(program, r, 4, extra=extra) for r in range(4)])

    def test_by_hand_in_a_folder_with_rank_0_last(self):
        program = self.program()
        ranks = [self.rank(program, r, 4) for r in (3, 2, 1, 0)]
        self.together(ranks[::-1])

    def test_open_mpi(self):
        program, port = self.program(), self.free_port()
        extra = {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_PORT": str(port)}
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
        self.together([self.rank(program, r, 4, variables=names, extra=extra) for r in range(4)])

    def test_slurm(self):
        program, port = self.program(), self.free_port()
        extra = {"SLURM_STEP_NODELIST": "localhost", "MASTER_PORT": str(port)}
        names = ("SLURM_PROCID", "SLURM_NTASKS")
        self.together([self.rank(program, r, 4, variables=names, extra=extra) for r in range(4)])

    def test_two_devices_in_each_process(self):
        program = self.program(stages=8)
        self.together([self.rank(program, r, 4) for r in range(4)])

    def test_more_processes_than_devices(self):
        program = self.program(stages=2)
        self.together([self.rank(program, r, 3) for r in range(3)])

    def test_repeats_are_recorded_one_after_the_other(self):
        program, record = self.program(), self.folder / "r.json"
        code, out, err = self.run_program(program, "--processes", "--repeats", "3", "--record",
                                          record)
        self.assertEqual((code, err, out.count("\n")), (0, "", 3))
        runs = json.loads(record.read_text())["runs"]
        self.assertEqual([r["complete"] for r in runs], [True] * 3)

    def test_a_process_that_is_done_early_waits_longer_than_the_deadline(self):
        # Model parallelism: the last stage is done while the first still has a second to go.
        def slow(costs):
            costs[0]["backward"]["compute_s"] = 1.5
        program = self.program("gpipe", stages=3, microbatches=2, batches=1, costs=slow)
        code, out, err = self.run_program(program, "--processes", "--deadline", "1")
        self.assertEqual((code, err), (0, ""))
        self.assertIs(json.loads(out)["weights_equal"], True)

    def test_a_rank_without_a_size_is_refused(self):
        program = self.program()
        error = self.finish(self.start(RUN, program, env=self.environment | {"RANK": "0"}))
        self.assertEqual((error[0], error[1]), (2, ""))
        self.assertIn("WORLD_SIZE", error[2])


def is_replicated(scenario):
    return "width: 4" in (SOURCE / scenario).read_text()


class VirtualClock(Case):
    """`--clock virtual` is the simulator, through the command line."""

    def compare(self, *arguments, scenarios=SMALL, simulated_with=()):
        for scenario in scenarios:
            with self.subTest(scenario):
                # One replica is executed.
                alone = ["--set", "pipeline.width=1"] if is_replicated(scenario) else []
                code, simulated, err = self.penstock("simulate", scenario, "--engine", "exact",
                                                     "--events", "--format", "json",
                                                     "--reproducible", *alone, *simulated_with)
                self.assertEqual((code, err), (0, ""))
                code, executed, err = self.penstock("replay", scenario, "--clock", "virtual",
                                                    "--events", "--format", "json",
                                                    "--reproducible", *alone, *arguments)
                self.assertEqual((code, err), (0, ""))
                simulated, executed = json.loads(simulated), json.loads(executed)
                self.assertTrue(simulated["events"])
                self.assertIs(executed.pop("weights_equal"), True)
                for key in ("backend", "clock", "compute", "description", "losses", "weights_digest"):
                    executed.pop(key)
                for result in (simulated, executed):
                    result.pop("engine")
                    result.pop("what_would_help")  # are simulated
                    result.pop("expected_error", None)  # of predictions
                    result.pop("what_to_change")
                    for link in result["links"]:
                        link.pop("peak_flows")  # of the network model
                if pathlib.Path(scenario).stem in self.HOLD_FEWER_VERSIONS:
                    self.take_versions_out(executed, simulated)
                self.assertEqual(executed, simulated)

    # What is predicted is what the rule allocates; a step that nobody's version is left behind for is made in place.
    HOLD_FEWER_VERSIONS = ("uneven", "beside")

    def take_versions_out(self, executed, simulated):
        for mine, theirs in zip(executed["devices"], simulated["devices"]):
            fewer = theirs["memory"].pop("weight_versions") - mine["memory"].pop("weight_versions")
            self.assertGreaterEqual(fewer, 0)
            self.assertEqual(theirs.pop("peak_memory_bytes") - mine.pop("peak_memory_bytes"), fewer)

    def test_threads(self):
        self.compare()

    def test_processes(self):
        self.compare("--processes")

    def test_replicas(self):
        """As many or unlike numbers of them, in turns, in buckets and beside the next batch."""
        def stages(name, schedule, pipeline):
            return self.scenario(UNEVEN.replace("devices: 4", "devices: 8") +
                                 f"schedule: {schedule}\npipeline: {{stages: 4, {pipeline}}}\n", f"{name}.yaml")
        scenarios = [
            stages("uneven", "pipedream", "width: [2, 1, 1, 1], reduction: {algorithm: formula}"),
            stages("buckets", "1f1b", "microbatches: 4, width: 2, reduction: {overlap: backward, algorithm: formula}"),
            stages("beside", "pipedream-2bw", "microbatches: 4, width: 2, reduction: {overlap: next-batch, algorithm: formula}"),
            stages("mirrored", "chimera", "microbatches: 4, width: 2, reduction: {algorithm: formula}"),
        ]
        for arguments in ((), ("--processes",)):
            self.compare(*arguments, scenarios=scenarios)

    def shown(self, *arguments):
        code, out, err = self.penstock(*arguments, "--events", "--format", "json")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def test_tensor_ranks(self):
        """Two stages of two GPUs that divide the model's matrices, and the sequence or not; and one stand-in for both."""
        for schedule, more in (("1f1b", ""), ("zb-h1", "sequence_parallel: true"),
                               ("1f1b", "sequence_parallel: true, recompute: full")):
            scenario = self.scenario(f"{TENSOR}schedule: {schedule}\npipeline: {{stages: 2, tensor: 2, "
                                     f"microbatches: 4, microbatch_size: 2, {more}}}\n")
            exact = self.shown("simulate", scenario, "--engine", "exact")
            for arguments in ((), ("--processes",)):
                with self.subTest(schedule, more=more, arguments=arguments):
                    executed = self.shown("replay", scenario, "--clock", "virtual", *arguments)
                    self.assertIs(executed["weights_equal"], True)
                    self.assertEqual(executed["compute"], "transformer")
                    self.assertEqual(executed["events"], exact["events"])
            self.compare("--compute", "stand-in", scenarios=[scenario])

    def test_post_validation(self):
        """Steps wait for a partial norm, which is a message of the run."""
        post = self.scenario(UNEVEN + "schedule: zb-h1\npipeline: {stages: 4, microbatches: 6, "
                             "optimizer_sync: post-validation}\n")
        held = self.scenario(UNEVEN + "schedule: gpipe\ntransfers: blocking\npipeline: {stages: 4, "
                             "microbatches: 3, optimizer_sync: post-validation}\n", "held.yaml")
        for arguments in ((), ("--processes",)):
            self.compare(*arguments, scenarios=(post, held))

    def test_recomputation_by_stage(self):
        """Times and memory of stages that recompute and of those that do not."""
        mixed = [self.scenario(UNEVEN + f"schedule: {schedule}\npipeline: {{stages: 4, "
                               "microbatches: 6, recompute: [full, none, none, full]}\n",
                               f"{schedule}.yaml") for schedule in ("1f1b", "zb-h1")]
        for arguments in ((), ("--processes",)):
            self.compare(*arguments, scenarios=mixed)

    def test_times_of_replicas(self):
        more = ("--set", "pipeline.width=2", "--set", "cluster.devices=8")
        for scenario in ("scenarios/small-1f1b.yaml", "scenarios/small-pipedream-2bw.yaml"):
            self.compare(*more, scenarios=[scenario], simulated_with=more)

    def test_two_runs_are_byte_identical(self):
        for form in (("--format", "json", "--events"), ("--format", "csv"), ()):
            files = [self.folder / f"{i}" for i in range(2)]
            for file in files:
                code, out, err = self.penstock("replay", SMALL[0], "--clock", "virtual",
                                               "--reproducible", "-o", file, *form)
                self.assertEqual((code, out, err), (0, "", ""))
            self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
            self.assertTrue(files[0].read_bytes())

    def test_what_exact_refuses_is_refused(self):
        scenario = "scenarios/gpt-3.8b-2bw-64.yaml"  # eight replicas share the nodes' adapters
        exact = self.one_line(2, "simulate", scenario, "--engine", "exact", program=BINARY)
        virtual = self.one_line(2, "replay", scenario, "--clock", "virtual", program=BINARY)
        self.assertIn("nic0", exact)
        self.assertIn("nic0", virtual)
        self.assertIn("--clock wall", virtual)


class Calibrating(Case):
    def test_a_busy_machine_is_noticed(self):
        request, result, profile = (self.folder / name for name in ("request.json", "result.json", "profile.yaml"))
        code, _, err = self.penstock("calibrate", self.scenario(TRANSFORMER + "schedule: 1f1b\npipeline: {stages: 2}\n"),
                                     "--request", request, "--repetitions", "1", "--workers", "1", "--microbatch-sizes", "1")
        self.assertEqual((code, err), (0, ""))
        code, _, err = self.finish(self.start(RUN, "--calibrate", request, "--backend", "host", "--output", result))
        self.assertEqual(code, 0, err)
        measured = json.loads(result.read_text())
        times = [op["time"] for op in measured["ops"]]
        for time in times:  # whatever this machine does meanwhile
            time["p5_s"], time["p95_s"] = 0.9 * time["median_s"], 1.3 * time["median_s"]
        result.write_text(json.dumps(measured))
        self.assertEqual(self.penstock("calibrate", "--result", result, "-o", profile)[2], "")
        for time in times[:2]:
            time["p95_s"] = 110.59 * time["median_s"]
        result.write_text(json.dumps(measured))
        code, _, err = self.penstock("calibrate", "--result", result, "-o", profile)
        self.assertEqual(code, 0)
        self.assertIn(f"of {len(times)} times 2 vary by more than half of their median", err)
        self.assertIn("by 10969.0 %", err)
        self.assertIn("calibrate again", err)
        # What it predicts is held against a run: its note says so, too.
        scenario = self.scenario(f"model: {profile}\ncluster: {{devices: 2, memory: 16 GiB, link: {{latency: 1 us}}}}\n"
                                 "schedule: 1f1b\nbatches: 3\npipeline: {stages: 2, microbatches: 4}\n", "run.yaml")
        record = self.folder / "run.json"
        self.assertEqual(self.penstock("replay", scenario, "--record", record)[0], 0)
        code, out, err = self.penstock("validate", record)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("measured on a busy machine", out)


class OwnSchedules(Case):
    """A table or a block of the user's own is a schedule like any other: the same in both engines
    and executed, bit for bit, under times that differ from stage to stage."""

    TABLES = [("1f1b", 4, 7), ("gpipe", 3, 4), ("interleaved-1f1b", 3, 6), ("looped-bfs", 2, 5),
              ("zb-h1", 4, 6), ("zb-v", 3, 7), ("v-half", 4, 6), ("1f1b-v", 3, 5),
              ("interleaved-zb", 2, 6), ("hanayo", 2, 4), ("dualpipev", 2, 6), ("dualpipe", 4, 10),
              ("chimera", 4, 8)]
    # By name: devices, microbatches, the block.
    BLOCKS = {
        "one chunk": (3, 7, "{layout: loop, forward: [0, 1, 2], backward: [7, 5, 3]}"),
        "one chunk, split": (
            3, 6, "{layout: loop, forward: [0, 1, 2], backward_input: [7, 5, 3]}"),
        "V, whole": (2, 5, "{layout: snake, forward: [0, 1, 2, 5], backward: [15, 11, 9, 7]}"),
        "V, split": (3, 7, "{layout: snake, forward: [0, 1, 2, 3, 4, 5], "
                           "backward_input: [14, 12, 11, 10, 8, 7]}"),
        "two chunks in turn": (
            2, 6, "{layout: loop, chunks: 2, forward: [0, 2, 5, 7], backward: [21, 17, 13, 9]}"),
        "wide passes": (2, 6, "{layout: loop, forward: [0, 2], backward_input: [9, 4], "
                              "slots: {forward: 2, backward_input: 3, backward_weight: 2}}")}

    @staticmethod
    def uneven(stages):
        """Costs that differ by stage, in whole microseconds and bytes."""
        def listed(first, step, unit):
            return "[" + ", ".join(f"{first + (s * step) % 11} {unit}" for s in range(stages)) + "]"
        return f"""
model: {{forward: {listed(3, 4, "us")}, backward_input: {listed(2, 5, "us")},
        backward_weight: {listed(1, 3, "us")}, activation: {listed(1, 2, "KiB")},
        parameters: {listed(1, 7, "KiB")}, output: {listed(1, 6, "KiB")}}}
cluster: {{devices: 8, memory: 16 GiB, link: {{latency: 1 us, bandwidth: 1 GB/s}}}}
batches: 2
"""

    def own(self, schedule, stages, devices, microbatches):
        # Mirrored devices reduce over links that their messages use, too, which `exact` refuses.
        return self.scenario(f"{self.uneven(stages)}schedule: {schedule}\n"
                             f"pipeline: {{stages: {devices}, microbatches: {microbatches}, "
                             "reduction: {algorithm: formula}}\n")

    def said(self, command, scenario, *arguments):
        code, out, err = self.penstock(command, scenario, "--events", "--format", "json",
                                       "--reproducible", *arguments)
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def expect_alike(self, scenario):
        """The result of `exact`, which the other engine and the executor give, too."""
        exact = self.said("simulate", scenario, "--engine", "exact")
        simgrid = self.said("simulate", scenario, "--engine", "simgrid")
        executed = self.said("replay", scenario, "--backend", "host", "--clock", "virtual")
        self.assertIs(executed["weights_equal"], True)
        self.assertEqual(executed["makespan_s"], exact["makespan_s"])
        self.assertEqual(executed["events"], exact["events"])
        for one, other in zip(executed["devices"], exact["devices"], strict=True):
            self.assertEqual(one["memory"], other["memory"])
        self.assertEqual(len(simgrid["events"]), len(exact["events"]))
        self.close(simgrid["makespan_s"], exact["makespan_s"])
        for one, other in zip(simgrid["events"], exact["events"]):
            self.assertEqual(one.keys(), other.keys())
            for key, value in other.items():
                self.close(one[key], value)
        return exact

    def close(self, one, other):
        if not isinstance(other, float):
            return self.assertEqual(one, other)
        self.assertLessEqual(abs(one - other), 1e-12 * max(abs(one), abs(other)))

    def test_a_table_is_the_schedule_it_was_written_from(self):
        for schedule, devices, microbatches in self.TABLES:
            with self.subTest(schedule):
                table = self.folder / "own.csv"
                code, _, err = self.penstock("schedule", "export", schedule, "--set",
                                             f"stages={devices}", "--set",
                                             f"microbatches={microbatches}", "-o", table)
                self.assertEqual((code, err), (0, ""))
                stages = 1 + max(int(s) for s in re.findall(r"(\d+)F\d", table.read_text()))
                mine = self.expect_alike(self.own(table, stages, devices, microbatches))
                shipped = self.said("simulate", self.own(schedule, stages, devices, microbatches),
                                    "--engine", "exact")
                self.assertEqual(mine["events"], shipped["events"])
                self.assertEqual(mine["makespan_s"], shipped["makespan_s"])

    def test_a_block_runs_everywhere(self):
        for name, (devices, microbatches, block) in self.BLOCKS.items():
            for form in ("map", "file"):
                with self.subTest(name, form=form):
                    stages = len(re.search(r"forward: \[([^]]*)\]", block)[1].split(","))
                    given = block
                    if form == "file":
                        given = self.folder / "own.yml"
                        given.write_text(block + "\n")
                    self.expect_alike(self.own(given, stages, devices, microbatches))


class Refusals(Case):
    """Scenarios that cannot be executed, and wrong command lines: why, in one line."""

    def replay(self, code, scenario, *arguments):
        return self.one_line(code, "replay", scenario, *arguments, program=BINARY)

    def test_replicas(self):
        error = self.replay(2, "scenarios/small-asp.yaml", "--clock", "virtual")
        self.assertIn("wait for no other", error)

    def test_a_global_step(self):
        error = self.replay(2, SMALL[0], "--set", "optimizer_sync=global")
        self.assertIn("optimizer_sync", error)
        self.assertIn(f"{SMALL[0]}: ", error)  # the user's file, not the executor's

    def test_llama(self):
        text = """
name: llama
model: llama-3-8b
stack: none
cluster: dgx-a100
schedule: 1f1b
batches: 1
pipeline: {stages: 4, microbatches: 4}
"""
        self.assertIn("llama", self.replay(2, self.scenario(text)))

    def test_a_model_larger_than_the_machine(self):
        error = self.replay(2, "scenarios/gpt3-175b-1f1b.yaml")
        self.assertRegex(error, "needs more than")

    def test_an_abstract_model_has_nothing_real(self):
        self.assertIn("--compute real", self.replay(2, SMALL[0], "--compute", "real"))

    def test_no_gpu(self):
        if pathlib.Path("/dev/nvidia0").exists():
            self.skipTest("this machine has a GPU")
        self.assertIn("cuda", self.replay(4, SMALL[0], "--backend", "cuda").lower())

    def test_a_folder_that_is_not_there(self):
        missing = self.folder / "no" / "r.json"
        for option in ("--record", "--trace", "-o"):
            with self.subTest(option):
                self.assertIn("no folder", self.replay(2, SMALL[0], option, missing))
        self.assertIn("no folder", self.one_line(2, self.program(), "--record", missing))

    def test_wrong_numbers(self):
        program = self.program()
        for option, value in (("deadline", "nan"), ("deadline", "-1"), ("deadline", "1e300"),
                              ("deadline", "5x"), ("repeats", "0"), ("repeats", "1.5"),
                              ("repeats", "1e30"), ("repeats", "inf")):
            with self.subTest(option=option, value=value):
                self.assertIn(f"--{option}", self.one_line(2, program, f"--{option}", value))

    def test_wrong_words(self):
        program = self.program()
        self.assertIn("--clock", self.one_line(2, program, "--clok", "wall"))
        self.assertIn("wall|virtual", self.one_line(2, program, "--clock", "sundial"))
        self.assertIn("--record", self.one_line(2, program, "--record"))
        self.assertIn("one program file", self.one_line(2))
        self.assertIn("bf16", self.one_line(2, program, "--precision", "bf16"))
        self.assertIn("takes no value", self.one_line(2, program, "--processes=4"))

    def test_gpt_2_2b_on_a_virtual_clock(self):
        scenario = "scenarios/gpt-2.2b-2bw.yaml"
        exact = self.penstock("simulate", scenario, "--engine", "exact", "--format", "json",
                              "--reproducible")
        replay = self.penstock("replay", scenario, "--clock", "virtual", "--format", "json",
                               "--reproducible")
        self.assertEqual((exact[0], replay[0]), (0, 0), exact[2] + replay[2])
        exact, replay = json.loads(exact[1]), json.loads(replay[1])
        self.assertEqual(replay["makespan_s"], exact["makespan_s"])
        self.assertIs(replay["weights_equal"], True)


class Streams(Case):
    """What cannot be written is a failure, what cannot be said is none."""

    def test_output_that_is_lost(self):
        program = self.program()
        with open("/dev/full", "w") as full:
            for words in ((program,), (program, "--processes"), ("--help",), ("--probe",)):
                code, _, err = self.run_program(*words, stdout=full)
                self.assertEqual(code, 1, (words, err))
                self.assertIn("No space left on device", err)

    def test_errors_that_nobody_can_read(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(self.run_program("missing.json", "--what", stderr=full)[0], 2)


class BareMachine(Case):
    """penstock-run where neither yaml-cpp, Boost nor SimGrid are, and no environment."""

    def test_none_of_those_libraries_is_needed(self):
        code, out, err = self.finish(self.start("ldd", RUN))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("libgloo", out)
        self.assertNotRegex(out.lower(), "yaml|boost|simgrid")

    def test_a_copied_program_runs(self):
        program = self.program()
        shutil.copy(RUN, self.folder / "penstock-run")
        for processes in ((), ("--processes",)):
            code, out, err = self.finish(self.start(
                "env", "-i", f"TMPDIR={self.temporary}", "./penstock-run", program.name, *processes,
                cwd=self.folder))
            self.assertEqual((code, err), (0, ""))
            self.assertIs(json.loads(out)["weights_equal"], True)

    def test_a_bundle_brings_its_libraries(self):
        bundle = self.folder / "bundle"
        environment = self.environment | {"PENSTOCK_RUN": RUN}
        code, out, err = self.finish(self.start(SOURCE / "scripts/bundle_run.sh", bundle,
                                                env=environment))
        self.assertEqual(code, 0, out)
        if err:  # a build without the CUDA backend is told, and nothing else
            self.assertRegex(err, r"^note: without the CUDA backend[^\n]*\n$")
        code, out, err = self.finish(self.start(
            "env", "-i", f"TMPDIR={self.temporary}", "LD_DEBUG=libs", "./penstock-run",
            self.program(), cwd=bundle))
        self.assertEqual(code, 0, err)
        initialized = set(re.findall(r"calling init: (/\S+)", err))
        system = {"libc", "libm", "libstdc++", "libgcc_s", "ld-linux-x86-64", "libasan", "libubsan",
                  "libtsan"}
        foreign = [p for p in initialized if not p.startswith(str(bundle)) and
                   pathlib.Path(p).name.split(".so")[0] not in system]
        self.assertEqual(foreign, [])
        self.assertTrue(any("libgloo" in p for p in initialized))


class Failing(Case):
    """A peer that is killed, hangs or never comes ends everybody, and what ran is kept."""

    def assert_kept(self, recording, at_least=0):
        recorded = json.loads(pathlib.Path(recording).read_text())
        run = recorded["runs"][-1]
        self.assertIs(run["complete"], False)
        self.assertTrue(run["stopped_because"])
        self.assertGreaterEqual(len(run["ops"]), at_least)
        return run

    def ranks_by_hand(self, program, size, *arguments):
        """Ranks, of which rank 0's errors go to a terminal; returns them and that terminal."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        ranks = [self.rank(program, 0, size, *arguments, stderr=theirs)]
        os.close(theirs)
        return ranks + [self.rank(program, r, size, *arguments) for r in range(1, size)], ours

    def read_until(self, terminal, pattern):
        """What a terminal shows until it has shown the pattern, or to its end."""
        text = ""
        while not (pattern and re.search(pattern, text)):
            ready, _, _ = select.select([terminal], [], [], TIMEOUT)
            self.assertTrue(ready, text)
            try:
                part = os.read(terminal, 65536).decode()
            except OSError:  # EIO: the other end is closed
                break
            text += part
            if not part:
                break
        return text

    def test_a_killed_rank(self):
        record = self.folder / "r.json"
        ranks, terminal = self.ranks_by_hand(self.stuck(), 4, "--deadline", "30", "--record", record)
        shown = self.read_until(terminal, r"ops [1-9][0-9]*/")  # the progress line
        self.assertRegex(shown, r"ops [1-9]")
        ranks[1].kill()
        self.read_until(terminal, None)
        for number in (0, 2, 3):
            code, _, err = self.finish(ranks[number]) if number else (ranks[0].wait(TIMEOUT), "", "")
            self.assertEqual(code, 1, err)
            run = self.assert_kept(f"{record}.rank{number}", 1)
            self.assertRegex(run["stopped_because"], "device [0-9] -> device [0-9]|rank 1")

    def test_a_hung_rank(self):
        record = self.folder / "r.json"
        ranks, terminal = self.ranks_by_hand(
            self.stuck(seconds=2), 4, "--deadline", "2", "--record", record)
        self.read_until(terminal, r"ops [1-9][0-9]*/")
        ranks[2].send_signal(signal.SIGSTOP)
        self.read_until(terminal, None)
        for number in (0, 1, 3):
            code, _, err = self.finish(ranks[number]) if number else (ranks[0].wait(TIMEOUT), "", "")
            self.assertEqual(code, 1, err)
            run = self.assert_kept(f"{record}.rank{number}", 1)
            self.assertRegex(run["stopped_because"], "device [0-9]")
        ranks[2].send_signal(signal.SIGCONT)
        self.assertEqual(self.finish(ranks[2])[0], 1)

    def test_a_rank_that_never_comes(self):
        program = self.program()
        ranks = [self.rank(program, r, 4, "--deadline", "1") for r in (0, 1, 3)]
        results = [self.finish(r) for r in ranks]
        self.assertEqual([r[0] for r in results], [1, 1, 1], results)
        self.assertIn("rank 2 did not come within 1 s", results[0][2])

    def test_rank_0_never_comes(self):
        program = self.program()
        ranks = [self.rank(program, r, 3, "--deadline", "1") for r in (1, 2)]
        results = [self.finish(r) for r in ranks]
        self.assertEqual([r[0] for r in results], [1, 1], results)
        for result in results:
            self.assertIn("rank 0", result[2])

    def test_a_killed_process_of_penstock_run(self):
        record = self.folder / "r.json"
        run = self.start(RUN, self.stuck(), "--processes", "--record", record)
        ranks = self.started(run, 4)
        os.kill(ranks[2], signal.SIGKILL)
        code, out, err = self.finish(run)
        self.assertEqual((code, out), (1, ""), err)
        self.assertRegex(err, r"device \d -> device \d|rank \d is gone")
        self.assertIn("was ended by signal 9", err)
        self.assert_kept(record)
        self.assert_gone(ranks)
        self.assertEqual(list(self.folder.glob("r.json.rank*")), [])

    def test_a_stopped_process_of_penstock_run(self):
        record = self.folder / "r.json"
        run = self.start(RUN, self.stuck(seconds=1), "--processes", "--record", record,
                         "--deadline", "1")
        ranks = self.started(run, 4)
        os.kill(ranks[0], signal.SIGSTOP)
        code, out, err = self.finish(run)
        self.assertEqual((code, out), (1, ""), err)
        self.assert_kept(record)
        self.assert_gone(ranks)

    def test_a_killed_launcher_leaves_nobody(self):
        run = self.start(RUN, self.stuck(), "--processes")
        ranks = self.started(run, 4)
        run.kill()
        run.communicate()
        self.wait_for(lambda: not [r for r in ranks if pathlib.Path(f"/proc/{r}/exe").exists()],
                      "the ranks to end")
        shutil.rmtree(next(self.temporary.iterdir()))  # nobody is left who could remove it

    @unittest.skipIf("PENSTOCK_SANITIZED" in os.environ, "a sanitizer needs address space")
    def test_without_memory_a_run_ends_all_the_same(self):
        """OpenBLAS asks for its buffers again and again: at 1.4 GB of address space here, where the
        stages' memory is there and its own is not. Where that is depends on the machine."""
        model = ("stack: none\nmodel: {num_layers: 4, hidden_size: 1024, num_attention_heads: 8, vocab_size: 1000, "
                 "seq_length: 512, precision: fp32, flash_attention: false}\n"
                 "cluster: {devices: 2, link: 10 GB/s, device: v100-32}\n")
        program = self.program(stages=2, model=model)
        for megabytes in (1000, 1400, 1450):
            with self.subTest(megabytes):
                limit = megabytes * 1024 * 1000
                code, out, err = self.run_program(
                    program, "--check", "off", "--deadline", "1",
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
                self.assertIn(code, (0, 1), err)
                if code:
                    self.assertRegex(err, r"not enough memory|cannot allocate|nothing moved for 1 s")

    def test_a_long_op_is_no_stall(self):
        code, out, err = self.run_program(self.program(stages=2, batches=1, microbatches=1,
                                                       costs=lambda c: c[1]["backward"].update(
                                                           compute_s=2.5)),
                                          "--deadline", "0.5")
        self.assertEqual((code, err), (0, ""))
        self.assertIs(json.loads(out)["weights_equal"], True)


class Interrupted(Case):
    """SIGINT and SIGTERM: status 128 + signal, nobody left, what ran is kept."""

    def stop(self, command, count, number):
        process = self.start(*command)
        ranks = self.started(process, count)
        process.send_signal(number)
        code, out, err = self.finish(process)
        self.assertEqual((code, out), (128 + number, ""), err)
        self.assert_gone([process.pid, *ranks])
        return err

    def test_threads_and_processes(self):
        program, record = self.stuck(), self.folder / "r.json"
        for number, more in itertools.product((signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                                              ((), ("--processes",))):
            with self.subTest(signal=number, more=more):
                err = self.stop([RUN, program, "--record", record, *more], 4 if more else 1, number)
                self.assertIn(number.name, err)
                run = json.loads(record.read_text())["runs"][-1]
                self.assertIs(run["complete"], False)
                self.assertIn(number.name, run["stopped_because"])
                record.unlink()

    def replay(self, number, *more):
        scenario = self.scenario(f"""
name: stuck
schedule: 1f1b
batches: 1
pipeline: {{stages: 4, microbatches: 4}}
{stand_in(backward='[2 us, 2 us, 2 us, 3600 s]')}""")
        record, trace = self.folder / "r.json", self.folder / "t.json"
        record.write_text("of an earlier run")
        self.stop([BINARY, "replay", scenario, "--record", record, "--trace", trace, *more],
                  4 if more else 1, number)
        self.assertIs(json.loads(record.read_text())["runs"][-1]["complete"], False)
        shown = json.loads(trace.read_text())
        self.assertEqual(shown["otherData"]["complete"], "false")
        self.assertIn(number.name, shown["otherData"]["stopped_because"])
        return shown

    def test_replay_with_threads(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.replay(number)

    def test_replay_with_processes(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.replay(number, "--processes")

    def test_ctrl_c_on_a_terminal(self):
        # A session of its own: the terminal's SIGINT goes to all of its foreground processes.
        scenario = self.scenario(f"""
name: stuck
schedule: 1f1b
batches: 1
pipeline: {{stages: 2, microbatches: 2}}
{stand_in(backward='3600 s')}""")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(SOURCE)
            os.execve(BINARY, [BINARY, "replay", str(scenario), "--processes"], self.environment)
        self.wait_for(lambda: len(self.executors(pid)) == 2, "the run to begin")
        ranks = self.executors(pid)
        os.write(terminal, b"\x03")
        shown = ""
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 65536).decode():
                shown += part
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130, shown)
        self.assertIn("SIGINT", shown)
        self.assert_gone(ranks)

    def test_a_killed_rank_of_a_replay(self):
        scenario = self.scenario(f"""
name: stuck
schedule: 1f1b
batches: 1
pipeline: {{stages: 4, microbatches: 4}}
{stand_in(backward='[2 us, 2 us, 2 us, 3600 s]')}""")
        trace = self.folder / "t.json"
        process = self.start(BINARY, "replay", scenario, "--processes", "--trace", trace)
        ranks = self.started(process, 4)
        os.kill(ranks[1], signal.SIGKILL)
        code, out, err = self.finish(process)
        self.assertEqual((code, out), (1, ""), err)
        self.assertEqual(json.loads(trace.read_text())["otherData"]["complete"], "false")
        self.assert_gone(ranks)

    def test_a_killed_replay_leaves_nobody(self):
        scenario = self.scenario(f"""
name: stuck
schedule: 1f1b
batches: 1
pipeline: {{stages: 2, microbatches: 2}}
{stand_in(backward='3600 s')}""")
        process = self.start(BINARY, "replay", scenario, "--processes")
        ranks = self.started(process, 2)
        process.kill()
        process.communicate()
        self.wait_for(lambda: not [r for r in ranks if pathlib.Path(f"/proc/{r}/exe").exists()],
                      "the ranks to end")
        # penstock's own folder is left: nobody could remove it.
        self.wait_for(lambda: len(list(self.temporary.iterdir())) == 1, "the launcher's folder")
        shutil.rmtree(next(self.temporary.iterdir()))

    def test_waiting_for_a_rank_that_never_comes(self):
        rank = self.rank(self.program(), 0, 2)
        self.wait_for(lambda: any(self.meeting().iterdir()), "rank 0 to wait")
        rank.terminate()
        self.assertEqual(self.finish(rank)[0], 143)


class Mutated(Case):
    """Program files from anywhere: never a crash, a hang or a bug; 0, 1 or 2."""

    VALUES = (None, True, -1, 0, 1, 2, 3, 7, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**53, 2**63,
              2**64, 1e300, -1e300, 0.5, "", "x", "1f1b", [], [0], {}, [[]], "9F9", "0F0<>")

    def spots(self, json_value, path=()):
        yield path
        children = json_value.items() if isinstance(json_value, dict) else \
            enumerate(json_value) if isinstance(json_value, list) else ()
        for key, value in children:
            yield from self.spots(value, (*path, key))

    def mutate(self, plan, choice):
        plan = copy.deepcopy(plan)
        spots = [s for s in self.spots(plan) if s]
        path = choice.choice(spots)
        parent = plan
        for key in path[:-1]:
            parent = parent[key]
        key, value = path[-1], parent[path[-1]]
        kind = choice.random()
        if path[0] == "devices" and kind < 0.8 and isinstance(value, str):
            ops = value.split()
            i, j = choice.randrange(len(ops)), choice.randrange(len(ops))
            if kind < 0.2:
                ops[i], ops[j] = ops[j], ops[i]
            elif kind < 0.4:
                del ops[i]
            elif kind < 0.6:
                ops[i] = choice.choice(["0F0", "1B1>", "0STEP9", "3STEP0", "0REDUCE_GRAD0", "0I0",
                                        "0W0", "65535F4294967295", "9F0<", ops[j] + ">", ops[j]])
            else:
                ops[i] = ops[i].strip("<>~+=") + choice.choice(["", "<", ">", "<>", "><", "<<", "<>~",
                                                                "+", "<>+", "="])
            parent[key] = " ".join(ops)
        elif kind < 0.15:
            del parent[key]
        elif kind < 0.25 and isinstance(parent, list):
            parent.append(copy.deepcopy(choice.choice(parent)))
        else:
            parent[key] = choice.choice(self.VALUES)
        return plan

    def mutations(self, program, seed, count):
        plan = json.loads(program.read_text())
        choice = random.Random(seed)
        path = self.folder / "mutated.json"
        statuses = {}
        for i in range(count):
            mutated = self.mutate(plan, choice)
            if choice.random() < 0.2:
                mutated = self.mutate(mutated, choice)
            path.write_text(json.dumps(mutated))
            code, _, err = self.run_program(path, "--deadline", "20", "--pace", "off")
            self.assertIn(code, (0, 2), (i, err, self.difference(plan, mutated)))
            if code == 2:  # the file is wrong, or asks for more memory than there is
                self.assertRegex(err, "mutated.json|GiB are free")
            statuses[code] = statuses.get(code, 0) + 1
        self.assertGreater(statuses.get(2, 0), count // 3)
        self.assertGreater(statuses.get(0, 0), 0)

    @staticmethod
    def difference(a, b, path=""):
        if type(a) is not type(b) or not isinstance(a, (dict, list)):
            return "" if a == b else f"{path}: {str(a)[:80]} -> {str(b)[:80]}\n"
        keys = a.keys() | b.keys() if isinstance(a, dict) else range(max(len(a), len(b)))
        get = (lambda v, k: v.get(k)) if isinstance(a, dict) else \
            (lambda v, k: v[k] if k < len(v) else None)
        return "".join(Mutated.difference(get(a, k), get(b, k), f"{path}/{k}") for k in keys)

    def test_stand_ins(self):
        self.mutations(self.program(stages=3, microbatches=3, batches=2), 1, 150)

    def test_weight_stashing(self):
        self.mutations(self.program("pipedream", stages=3, microbatches=1, batches=6), 2, 75)

    def test_transformers(self):
        self.mutations(self.program("pipedream-2bw", stages=2, microbatches=2, batches=2,
                                    model=TRANSFORMER), 3, 75)

    def test_mirrors_and_pairs(self):
        self.mutations(self.program("dualpipe", stages=2, microbatches=4, batches=2), 4, 75)

    def test_cut_off_anywhere(self):
        program = self.program(stages=2, microbatches=2, batches=1)
        text = program.read_text()
        for at in range(0, len(text) - 1, max(1, len(text) // 20)):
            program.write_text(text[:at])
            self.assertIn("program.json", self.refused(2, program))

    def absurd(self, key, value):
        program = self.program(model=TRANSFORMER)
        plan = json.loads(program.read_text())
        plan["model"][key] = value
        program.write_text(json.dumps(plan))
        return self.one_line(2, program)

    def test_models_larger_than_any_machine(self):
        for key, value in itertools.product(
                ("hidden_size", "vocab_size", "seq_length", "ffn_hidden_size",
                 "num_attention_heads"), (0, 2**25, 2**40, 2**62)):
            with self.subTest(key=key, value=value):
                self.absurd(key, value)

    def test_a_model_larger_than_this_machine(self):
        program = self.program(model=TRANSFORMER)
        plan = json.loads(program.read_text())
        plan["model"]["vocab_size"] = 2**24
        plan["model"]["hidden_size"] = 2**12
        program.write_text(json.dumps(plan))
        self.assertIn("are free", self.one_line(2, program))

    def test_messages_larger_than_this_machine(self):
        program = self.program()
        plan = json.loads(program.read_text())
        for cost in plan["costs"]:
            cost["output_bytes"] = 2**43
        program.write_text(json.dumps(plan))
        self.assertIn("are free", self.one_line(2, program))

    def test_no_program(self):
        path = self.folder / "x.json"
        for text in ("", "null", "[]", "{}", "3", '{"penstock_program": 99}', "\xff\x00"):
            path.write_bytes(text.encode("latin-1"))
            self.assertIn("x.json", self.refused(2, path))
        self.assertIn("cannot", self.refused(1, self.folder / "missing.json"))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv[:1] + sys.argv[1:])
