#!/usr/bin/env python3
"""`penstock sweep` as its users run it: rows, errors, files that are interrupted and resumed, tables.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE. One class of cases may be named as an argument.
"""

import csv
import fcntl
import io
import json
import os
import pathlib
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
SMALL = "scenarios/small-1f1b.yaml"
REAL = "scenarios/gpt-2.2b-flush.yaml"
WITH_SQLITE = bool(os.environ.get("PENSTOCK_WITH_SQLITE"))
# Ranks are those of the sweep's own tests; LeakSanitizer crashes in short-lived processes.
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if k != "NO_COLOR" and not k.startswith(("SLURM_", "OMPI_", "PMI_"))} | {
    "ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_HOME": str(SOURCE), "LC_ALL": "C.UTF-8",
    "TERM": "xterm"}
AXES = ["--over", "stages=1,2,3,4", "--over", "microbatches=1:8", "--engine", "exact"]


def run(*arguments, **options):
    return subprocess.run([BINARY, "sweep", *arguments], cwd=SOURCE, env=ENVIRONMENT, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=200, **options)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-sweep-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def ok(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, *arguments):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        return done.stderr

    def file(self, name):
        return str(self.folder / name)


class Rows(Case):
    def test_a_row_is_what_simulate_says(self):
        rows = list(csv.DictReader(io.StringIO(self.ok(
            REAL, "--over", "pipeline.microbatches=4,8", "--over", "recompute=none,full",
            "--engine", "exact", "--format", "csv"))))
        self.assertEqual([r["point"] for r in rows], ["0", "1", "2", "3"])
        for row in rows:
            alone = subprocess.run(
                [BINARY, "simulate", REAL, "--set", f"microbatches={row['microbatches']}", "--set",
                 f"recompute={row['recompute']}", "--engine", "exact", "--format", "csv"],
                cwd=SOURCE, env=ENVIRONMENT, text=True, capture_output=True, timeout=100)
            expected = next(csv.DictReader(io.StringIO(alone.stdout)))
            compared = 0
            for column, value in expected.items():
                if column not in row:
                    continue
                compared += 1
                try:
                    self.assertEqual(float(row[column]), float(value), column)
                except ValueError:
                    self.assertEqual(row[column], value, column)
            self.assertGreater(compared, 25)
            self.assertEqual(row["status"], "ok" if expected["feasible"] == "true" else "infeasible")
            self.assertEqual(row["why"], expected["infeasible_because"])

    def test_both_engines_in_one_sweep(self):
        rows = [json.loads(line) for line in self.ok(
            SMALL, "scenarios/perturbed-links.yaml", "--over", "microbatches=2,4", "--format",
            "json").splitlines()]
        self.assertEqual([r["engine"] for r in rows], ["exact", "exact", "simgrid", "simgrid"])
        self.assertEqual([r["status"] for r in rows], ["ok"] * 4)

    def test_points_that_cannot_be_simulated_are_rows_with_their_reason(self):
        rows = list(csv.DictReader(io.StringIO(self.ok(
            REAL, "--over", "stages=5,8", "--format", "csv", "--engine", "exact"))))
        self.assertEqual(rows[0]["status"], "refused")
        self.assertIn("do not divide evenly", rows[0]["why"])
        self.assertEqual(rows[0]["makespan_s"], "")
        self.assertNotEqual(rows[1]["status"], "refused")

    def test_conditions_and_zips_choose(self):
        out = self.ok(SMALL, "--over", "stages=1:8", "--over", "microbatches=1:8", "--where",
                      "stages*microbatches == 8", "--format", "csv")
        pairs = [(r["stages"], r["microbatches"]) for r in csv.DictReader(io.StringIO(out))]
        self.assertEqual(pairs, [("1", "8"), ("2", "4"), ("4", "2"), ("8", "1")])
        out = self.ok(SMALL, "--over", "stages=2,4", "--over", "microbatches=4,8", "--zip",
                      "stages,microbatches", "--format", "csv")
        pairs = [(r["stages"], r["microbatches"]) for r in csv.DictReader(io.StringIO(out))]
        self.assertEqual(pairs, [("2", "4"), ("4", "8")])

    def test_shards_make_the_whole(self):
        whole = self.ok(SMALL, *AXES, "--format", "csv").splitlines()
        parts = [self.ok(SMALL, *AXES, "--format", "csv", "--shard", f"{k}/3").splitlines()
                 for k in range(3)]
        self.assertEqual({p[0] for p in parts}, {whole[0]})
        rows = sorted((line for p in parts for line in p[1:]), key=lambda r: int(r.split(",")[0]))
        self.assertEqual(rows, whole[1:])

    def test_the_number_of_workers_changes_nothing(self):
        self.assertEqual(self.ok(SMALL, *AXES, "--jobs", "1", "--format", "json"),
                         self.ok(SMALL, *AXES, "--jobs", "3", "--format", "json"))


class Usage(Case):
    def test_what_is_wrong_is_said_with_what_is_allowed(self):
        for arguments, said in [
                ([], "there is nothing to vary"),
                (["--over", "stagse=1,2"], "did you mean 'stages'"),
                (["--over", "stages=1,2", "--where", "stages = 2"], "a comparison is written '=='"),
                (["--over", "stages=1,2", "--where", "stages > 2"], "no point is left of 2"),
                (["--over", "stages=1,2", "-o", "x.cvs"], "did you mean '.csv'"),
                (["--over", "stages=1,2", "--resume"], "needs a file"),
                (["--over", "stages=1,2", "-o", "x.csv", "--resume", "--force"], "give one of them"),
                (["--over", "stages=1,2", "-o", "x.csv", "--format", "json"], "is its extension"),
                (["--over", "stages=1,2", "--format", "csv", "--top", "3"], "shapes the table"),
                (["--over", "stages=1,2", "--sort", "throughputs"], "there is no column"),
                (["--over", "stages=1,2", "--columns", "stagse"], "did you mean 'stages'"),
                (["--over", "stages=1,2", "--shard", "2/2"], "expected K/N"),
                (["--over", "stages=1,2", "--jobs", "none"], "must be a number >= 1"),
                (["--over", "stages=1,2", "--jobs", "99999"], "must be at most 1024"),
                ([SMALL, "--over", "stages=1,2"], "is given twice"),
                (["--over", "stages=1,2", "--report", "no/where/x.html"], "there is no folder"),
                (["--over", "stages=1,2", "--set", "stages=3"], "is also an axis"),
                (["--over", "stages=1:1000", "--over", "width=1:1000", "--over",
                  "microbatches=1:1001"], "more than a billion points")]:
            self.assertIn(said, self.refused(SMALL, *arguments))
        self.assertIn("cannot be read", self.refused("nowhere.yaml", "--over", "stages=1,2"))

    def test_the_condition_is_shown_with_a_caret(self):
        self.assertIn("\n   1 | stages*widht==64\n     |        ^~~~~",
                      self.refused(SMALL, "--over", "stages=1,2", "--where", "stages*widht==64"))


class Files(Case):
    def test_the_three_files_have_the_same_rows(self):
        names = ["rows.csv", "rows.jsonl"] + (["rows.sqlite"] if WITH_SQLITE else [])
        for name in names:
            self.ok(SMALL, *AXES, "-o", self.file(name))
        rows = list(csv.DictReader(io.StringIO((self.folder / "rows.csv").read_text())))
        lines = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual(len(rows), 32)
        for row, line in zip(rows, lines, strict=True):
            self.assertEqual(list(row), list(line))
            self.assertEqual(row["stages"], str(line["stages"]))
            self.assertEqual(float(row["makespan_s"]), line["makespan_s"])
        if WITH_SQLITE:
            base = sqlite3.connect(self.file("rows.sqlite"))
            self.addCleanup(base.close)
            found = base.execute("SELECT point, stages, makespan_s FROM sweep ORDER BY point")
            self.assertEqual([(int(r["point"]), int(r["stages"]), float(r["makespan_s"]))
                              for r in rows], found.fetchall())

    @unittest.skipIf(WITH_SQLITE, "built with SQLite")
    def test_without_sqlite_it_is_said(self):
        self.assertIn("without SQLite", self.refused(SMALL, *AXES, "-o", self.file("rows.sqlite")))

    def test_an_existing_file_needs_a_word(self):
        self.ok(SMALL, *AXES, "-o", self.file("rows.csv"))
        before = (self.folder / "rows.csv").read_bytes()
        self.assertIn("--resume continues", self.refused(SMALL, *AXES, "-o", self.file("rows.csv")))
        self.assertIn("the axis pipeline.stages was", self.refused(
            SMALL, "--over", "stages=1,2", "--over", "microbatches=1:8", "--engine", "exact", "-o",
            self.file("rows.csv"), "--resume"))
        self.ok(SMALL, *AXES, "-o", self.file("rows.csv"), "--resume")
        self.assertEqual((self.folder / "rows.csv").read_bytes(), before)
        self.ok(SMALL, *AXES, "-o", self.file("rows.csv"), "--force")
        self.assertEqual((self.folder / "rows.csv").read_bytes(), before)

    def test_a_changed_scenario_is_another_sweep(self):
        own = self.file("own.yaml")
        shutil.copy(SOURCE / SMALL, own)
        self.ok(own, *AXES, "-o", self.file("rows.csv"))
        with open(own, "a") as out:
            out.write("# changed\n")
        self.assertIn("has been changed since",
                      self.refused(own, *AXES, "-o", self.file("rows.csv"), "--resume"))

    def test_a_target_that_cannot_be_written(self):
        done = run(SMALL, *AXES, "-o", self.file("no/where/rows.csv"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("No such file or directory", done.stderr)

    @unittest.skipIf(os.geteuid() == 0 and not shutil.which("setpriv"), "root may write everywhere")
    def test_a_read_only_target(self):
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)
        command = [BINARY, "sweep", SMALL, *AXES, "-o", self.file("rows.csv")]
        if os.geteuid() == 0:
            command = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", *command]
        done = subprocess.run(command, cwd=SOURCE, env=ENVIRONMENT, text=True, capture_output=True,
                              timeout=100)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("Permission denied", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_file_that_another_sweep_writes_is_left_alone(self):
        self.ok(SMALL, *AXES, "-o", self.file("rows.csv"))
        before = (self.folder / "rows.csv").read_bytes()
        with open(self.file("rows.csv"), "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            for how in ("--force", "--resume"):
                done = run(SMALL, *AXES, "-o", self.file("rows.csv"), how)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertIn("another sweep is writing it", done.stderr)
        self.assertEqual((self.folder / "rows.csv").read_bytes(), before)

    def test_a_target_that_cannot_be_replaced_keeps_its_manifest(self):
        os.mkdir(self.file("rows.csv"))
        done = run(SMALL, *AXES, "-o", self.file("rows.csv"), "--force")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertFalse(os.path.exists(self.file("rows.csv.sweep")))

    def test_a_scenario_is_called_the_same_whatever_becomes_of_its_points(self):
        twin = self.folder / "twin.yaml"
        twin.write_text(pathlib.Path(SOURCE, SMALL).read_text())
        axis = ["--over", "stages=1,65536", "--engine", "exact", "--format", "csv"]
        one = list(csv.DictReader(io.StringIO(self.ok(SMALL, *axis))))
        self.assertEqual([row["status"] for row in one], ["ok", "refused"])
        self.assertEqual({row["scenario"] for row in one}, {"small 1f1b"})
        both = list(csv.DictReader(io.StringIO(self.ok(SMALL, str(twin), *axis))))
        self.assertEqual([row["scenario"] for row in both], 2 * [SMALL] + 2 * [str(twin)])

    def test_a_full_standard_output(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BINARY, "sweep", SMALL, *AXES, "--format", "csv"], cwd=SOURCE,
                                  env=ENVIRONMENT, text=True, stdout=full, stderr=subprocess.PIPE,
                                  timeout=100)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device", done.stderr)


class Interrupted(Case):
    """Whatever ends a sweep, --resume makes of it what an uninterrupted one writes."""

    # Long enough to be caught in the middle.
    LONG = [SMALL, "--over", "stages=1:16", "--over", "microbatches=64:1024:+64", "--over",
            "batches=1:12", "--engine", "exact", "--jobs", "2"]

    @classmethod
    def setUpClass(cls):
        cls.whole_folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-sweep-"))
        cls.addClassCleanup(shutil.rmtree, cls.whole_folder)
        done = run(*cls.LONG, "-o", str(cls.whole_folder / "whole.csv"))
        assert done.returncode == 0, done.stderr
        cls.whole = (cls.whole_folder / "whole.csv").read_bytes()

    def resumed(self, target):
        self.ok(*self.LONG, "-o", str(target), "--resume")
        self.assertEqual(target.read_bytes(), self.whole)
        self.assertEqual(sorted(p.name for p in target.parent.iterdir()),
                         [target.name, target.name + ".sweep"])

    def started(self, target, **options):
        """A sweep that has written rows and is not done."""
        process = subprocess.Popen([BINARY, "sweep", *self.LONG, "-o", str(target)], cwd=SOURCE,
                                   env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, **options)
        while process.poll() is None:
            if target.exists() and target.read_bytes().count(b"\n") > 1:
                break
        return process

    def test_ctrl_c_finishes_what_runs_and_says_how_to_go_on(self):
        target = self.folder / "rows.csv"
        process = self.started(target)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=100)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("the same command with --resume continues", said)
        self.assertTrue(target.read_bytes().endswith(b"\n"))
        self.assertTrue(self.whole.startswith(target.read_bytes()))
        self.assertLess(target.stat().st_size, len(self.whole))
        self.resumed(target)

    def test_kill_9_in_the_middle(self):
        target = self.folder / "rows.csv"
        process = self.started(target)
        process.kill()
        process.communicate(timeout=100)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertLess(target.stat().st_size, len(self.whole))
        self.resumed(target)

    def test_kill_9_twice(self):
        target = self.folder / "rows.csv"
        for more in ([], ["--resume"]):
            process = subprocess.Popen([BINARY, "sweep", *self.LONG, "-o", str(target), *more],
                                       cwd=SOURCE, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            before = target.stat().st_size if target.exists() else 0
            while process.poll() is None:
                if target.exists() and target.stat().st_size > before + 5000:
                    break
            process.kill()
            process.wait(timeout=100)
        self.resumed(target)

    def test_a_full_disk(self):
        target = self.folder / "rows.csv"
        limit = len(self.whole) // 2

        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = run(*self.LONG, "-o", str(target), preexec_fn=limited, restore_signals=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"cannot write '{target}': File too large", done.stderr)
        self.assertIn("with --resume continues", done.stderr)
        self.assertTrue(target.read_bytes().endswith(b"\n"))
        self.assertTrue(self.whole.startswith(target.read_bytes()))
        self.resumed(target)


class Tables(Case):
    def test_the_table_has_the_best_a_heat_map_and_a_line_per_axis(self):
        out = self.ok(SMALL, *AXES, "--top", "3")
        lines = out.splitlines()
        self.assertEqual(lines[0].split()[:3], ["stages", "microbatches", "samples/s"])
        rates = [float(line.split()[2]) for line in lines[1:4]]
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertEqual(lines[4], "")
        self.assertIn("samples/s by stages (down) and microbatches (across)", out)
        self.assertIn("█", out)
        self.assertLessEqual(max(map(len, lines)), 120)

    def test_sort_and_columns(self):
        out = self.ok(SMALL, *AXES, "--sort", "makespan_s:desc", "--columns", "point,makespan_s",
                      "--top", "2")
        self.assertEqual(out.splitlines()[0].split(), ["point", "makespan_s"])
        self.assertEqual(len(out.split("\n\n")[0].splitlines()), 3)

    def test_the_summary_counts_and_gives_the_reason(self):
        done = run(REAL, "--over", "stages=5,8", "--engine", "exact", "--reproducible")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"^2 points: \d ok.*1 refused \(because: .*do not divide")
        self.assertNotIn("points/s", done.stderr)

    def test_twice_the_same_is_the_same(self):
        first, second = (run(SMALL, *AXES, "--reproducible") for _ in range(2))
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual((first.stdout, first.stderr), (second.stdout, second.stderr))


if __name__ == "__main__":
    unittest.main()
