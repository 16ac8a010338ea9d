# SPDX-License-Identifier: Apache-2.0
"""penstock-run and `penstock replay` when processes are killed, hang or are interrupted, and programs are damaged.

Needs what run_case.py needs. One class of cases may be named as an argument. Nothing here measures time: a
program that does not end fails by its time-out.
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
import sys
import unittest

from run_case import BINARY, Case, RUN, SOURCE, TIMEOUT, TRANSFORMER, stand_in


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
