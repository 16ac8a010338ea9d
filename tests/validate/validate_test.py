# SPDX-License-Identifier: Apache-2.0
"""penstock validate as its users run it, on recordings made from penstock's own predictions.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE.
"""

import csv
import io
import json
import os
import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import recordings
from command_case import CommandCase, of_penstock

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
ENVIRONMENT = of_penstock(NO_COLOR="1")
SCENARIO = """
name: {name}
model: {{forward: 1 s, backward: 2 s, activation: 1 GiB, parameters: 2 GiB, output: 64 MiB}}
cluster: {{devices: 4, memory: 16 GiB, link: {{latency: 0.5 s, bandwidth: 1 GiB/s}}}}
schedule: {schedule}
batches: {batches}
transfers: {transfers}
pipeline: {{stages: {stages}, microbatches: {microbatches}}}
"""


class Case(CommandCase):
    ENVIRONMENT = ENVIRONMENT

    def ok(self, *arguments, says=""):
        done = self.run_command(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, says), arguments)
        return done.stdout

    def record(self, file="run.json", factors=(1.1,), jitter=0.0, **shape):
        """Writes a recording; each run is `factor` as slow as predicted. Returns its path and what
        was recorded."""
        shape = {"name": "small", "schedule": "1f1b", "batches": 6, "stages": 4, "microbatches": 8,
                 "transfers": "overlapped"} | shape
        text = SCENARIO.format(**shape)
        scenario, trace = self.folder / "scenario.yaml", self.folder / "trace"
        scenario.write_text(text)
        result = json.loads(self.ok("simulate", scenario, "--engine", "exact", "--events",
                                    "--format", "json", "--trace", trace))
        messages = recordings.from_trace(json.loads(trace.read_text()))
        runs = [recordings.make_run(result, messages, factor, jitter, seed)
                for seed, factor in enumerate(factors)]
        made = recordings.make_recording(result, text, runs, shape["name"])
        scenario.unlink()
        trace.unlink()
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        recordings.write(made, path)
        return path, made

    def result(self, *arguments, says=""):
        return json.loads(self.ok("validate", *arguments, "--format", "json", says=says))


run = Case.run_command


class Spans(Case):
    """Megatron-LM's OpenTelemetry spans, as its documentation describes them, beside a scenario."""

    def spans(self, factor=1.1, width=1, batches=4, stages=2, microbatches=4):
        """The scenario's path, and by rank the resource with what a run exports that is so much slower than predicted."""
        scenario = self.folder / "s.yaml"
        text = SCENARIO.format(name="small", schedule="1f1b", batches=batches, stages=stages,
                               microbatches=microbatches, transfers="overlapped")
        if width > 1:
            text = text.replace("pipeline: {", f"pipeline: {{width: {width}, reduction: {{algorithm: formula}}, ")
        scenario.write_text(text)
        result = json.loads(self.ok("simulate", scenario, "--engine", "exact", "--events", "--format", "json"))

        def attribute(key, value):
            return {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}

        def span(name, start_s, end_s, **attributes):
            return {"name": f"megatron.{name}", "startTimeUnixNano": str(1_700_000_000_000_000_000 + round(start_s * factor * 1e9)),
                    "endTimeUnixNano": str(1_700_000_000_000_000_000 + round(end_s * factor * 1e9)),
                    "attributes": [attribute(f"megatron.{k}", v) for k, v in attributes.items()]}
        resources = []
        for rank in range(stages * width):
            position, replica = rank // width, rank % width
            mine = [e for e in result["events"] if e["device"] == replica * stages + position]
            spans = []
            for update in range(batches):
                part = [e for e in mine
                        if (int(re.search(r"\d+$", e["op"])[0]) // width) // (1 if "STEP" in e["op"] or "REDUCE" in e["op"] else microbatches) == update]
                forward = [e for e in part if re.fullmatch(r"\d+F\d+", e["op"])]
                backward = [e for e in part if re.fullmatch(r"\d+B\d+", e["op"])]
                spans += [span("microbatch.forward", e["start_s"], e["end_s"], microbatch_id=i) for i, e in enumerate(forward)]
                spans += [span("microbatch.backward", e["start_s"], e["end_s"]) for e in backward]
                last = max(e["end_s"] for e in part)
                spans.append(span("optimizer_step", last - 2e-8, last - 1e-8))  # takes no time here
                for e in part:
                    if "REDUCE" in e["op"]:
                        spans += [span("grad_sync.start", e["start_s"], e["start_s"]),
                                  span("grad_sync.finish", e["start_s"], e["end_s"])]
                spans.append(span("forward_backward", forward[0]["start_s"], last, num_microbatches=microbatches))
                spans.append(span("train_step", forward[0]["start_s"], last, iteration=100 + update))
            resources.append({"resource": {"attributes": [attribute("service.instance.id", f"17-rank{rank}"),
                                                          attribute("dl.pipeline_parallel.size", stages),
                                                          attribute("dl.data_parallel.size", width)]},
                              "scopeSpans": [{"scope": {"name": "nemo.lens"}, "spans": spans}]})
        return scenario, resources

    def write(self, text, name="spans.json"):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_a_run_ten_percent_slower_has_exactly_that_error(self):
        for width in (1, 2):
            scenario, resources = self.spans(width=width)
            whole = self.write(json.dumps({"resourceSpans": resources}))
            lines = self.write("".join(json.dumps({"resourceSpans": [r]}) + "\n" for r in reversed(resources)), "lines.json")
            for path in (whole, lines):
                with self.subTest(path=path, width=width):
                    row, = self.result(path, scenario)["rows"]
                    self.assertAlmostEqual(row["error"], 1 / 1.1 - 1, 6)
                    self.assertTrue(row["order_equal"])
                    errors = {k["kind"]: k["error"] for k in row["kinds"]}
                    self.assertAlmostEqual(errors["F"], 1 / 1.1 - 1, 6)
                    self.assertAlmostEqual(errors["B"], 1 / 1.1 - 1, 6)
                    self.assertEqual(row["backend"], "megatron")

    def test_one_stage_alone_is_compared(self):
        scenario, resources = self.spans()
        result = self.result(self.write(json.dumps({"resourceSpans": resources[1:]})), scenario)
        row, = result["rows"]
        self.assertIn("spans of 1 of 2 stages", " ".join(row["notes"]))
        self.assertEqual([k["kind"] for k in row["kinds"]], ["F", "B", "STEP"])

    def test_what_is_wrong_is_said_of_the_file(self):
        scenario, resources = self.spans()
        def refused(change):
            copy = json.loads(json.dumps({"resourceSpans": resources}))
            change(copy["resourceSpans"])
            done = run("validate", self.write(json.dumps(copy)), scenario)
            self.assertEqual(done.returncode, 2)
            return done.stderr
        def spans_of(all):
            return all[0]["scopeSpans"][0]["spans"]
        self.assertIn("no rank", refused(lambda all: all[0]["resource"].pop("attributes")))
        self.assertIn("endTimeUnixNano", refused(lambda all: spans_of(all)[3].update(endTimeUnixNano="7")))
        self.assertIn("endTimeUnixNano", refused(lambda all: spans_of(all)[3].update(endTimeUnixNano="soon")))
        self.assertIn("MEGATRON_OTEL_SPAN_GROUPS=all", refused(
            lambda all: [r["scopeSpans"][0].update(spans=[s for s in r["scopeSpans"][0]["spans"] if "microbatch" not in s["name"]]) for r in all]))
        self.assertIn("holds no spans of Megatron-LM", refused(list.clear))
        self.assertIn("rank 1 is none of 1 stages", refused(
            lambda all: [a.update(value={"intValue": "1"}) for r in all for a in r["resource"]["attributes"] if "pipeline" in a["key"]]))
        done = run("validate", self.write(json.dumps({"resourceSpans": resources})))
        self.assertIn("holds no scenario", done.stderr)


class Validate(Case):
    def test_a_run_ten_percent_slower_has_exactly_that_error_and_exits_3(self):
        path, _ = self.record()
        result = self.result(path)
        expected = 1 / 1.1 - 1
        row, = result["rows"]
        self.assertAlmostEqual(row["error"], expected, 12)
        self.assertAlmostEqual(row["measured_s"], 1.1 * row["predicted_s"], 9)
        self.assertEqual(row["memory_error"], 0)
        self.assertEqual(row["measured_bytes"], row["predicted_bytes"])
        self.assertGreater(row["measured_bytes"], 0)
        self.assertTrue(row["order_equal"])
        for kind in row["kinds"]:
            self.assertAlmostEqual(kind["error"], expected, 9, kind)
        self.assertEqual([k["kind"] for k in row["kinds"]], ["F", "B", "SEND_F", "SEND_B"])
        causes = row["causes"]
        self.assertAlmostEqual(causes["gap_s"], row["predicted_s"] - row["measured_s"], 9)
        self.assertAlmostEqual(causes["op_time_s"] + causes["transfer_time_s"], causes["gap_s"], 9)
        self.assertLess(causes["op_time_s"], 0)
        self.assertLess(causes["transfer_time_s"], 0)
        self.assertAlmostEqual(row["error_own_op_times"],
                               causes["transfer_time_s"] / row["measured_s"], 9)
        self.assertAlmostEqual(result["time_own_op_times"]["mape"], -row["error_own_op_times"], 12)
        for summary in (result["time"], result["time_by_pp"]["4"]):
            self.assertAlmostEqual(summary["mape"], -expected, 12)
            self.assertAlmostEqual(summary["bias"], expected, 12)
            self.assertEqual(summary["n"], 1)
        self.assertEqual(result["memory"]["mape"], 0)

        self.assertEqual(run("validate", path, "--tolerance", "10%").returncode, 0)
        done = run("validate", path, "--tolerance", "9%")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr, "out of the tolerance of 9.0 %: small (-9.1 %)\n")
        self.assertIn("How fast?", done.stdout)

    def test_every_schedule_predicted_again_has_no_error(self):
        for schedule, batches, microbatches in (("gpipe", 4, 8), ("1f1b", 4, 8),
                                                ("dapple-pb", 4, 8), ("pipedream", 40, 1),
                                                ("pipedream-2bw", 8, 4), ("model-parallel", 4, 1)):
            for transfers in ("free", "overlapped", "coupled", "blocking"):
                with self.subTest(schedule, transfers=transfers):
                    path, _ = self.record(schedule=schedule, batches=batches, factors=(1, 1),
                                          microbatches=microbatches, transfers=transfers)
                    row, = self.result(path)["rows"]
                    self.assertAlmostEqual(row["error"], 0, 9)
                    self.assertTrue(row["order_equal"])
                    for key, seconds in row["causes"].items():
                        self.assertAlmostEqual(seconds, 0, 6, key)

    def test_both_engines_say_the_same(self):
        path, _ = self.record(jitter=0.2)
        exact, simgrid = (self.result(path, "--engine", e)["rows"][0] for e in ("exact", "simgrid"))
        self.assertEqual((exact.pop("engine"), simgrid.pop("engine")), ("exact", "simgrid"))
        self.assertAlmostEqual(exact["error"], simgrid["error"], 9)
        for key, seconds in exact["causes"].items():
            self.assertAlmostEqual(seconds, simgrid["causes"][key], 6, key)

    def test_a_folder_is_read_recursively_and_only_recordings_count(self):
        self.record("b.json", (1.25,), stages=2)
        self.record("deep/a.json.gz", (0.8,))
        (self.folder / "deep" / "trace.json").write_text('{"traceEvents": []}')
        (self.folder / "note.txt").write_text("nothing")
        says = ("note: left out, neither recordings nor tables of measured times: "
                "deep/trace.json\n")
        result = self.result(self.folder, "--engine", "simgrid", says=says)  # one process each
        self.assertEqual([pathlib.Path(r["file"]).name for r in result["rows"]],
                         ["b.json", "a.json.gz"])
        self.assertAlmostEqual(result["time"]["bias"], (1 / 1.25 - 1 + 1 / 0.8 - 1) / 2, 9)
        self.assertEqual(set(result["time_by_pp"]), {"2", "4"})
        text = self.ok("validate", self.folder, "--format", "csv", says=says)
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertAlmostEqual(float(rows[0]["error"]), -0.2, 9)
        self.assertIn("op_time_s", rows[0])
        table = self.ok("validate", self.folder, says=says)
        self.assertRegex(table, r"small +1f1b +2 .*-20\.0 %")
        self.assertIn("time: mean |error| 22.5 %", table)
        markdown = self.ok("validate", self.folder, "--markdown", says=says)
        lines = markdown.splitlines()
        self.assertTrue(lines[0].startswith("| recording | schedule |"))
        self.assertEqual({line.count("|") for line in lines[:4]}, {11})

    def test_a_given_scenario_replaces_the_recorded_one(self):
        path, made = self.record(factors=(1,))
        other = self.folder / "other.yaml"
        other.write_text(made["scenario"].replace("forward: 1 s", "forward: 2 s")
                         .replace("batches: 6", "batches: 1"))
        row, = self.result(path, other)["rows"]
        self.assertGreater(row["error"], 0.2)
        self.assertAlmostEqual(row["causes"]["op_time_s"], row["causes"]["gap_s"], 9)
        row, = self.result(path, "--set", "forward=2 s")["rows"]
        self.assertGreater(row["error"], 0.2)

    def test_the_profile_of_a_recording_lies_beside_it(self):
        path, made = self.record(factors=(1,))
        model = re.search(r"(?m)^model: (.*)$", made["scenario"])
        (self.folder / "mine.yaml").write_text(model[1] + "\n")
        made["scenario"] = made["scenario"].replace(model[1], "mine.yaml")
        recordings.write(made, path)
        self.assertAlmostEqual(self.result(path)["rows"][0]["error"], 0, 9)

    def test_the_page_and_the_trace_hold_both_timelines(self):
        path, _ = self.record(factors=(1.1, 1.2))
        page, trace = self.folder / "page.html", self.folder / "both.json.gz"
        self.ok("validate", path, "--report", page, "--trace", trace)
        html = page.read_text()
        footer = html[html.index("<footer>"):html.index("</footer>")]
        self.assertIn("penstock validate", footer)
        self.assertRegex(footer, r"<p>penstock \d")
        self.assertIn(f"# of {path}\n", footer)
        self.assertIn("schedule: ", footer)
        sections = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
        self.assertEqual([s["kind"] for s in sections],
                         ["comparison", "timeline", "table", "table", "table"])
        lanes = [lane["name"] for lane in sections[1]["lanes"]]
        self.assertEqual(lanes[:2], ["0 predicted", "0 measured"])
        self.assertEqual(len(lanes), 8)
        self.assertIn("no violations", self.ok("trace", "check", trace))

    def test_a_stopped_run_is_compared_as_far_as_it_came(self):
        path, made = self.record(factors=(1, 1))
        run_ = made["runs"][1]
        run_["ops"] = [op for op in run_["ops"] if op["end_s"] < 190]
        run_.update(complete=False, stopped_because="pulled the plug")
        made["runs"] = [run_]
        recordings.write(made, path)
        trace = self.folder / "both.json"
        text = self.ok("validate", path, "--trace", trace, "--report", self.folder / "page.html")
        self.assertIn("note: run 0 was stopped: pulled the plug", text)
        self.assertIn("no violations", self.ok("trace", "check", trace))
        self.assertAlmostEqual(self.result(path)["rows"][0]["error"], 0, 9)


class Refused(Case):
    def test_what_is_no_recording(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("holds no recording", self.refused("validate", empty))
        self.assertIn("cannot be read", self.refused("validate", self.folder / "none.json"))
        (self.folder / "bad.json").write_text("{")
        self.assertIn("is not JSON", self.refused("validate", self.folder / "bad.json"))

    def test_a_tolerance_that_is_none(self):
        path, _ = self.record()
        self.assertIn("--tolerance", self.refused("validate", path, "--tolerance", "five"))

    def test_a_scenario_of_another_run(self):
        path, made = self.record()
        for old, new, says in (("stages: 4", "stages: 2", "the number of stages is 4 in the"),
                               ("microbatches: 8", "microbatches: 4", "number of microbatches is 8"),
                               ("schedule: 1f1b", "schedule: gpipe", "the schedule is 1f1b in the")):
            other = self.folder / "other.yaml"
            other.write_text(made["scenario"].replace(old, new))
            self.assertIn(says, self.refused("validate", path, other))

    def test_ops_that_the_schedule_does_not_have(self):
        path, made = self.record()
        made["runs"][0]["ops"][0]["op"] = "0F4711"
        recordings.write(made, path)
        self.assertIn("the first is 0F4711 on device 0",
                      self.refused("validate", path))

    def test_a_recording_without_a_scenario(self):
        path, made = self.record()
        made["scenario"] = ""
        recordings.write(made, path)
        self.assertIn("holds no scenario; give one after", self.refused("validate", path))

    def test_one_trace_of_several_recordings(self):
        self.record("a.json")
        self.record("b.json")
        self.assertIn("--trace", self.refused("validate", self.folder, "--trace", "t.json"))


if __name__ == "__main__":
    unittest.main()
