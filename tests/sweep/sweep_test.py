#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`penstock sweep` as its users run it: rows, errors, files that are interrupted and resumed, tables.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE. One class of cases may be named as an argument.
"""

import contextlib
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

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase, of_penstock

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
SMALL = "scenarios/small-1f1b.yaml"
REAL = "scenarios/gpt-2.2b-flush.yaml"
WITH_SQLITE = bool(os.environ.get("PENSTOCK_WITH_SQLITE"))
ENVIRONMENT = of_penstock(TERM="xterm")
ENVIRONMENT.pop("NO_COLOR", None)
AXES = ["--over", "stages=1,2,3,4", "--over", "microbatches=1:8", "--engine", "exact"]


class Case(CommandCase):
    COMMAND = ("sweep",)
    ENVIRONMENT = ENVIRONMENT

    def file(self, name):
        return str(self.folder / name)


run = Case.run_command


class Rows(Case):
    def test_a_row_is_what_simulate_says(self):
        rows = list(csv.DictReader(io.StringIO(self.ok(
            REAL, "--over", "pipeline.microbatches=4,8", "--over",
            "recompute=none,full,[full,full,none,none,none,none,none,none]", "--engine", "exact",
            "--format", "csv"))))
        self.assertEqual([r["point"] for r in rows], ["0", "1", "2", "3", "4", "5"])
        by_stage = float(rows[2]["makespan_s"])
        self.assertLess(float(rows[0]["makespan_s"]), by_stage)
        self.assertLess(by_stage, float(rows[1]["makespan_s"]))
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

    def test_a_job_that_names_no_software_has_the_usual_one(self):
        job = pathlib.Path(self.file("job.yaml"))
        job.write_text("model: llama-3-8b\ncluster: {base: dgx-h100, nodes: 2}\nschedule: 1f1b\n"
                       "pipeline: {stages: 2, tensor: 8, microbatches: 8}\n")
        rows = [json.loads(line) for line in self.ok(str(job), "--over", "stack=megatron,nanotron", "--over", "microbatches=8,16",
                                                     "--format", "json").splitlines()]
        usual = [json.loads(line) for line in self.ok(str(job), "--over", "microbatches=8,16", "--format", "json").splitlines()]
        self.assertEqual(["ok", "ok"], [row["status"] for row in usual])
        self.assertEqual([row["makespan_s"] for row in rows[:2]], [row["makespan_s"] for row in usual])

    def test_both_engines_in_one_sweep(self):
        rows = [json.loads(line) for line in self.ok(
            SMALL, "scenarios/perturbed-links.yaml", "--over", "microbatches=2,4", "--format",
            "json").splitlines()]
        self.assertEqual([r["engine"] for r in rows], ["exact", "exact", "fluid", "fluid"])
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
                (["--over", "stages=1,2", "--shard", "3/2"], "expected K/N"),
                (["--over", "stages=1,2", "--jobs", "none"], "must be a number >= 1"),
                (["--over", "stages=1,2", "--jobs", "99999"], "must be at most 1024"),
                ([SMALL, "--over", "stages=1,2"], "is given twice"),
                (["--over", "stages=1,2", "--report", "no/where/x.html"], "there is no folder"),
                (["--over", "stages=1,2", "--set", "stages=3"], "is also an axis"),
                (["--over", "stages=1:1000", "--over", "width=1:1000", "--over",
                  "microbatches=1:1001"], "more than a billion points")]:
            self.assertIn(said, self.refused(SMALL, *arguments))
        self.assertIn("cannot be read", self.refused("nowhere.yaml", "--over", "stages=1,2"))

    def test_a_value_that_no_point_can_take_is_said_before_anything_runs(self):
        for arguments, said in [
                (["--over", "schedule=gpipe,gpippe"],
                 "--over schedule=gpippe: unknown schedule 'gpippe'; did you mean 'gpipe'?"),
                (["--over", "stages=2,four"],
                 "--over pipeline.stages=four: 'stages' must be an integer >= 1, got 'four'"),
                (["--over", "recompute=none,ful"], "did you mean 'full'?"),
                (["--over", "model=gpt-1.3b,gpt-1.3"], "did you mean 'gpt-1.3b'?"),
                (["--over", "model.forward=1ms,2 KB"], "must be a time"),
                (["--over", "stages=1,2", "--over", "cluster.device=A100-4"], "did you mean 'a100-40'"),
                (["--over", "stages=2,4", "--over", "split=[1,2],[2,x]", "--zip", "stages,split"], "'x'"),
                (["--over", "stages=1,2", "--set", "schedule=gpippe"],
                 "--set schedule=gpippe: unknown schedule 'gpippe'; did you mean 'gpipe'?"),
                (["--over", "schedule=gpipe,no/where.csv"], "does not exist")]:
            self.assertIn(said, self.refused(SMALL, *arguments, "--engine", "exact"))
        both = self.refused(SMALL, "--over", "schedule=gpipe,gpippe", "--over", "stages=2,four")
        self.assertIn("gpippe", both)
        self.assertIn("four", both)

    def test_what_is_wrong_with_a_scenario_is_said_once(self):
        own = self.folder / "own.yaml"
        own.write_text((SOURCE / SMALL).read_text().replace("schedule: 1f1b", "schedule: 1f1bb"))
        self.assertIn("own.yaml:", self.refused(str(own), "--over", "stages=1,2"))
        self.ok(str(own), "--over", "schedule=1f1b,gpipe", "--engine", "exact")

    def test_values_that_one_of_the_scenarios_can_take_are_rows(self):
        (self.folder / "model.yaml").write_text("forward: 1 ms\nbackward: 2 ms\n")
        (self.folder / "own.yaml").write_text((SOURCE / SMALL).read_text())
        rows = list(csv.DictReader(io.StringIO(self.ok(
            SMALL, self.file("own.yaml"), "--over", "model=model.yaml", "--engine", "exact",
            "--format", "csv"))))
        self.assertEqual([row["status"] for row in rows], ["refused", "ok"])
        self.assertIn("does not exist", rows[0]["why"])

    def test_the_condition_is_shown_with_a_caret(self):
        self.assertIn("\n   1 | stages*widht==64\n     |        ^~~~~",
                      self.refused(SMALL, "--over", "stages=1,2", "--where", "stages*widht==64"))


    def test_points_that_fail_are_rows_and_the_exit_code_is_0(self):
        # 26 million ops take seconds, a refusal milliseconds.
        done = run(SMALL, "--over", "microbatches=3000000", "--over", "stages=4,65536",
                   "--timeout", "0.5", "--engine", "exact", "-o", self.file("rows.csv"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 refused (because: ", done.stderr)
        self.assertIn("1 failed (because: took more than 0.5 s)", done.stderr)
        self.assertIn("--resume tries again what failed", done.stderr)
        help_text = self.ok("--help")
        shown = next(line for line in help_text.splitlines() if "grep" in line)
        self.assertIn("the exit code is 0", shown)
        found = subprocess.run(shown.split("#")[0].replace("sweep.csv", self.file("rows.csv")),
                               shell=True, text=True, capture_output=True, check=True).stdout
        self.assertEqual([line.split(",")[0] for line in found.splitlines()], ["0", "1"])


class Files(Case):
    def test_a_row_that_was_changed_is_not_resumed_from(self):
        """One digit of a time, which still reads as a number."""
        for name in ("rows.csv", "rows.jsonl") + (("rows.sqlite",) if WITH_SQLITE else ()):
            with self.subTest(name):
                target = self.file(name)
                self.ok(SMALL, *AXES, "-o", target)
                if name == "rows.sqlite":
                    with contextlib.closing(sqlite3.connect(target)) as base, base:
                        base.execute("UPDATE sweep SET makespan_s = makespan_s * 1.5 WHERE point = 7")
                else:
                    path = pathlib.Path(target)
                    lines = path.read_text().splitlines(keepends=True)
                    at = 7 + (name == "rows.csv")
                    digit = max(i for i, c in enumerate(lines[at][:-20]) if c in "12345678")
                    lines[at] = (lines[at][:digit] + str(int(lines[at][digit]) + 1) +
                                 lines[at][digit + 1:])
                    path.write_text("".join(lines))
                changed = pathlib.Path(target).read_bytes()
                done = run(SMALL, *AXES, "-o", target, "--resume")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, "changed after it was written")
                self.assertEqual(pathlib.Path(target).read_bytes(), changed)

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

    # numbers as such, also with zeros behind them; truth; nothing; lists and units as text
    TYPES = [SMALL, "--over", "model.forward=1 s,2 s", "--over", "pipeline.correction=true,false",
             "--over", "stages=2,65536", "--set", "schedule=pipemare", "--over",
             "batches=1", "--over", "tensor=1", "--engine", "exact"]

    def test_lines_have_the_types_of_json(self):
        self.ok(*self.TYPES, "-o", self.file("rows.jsonl"))
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual({(row["status"], row["why"] is None) for row in rows},
                         {("ok", True), ("refused", False)})
        self.assertEqual([row["forward"] for row in rows[::4]], ["1 s", "2 s"])
        self.assertEqual([row["correction"] for row in rows[:4]], [True, True, False, False])
        for row in rows:
            self.assertIs(type(row["stages"]), int)
            there = row["status"] == "ok"
            self.assertIs(type(row["width"]), int if there else type(None))
            self.assertIs(type(row["schedule"]), str if there else type(None))
            self.assertIn(type(row["makespan_s"]), (int, float) if there else (type(None),))
            self.assertIsNone(row["mfu"])

    @unittest.skipUnless(WITH_SQLITE, "built without SQLite")
    def test_columns_of_a_database_have_types(self):
        self.ok(*self.TYPES, "-o", self.file("rows.sqlite"))
        base = sqlite3.connect(self.file("rows.sqlite"))
        self.addCleanup(base.close)
        declared = {row[1]: row[2] for row in base.execute("PRAGMA table_info(sweep)")}
        self.assertEqual([declared[name] for name in (
            "point", "scenario", "stages", "width", "ops", "peak_memory_bytes", "makespan_s",
            "status")], ["INTEGER", "TEXT", "NUMERIC", "NUMERIC", "INTEGER", "INTEGER", "REAL",
                         "TEXT"])
        types = base.execute("SELECT DISTINCT status, typeof(stages), typeof(width), typeof(ops), "
                             "typeof(makespan_s), typeof(mfu), typeof(why) FROM sweep ORDER BY 1")
        self.assertEqual(types.fetchall(), [
            ("ok", "integer", "integer", "integer", "real", "null", "null"),
            ("refused", "integer", "null", "null", "null", "null", "text")])

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

    def written(self, name, text):
        (self.folder / name).write_text(text)
        return self.file(name)

    def test_a_changed_file_that_the_scenario_names_is_another_sweep(self):
        self.written("base.yaml", "forward: 1 ms\nbackward: 2 ms\n")
        self.written("model.yaml", "base: base.yaml\noutput: 1 MiB\n")
        self.written("device.yaml", "base: A100-40\n")
        self.written("cluster.yaml", "devices: 2\ndevice: device.yaml\n")
        self.written("order.csv", "0F0,0B0\n")
        own = self.written("own.yaml", "model: model.yaml\ncluster: cluster.yaml\n"
                           "schedule: gpipe\npipeline: {stages: 1, microbatches: 1}\n")
        axes = ["--over", "schedule=gpipe," + self.file("order.csv"), "--over",
                "transfers=free,blocking", "--engine", "exact"]
        self.ok(own, *axes, "-o", self.file("rows.csv"))
        before = (self.folder / "rows.csv").read_bytes()
        self.ok(own, *axes, "-o", self.file("rows.csv"), "--resume")
        for name in ("base.yaml", "model.yaml", "device.yaml", "cluster.yaml", "order.csv"):
            text = (self.folder / name).read_text()
            self.written(name, text + "\n")
            said = self.refused(own, *axes, "-o", self.file("rows.csv"), "--resume")
            self.assertIn(name + " has been changed since", said)
            self.written(name, text)
        self.ok(own, *axes, "-o", self.file("rows.csv"), "--resume")
        self.assertEqual((self.folder / "rows.csv").read_bytes(), before)

    def test_errors_name_the_file_that_was_given(self):
        rows = self.file("rows.csv")
        os.mkdir(rows + ".sweep")
        for how in ([], ["--resume"]):
            done = run(SMALL, *AXES, "-o", rows, *how)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn(f"'{rows}'", done.stderr.split(":")[1])
        os.rmdir(rows + ".sweep")
        self.ok(SMALL, *AXES, "-o", rows, "--force")
        self.written("rows.csv.sweep", "what?")
        self.assertIn(f"{rows}: does not say what sweep",
                      self.refused(SMALL, *AXES, "-o", rows, "--resume"))

    def test_a_link_is_followed(self):
        link, target = self.folder / "link.csv", self.folder / "target.csv"
        link.symlink_to("target.csv")
        self.ok(SMALL, *AXES, "-o", str(link))
        self.assertTrue(link.is_symlink())
        self.assertEqual(target.read_text(), self.ok(SMALL, *AXES, "--format", "csv"))
        self.ok(SMALL, *AXES, "-o", str(link), "--resume")
        link.unlink()
        link.symlink_to("no/where.csv")
        done = run(SMALL, *AXES, "-o", str(link), "--force")
        self.assertIn(f"cannot write '{link}': No such file", done.stderr)

    @unittest.skipUnless(WITH_SQLITE, "built without SQLite")
    def test_a_foreign_database_is_left_alone(self):
        base = sqlite3.connect(self.file("mine.sqlite"))
        base.execute("CREATE TABLE photos (name TEXT)")
        base.commit()
        base.close()
        before = (self.folder / "mine.sqlite").read_bytes()
        said = self.refused(SMALL, *AXES, "-o", self.file("mine.sqlite"), "--resume")
        self.assertIn("mine.sqlite: is not the output of a sweep but a database with the table "
                      "photos; --force replaces it", said)
        self.assertEqual((self.folder / "mine.sqlite").read_bytes(), before)
        base = sqlite3.connect(self.file("view.sqlite"))
        base.execute("CREATE TABLE sweep_manifest (manifest TEXT)")
        base.execute("CREATE VIEW sweep AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n")
        base.commit()
        base.close()
        said = self.refused(SMALL, *AXES, "-o", self.file("view.sqlite"), "--resume")
        self.assertIn("view.sqlite: is not the output of a sweep: it has the view or trigger sweep; --force", said)
        (self.folder / "view.sqlite").unlink()
        text = self.written("text.sqlite", "no database at all\n" * 100)
        self.assertIn("not a database", self.refused(SMALL, *AXES, "-o", text, "--resume"))
        self.assertEqual(pathlib.Path(text).read_text(), "no database at all\n" * 100)
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_foreign_lines_are_left_alone(self):
        for name, text in [("mine.csv", "a,b\n1,2\n"), ("mine.jsonl", '{"a": 1}\n')]:
            mine = self.written(name, text)
            self.assertIn("is not the output of a sweep",
                          self.refused(SMALL, *AXES, "-o", mine, "--resume"))
            self.assertEqual(pathlib.Path(mine).read_text(), text)

    def test_a_target_that_cannot_be_written(self):
        done = run(SMALL, *AXES, "-o", self.file("no/where/rows.csv"))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--output: there is no folder", done.stderr)

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

    @unittest.skipUnless(WITH_SQLITE, "built without SQLite")
    def test_a_database_that_another_sweep_writes_is_left_alone(self):
        rows = self.file("rows.sqlite")
        self.ok(SMALL, *AXES, "-o", rows)
        before = pathlib.Path(rows).read_bytes()
        with open(rows, "rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            for how in ("--force", "--resume"):
                done = run(SMALL, *AXES, "-o", rows, how)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertIn("another sweep is writing it", done.stderr)
        self.assertEqual(pathlib.Path(rows).read_bytes(), before)
        self.ok(SMALL, *AXES, "-o", rows, "--force")
        base = sqlite3.connect(rows)
        self.addCleanup(base.close)
        self.assertEqual(base.execute("SELECT count(*) FROM sweep").fetchone(), (32,))

    @unittest.skipUnless(WITH_SQLITE, "built without SQLite")
    def test_a_folder_is_not_replaced_by_a_database(self):
        os.mkdir(self.file("rows.sqlite"))
        done = run(SMALL, *AXES, "-o", self.file("rows.sqlite"), "--force")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertTrue(os.path.isdir(self.file("rows.sqlite")))

    def test_a_sweep_that_was_ended_before_its_first_row_is_resumed(self):
        for name in ("rows.csv", "rows.jsonl"):
            rows = self.file(name)
            self.ok(SMALL, *AXES, "-o", rows)
            whole = pathlib.Path(rows).read_bytes()
            header = whole[:whole.index(b"\n") + 1] if name == "rows.csv" else b""
            for left in (b"", header[:5], header):
                pathlib.Path(rows).write_bytes(left)
                os.unlink(rows + ".sweep")
                self.ok(SMALL, *AXES, "-o", rows, "--resume")
                self.assertEqual(pathlib.Path(rows).read_bytes(), whole)

    def test_messages_never_get_into_the_rows(self):
        for closed in ((2,), (0, 2), (0, 1, 2)):
            rows = self.file("rows%d.csv" % len(closed))
            command = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
            subprocess.run(["bash", "-c", f'"$0" "$@" {command}', BINARY, "sweep", SMALL, *AXES,
                            "-o", rows], cwd=SOURCE, env=ENVIRONMENT, timeout=100,
                           capture_output=True)
            self.assertEqual(pathlib.Path(rows).read_text(), self.ok(SMALL, *AXES, "--format", "csv"))

    def test_rows_that_somebody_takes_away_are_not_counted(self):
        ends = {"rm rows%s": "was deleted", "touch other; mv -f other rows%s": "was replaced"}
        for kind in (".csv", ".jsonl", ".sqlite")[:3 if WITH_SQLITE else 2]:
            cut = {} if kind == ".sqlite" else {": > rows%s": "was changed"}
            for how, what in (ends | cut).items():
                rows = self.folder / ("rows" + kind)
                process = subprocess.Popen(
                    [BINARY, "sweep", SMALL, "--over", "stages=1,2,3,4", "--over",
                     "microbatches=1:20000", "--engine", "exact", "-o", str(rows), "--force"],
                    cwd=SOURCE, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
                while process.poll() is None and not (rows.exists() and rows.stat().st_size > 20000):
                    pass
                subprocess.run(["bash", "-c", how.replace("%s", kind)], cwd=self.folder)
                process.send_signal(signal.SIGTERM)
                said = process.communicate(timeout=100)[1]
                self.assertEqual(process.returncode, 1, (kind, how, said))
                self.assertIn(what, said)
                self.assertNotIn("are whole", said)

    def test_a_target_that_cannot_be_replaced_keeps_its_manifest(self):
        os.mkdir(self.file("rows.csv"))
        done = run(SMALL, *AXES, "-o", self.file("rows.csv"), "--force")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertFalse(os.path.exists(self.file("rows.csv.sweep")))

    def test_a_scenario_is_called_the_same_whatever_becomes_of_its_points(self):
        copy = self.folder / "copy.yaml"
        copy.write_text(pathlib.Path(SOURCE, SMALL).read_text())
        axis = ["--over", "stages=1,65536", "--engine", "exact", "--format", "csv"]
        one = list(csv.DictReader(io.StringIO(self.ok(SMALL, *axis))))
        self.assertEqual([row["status"] for row in one], ["ok", "refused"])
        self.assertEqual({row["scenario"] for row in one}, {"small 1f1b"})
        both = list(csv.DictReader(io.StringIO(self.ok(SMALL, str(copy), *axis))))
        self.assertEqual([row["scenario"] for row in both], 2 * [SMALL] + 2 * [str(copy)])

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
            "batches=1:3" if os.environ.get("PENSTOCK_SANITIZED") else "batches=1:12", "--engine",
            "exact", "--jobs", "2"]

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


class Edited(Case):
    """What is edited while a sweep runs changes nothing."""

    MODELS = {"fast.yaml": "forward: 1 ms\nbackward: 2 ms\n",
              "slow.yaml": "forward: 2 ms\nbackward: 4 ms\n"}
    AXES = ["--over", "model=fast.yaml,slow.yaml", "--over", "microbatches=1:2000", "--jobs", "2",
            "--engine", "exact", "--format", "csv"]

    def setUp(self):
        super().setUp()
        for name, text in self.MODELS.items():
            (self.folder / name).write_text(text)
        (self.folder / "own.yaml").write_text(
            "model: fast.yaml\nschedule: gpipe\npipeline: {stages: 1, microbatches: 1}\n")

    def start(self, **environment):
        return subprocess.Popen([BINARY, "sweep", "own.yaml", *self.AXES], cwd=self.folder,
                                env=ENVIRONMENT | environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def test_files_that_only_later_points_name_are_those_of_the_beginning(self):
        whole, errors = self.start().communicate(timeout=200)
        self.assertEqual(whole.count("\n"), 4001, errors)
        process = self.start()
        begin = process.stdout.readline() + process.stdout.readline()  # it runs, held by the pipe
        (self.folder / "slow.yaml").unlink()
        (self.folder / "own.yaml").write_text("nonsense: 1\n")
        self.assert_ends_as(process, begin, whole)

    def assert_ends_as(self, process, begin, whole):
        rows = begin + process.stdout.read()
        errors = process.communicate(timeout=200)[1]
        self.assertEqual(process.returncode, 0, errors)
        self.assertTrue(rows == whole, errors)


class Tables(Case):
    def test_the_table_has_the_best_a_heat_map_and_a_line_per_axis(self):
        out = self.ok(SMALL, *AXES, "--top", "3")
        lines = out.splitlines()
        self.assertEqual(lines[0].split()[:3], ["stages", "microbatches", "batch"])
        rates = [float(line.split()[3]) for line in lines[1:4]]
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

    def test_columns_may_be_called_as_the_table_calls_them(self):
        usual = self.ok(SMALL, *AXES).splitlines()[0].split()
        self.assertEqual(usual[2:], ["batch", "GPUs", "samples/s", "iteration", "bubble", "mfu", "peak"])
        for header in usual:
            self.ok(SMALL, *AXES, "--sort", header, "--columns", header)
        self.assertEqual(
            self.ok(SMALL, *AXES, "--sort", "iteration", "--columns", "peak,iteration"),
            self.ok(SMALL, *AXES, "--sort", "iteration_time_s", "--columns",
                    "peak_memory_bytes,iteration_time_s"))
        self.assertIn("did you mean 'peak'?", self.refused(SMALL, *AXES, "--sort", "paek"))
        self.assertIn("did you mean 'samples/s'?",
                      self.refused(SMALL, *AXES, "--columns", "sample/s"))

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
