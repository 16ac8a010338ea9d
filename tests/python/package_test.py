#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package penstock: what it says is what the command says, and wrong input is an exception."""
import doctest
import gc
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from needs import need

need("numpy")
import numpy  # noqa: E402

import penstock  # noqa: E402

ROOT = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
# But those whose flows SimGrid plays for half a minute each.
SHIPPED = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml") if not path.stem.startswith(("llama-3-405b", "deepseek-v3")))


def command(*words):
    done = subprocess.run([os.environ["PENSTOCK_BINARY"], *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def without_times(result):
    result.pop("engine_seconds", None)
    return result


class Shipped(unittest.TestCase):
    """Every shipped scenario."""

    def test_equals_the_command(self):
        self.assertGreater(len(SHIPPED), 40)
        for name in SHIPPED:
            with self.subTest(name):
                _, text, error = command("simulate", name, "--format", "json", "--engine", "auto")
                said = without_times(json.loads(text)) if text else error
                result = penstock.simulate(name, engine="auto")
                numbers = {key: getattr(result, key) for key in said
                           if isinstance(said[key], (int, float))}
                self.assertEqual(numbers, {key: said[key] for key in numbers})  # before the rest is computed
                whole = without_times(result.to_dict())
                self.assertEqual(whole, said)
                self.assertEqual(list(whole), list(said))  # in the same order
                for key, value in said.items():
                    self.assertEqual(getattr(result, key), value, key)

    def test_the_usual_engine_is_the_command_s(self):
        _, text, _ = command("simulate", "small-1f1b", "--format", "json")
        self.assertEqual(without_times(penstock.simulate("small-1f1b").to_dict()),
                         without_times(json.loads(text)))


class Results(unittest.TestCase):
    def test_timeline_is_that_of_the_events(self):
        _, text, _ = command("simulate", "small-zb-h1", "--format", "json", "--events", "--engine", "exact")
        events = json.loads(text)["events"]
        line = penstock.simulate("small-zb-h1", engine="exact").timeline
        compute = [i for i in range(len(line)) if line.kinds[line.kind[i]] in "FBIW"]
        ours = [(int(line.device[i]), float(line.start[i]), float(line.end[i]),
                 f"{line.stage[i]}{line.kinds[line.kind[i]]}{line.microbatch[i]}") for i in compute]
        theirs = [(e["device"], e["start_s"], e["end_s"], e["op"]) for e in events
                  if e["weight_version"] is not None]
        self.assertEqual(ours, theirs)

    def test_timeline_is_no_copy_and_outlives_its_result(self):
        result = penstock.simulate("small-1f1b", engine="exact")
        first, second = result.timeline, result.timeline
        self.assertTrue(numpy.shares_memory(first.start, second.start))
        self.assertFalse(first.start.flags.writeable)
        self.assertFalse(first.start.flags.owndata)
        was = first.end.max()
        self.assertEqual(was, result.makespan_s)
        start, end = first.start, first.end
        del result, first, second
        gc.collect()
        filler = [penstock.simulate("small-1f1b", engine="exact", microbatches=n) for n in range(4, 40)]
        self.assertEqual(end.max(), was)
        self.assertEqual(start.min(), 0)
        self.assertEqual(len(filler), 36)

    def test_dict_text_file_and_name_are_one(self):
        text = (ROOT / "scenarios/small-1f1b.yaml").read_text()
        import yaml
        results = [penstock.simulate(source, engine="exact", microbatches=8).makespan_s
                   for source in (yaml.safe_load(text), text, ROOT / "scenarios/small-1f1b.yaml", "small-1f1b")]
        self.assertEqual(results, results[:1] * 4)

    def test_an_edited_file_is_read_again(self):
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "my.yaml")
            text = (ROOT / "scenarios/small-1f1b.yaml").read_text()
            path.write_text(text)
            before = penstock.simulate(path, engine="exact").microbatches
            path.write_text(text.replace(f"microbatches: {before}", f"microbatches: {before + 3}"))
            self.assertEqual(penstock.simulate(path, engine="exact").microbatches, before + 3)

    def test_report_is_html_for_notebooks(self):
        html = penstock.simulate("small-1f1b", engine="exact")._repr_html_()
        self.assertTrue(html.startswith("<iframe srcdoc="))
        self.assertIn("Timeline", html)

    def test_what_the_json_leaves_out_is_none_and_other_names_are_none_of_ours(self):
        result = penstock.simulate("small-1f1b", engine="exact")
        self.assertIsNone(result.goodput)
        with self.assertRaises(AttributeError):
            result.makespan
        self.assertIn("makespan_s", [field.name for field in __import__("dataclasses").fields(result)])

    def test_other_threads_run_meanwhile(self):
        counted, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        before = counted[0]
        penstock.simulate("small-1f1b", engine="exact", microbatches=200_000, batches=1)
        during = counted[0] - before
        stop.set()
        thread.join()
        self.assertGreater(during, 0)


class Errors(unittest.TestCase):
    def test_where_it_stands_and_what_was_meant(self):
        text = (ROOT / "scenarios/small-1f1b.yaml").read_text().replace("schedule: 1f1b", "schedule: 1f1c")
        with self.assertRaises(penstock.InputError) as raised:
            penstock.simulate(text)
        error = raised.exception
        line = next(i for i, line in enumerate(text.split("\n"), 1) if "1f1c" in line)
        self.assertEqual((error.file, error.line, error.suggestion), ("scenario", line, "1f1b"))
        self.assertGreater(error.column, 0)
        self.assertIsInstance(error, ValueError)

    def test_all_that_is_wrong_at_once(self):
        with self.assertRaises(penstock.InputError) as raised:
            penstock.simulate("small-1f1b", microbatchez=3, stagez=4)
        self.assertEqual([d.suggestion for d in raised.exception.diagnostics], ["microbatches", "stages"])

    def test_of_the_program_they_are_the_same(self):
        for ask in (lambda: penstock.compare("small-1f1x", "small-1f1b"), lambda: penstock.simulate("small-1f1x"),
                    lambda: penstock.sweep("small-1f1x", over={"stages": [2]})):
            with self.assertRaises(penstock.InputError) as raised:
                ask()
            self.assertEqual(raised.exception.suggestion, "small-1f1b")

    def test_errors_and_their_places_can_be_pickled(self):
        with self.assertRaises(penstock.InputError) as raised:
            penstock.simulate("small-1f1b", stagez=4)
        copy = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((str(copy), copy.diagnostics), (str(raised.exception), raised.exception.diagnostics))

    def test_engine(self):
        with self.assertRaisesRegex(penstock.InputError, "auto, exact, fluid or simgrid"):
            penstock.simulate("small-1f1b", engine="exakt")

    def test_option_that_is_none(self):
        with self.assertRaisesRegex(TypeError, "no option 'tollerance'"):
            penstock.calibrate(tollerance=1)


class Commands(unittest.TestCase):
    def same(self, said, *words):
        code, text, error = command(*words, "--format", "json")
        self.assertEqual(code, 0, error)
        self.assertEqual(json.loads(json.dumps(said)), json.loads(text))

    def test_compare(self):
        ours = penstock.compare("small-1f1b", "small-gpipe", engine="exact", reproducible=True)
        self.same(ours, "compare", "small-1f1b", "small-gpipe", "--engine", "exact", "--reproducible")

    def test_schedule(self):
        self.same(penstock.schedule("zb-h1", stages=4), "schedule", "show", "zb-h1", "--set", "stages=4")

    def test_plan(self):
        options = "--cluster", "p3.16xlarge-x8", "--batch", "512", "--search", "2bw"
        ours = penstock.plan("gpt-3.8b", cluster="p3.16xlarge-x8", batch=512, search="2bw")
        self.same(ours, "plan", "gpt-3.8b", *options)

    def test_a_plan_says_what_headroom_costs(self):
        options = "--cluster", "p3.16xlarge", "--batch", "64", "--effort", "1"
        ours = penstock.plan("gpt-3.8b", cluster="p3.16xlarge", batch=64, effort=1)
        self.assertTrue(ours["without_headroom"]["fits"])
        self.same(ours, "plan", "gpt-3.8b", *options)

    def test_sweep(self):
        rows = penstock.sweep("small-1f1b", over={"stages": [2, 4], "microbatches": range(4, 9)},
                              where="stages*2 <= microbatches", reproducible=True)
        _, text, _ = command("sweep", "small-1f1b", "--over", "stages=2,4", "--over", "microbatches=4,5,6,7,8",
                             "--where", "stages*2 <= microbatches", "--format", "json")
        self.assertEqual(list(rows), [json.loads(line) for line in text.splitlines()])

    def test_scenario_as_dict(self):
        import yaml
        scenario = yaml.safe_load((ROOT / "scenarios/small-1f1b.yaml").read_text())
        rows = penstock.compare(scenario, over={"schedule": ["1f1b", "gpipe"]}, engine="exact")
        self.assertEqual([row["schedule"] for row in rows], ["1f1b", "gpipe"])

    def test_nothing_is_left_behind(self):
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            was = os.getcwd()
            os.chdir(folder)
            try:
                penstock.compare("small-1f1b", "small-gpipe")
                penstock.simulate("small-1f1b").to_dict()
                self.assertEqual(os.listdir(folder), [])
            finally:
                os.chdir(was)


class Words(unittest.TestCase):
    """What is given is taken for what it is, whatever its characters."""

    def scenario(self, **more):
        return {"name": "x", "model": {"forward": "1 s", "backward": "2 s"}, "cluster": {"devices": 4}, "schedule": "1f1b",
                "pipeline": {"stages": 4, "microbatches": 8}} | more

    def test_characters_of_every_plane(self):
        for name in ("\U0001f600", "a\U00010348b", "\u6f22\u00e9", 'quo"te', "it's", "back\\slash", "\\ud83d\\ude00", "a: b", "#1", " x "):
            self.assertEqual(penstock.simulate(self.scenario(name=name), engine="exact").scenario, name)
            self.assertEqual(penstock.compare(self.scenario(name=name), engine="exact")[0]["scenario"], name)
        self.assertEqual(penstock.from_hf({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                                           "vocab_size": 50257, "_name_or_path": "\U0001f600"})["num_layers"], 12)
        for name in ("\ud83d", "a\x1bb", "\u202e"):  # half a character, what a terminal obeys
            with self.assertRaises((ValueError, TypeError)):
                penstock.simulate(self.scenario(name=name), engine="exact")

    def test_a_name_is_no_option(self):
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            for name in ("--report=x.html", "-ox.html", "--set=stages=2", "--help", "--", "-h"):
                for call in (lambda: penstock.compare(name, "small-1f1b"), lambda: penstock.sweep(name, over={"stages": [2]}),
                             lambda: penstock.plan(name), lambda: penstock.train(name), lambda: penstock.validate(name),
                             lambda: penstock.calibrate(name), lambda: penstock.schedule(name), lambda: penstock.simulate(name)):
                    with self.assertRaises(penstock.PenstockError):
                        call()
            self.assertEqual(os.listdir("."), [])

    def test_values_with_quotes_and_commas(self):
        names = ["it's", 'say "hi"', "a, b", "c]d", "e", "[", "x:y", "\U0001f600", "'"]
        rows = penstock.compare(self.scenario(), over={"name": names[:3]}, engine="exact")
        self.assertEqual(len(rows), 3)
        names += ['"q"', "'s'", "[1, 2]", "{a: 1}", "a: b", "# c", "a #b", "a\nb", " lead", "tail ", "1", "1.0", "true", "null", "~", "",
                  "*x", "&y", "!z", "%d", "- a", "?", "|", "a\\b", "a\\", '"', '""', "\\\"", "a\tb", "1:3", "1:3:*2", "a=b", "1,2", "x]",
                  "\u2028x", "x\u2029", "\x85y", "\u6f22\u00e9"]
        for name in names:
            try:
                self.assertEqual(penstock.simulate(self.scenario(), name=name, engine="exact").scenario, name)
            except penstock.InputError:  # such a name is none
                self.assertTrue(name in ("", "a\nb", "a\tb") or not name.isprintable(), name)
                continue
            for of_one in (False, True):
                given = [name] if of_one else [name, "another"]
                rows = penstock.sweep(self.scenario(), over={"name": given}, engine="exact")
                self.assertEqual([(row["status"], row["name"]) for row in rows], [("ok", n) for n in given])
        self.assertEqual([row["scenario"] for row in penstock.compare(self.scenario(name='"q", it\'s'), self.scenario(name="[a"))],
                         ['"q", it\'s', "[a"])

    def test_an_output_is_written_and_returned(self):
        with tempfile.TemporaryDirectory() as folder:
            for number, (call, source, more) in enumerate(((penstock.compare, "small-1f1b", {"engine": "exact"}),
                                                           (penstock.plan, "gpt-2.2b-flush", {"search": "uniform"}),
                                                           (penstock.schedule, "1f1b", {"stages": 2}),
                                                           (penstock.train, "small-pipedream", {"updates": 2, "reproducible": True}))):
                plain = call(source, **more)
                for ending in (".json", ".json.gz"):
                    path = pathlib.Path(folder) / f"out-{number}{ending}"
                    self.assertEqual(without_times(call(source, **more, output=path)[0] if isinstance(plain, list) else
                                                   call(source, **more, output=str(path))),
                                     without_times(plain[0] if isinstance(plain, list) else plain))
                    self.assertTrue(path.exists())

    def test_what_no_word_can_have_is_an_error_of_ours(self):
        for text in ("a\0b", "\0", "a\ud83d"):
            for call in (lambda: penstock.simulate(text), lambda: penstock.simulate("small-1f1b", name=text),
                         lambda: penstock.simulate(self.scenario(name=text)), lambda: penstock.compare(text),
                         lambda: penstock.compare("small-1f1b", set=f"name={text}"), lambda: penstock.sweep("small-1f1b", over={"name": [text]}),
                         lambda: penstock.sweep("small-1f1b", over={text: [1]}), lambda: penstock.compare("small-1f1b", output=text),
                         lambda: penstock.plan(text), lambda: penstock.schedule(text), lambda: penstock.validate(text),
                         lambda: penstock.train(text), lambda: penstock.calibrate(text), lambda: penstock.compare(self.scenario(name=text)),
                         lambda: penstock.ReadScenario(text), lambda: penstock.ReadScenario(f"name: {text}\nschedule: 1f1b")):
                with self.assertRaises(penstock.InputError):
                    call()

    def test_long_ranges(self):
        rows = penstock.sweep("small-1f1b", over={"microbatches": range(4, 1004)}, engine="exact", format="json")
        self.assertEqual([row["microbatches"] for row in rows], list(range(4, 1004)))
        huge = range(1, 3_000_000)
        with self.assertRaises(penstock.InputError) as caught:
            penstock.sweep("small-1f1b", over={"microbatches": huge})
        self.assertIn("million", str(caught.exception))
        with self.assertRaises(penstock.InputError) as caught:
            penstock.sweep("small-1f1b", over={"microbatches": [n * n for n in range(1, 60_000)]})
        self.assertIn("give a range", str(caught.exception))
        self.assertEqual(len(penstock.sweep("small-1f1b", over={"microbatches": [8, 4]}, engine="exact")), 2)
        self.assertEqual([r["microbatches"] for r in penstock.sweep("small-1f1b", over={"microbatches": range(12, 4, -1)}, engine="exact")],
                         list(range(12, 4, -1)))


LONG = 'penstock.simulate("small-1f1b", microbatches=2_000_000, engine="exact")'


class Interrupted(unittest.TestCase):
    """Ctrl-C ends every call at once and leaves nothing behind; so does the end of the interpreter."""

    CALLS = (LONG, 'penstock.simulate("small-1f1b", microbatches=2_000_000, engine="simgrid")',
             'penstock.simulate("small-1f1b", microbatches=400_000, engine="exact").to_dict()',
             'penstock.compare("small-1f1b", over={"microbatches": [2_000_000, 2_000_001]})',
             'penstock.sweep("small-1f1b", over={"microbatches": range(100_000, 100_500)})',
             'penstock.plan("gpt-2.2b-flush", search="full", batch=65_536, time_limit=100)',
             'penstock.sweep("small-1f1b", over={"microbatches": range(100_000, 100_500)}, executor=ThreadPoolExecutor(2))',
             'penstock.train("small-pipedream", updates=200_000, set="training.problem=quadratic")')

    def test_ctrl_c_in_every_call(self):
        for call in self.CALLS:
            code = f"""
import os, signal, threading, time
from concurrent.futures import ThreadPoolExecutor
import penstock
sent = []
def interrupt():
    time.sleep(0.7)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    {call}
    print("ended before")
except KeyboardInterrupt:
    print("after", time.monotonic() - sent[0], flush=True)
try:
    while os.waitpid(-1, os.WNOHANG)[0]:
        print("a zombie was left")
except ChildProcessError:
    pass
os._exit(0)
"""
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
            self.assertEqual((done.returncode, done.stderr), (0, ""), call)
            self.assertRegex(done.stdout, r"^after \d\S*\n$", call)
            # No clock decides a test: a call that is not interrupted ends minutes later.
            self.assertLess(float(done.stdout.split()[1]), 30, call)

    def test_a_daemon_that_computes_does_not_abort_the_end(self):
        for call in (LONG, 'penstock.simulate("small-1f1b", microbatches=400_000, engine="exact").to_dict()',
                     '[penstock.simulate("small-1f1b", engine="exact").to_dict() for _ in range(10**6)]',
                     'penstock.simulate("small-1f1b", microbatches=2_000_000, engine="simgrid")'):
            for ending, code in (("pass", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1)):
                done = subprocess.run([sys.executable, "-c", f"""
import threading, time
import penstock
for _ in range(3):
    threading.Thread(target=lambda: {call}, daemon=True).start()
time.sleep(0.3)
{ending}
"""], capture_output=True, text=True, timeout=100)
                self.assertEqual(done.returncode, code, (call, done.stderr))
                self.assertNotIn("terminate", done.stderr)

    def test_what_was_interrupted_can_be_asked_again(self):
        scenario = penstock.ReadScenario("small-1f1b")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            scenario.simulate(microbatches=2_000_000, engine="exact")
        self.assertEqual(scenario.simulate(engine="exact").makespan_s, 41.0)


class Calibration(unittest.TestCase):
    def test_keeps_no_file(self):
        import tempfile
        import yaml
        with tempfile.TemporaryDirectory() as folder:
            was = os.getcwd()
            os.chdir(folder)
            try:
                said = penstock.calibrate(repetitions=1, workers=2, microbatch_sizes=1)
                self.assertEqual(os.listdir(folder), [])
            finally:
                os.chdir(was)
        self.assertIn("model", yaml.safe_load(said["profile"]))


class Training(unittest.TestCase):
    def test_curves_are_those_of_the_command(self):
        ours, = penstock.train("small-pipedream", training__problem="quadratic", updates=20, reproducible=True)
        code, text, error = command("train", "small-pipedream", "--set", "training.problem=quadratic", "--updates", "20",
                                    "--reproducible", "--format", "json")
        self.assertEqual(code, 0, error)
        self.assertEqual([ours], json.loads(text)["scenarios"])
        self.assertGreater(len(ours["runs"][0]["curve"]), 1)


class Foreign(unittest.TestCase):
    """Objects with the attributes that the libraries' own have; the libraries are not asked for."""

    class Action:  # torch.distributed.pipelining.schedules._Action
        def __init__(self, text):
            self.text = text

        def __str__(self):
            return self.text

    def test_schedule_of_torch(self):
        from types import SimpleNamespace
        import csv
        import io
        import tempfile
        _, table, _ = command("schedule", "export", "zb-h1", "--to", "torch-csv", "--set", "stages=4", "--set", "microbatches=8")
        order = {rank: [self.Action(cell) if cell else None for cell in row]
                 for rank, row in enumerate(csv.reader(io.StringIO(table)))}
        self.assertEqual(len(order), 4)
        with tempfile.TemporaryDirectory() as folder:
            scenario = penstock.from_torch(SimpleNamespace(pipeline_order=order), f"{folder}/zb.csv")
            ours = penstock.simulate(scenario, engine="exact")
            model = scenario["model"]
        theirs = penstock.simulate({**scenario, "schedule": "zb-h1", "model": model}, engine="exact")
        self.assertEqual((ours.schedule, ours.makespan_s), ("zb.csv", theirs.makespan_s))

    def test_order_that_never_ends(self):
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(penstock.InputError) as raised:
                penstock.from_torch({0: ["0F0", "0B0"], 1: ["1B0", "1F0"]}, f"{folder}/order.csv")
            self.assertEqual((raised.exception.line, raised.exception.column), (2, 1))

    def test_arguments_of_megatron(self):
        from types import SimpleNamespace
        parsed = SimpleNamespace(num_layers=24, hidden_size=2048, num_attention_heads=16, seq_length=2048, bf16=True,
                                 pipeline_model_parallel_size=4, micro_batch_size=2, global_batch_size=64, lr=None,
                                 vocab_size=50257, sequence_parallel=False)
        words = ("--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --bf16 "
                 "--pipeline-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 64 --vocab-size 50257")
        ours = penstock.from_megatron(parsed)
        self.assertEqual(ours, penstock.from_megatron(words.split()))
        self.assertTrue(penstock.simulate(ours).feasible)

    def test_configuration_of_hugging_face(self):
        class Config:
            def to_dict(self):
                return {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
                        "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
        model = penstock.from_hf(Config())
        result = penstock.simulate({"model": model, "cluster": "dgx-h100", "schedule": "1f1b",
                                    "pipeline": {"stages": 4, "microbatches": 8}}, engine="fluid")
        self.assertGreater(result.iteration_time_s, 0)
        self.assertEqual(sum(layer for d in result.devices for layer in d["layers"]), 32)


class Documentation(unittest.TestCase):
    def test_examples(self):
        for name in ("commands", "foreign", "results", "values"):
            module = __import__(f"penstock.{name}", fromlist=[name])
            outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
            self.assertEqual(outcome.failed, 0)
            self.assertGreater(outcome.attempted, 1, name)


if __name__ == "__main__":
    unittest.main()
