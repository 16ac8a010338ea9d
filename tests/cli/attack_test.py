#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What files and limits from outside do to the commands: nesting without end, control characters, files
that may not grow, outputs that are inputs, columns and versions that nobody knows.

Needs $PENSTOCK_BINARY, $PENSTOCK_RUN and $PENSTOCK_SOURCE. One class of cases may be named as an argument.
"""
import csv
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from command_case import CommandCase, of_penstock

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
BINARY = os.environ["PENSTOCK_BINARY"]
RUN = os.environ["PENSTOCK_RUN"]
SHARED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE / "../shared"))
SMALL = "scenarios/small-1f1b.yaml"
# C0 but for tabs and line feeds, DEL, C1, the marks of UAX 9 that change the direction of writing; a byte
# of C1 alone is no UTF-8, and a terminal may obey it.
OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]")
HOSTILE = "a\x1b]0;title\x07\x7f\x9b31m\u202eb\u2066c\u200fd\u061c\r"
TRAINED = """model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, vocab_size: 16, seq_length: 8, precision: fp32}
cluster: {base: p3.16xlarge}
schedule: 1f1b
pipeline: {stages: 2, microbatches: 2}
training: {data: markov, updates: 2}
"""
ROWS = "id,model,layers,hidden,heads,vocab,seq,gpu,dp,tp,pp,microbatch,microbatches,iteration_s"
ROW = "x,m,4,256,4,1000,128,a100,1,1,2,1,4,0.1"


class Case(CommandCase):
    ENVIRONMENT = of_penstock(TERM="xterm")

    def file(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
        return path

    def executor(self, *words):
        return subprocess.run([RUN, *map(str, words)], env=self.ENVIRONMENT, text=True, capture_output=True, timeout=100)

    def program(self):
        return self.file("program.json", self.ok("export", SMALL, "--to", "program"))

    def profile(self):
        done = self.run_command("calibrate", self.file("c.yaml", TRAINED), "-o", self.folder / "profile.yaml")
        self.assertEqual(done.returncode, 0, done.stderr)


class Deep(Case):
    """A megabyte of brackets, a kilobyte compressed."""

    READERS = (("compare", "{}"), ("validate", "{}"), ("validate", "--as", "sailor", "{}"), ("validate", "--as", "runs", "{}"),
               ("calibrate", "--result", "{}"), ("trace", "check", "{}"), ("simulate", "{}"), ("import", "{}"))

    def test_every_reader_of_json_says_where(self):
        recording = '{"penstock_recording": 1, "x": '
        for before, opened, closed in (("", "[", ""), ("", "[", "]"), ("", '{"a":', "}"), (recording, "[", ""),
                                       ('{"real_ms": ', "[", ""), ('{"pipeline_list": ', "[", "]"),
                                       ('{"traceEvents": [{"id": ', "[", "]"), ('{"schema_version": 1, "makespan_s": ', "[", "")):
            text = before + opened * 300_000 + closed * 300_000
            plain = self.file("deep.json", text)
            packed = self.file("deep.json.gz", gzip.compress(text.encode())) if not before else plain
            for words in self.READERS:
                for name in sorted({packed, plain}):
                    done = self.run_command(*[word.format(name) for word in words])
                    self.assertEqual((done.returncode, done.stdout), (2, ""), (words, before, opened, done.stderr[:300]))
                    self.assertLess(len(done.stderr), 3000)
            for words in ((plain,), ("--calibrate", plain), ("--train", self.folder / "t", plain)):
                done = self.executor(*words)
                self.assertEqual(done.returncode, 2, (words, done.stderr[:300]))
                self.assertIn("nested more than 128 deep", done.stderr)

    def test_the_file_of_the_issue(self):
        path = SHARED / "cases/attack/deep-open.json.gz"
        if not SHARED.exists():
            raise unittest.SkipTest(f"no {SHARED}")
        for words in (("compare", path), ("validate", path), ("calibrate", "--result", path), ("trace", "check", path)):
            self.assertIn("nested more than 128 deep", self.refused(*words), words)
        self.assertIn("nested more than 128 deep", self.executor(path).stderr)

    def test_nothing_else_nests_without_end(self):
        for text in ("- " * 300_000 + "a", "? " * 300_000, "[" * 300_000, "{a: " * 300_000, "a: " * 300_000, "!x " * 300_000,
                     "model: " + "- " * 300_000, "a = " + "[" * 300_000, "a = " + "{b = " * 300_000, "(" * 300_000,
                     "".join(" " * i + "a:\n" for i in range(1400)), "&a " * 100_000, "'" * 300_001):
            for words in (("simulate", "deep.yaml"), ("import", "deep.json"), ("import", "torchtitan-config", "deep.toml"),
                          ("import", "nanotron-config", "deep.yaml"), ("import", "megatron-args", "deep.sh"), ("plan", "deep.txt"),
                          ("schedule", "check", "deep.csv"), ("validate", "deep.csv")):
                done = self.run_command(*words[:-1], self.file(words[-1], text))
                self.assertIn(done.returncode, (0, 1, 2), (text[:20], words, done.stderr[:300]))
        for deep in ("(" * 60_000, "[" * 60_000, "{a: " * 30_000, "not " * 30_000):
            for words in (("sweep", SMALL, "--over", "stages=2,4", "--where", deep), ("sweep", SMALL, "--over", f"stages={deep}"),
                          ("simulate", SMALL, "--set", f"stages={deep}"), ("import", "layout", deep)):
                done = self.run_command(*words)
                self.assertIn(done.returncode, (1, 2), (deep[:10], words[:2], done.stderr[-300:]))

    def test_without_a_stack_it_ends_with_a_word(self):
        program = self.program()
        for kib in (64, 128, 512):
            def limit(kib=kib):
                resource.setrlimit(resource.RLIMIT_STACK, (kib << 10, kib << 10))
            for words in ([BINARY, "simulate", SMALL], [BINARY, "--version"], [RUN, program]):
                done = subprocess.run(words, cwd=SOURCE, env=self.ENVIRONMENT, text=True, capture_output=True, preexec_fn=limit)
                self.assertEqual((done.returncode, done.stdout), (1, ""), (kib, words))
                self.assertRegex(done.stderr, rf"^penstock(-run)?: the stack may have {kib} KiB \(ulimit -s\)")

    def test_a_small_stack_is_enough(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
        program = self.program()
        deep = self.file("deep.json", "[" * 128 + "]" * 128)
        for words in ([BINARY, "simulate", SMALL], [BINARY, "sweep", SMALL, "--over", "microbatches=1:4"], [RUN, program],
                      [BINARY, "compare", "small-1f1b", "gpt-2.2b-flush", "--over", "microbatches=2,4"],
                      [BINARY, "plan", "gpt-355m-asp", "--time-limit", "1"]):
            done = subprocess.run(words, cwd=SOURCE, env=self.ENVIRONMENT, text=True, capture_output=True, preexec_fn=limit)
            self.assertIn(done.returncode, (0, 2), (words, done.stderr))
        done = subprocess.run([BINARY, "compare", deep], cwd=SOURCE, env=self.ENVIRONMENT, text=True, capture_output=True,
                              preexec_fn=limit)
        self.assertEqual(done.returncode, 2, done.stderr)


class Controls(Case):
    """What a terminal obeys reaches none, whichever command shows what stands in a file."""

    @classmethod
    def run_command(cls, *arguments, **options):
        return subprocess.run([BINARY, *map(str, arguments)], cwd=SOURCE, env=cls.ENVIRONMENT, encoding="utf-8",
                              errors="surrogateescape", capture_output=True, stdin=subprocess.DEVNULL, timeout=200)

    def harmless(self, *words):
        done = self.run_command(*words)
        for stream in (done.stdout, done.stderr):
            found = OBEYED.search(stream)
            self.assertIsNone(found, (words, found and stream[max(0, found.start() - 60):found.end() + 20]))
        self.assertIn(done.returncode, (0, 1, 2, 3), (words, done.stderr))
        return done

    def hostile_result(self):
        result = json.loads(self.ok("simulate", SMALL, "--format", "json"))
        for key in ("scenario", "schedule", "engine", "transfers", "missing"):
            result[key] = HOSTILE
        result["overrides"] = [HOSTILE]
        result["infeasible_because"] = [HOSTILE]
        result["feasible"] = False
        result["notes"] = [HOSTILE]
        return result

    def test_saved_results(self):
        one = self.file("one.json", json.dumps(self.hostile_result()))
        raw = self.file("raw.json", json.dumps(self.hostile_result(), ensure_ascii=False))
        files = [one, raw]
        if (SHARED / "cases/attack").exists():
            files.append(SHARED / "cases/attack/control.json")
        for path in files:
            for form in ("table", "csv", "json"):
                done = self.harmless("compare", path, SMALL, "--format", form)
                self.assertEqual(done.returncode, 0)
                self.assertIn({"table": "\\x1b", "csv": "\\x1b", "json": "\\u001b"}[form], done.stdout)
        self.assertEqual(json.loads(self.harmless("compare", one, "--format", "json").stdout)[0]["scenario"], HOSTILE)

    def test_tables_of_runs(self):
        for text in (HOSTILE, "\udc9b31mx", "\udcff\u202ex"):
            cell = '"' + text.replace("\r", "") + '"'
            header, rest = ROWS.split(",", 1)
            rows = f"{header},{rest},class,{cell}\n{cell}{ROW[1:]},{cell},1\n"
            path = self.file("runs.csv", rows.encode("utf-8", "surrogateescape"))
            name = next(csv.reader([cell]))[0]
            for words in (("validate", path), ("validate", path, "--rows"), ("validate", path, "--format", "csv"),
                          ("validate", path, "--format", "json"), ("validate", path, "--as", "runs", "--rows"),
                          ("validate", path, "--print", name), ("import", path), ("calibrate", "--runs", path)):
                self.harmless(*words)
            predicted = f"name,class,measured_s,predicted_s\n{cell},{cell},1,2\n"
            path = self.file("predicted.csv", predicted.encode("utf-8", "surrogateescape"))
            for words in (("validate", path), ("validate", path, "--rows"), ("validate", path, "--format", "csv")):
                self.assertIn(self.harmless(*words).returncode, (0, 2))

    def test_every_other_command_that_reads_a_file(self):
        scenario = (SOURCE / SMALL).read_text()
        recording = self.file("r.json", "")
        done = self.run_command("replay", SMALL, "--record", recording)
        self.assertEqual(done.returncode, 0, done.stderr)
        recorded = recording.read_text()
        texts = {"s.yaml": [f"name: {json.dumps(HOSTILE)}\n" + scenario, f"name: '{HOSTILE}'\n" + scenario,
                            scenario + f"{json.dumps(HOSTILE)}: 1\n", scenario + f"schedule: {json.dumps(HOSTILE)}\n",
                            "model: {name: " + json.dumps(HOSTILE) + ", num_layers: 2}\n"],
                 "t.json": [json.dumps({"traceEvents": [{"ph": HOSTILE, "pid": 1, "tid": 1, "name": HOSTILE, "ts": 1}]}),
                            json.dumps({"traceEvents": [{"ph": "s", "pid": 1, "tid": 1, "name": HOSTILE, "ts": 1, "id": HOSTILE}]})],
                 "v.json": [recorded.replace("1f1b", json.dumps(HOSTILE)[1:-1]), json.dumps({"penstock_recording": HOSTILE}),
                            recorded.replace("small-1f1b", json.dumps(HOSTILE)[1:-1])],
                 "h.json": [json.dumps({"model_type": HOSTILE}), json.dumps({"model_type": "gpt2", HOSTILE: HOSTILE})],
                 "m.sh": [f"pretrain_gpt.py --num-layers '{HOSTILE}' --{HOSTILE} 3", f"torchrun pretrain_gpt.py --bf16 '{HOSTILE}'"],
                 "torch.csv": [f"{HOSTILE},1F0\n", f"0F0,{HOSTILE}\n"]}
        for name, variants in texts.items():
            for text in variants:
                path = self.file(name, text.encode("utf-8", "surrogateescape"))
                for words in (("simulate", path), ("compare", path), ("plan", path), ("export", path), ("import", path),
                              ("import", "megatron-args", path), ("schedule", "check", path), ("trace", "check", path),
                              ("validate", path), ("sweep", path, "--over", "microbatches=1,2"), ("train", path),
                              ("trace", "check", path, "--format", "csv"), ("simulate", path, "--format", "csv")):
                    self.harmless(*words)

    def test_names_of_files(self):
        path = self.file("x" + HOSTILE.replace("/", "") + ".yaml", (SOURCE / SMALL).read_text())
        self.harmless("simulate", path)
        self.harmless("compare", path, path)
        self.harmless("simulate", str(path) + "z")


class Limits(Case):
    def limited(self, words, blocks):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (blocks << 10, blocks << 10))
        return subprocess.run(list(map(str, words)), cwd=SOURCE, env=self.ENVIRONMENT, text=True, capture_output=True, preexec_fn=limit)

    def test_a_file_that_may_not_grow_is_a_reason(self):
        out = self.folder / "out"
        program = self.file("p.json", self.ok("export", "scenarios/gpt-2.2b-flush.yaml", "--to", "program", "--compute", "stand-in"))
        trained = self.file("t.yaml", TRAINED)
        for words in ([BINARY, "simulate", SMALL, "--report", f"{out}.html"], [BINARY, "simulate", SMALL, "--trace", f"{out}.json"],
                      [BINARY, "simulate", SMALL, "--format", "json", "--events", "-o", out],
                      [BINARY, "sweep", SMALL, "--over", "microbatches=1:400", "--engine", "exact", "-o", f"{out}.csv"],
                      [BINARY, "sweep", SMALL, "--over", "microbatches=1:400", "--engine", "exact", "-o", f"{out}.sqlite"],
                      [BINARY, "replay", SMALL, "--record", f"{out}.rec.json"], [RUN, program, "--record", f"{out}.run.json"],
                      [BINARY, "train", trained, "--checkpoint", f"{out}.ckpt"], [BINARY, "init", "--schema", f"{out}.schema"],
                      [BINARY, "export", "scenarios/gpt-2.2b-flush.yaml", "-o", f"{out}.prog"]):
            done = self.limited(words, 1)
            self.assertEqual(done.returncode, 1, (words, done.stderr))
            self.assertRegex(done.stderr, "File too large|too big|full", words)
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith("out") and p.suffix not in (".csv", ".sqlite", ".sweep")
                          and ".sqlite-" not in p.name], [])

    def test_standard_output_too(self):
        with open(self.folder / "text", "w") as file:
            done = subprocess.run([BINARY, "simulate", SMALL, "--format", "json", "--events"], cwd=SOURCE, env=self.ENVIRONMENT,
                                  stdout=file, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        self.assertEqual(done.returncode, 1)
        self.assertIn("File too large", done.stderr)


class Outputs(Case):
    def test_no_option_writes_over_what_is_read(self):
        for name, text, words in (("s.yaml", (SOURCE / SMALL).read_text(), ("simulate", "{}", "-o", "{}")),
                                  ("s.json", (SOURCE / SMALL).read_text(), ("simulate", "{}", "--trace", "{}")),
                                  ("s.html", (SOURCE / SMALL).read_text(), ("simulate", "./{}", "--report", "{}")),
                                  ("s.yaml", (SOURCE / SMALL).read_text(), ("compare", SMALL, "{}", "-o", "{}")),
                                  ("s.json", (SOURCE / SMALL).read_text(), ("replay", "{}", "--record", "{}")),
                                  ("s.yaml", TRAINED, ("train", "{}", "--checkpoint", "{}", "--force")),
                                  ("s.yaml", TRAINED, ("train", SMALL, "{}", "-o", "{}")),
                                  ("s.yaml", TRAINED, ("export", "{}", "-o", "{}")),
                                  ("s.yaml", TRAINED, ("calibrate", "{}", "-o", "{}")),
                                  ("s.yaml", TRAINED, ("calibrate", SMALL, "--result", "{}", "-o", "{}")),
                                  ("a.sh", "pretrain_gpt.py --num-layers 2", ("import", "megatron-args", "{}", "-o", "{}"))):
            path = self.file(name, text)
            given = [word.replace("{}", name if word.startswith("./") else str(path)) for word in words]
            done = subprocess.run([BINARY, *given], cwd=self.folder if "./" in str(given) else SOURCE, env=self.ENVIRONMENT, text=True,
                                  capture_output=True)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertIn("is read, too; name another file", done.stderr, words)
            self.assertEqual(path.read_text(), text, words)
        link = self.folder / "link.yaml"
        path = self.file("s.yaml", (SOURCE / SMALL).read_text())
        link.symlink_to(path)
        self.assertIn("is read, too", self.refused("simulate", path, "-o", link))

    def refused_over(self, output, *words, called_otherwise=False):
        """Nothing is written over `output`, a file that is read without being named in `words`."""
        before = output.read_bytes()
        names = [self.folder / "link", self.folder / "hard", f"{self.folder}/a/../{output.name}", f"./{output.name}"]
        for name in names if called_otherwise else [output]:
            if str(name).endswith("link"):
                name = name.with_suffix(output.suffix)
                name.symlink_to(output)
            elif str(name).endswith("hard"):
                name = name.with_suffix(output.suffix)
                name.hardlink_to(output)
            done = subprocess.run([BINARY, *[str(name) if word == "{}" else str(word) for word in words]], cwd=self.folder,
                                  env=self.ENVIRONMENT, text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (words, name, done.stderr))
            self.assertIn("is read, too; name another file", done.stderr, (words, name))
            self.assertEqual(output.read_bytes(), before, (words, name))
            for made in (self.folder / "link", self.folder / "hard"):
                made.with_suffix(output.suffix).unlink(missing_ok=True)

    def test_nor_over_what_a_scenario_names(self):
        (self.folder / "a").mkdir()
        order = self.file("order.csv", self.ok("schedule", "export", "1f1b", "--set", "stages=2", "--set", "microbatches=2"))
        model = self.file("model.yaml", "{num_layers: 2, hidden_size: 16, num_attention_heads: 2, vocab_size: 256, seq_length: 8}\n")
        device = self.file("device.json", json.dumps({"base": "a100-80"}))
        cluster = self.file("cluster.yaml", "{base: dgx-a100, device: device.json}\n")
        stack = self.file("stack.html", "{base: megatron, forward_host: 1us}\n")
        text = self.file("text.txt", "to be or not to be, that is the question " * 10)
        s = self.file("s.yaml", "{pipeline: {stages: 2, microbatches: 2}, model: model.yaml, cluster: cluster.yaml, stack: ./stack.html, schedule: order.csv, "
                                "training: {data: text.txt, updates: 1}}\n")
        self.ok("simulate", s)
        for output in (order, model, device, cluster, stack, text):
            for words in (("simulate", s, "-o", "{}"), ("compare", s, SOURCE / SMALL, "-o", "{}"), ("export", s, "-o", "{}"),
                          ("train", s, "--checkpoint", "{}"), ("train", s, "--checkpoint", "{}", "--force"),
                          ("train", s, "-o", "{}"), ("calibrate", s, "-o", "{}"), ("calibrate", s, "--request", "{}"),
                          ("replay", s, "-o", "{}"), ("plan", s, "--time-limit", "1", "-o", "{}")):
                if output == text and words[0] in ("calibrate", "plan"):
                    continue  # neither reads it
                self.refused_over(output, *words)
            self.refused_over(output, "simulate", s, "-o", "{}", called_otherwise=True)
        self.refused_over(device, "simulate", s, "--trace", "{}")
        self.refused_over(device, "replay", s, "--record", "{}")
        self.refused_over(stack, "simulate", s, "--report", "{}")
        self.refused_over(order, "sweep", s, "--over", "microbatch_size=1,2", "-o", "{}", "--force")
        self.refused_over(order, "sweep", s, "--over", "microbatch_size=1,2", "-o", "{}", "--resume")
        self.refused_over(order, "sweep", SOURCE / SMALL, "--over", "stages=2", "--over", f"schedule=1f1b,{order}", "-o", "{}", "--force")

    def test_nor_over_what_a_folder_or_a_script_holds(self):
        (self.folder / "a").mkdir()
        run = self.folder / "run.json"
        self.assertEqual(self.run_command("replay", SMALL, "--record", run).returncode, 0)
        self.refused_over(run, "validate", ".", "-o", "{}", called_otherwise=True)
        self.refused_over(run, "validate", self.folder, "--trace", "{}")
        sizes = self.file("sizes.sh", "L=24\n")
        self.file("job.sh", ". ./sizes.sh\npython pretrain_gpt.py --num-layers $L --hidden-size 1024 --num-attention-heads 16 "
                            "--seq-length 1024 --micro-batch-size 1 --global-batch-size 8 --vocab-size 50257\n")
        self.refused_over(sizes, "import", "megatron-args", "job.sh", "-o", "{}")
        profile = self.folder / "profile.yaml"
        self.profile()
        self.file("p.yaml", "{model: profile.yaml, cluster: profile.yaml, schedule: 1f1b, pipeline: {stages: 2, microbatches: 2}}\n")
        before = profile.read_text()
        done = subprocess.run([BINARY, "calibrate", "p.yaml"], cwd=self.folder, env=self.ENVIRONMENT, text=True, capture_output=True)
        self.assertEqual((done.returncode, profile.read_text()), (2, before), done.stderr)

    def test_nor_over_a_plan_that_is_planned(self):
        plans = self.folder / "plans"
        plans.mkdir()
        for number in (1, 9):
            path = plans / f"plan-{number}.yaml"
            path.write_text((SOURCE / "scenarios/gpt-2.2b-flush.yaml").read_text())
            before = path.read_text()
            self.assertIn("is read, too", self.refused("plan", path, "--write", plans, "--force", "--time-limit", "1"))
            self.assertEqual(path.read_text(), before)

    def test_two_options_write_no_one_file(self):
        (self.folder / "a").mkdir()
        for one in ("x.json", "./x.json", "a/../x.json"):
            for there in (False, True):
                if there:
                    self.file("x.json", "mine")
                done = subprocess.run([BINARY, "simulate", SOURCE / SMALL, "-o", one, "--trace", "x.json"], cwd=self.folder,
                                      env=self.ENVIRONMENT, text=True, capture_output=True)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn("is written by --", done.stderr)
                self.assertEqual((self.folder / "x.json").exists() and (self.folder / "x.json").read_text(), there and "mine")
            (self.folder / "x.json").unlink()
        self.assertIn("is written by", self.refused("simulate", SMALL, "-o", "-", "--trace", "-"))

    def test_what_cannot_be_written_is_said_before_the_work(self):
        (self.folder / "a.json").mkdir()
        (self.folder / "a.html").mkdir()
        none = self.folder / "none"
        for words in (("simulate", SMALL, "-o"), ("simulate", SMALL, "--trace"), ("simulate", SMALL, "--report"),
                      ("replay", SMALL, "--record"), ("train", SMALL, "--checkpoint"), ("calibrate", "-o"), ("calibrate", "--request"),
                      ("export", SMALL, "-o"), ("import", "layout", "Et|tL", "-o"), ("plan", "gpt-2.2b-flush", "--time-limit", "1", "-o"),
                      ("validate", self.folder, "-o"), ("list", "models", "-o"), ("schedule", "show", "1f1b", "-o")):
            ending = "html" if words[-1] == "--report" else "json"
            self.assertIn("is a folder", self.refused(*words, self.folder / f"a.{ending}"), words)
            self.assertIn("there is no folder", self.refused(*words, none / f"a.{ending}"), words)
            self.assertIn("there is no folder", self.refused(*words, f"{SMALL}/a.{ending}"), words)
        both = self.refused("simulate", SMALL, "-o", none / "x", "--trace", none / "y.json")
        self.assertEqual(both.count("there is no folder"), 2)

    @unittest.skipIf(os.geteuid() == 0 and not shutil.which("setpriv"), "root may write everywhere")
    def test_a_folder_that_is_read_only_is_said_before_the_work(self):
        self.folder.chmod(0o555)
        self.addCleanup(self.folder.chmod, 0o755)
        before = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []
        for words in (("calibrate", "--repetitions", "100000", "-o"), ("simulate", SMALL, "-o"), ("replay", SMALL, "--record")):
            done = subprocess.run([*before, BINARY, *words, self.folder / "x.json"], cwd=SOURCE, env=self.ENVIRONMENT, text=True,
                                  capture_output=True, timeout=20)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn("Permission denied", done.stderr)

    def test_nor_does_the_executor(self):
        program = self.program()
        before = program.read_text()
        for words in ((program, "--record", program), (program, "--train", program), ("--calibrate", program, "--output", program)):
            done = self.executor(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("is read, too", done.stderr)
            self.assertEqual(program.read_text(), before)


class Known(Case):
    """Columns, versions and keys that are not known are named."""

    def test_columns_that_nobody_knows(self):
        path = self.file("runs.csv", f"{ROWS.replace('iteration_s', 'iteration_ms')},url\n{ROW},http://x\n")
        for words in (("validate", path, "--as", "runs"), ("validate", path)):
            done = self.run_command(*words)
            self.assertIn("columns that are not known and not used: 'iteration_ms' (did you mean 'iteration_s'?), 'url'", done.stderr)
        self.assertEqual(self.run_command("validate", self.file("runs.csv", f"{ROWS}\n{ROW}\n")).stderr, "")

    def test_columns_that_are_there_twice(self):
        path = self.file("runs.csv", f"{ROWS},dp,tp,tp\n{ROW},2,2,2\n")
        said = self.refused("validate", path, "--as", "runs")
        self.assertIn("column 'dp' is there more than once", said)
        self.assertEqual(said.count("'tp' is there"), 1)
        path = self.file("predicted.csv", "name,measured_s,predicted_s,measured_s\na,1,2,3\n")
        self.assertIn("'measured_s' is there more than once", self.refused("validate", path))

    def test_numbers_that_are_none_of_a_run(self):
        for column, cell in (("iteration_s", "1e308"), ("iteration_s", "inf"), ("iteration_s", "nan"), ("samples_per_s", "1e-308"),
                             ("tflops_per_gpu", "1e-308"), ("peak_gib", "1e308"), ("iteration_s", "1e10")):
            header, row = (ROWS, ROW.rsplit(",", 1)[0]) if column == "iteration_s" else (ROWS.replace("iteration_s", column),
                                                                                        ROW.rsplit(",", 1)[0])
            said = self.refused("validate", self.file("runs.csv", f"{header}\n{row},{cell}\n"), "--as", "runs")
            self.assertRegex(said, rf"'{column}': must be .*, got '{cell}'")
        path = self.file("predicted.csv", "name,measured_s,predicted_s,measured_bytes\na,1e308,2,1e308\n")
        said = self.refused("validate", path)
        self.assertIn("'measured_s': must be a number from 0 to 1e+09", said)
        self.assertIn("'measured_bytes': must be a number from 0 to 9e+15", said)
        for cell in ("0", "0.0", "-0", "1e-300", "1e-320", "5e-324", "1e-12"):
            for header, row in ((ROWS, ROW.rsplit(",", 1)[0]), (ROWS.replace("iteration_s", "peak_gib"), ROW.rsplit(",", 1)[0])):
                done = self.run_command("validate", self.file("runs.csv", f"{header}\n{row},{cell}\n"), "--as", "runs")
                self.assertNotRegex(done.stdout, r"\b(inf|nan)\b", cell)
                self.assertEqual("must be 0 or at least 1e-09" in done.stderr, float(cell) != 0, done.stderr)
            path = self.file("predicted.csv", f"name,measured_s,predicted_s\na,{cell},2\nb,1,{cell}\n")
            done = self.run_command("validate", path)
            self.assertNotRegex(done.stdout, r"\b(inf|nan)\b|(?<!\w)-0", cell)
            self.assertEqual("0 or at least 1e-09" in done.stderr, float(cell) != 0, done.stderr)

    def test_columns_without_a_name_or_with_one_twice_but_for_its_case(self):
        path = self.file("runs.csv", f"{ROWS},,url\n{ROW},x,y\n")
        self.assertIn("not known and not used: number 15, which has no name, 'url'", self.run_command("validate", path).stderr)
        for twice in ("DP", " dp ", "Micro_Batch", "micro-batch", "micro batch", "ITERATION_S"):
            said = self.refused("validate", self.file("runs.csv", f"{ROWS},{twice}\n{ROW},2\n"), "--as", "runs")
            self.assertRegex(said, "are one|more than once")

    NUMBERS = ("1e308", "-1e308", "1e-320", "1e19", "-1", "1" + "0" * 40, "1e400")

    def test_results_with_numbers_of_no_run(self):
        text = self.ok("simulate", SMALL, "--format", "json")
        result = json.loads(text)
        fields = [key for key, value in result.items() if type(value) in (int, float) and key != "schema_version"]
        self.assertGreater(len(fields), 15)
        for key in [*fields, "devices"]:
            for number in self.NUMBERS:
                edited = dict(result)
                if key == "devices":
                    edited[key] = [result[key][0] | {"peak_memory_bytes": "#"}]
                else:
                    edited[key] = "#"
                path = self.file("r.json", json.dumps(edited).replace('"#"', number))
                done = self.run_command("compare", path, SMALL)
                self.assertNotRegex(done.stdout, r"\b(inf|nan)", (key, number))
                if number != "-1" or done.returncode != 0:
                    self.assertEqual(done.returncode, 2, (key, number, done.stderr))
                    self.assertRegex(done.stderr, f"r.json(:.*is not JSON|.*{key}.*: must (be 0, or from|not be negative))")
            for number in ("0", "-0.0", "-0", "1e18", "1000000000000000000", "1e-18"):
                path = self.file("r.json", json.dumps(result | {key: [] if key == "devices" else "#"}).replace('"#"', number))
                done = self.run_command("compare", path, SMALL)
                self.assertEqual(done.returncode, 0, (key, number, done.stderr))
                self.assertNotRegex(done.stdout, r"\b(inf|nan)|-0", (key, number))

    def test_shipped_results_have_none_of_them(self):
        paths = []
        for scenario in sorted((SOURCE / "scenarios").glob("*.yaml")):
            paths.append(self.file(f"{scenario.stem}.json", self.ok("simulate", scenario, "--format", "json", "--engine", "auto")))
        self.ok("compare", *paths)

    def test_a_key_that_is_there_twice(self):
        result = self.ok("simulate", SMALL, "--format", "json")
        recording = self.folder / "r.json"
        self.assertEqual(self.run_command("replay", SMALL, "--record", recording).returncode, 0)
        self.profile()
        for text, words in ((result, ("compare",)), (recording.read_text(), ("validate",)),
                            (self.ok("export", SMALL, "--to", "program"), ())):
            at = text.index('"', text.index(",")) if words else text.index('"')
            key = re.match(r'"[^"]*"', text[at:])[0]
            twice = text[:at] + key + ": 1,\n   " + text[at:]
            done = self.run_command(*words, self.file("twice.json", twice)) if words else self.executor(self.file("twice.json", twice))
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertRegex(done.stderr, rf"twice.json:\d+:4: the key '{key[1:-1]}' is there twice")

    def test_results_of_a_newer_version(self):
        result = json.loads(self.ok("simulate", SMALL, "--format", "json"))
        for version in (result["schema_version"] + 1, 99, 0, "1", None, 1.5):
            said = self.refused("compare", self.file("r.json", json.dumps(result | {"schema_version": version})))
            self.assertIn(f"has schema_version {json.dumps(version)}, and this version of penstock reads 1", said)
        self.ok("compare", self.file("r.json", json.dumps(result)))

    def test_what_megatron_has_no_flag_for(self):
        def note(*sets):
            done = self.run_command("export", "scenarios/gpt3-175b-1f1b.yaml", "--to", "megatron-args",
                                    *[word for s in sets for word in ("--set", s)])
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr
        self.assertEqual(note("transfers=coupled", "stack=megatron"), "")
        self.assertIn("stack: none", note("transfers=coupled"))
        self.assertIn("transfers: overlapped", note())
        said = note("transfers=free", "model.bytes_per_parameter.gradients=3", "pipeline.rank_order=data-first", "pipeline.transfers_divided=true", "tensor=2",
                    "width=4", "stack=deepspeed",
                    "perturbations.jitter.spread=5%", "training.optimizer=sgd", "pipeline.reduction.algorithm=ring")
        for part in ("transfers: free", "model.bytes_per_parameter: 2 + 3 + 12", "pipeline.transfers_divided: true", "stack: deepspeed",
                     "perturbations", "training", "pipeline.reduction.algorithm: ring"):
            self.assertIn(part, said)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
