# SPDX-License-Identifier: Apache-2.0
"""What cases of penstock-run and `penstock replay` share: programs of scenarios, and processes that end.

Needs $PENSTOCK_BINARY, $PENSTOCK_RUN and $PENSTOCK_SOURCE."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
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
