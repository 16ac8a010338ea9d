#!/usr/bin/env python3
"""Points are handed out over ranks, and the rows are those of one rank, whatever becomes of the
others. Once with ranks that the test starts itself, once with mpirun, where there is one."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["PENSTOCK_RANKS_PROGRAM"]
POINTS = "4000"
# What a launcher around this test may have set is not for the ranks started here.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("OMPI_", "PMI", "SLURM_", "MASTER_"))
         and name not in ("RANK", "WORLD_SIZE")}


def sorted_lines(output: str) -> list:
    return sorted(output.splitlines())


class Ranks(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pipe = self.folder / "pipe"
        os.mkfifo(self.pipe)
        self.killed = self.folder / "killed"
        signal.signal(signal.SIGALRM, self.fail_by_time)
        signal.alarm(200)
        self.addCleanup(signal.alarm, 0)
        alone = subprocess.run([PROGRAM, POINTS], env=CLEAN, stdout=subprocess.PIPE, text=True,
                               check=True)
        self.serial = sorted_lines(alone.stdout)
        self.assertEqual(len(self.serial), int(POINTS))

    def fail_by_time(self, *_) -> None:
        self.fail("it waits for something that does not come")


class Started(Ranks):
    """With RANK and WORLD_SIZE, as torchrun and penstock-run do."""

    def start(self, rank: int, size: int, *arguments: str) -> subprocess.Popen:
        environment = {**CLEAN, "RANK": str(rank), "WORLD_SIZE": str(size),
                       "PENSTOCK_RENDEZVOUS": str(self.folder)}
        process = subprocess.Popen([PROGRAM, POINTS, *arguments], env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def finish(self, *arguments: str, size: int = 2) -> list:
        """Exit statuses; rank 0 must have printed the serial rows, the others nothing."""
        ranks = [self.start(rank, size, *arguments) for rank in range(size)]
        for rank, process in enumerate(ranks):
            output, errors = process.communicate()
            self.assertEqual(errors, "")
            self.assertEqual(sorted_lines(output), self.serial if rank == 0 else [])
        return [process.returncode for process in ranks]

    def test_two_ranks_give_the_rows_of_one(self) -> None:
        self.assertEqual(self.finish("meet", str(self.pipe)), [0, 0])

    def test_four_ranks_give_the_rows_of_one(self) -> None:
        self.assertEqual(self.finish("meet", str(self.pipe), size=4), [0] * 4)

    def test_a_killed_rank_costs_no_row(self) -> None:
        statuses = self.finish("meet", str(self.pipe), "kill", str(self.killed))
        self.assertEqual(statuses, [0, -signal.SIGKILL])
        self.assertTrue(self.killed.exists())

    def test_rank_0_waits_for_nobody_who_comes_late(self) -> None:
        first = self.start(0, 2)
        rows = [first.stdout.readline() for _ in range(int(POINTS) // 2)]
        last = self.start(1, 2)
        rows += first.stdout.readlines()
        self.assertEqual(first.communicate(), ("", ""))
        self.assertEqual(sorted_lines("".join(rows)), self.serial)
        self.assertEqual((last.communicate(), last.returncode), (("", ""), 0))

    def test_without_rank_0_the_others_end(self) -> None:
        first = self.start(0, 2, "meet", str(self.pipe))
        last = self.start(1, 2, "meet", str(self.pipe))
        first.stdout.readline()  # they have met, and rank 0 cannot print all before this is read
        first.kill()
        first.communicate()
        self.assertEqual(last.communicate(), ("", ""))
        self.assertEqual(last.returncode, 0)


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun (Open MPI) here")
class Mpirun(Ranks):
    def mpirun(self, *arguments: str, options: tuple = ()) -> subprocess.CompletedProcess:
        environment = {**CLEAN, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return subprocess.run(
            ["mpirun", "-np", "2", "--oversubscribe", *options, PROGRAM, POINTS, *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_two_ranks_give_the_rows_of_one(self) -> None:
        result = self.mpirun("meet", str(self.pipe))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted_lines(result.stdout), self.serial)

    def test_a_killed_rank_costs_no_row_where_mpirun_lets_the_others_live(self) -> None:
        result = self.mpirun("meet", str(self.pipe), "kill", str(self.killed),
                             options=("--enable-recovery",))
        self.assertTrue(self.killed.exists())
        self.assertEqual(sorted_lines(result.stdout), self.serial, result.stderr)

    def test_a_killed_rank_ends_the_sweep_where_mpirun_ends_the_others(self) -> None:
        result = self.mpirun("meet", str(self.pipe), "kill", str(self.killed))
        self.assertNotEqual(result.returncode, 0)
        self.assertTrue(self.killed.exists())
        # The rest is for --resume: what was printed whole is right, and nothing came twice.
        whole = result.stdout[:result.stdout.rfind("\n") + 1].splitlines()
        self.assertEqual(len(set(whole)), len(whole))
        self.assertLessEqual(set(whole), set(self.serial))


if __name__ == "__main__":
    unittest.main()
