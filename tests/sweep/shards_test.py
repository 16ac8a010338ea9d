#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shards of a sweep, each in a process of its own as a job array or a launcher starts them, become
the file of the whole; the commands of docs/sweep.md do what it says.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE. One class of cases may be named as an argument.
"""

import contextlib
import csv
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase, of_penstock

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
SMALL = SOURCE / "scenarios/small-1f1b.yaml"
AXES = ["--over", "stages=1:4", "--over", "microbatches=1:16", "--engine", "exact"]
KINDS = ("csv", "jsonl", "sqlite") if os.environ.get("PENSTOCK_WITH_SQLITE") else ("csv", "jsonl")
RUN_BY_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Case(CommandCase):
    ENVIRONMENT = of_penstock()

    def file(self, name):
        return self.folder / name

    def whole(self, kind="csv", axes=AXES):
        self.ok("sweep", SMALL, *axes, "-o", self.file(f"whole.{kind}"))
        return self.content(f"whole.{kind}")

    def content(self, name):
        path = self.file(name)
        if path.suffix != ".sqlite":
            return path.read_bytes(), self.file(name + ".sweep").read_bytes()
        with contextlib.closing(sqlite3.connect(path)) as base:
            return "\n".join(base.iterdump())

    def parts(self, kind="csv"):
        return sorted(self.folder.glob(f"part-*.{kind}"))


class Merged(Case):
    def test_shards_become_the_file_of_the_whole(self):
        for kind in KINDS:
            for k in (1, 2, 3):
                self.ok("sweep", SMALL, *AXES, "--shard", f"{k}/3", "-o", self.file(f"part-%K.{kind}"))
            done = self.run_command("merge", *self.parts(kind), "-o", self.file(f"merged.{kind}"))
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (0, "", "64 rows of 3 shards\n"))
            self.assertEqual(self.content(f"merged.{kind}"), self.whole(kind))

    def test_numbers_keep_their_digits(self):
        axes = ["--set", "schedule=zb", "--over", "memory_limit=1.50,2.00,25e-1", "--over", "batches=1,2", "--engine",
                "exact"]
        for kind in KINDS:
            for k in (1, 2):
                self.ok("sweep", SMALL, *axes, "--shard", f"{k}/2", "-o", self.file(f"part-{k}.{kind}"))
            self.ok("merge", *self.parts(kind), "-o", self.file(f"merged.{kind}"))
            self.assertEqual(self.content(f"merged.{kind}"), self.whole(kind, axes))
        self.assertIn(b",2.00,", self.file("merged.csv").read_bytes())
        self.assertIn(b":2.00,", self.file("merged.jsonl").read_bytes())

    def test_points_that_a_condition_leaves_out_are_in_no_shard(self):
        axes = [*AXES, "--where", "stages*microbatches % 3 == 1"]
        for k in range(1, 6):
            self.ok("sweep", SMALL, *axes, "--shard", f"{k}/5", "-o", self.file("part-%K.csv"))
        self.ok("merge", *self.parts(), "-o", self.file("merged.csv"))
        self.assertEqual(self.content("merged.csv"), self.whole(axes=axes))

    def test_the_whole_is_continued_where_rows_failed(self):
        axes = ["--over", "microbatches=4,3000000", "--engine", "exact"]
        for k in (1, 2):
            self.ok("sweep", SMALL, *axes, "--timeout", "0.05", "--shard", f"{k}/2", "-o",
                    self.file("part-%K.csv"))
        done = self.run_command("merge", *self.parts(), "-o", self.file("merged.csv"))
        # The large point fails; on a busy machine the small one, too.
        rows = list(csv.DictReader(self.file("merged.csv").read_text().splitlines()))
        failed = [row["microbatches"] for row in rows if row["status"] == "failed"]
        self.assertIn("3000000", failed)
        self.assertIn(f"; {len(failed)} failed: the sweep's own command with --resume tries them again", done.stderr)
        self.ok("sweep", SMALL, *axes, "--resume", "-o", self.file("merged.csv"))
        self.assertNotIn(b",failed,", self.file("merged.csv").read_bytes())

    def test_what_is_missing_is_said(self):
        for k in (1, 2):
            self.ok("sweep", SMALL, *AXES, "--shard", f"{k}/3", "-o", self.file("part-%K.csv"))
        merge = ["merge", *self.parts(), "-o", self.file("merged.csv")]
        self.assertIn("no file has shard 3/3", self.refused(*merge))
        self.ok("sweep", SMALL, "--over", "stages=1:4", "--over", "microbatches=1:17", "--engine",
                "exact", "--shard", "3/3", "-o", self.file("part-3.csv"))
        self.assertIn("part-3.csv: is of another sweep than ",
                      self.refused(*merge[:3], self.file("part-3.csv"), *merge[3:]))
        self.assertIn("there is no such file", self.refused("merge", "nowhere.csv", "-o", "x.csv"))
        self.assertIn("needs a file to write", self.refused("merge", *self.parts()))
        self.file("mine.csv").write_text("a,b\n1,2\n")
        self.assertIn("is not the output of a sweep",
                      self.refused("merge", self.file("mine.csv"), "-o", self.file("merged.csv")))
        self.assertFalse(self.file("merged.csv").exists())

    def test_a_launcher_without_a_shard_is_an_error(self):
        ranks = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
        said = subprocess.run([BINARY, "sweep", SMALL, *AXES, "-o", self.file("rows.csv")],
                              env=self.ENVIRONMENT | ranks, text=True, capture_output=True)
        self.assertEqual(said.returncode, 2)
        self.assertIn("was started as one of 4 (OMPI_COMM_WORLD_RANK)", said.stderr)
        self.assertFalse(self.file("rows.csv").exists())
        said = subprocess.run([BINARY, "sweep", SMALL, *AXES, "--shard", "env", "-o",
                               self.file("rows.csv")],
                              env=self.ENVIRONMENT | ranks, text=True, capture_output=True)
        self.assertEqual(said.returncode, 2)
        self.assertIn("is one file for all shards; %K in its name", said.stderr)


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun (Open MPI) here")
class Mpirun(Case):
    # Long enough to be caught in the middle.
    LONG = ["--over", "stages=1:16", "--over", "microbatches=64:1024:+64", "--over",
            "batches=1:3" if os.environ.get("PENSTOCK_SANITIZED") else "batches=1:8", "--engine", "exact"]

    def mpirun(self, axes, **options):
        return subprocess.Popen(
            ["mpirun", "-np", "2", "--oversubscribe", BINARY, "sweep", SMALL, *axes, "--jobs", "1",
             "--shard", "env", "-o", "part-%K.csv", "--resume"],
            cwd=self.folder, env=self.ENVIRONMENT | RUN_BY_ROOT, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, **options)

    def merged(self):
        self.assertEqual([part.name for part in self.parts()], ["part-1.csv", "part-2.csv"])
        self.ok("merge", *self.parts(), "-o", self.file("merged.csv"), "--force")
        return self.content("merged.csv")

    def test_every_rank_does_its_shard(self):
        process = self.mpirun(AXES)
        said = process.communicate(timeout=200)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(self.merged(), self.whole())

    def test_a_shard_that_was_killed_is_resumed(self):
        process = self.mpirun(self.LONG)
        part = self.file("part-2.csv")
        while process.poll() is None and not (part.exists() and part.read_bytes().count(b"\n") > 1):
            pass
        rank = self.rank_that_writes(part)
        if rank:
            os.kill(rank, signal.SIGKILL)
        process.communicate(timeout=200)
        self.assertNotEqual(process.returncode, 0, "it was to be killed before its end")
        self.assertIn("its sweep has not ended", self.refused("merge", *self.parts(), "-o",
                                                              self.file("merged.csv")))
        again = self.mpirun(self.LONG)
        said = again.communicate(timeout=200)[1]
        self.assertEqual(again.returncode, 0, said)
        self.assertEqual(self.merged(), self.whole(axes=self.LONG))

    def rank_that_writes(self, path):
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(os.path.samefile(held, path) for held in (process / "fd").iterdir()
                       if held.exists()):
                    return int(process.name)
        return None


# What Slurm would do with the scripts of the documentation: a task after the other.
SBATCH = r"""#!/bin/bash
options="$* $(sed -n 's/^#SBATCH//p' sweep.sh)"
echo 17
exec >&2
case $1 in *wrap*) ;; esac
if [[ $1 == --dependency=* ]]; then [[ $1 == --dependency=afterok:17 ]] && exec bash -ec "$3"; exit 1; fi
export SLURM_NTASKS=$(grep -oP -- '--ntasks=\K\d+' <<< "$options") SLURM_PROCID=0
[ -n "$SLURM_NTASKS" ] || unset SLURM_NTASKS SLURM_PROCID
if [[ $options =~ --array=([0-9]+)-([0-9]+) ]]; then
  export SLURM_ARRAY_TASK_MIN=${BASH_REMATCH[1]} SLURM_ARRAY_TASK_MAX=${BASH_REMATCH[2]} SLURM_ARRAY_TASK_STEP=1
  export SLURM_ARRAY_TASK_COUNT=$((SLURM_ARRAY_TASK_MAX - SLURM_ARRAY_TASK_MIN + 1))
  for task in $(seq $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX); do
    SLURM_ARRAY_TASK_ID=$task bash -e sweep.sh || exit
  done
else
  bash -e sweep.sh
fi
"""
SRUN = r"""#!/bin/bash
[ "$1" = --no-kill ] && shift
for rank in $(seq 0 $((SLURM_NTASKS - 1))); do
  SLURM_STEP_ID=0 SLURM_PROCID=$rank "$@" || exit
done
"""


class Documented(Case):
    def setUp(self):
        super().setUp()
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        for name, text in {"sbatch": SBATCH, "srun": SRUN}.items():
            (self.tools / name).write_text(text)
            (self.tools / name).chmod(0o755)
        (self.tools / "penstock").symlink_to(BINARY)
        shutil.copy(SMALL, self.file("my.yaml"))

    @staticmethod
    def blocks():
        """Of the section on many machines."""
        text = (SOURCE / "docs/sweep.md").read_text().split("## Many machines\n")[1].split("\n## ")[0]
        found = []
        for paragraph in text.split("\n\n"):
            lines = paragraph.splitlines()
            if lines and all(line.startswith("    ") for line in lines):
                found.append("\n".join(line[4:] for line in lines) + "\n")
        return found

    def run_block(self, block):
        return subprocess.run(
            ["bash", "-ec", block], cwd=self.folder, text=True, capture_output=True, timeout=200,
            env=self.ENVIRONMENT | RUN_BY_ROOT | {
                "PATH": f"{self.tools}:{os.environ['PATH']}", "OMPI_MCA_rmaps_base_oversubscribe": "1"})

    def test_the_commands_make_the_file_of_the_whole(self):
        axes = ["--over", "stages=1:4", "--over", "microbatches=1:16"]
        self.ok("sweep", self.file("my.yaml"), *axes, "-o", self.file("whole.csv"))
        whole = self.file("whole.csv").read_bytes()
        blocks = self.blocks()
        self.assertEqual(len(blocks), 7)
        merges = 0
        for block in blocks:
            if "mpirun" in block and not shutil.which("mpirun"):
                continue
            if block.startswith("#!"):
                self.file("sweep.sh").write_text(block)
                if "merge" not in block:
                    continue  # submitted by the next
                block = "sbatch sweep.sh"
            if "part-3.csv" not in block:  # that one continues what is there
                for left in [*self.folder.glob("part-*"), *self.folder.glob("sweep.csv*")]:
                    left.unlink()
            done = self.run_block(block)
            self.assertEqual(done.returncode, 0, (block, done.stderr))
            self.assertEqual(self.file("sweep.csv").read_bytes(), whole, block)
            merges += 1
        self.assertGreaterEqual(merges, 5)
        self.assertTrue(self.file("sweep.html").exists())


if __name__ == "__main__":
    unittest.main()
