#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps whose points are computed by executors: the rows are those of the command, whatever happens
to workers."""
import concurrent.futures
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

from needs import need

NEEDED = {"Dask": ("numpy", "distributed"), "Mpi": ("numpy", "mpi4py")}
need(*NEEDED.get(sys.argv[1] if len(sys.argv) > 1 else "", ("numpy",)))

import penstock  # noqa: E402

AXES = {"microbatches": range(4, 104), "stages": [2, 4]}
ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
PROGRAM = os.environ["PENSTOCK_BINARY"]


def words(axes=AXES):
    given = [f"--over={key}={','.join(map(str, values))}" for key, values in axes.items()]
    return ["sweep", "small-1f1b", *given, "--set=batches=8", "--reproducible"]


def by_the_command(path, axes=AXES, *more):
    subprocess.run([PROGRAM, *words(axes), "-o", path, *more], check=True, capture_output=True)
    return pathlib.Path(path).read_text()


class Executors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = list(penstock.sweep("small-1f1b", over=AXES, batches=8))
        assert len(cls.rows) == 200

    def test_threads(self):
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            self.assertEqual(list(penstock.sweep("small-1f1b", over=AXES, batches=8, executor=executor)), self.rows)

    def test_tasks_end_with_their_time_and_the_rest_of_their_points_is_another(self):
        tasks = []

        class Counting(concurrent.futures.ThreadPoolExecutor):
            def submit(self, function, recipe, items):
                tasks.append(len(items))
                return super().submit(function, recipe, items)

        with unittest.mock.patch("penstock.elsewhere._TASK_S", 0), Counting(2) as executor:
            rows = penstock.sweep("small-1f1b", over=AXES, batches=8, executor=executor)
        self.assertEqual(list(rows), self.rows)
        self.assertEqual(len(tasks), 200)  # a point is the least

    def test_processes_also_for_scenarios_that_are_no_files(self):
        import yaml
        scenario = yaml.safe_load((ROOT / "scenarios/small-1f1b.yaml").read_text())
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
            rows = penstock.sweep(scenario, over=AXES, batches=8, executor=executor)
        self.assertEqual(list(rows), self.rows)

    def test_what_is_wrong_with_points_is_in_their_rows(self):
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            rows = penstock.sweep("small-1f1b", over={"stages": [4, 5]}, executor=executor)
        self.assertEqual([row["status"] for row in rows], ["ok", "refused"])

    def test_what_is_wrong_with_the_sweep_is_an_exception(self):
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            with self.assertRaises(penstock.InputError) as raised:
                penstock.sweep("small-1f1b", over={"stagez": [4, 5]}, executor=executor)
            self.assertEqual(raised.exception.suggestion, "stages")

    def test_a_task_that_fails_costs_the_point_that_is_the_reason(self):
        class Failing(concurrent.futures.ThreadPoolExecutor):
            def submit(self, function, recipe, items):
                def task():
                    if (17).to_bytes(8, "little") in items:
                        raise MemoryError("too large")
                    return function(recipe, items)
                return super().submit(task)

        with Failing(2) as executor:
            rows = penstock.sweep("small-1f1b", over=AXES, batches=8, executor=executor)
        self.assertEqual([row for row in rows if row["point"] != 17],
                         [row for row in self.rows if row["point"] != 17])
        self.assertEqual((rows[17]["status"], rows[17]["why"]), ("failed", "MemoryError: too large"))

    def test_a_pool_that_breaks_leaves_whole_rows_to_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = by_the_command(f"{folder}/whole.csv")
            path = f"{folder}/rows.csv"
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
                executor.submit(os.getpid).result()
                tasks = []

                def submit(*arguments, to=executor.submit):
                    tasks.append(1)
                    if len(tasks) == 5:
                        os.kill(list(executor._processes)[0], signal.SIGKILL)
                    return to(*arguments)

                executor.submit = submit
                with self.assertRaisesRegex(penstock.errors.SystemError, "executor broke"):
                    penstock.sweep("small-1f1b", over=AXES, batches=8, reproducible=True, executor=executor, output=path)
            part = pathlib.Path(path).read_text()
            self.assertLess(len(part), len(whole))
            self.assertTrue(whole.startswith(part))
            with concurrent.futures.ThreadPoolExecutor(2) as executor:
                penstock.sweep("small-1f1b", over=AXES, batches=8, reproducible=True, executor=executor, output=path,
                               resume=True)
            self.assertEqual(pathlib.Path(path).read_text(), whole)

    def test_search_finds_the_same(self):
        options = dict(cluster="dgx-a100", batch=64, search="full", effort=60, time_limit=600, top=6)
        alone = penstock.plan("gpt-1.3b", **options)
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            together = penstock.plan("gpt-1.3b", executor=executor, **options)
        self.assertGreater(len(alone["plans"]), 2)
        self.assertEqual(together, alone)

    def test_command(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = by_the_command(f"{folder}/whole.csv")
            self.assertEqual(by_the_command(f"{folder}/rows.csv", AXES, "--on", "processes"), whole)

    def test_command_says_what_is_wrong(self):
        for where, why in (("cloud", "is none of dask://HOST:PORT"), ("pipes:77,78", "two open descriptors"),
                           ("pipes:x", "pipes:IN,OUT")):
            done = subprocess.run([PROGRAM, *words(), "--on", where], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(why, done.stderr)


class Dask(unittest.TestCase):
    """A scheduler and workers, as processes."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.processes = []
        self.addCleanup(self.end)
        scheduler = self.start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.address = self.said(scheduler, r"Scheduler at: *tcp://([0-9.:]+)")

    def start(self, module, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments], stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL, text=True, cwd=self.folder.name)
        self.processes.append(process)
        return process

    @staticmethod
    def forget(process):
        for _ in process.stderr:
            pass

    def said(self, process, pattern):
        for line in process.stderr:
            found = re.search(pattern, line)
            if found:
                threading.Thread(target=self.forget, args=[process], daemon=True).start()
                return found[1]
        self.fail(f"{process.args} never said {pattern}")

    def worker(self):
        worker = self.start("dask_worker", f"tcp://{self.address}", "--nthreads", "1", "--no-nanny",
                            "--no-dashboard", "--local-directory", self.folder.name)
        self.said(worker, r"(Registered) to")
        return worker

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def test_workers_come_and_go(self):
        axes = {"microbatches": range(4, 504), "stages": [2, 4]}
        whole = by_the_command(f"{self.folder.name}/whole.csv", axes)
        first = self.worker()
        path = pathlib.Path(self.folder.name, "rows.csv")
        sweep = subprocess.Popen([PROGRAM, *words(axes), "-o", path, "--on", f"dask://{self.address}"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.processes.append(sweep)
        while not path.exists() or path.stat().st_size < len(whole) / 20:
            self.assertIsNone(sweep.poll(), "ended early")
            time.sleep(0.05)
        self.worker()
        first.kill()
        self.assertIsNone(sweep.poll(), "was over before a worker was lost")
        _, said = sweep.communicate()
        self.assertEqual(sweep.returncode, 0, said)
        self.assertEqual(path.read_text(), whole)

    def test_executor(self):
        import distributed
        self.worker()
        with distributed.Client(f"tcp://{self.address}", set_as_default=False) as client:
            rows = penstock.sweep("small-1f1b", over={"stages": [2, 4]}, executor=client.get_executor())
        self.assertEqual([row["stages"] for row in rows], [2, 4])

    def test_no_scheduler(self):
        done = subprocess.run([PROGRAM, *words(), "--on", "dask://127.0.0.1:1"], capture_output=True, text=True,
                              env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("dask://127.0.0.1:1", done.stderr)


SCRIPT = """
import sys, penstock
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        penstock.sweep("small-1f1b", over={"microbatches": range(4, 104), "stages": [2, 4]}, batches=8,
                       reproducible=True, executor=executor, output=sys.argv[1], shard="1/1")
"""


class Mpi(unittest.TestCase):
    """Ranks of mpirun: the first hands out, the others compute."""

    def test_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = by_the_command(f"{folder}/whole.csv")
            path = pathlib.Path(folder, "run.py")
            path.write_text(SCRIPT)
            subprocess.run(["mpirun", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures", path,
                            f"{folder}/rows.csv"], check=True, timeout=250,
                           env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
            self.assertEqual(pathlib.Path(folder, "rows.csv").read_text(), whole)


if __name__ == "__main__":
    unittest.main()
