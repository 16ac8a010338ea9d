# SPDX-License-Identifier: Apache-2.0
"""`--backend cuda` as its users run, interrupt and misuse it, on emulated GPUs (emulated_gpu/gpu.hpp).

Needs what run_case.py needs, and $PENSTOCK_MODULES: the folder of the module for emulated GPUs. One
class of cases may be named as an argument. Nothing here measures time.
"""

import contextlib
import gzip
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from run_case import BINARY, RUN, SOURCE, TRANSFORMER, Case

SANITIZED = "PENSTOCK_SANITIZED" in os.environ or "PENSTOCK_THOROUGH" not in os.environ
MODULES = pathlib.Path(os.environ["PENSTOCK_MODULES"])
GPT = """
stack: none
model: {num_layers: 8, hidden_size: 32, num_attention_heads: 2, vocab_size: 64, seq_length: 16,
        precision: %s}
"""
CLUSTER = "{devices: 8, memory: 16 GiB, link: {latency: 1 us, bandwidth: 10 GB/s}, device: v100-32}"


class Emulated(Case):
    gpus = 1

    def setUp(self):
        super().setUp()
        libraries = [str(MODULES), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.environment |= {"PENSTOCK_MODULES": str(MODULES),
                             "LD_LIBRARY_PATH": ":".join(libraries),  # emulated NCCL before the real
                             "PENSTOCK_EMULATED_GPUS": str(self.gpus)}

    def assert_right(self, *arguments):
        code, out, err = self.run_program(*arguments, "--backend", "cuda")
        self.assertEqual((code, err), (0, ""))
        self.assertIs(json.loads(out)["weights_equal"], True)

    def recorded(self, path):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt") as file:
            return json.load(file)


class OneGpu(Emulated):
    def test_partitions_and_precisions_are_in_the_recording(self):
        program, record = self.program(stages=4, model=TRANSFORMER), self.folder / "r.json.gz"
        for precision in ("fp32", "bf16"):
            self.assert_right(program, "--precision", precision, "--record", record)
            machine = self.recorded(record)["description"]
            self.assertEqual(machine["precision"], precision)
            self.assertEqual(machine["partitions"], "4 x 32 of 132 SMs, 4 left")
            self.assertIn("emulated", machine["gpu"])
            self.assertEqual(machine["links"], "d2d")
            self.assertEqual(machine["partition SMs"], "0-31, 32-63, 64-95, 96-127")
            self.assertEqual(machine["SMs of products"], "32")
            self.assertEqual(machine["timer tick"], "32 ns")

    def test_flash_attention_and_what_was_fused_are_in_the_recording(self):
        model = TRANSFORMER.replace("seq_length:", "flash_attention: true, seq_length:")
        self.assertNotEqual(model, TRANSFORMER)
        program, record = self.program(stages=2, model=model), self.folder / "r.json"
        for epilogues, said in (("all", r"[1-9]\d* kinds fused, 0 not"),
                                ("none", r"0 kinds fused, [1-9]\d* not")):
            self.environment["PENSTOCK_EMULATED_EPILOGUES"] = epilogues
            for precision in ("fp32", "bf16"):
                with self.subTest(epilogues, precision=precision):
                    self.assert_right(program, "--precision", precision, "--record", record)
                    recording = self.recorded(record)
                    self.assertRegex(recording["description"]["products with epilogues"], said)
                    self.assertIn("flash_attention: true", recording["scenario"])

    def test_clocks_and_memory_of_the_run_are_in_the_recording(self):
        record = self.folder / "r.json"
        self.assert_right(self.program(stages=2), "--record", record)
        machine = self.recorded(record)["description"]
        self.assertRegex(machine["clocks in the run"],
                         r"SM 1\d00 to 1\d00 MHz, median 1\d00; memory 2600 .*; \d+ samples")
        self.assertEqual(machine["power in the run"], "420 to 420 W, median 420")
        self.assertIn("slowed down in the run", machine)
        in_use = [int(n) for n in re.findall(r"\d+", machine["memory in use"])]
        self.assertEqual(in_use, sorted(in_use))  # context, workspaces, weights and code, end
        self.assertEqual(in_use[1] - in_use[0], 2 * 32 + 1)  # cuBLASLt's, and slots of time stamps
        reserved = re.findall(r"[\d.]+", machine["memory reserved"])
        for mib, device in zip(reserved, self.recorded(record)["runs"][0]["devices"], strict=True):
            self.assertGreaterEqual(float(mib) * 2**20, device["allocator_peak_bytes"])

    def test_what_it_is_like(self):
        self.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
        code, out, err = self.run_program("--backend", "cuda", "--examine")
        self.assertEqual((code, err), (0, ""))
        for count, sms in ((2, 64), (4, 32), (8, 16), (16, 8)):
            self.assertRegex(out, f"{count} partitions: {count} x {sms} of 132 SMs.* SMs 0-{sms - 1}, ")
        for words in ("32 streams: kernels of 5 ms on each take ", "timer tick: 32 ns",
                      "events across partitions: ", "events back to back: ", "launches by 1 thread: ",
                      "launches by 8 threads: ", "0 MiB used, 64 reserved", "copies of 64 KiB: to the",
                      "copies of 262144 KiB"):
            self.assertIn(words, out)
        self.assertNotIn("FAILED", out)
        self.environment["PENSTOCK_EMULATED_SPLIT"] = "none"
        out = self.run_program("--backend", "cuda", "--examine")[1]
        self.assertIn("2 partitions: none: 132 SMs do not make 2 partitions", out)
        self.assertIn("events across streams without partitions: ", out)
        self.assertIn("--backend cuda", self.one_line(2, "--examine"))
        self.environment["PENSTOCK_EMULATED_GPUS"] = "0"
        self.assertIn("no GPU on this machine", self.one_line(4, "--backend", "cuda", "--examine"))

    def test_replicas(self):
        for precision in ("fp32", "bf16"):
            for schedule, stages in (("pipedream-2bw", 2), ("asp", 1)):
                with self.subTest(schedule, precision=precision):
                    program = self.program(schedule, stages=stages, model=TRANSFORMER, width=2)
                    self.assert_right(program, "--precision", precision)

    def test_partitions_that_cannot_be_made_are_not_recorded_as_such(self):
        program, record = self.program(stages=2), self.folder / "r.json"
        for split, why in (("none", "do not make 2 partitions"), ("overlap", "another partition's")):
            with self.subTest(split):
                self.environment["PENSTOCK_EMULATED_SPLIT"] = split
                code, out, err = self.run_program(program, "--backend", "cuda")
                self.assertEqual((code, json.loads(out)["weights_equal"]), (0, True))
                self.assertRegex(err, f"its stages share all SMs: .*{why}")
                code, out, err = self.run_program(program, "--backend", "cuda", "--record", record)
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(err, f"nothing is recorded: .*{why}")

    def test_what_replay_records_can_be_validated(self):
        scenario = self.scenario("name: gpt\nschedule: pipedream-2bw\nbatches: 4\n"
                                 "pipeline: {stages: 4, microbatches: 8, microbatch_size: 2}\n"
                                 + TRANSFORMER)
        record = self.folder / "r.json.gz"
        code, out, err = self.penstock("replay", scenario, "--backend", "cuda", "--link", "pinned",
                                       "--record", record)
        self.assertEqual((code, err), (0, ""), out)
        code, out, err = self.penstock("validate", record, "--format", "json")
        self.assertIn(code, (0, 3), err)  # times of threads on busy cores: none is promised
        self.assertEqual(self.recorded(record)["description"]["links"], "pinned")

    def test_two_processes_cannot_share_a_gpu(self):
        code, out, err = self.run_program(self.program(stages=2), "--processes", "--backend", "cuda")
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, "two processes share GPU 0000:01:00.0 of .*LOCAL_RANK")

    def test_a_program_larger_than_the_gpu(self):
        self.environment["PENSTOCK_EMULATED_BYTES"] = str(80 << 20)  # cuBLASLt's workspaces: 64 MiB
        code, out, err = self.run_program(self.program(stages=2), "--backend", "cuda")
        self.assertEqual((code, json.loads(out)["weights_equal"]), (0, True), err)
        large = lambda costs: [c.update(output_bytes=1 << 30) for c in costs]
        code, out, err = self.run_program(self.program(stages=2, costs=large), "--backend", "cuda")
        self.assertEqual((code, out), (1, ""), err)
        self.assertRegex(err, r"device \d cannot allocate \d+ bytes on GPU 0: out of memory")

    def test_a_gpu_that_fails_ends_the_run(self):
        record = self.folder / "r.json"
        for piece in (0, 150, 700):
            with self.subTest(piece=piece):
                self.environment["PENSTOCK_EMULATED_FAULT"] = str(piece)
                code, out, err = self.run_program(self.program(stages=4, batches=4), "--backend",
                                                  "cuda", "--record", record)
                self.assertEqual((code, out), (1, ""), err)
                self.assertIn("unspecified launch failure", err)

    def test_a_gpu_that_hangs_ends_the_run_at_its_deadline(self):
        record = self.folder / "r.json"
        self.environment["PENSTOCK_EMULATED_HANG"] = "700"
        code, out, err = self.run_program(self.program(stages=4, batches=4), "--backend", "cuda",
                                          "--deadline", "4", "--record", record)
        self.assertEqual((code, out), (1, ""), err)
        self.assertRegex(err, "device [0-9]")
        run = self.recorded(record)["runs"][-1]
        self.assertIs(run["complete"], False)
        self.assertGreater(len(run["ops"]), 0)

    def test_a_gpu_that_hangs_from_the_start_lets_itself_be_interrupted(self):
        self.environment["PENSTOCK_EMULATED_HANG"] = "0"  # while it is tried out
        run = self.start(RUN, self.program(), "--backend", "cuda")
        self.wait_for(lambda: len(list(pathlib.Path(f"/proc/{run.pid}/task").iterdir())) > 3,
                      "its threads")
        while run.poll() is None:
            run.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(0.5)
        self.assertEqual(self.finish(run)[0], 130)

    def test_an_interrupted_run_keeps_what_ran(self):
        record = self.folder / "r.json"
        run = self.start(RUN, self.stuck(), "--backend", "cuda", "--link", "paced", "--record",
                         record)
        self.started(run, 1)
        run.send_signal(signal.SIGINT)
        code, out, err = self.finish(run)
        self.assertEqual((code, out), (130, ""), err)
        self.assertIs(self.recorded(record)["runs"][-1]["complete"], False)

    def test_what_a_gpu_does_not_have_is_refused(self):
        program = self.program()
        self.assertIn("no virtual clock",
                      self.one_line(2, program, "--backend", "cuda", "--clock", "virtual"))
        self.environment["PENSTOCK_EMULATED_GPUS"] = "0"
        self.assertIn("no GPU on this machine", self.one_line(4, program, "--backend", "cuda"))


class SeveralGpus(Emulated):
    """One process, a GPU for each stage or for some: peer copies, and clocks that are aligned."""
    gpus = 4

    def test_a_stage_each_and_two_each(self):
        for stages in (4, 8):
            program, record = self.program(stages=stages), self.folder / "r.json"
            self.assert_right(program, "--record", record)
            machine = self.recorded(record)["description"]
            self.assertEqual(machine["gpus"], "4")
            self.assertIn("clock uncertainty", machine)

    def test_a_reference_without_room_is_not_compared_and_costs_no_run(self):
        # 24 MiB of weights, gradients and moments a stage, beside cuBLASLt's 32; the reference has four.
        self.environment["PENSTOCK_EMULATED_BYTES"] = str(80 << 20)
        model = TRANSFORMER.replace("hidden_size: 16", "hidden_size: 256")
        program, record = self.program(stages=4, model=model), self.folder / "r.json"
        code, out, err = self.run_program(program, "--backend", "cuda", "--record", record)
        self.assertEqual((code, json.loads(out)["weights_equal"]), (0, None), err)
        self.assertRegex(err, "the weights were not compared: .*out of memory")
        self.assertIs(self.recorded(record)["runs"][0]["complete"], True)

    def test_paced_links_say_when_they_take_sms_of_the_stages(self):
        record = self.folder / "r.json"
        self.assert_right(self.program(stages=4), "--link", "paced", "--record", record)
        self.assertEqual(self.recorded(record)["description"]["links"],
                         "paced, on the stages' own SMs")

    def test_transfers_wait_for_one_another_across_gpus(self):
        for schedule in ("1f1b", "pipedream", "dualpipe"):
            for link in ("d2d", "pinned"):
                with self.subTest(schedule, link=link):
                    size = {"microbatches": 1, "batches": 8} if schedule == "pipedream" else {
                        "microbatches": 8}
                    self.assert_right(self.program(schedule, stages=4, **size), "--link", link)


class Nccl(Emulated):
    """A process per GPU."""
    gpus = 8

    def test_every_process_count(self):
        for schedule in ("1f1b", "pipedream-2bw"):
            for stages in (4,) if SANITIZED else (2, 4, 8):
                for model in (None, TRANSFORMER):
                    program = self.program(schedule, stages=stages, microbatches=stages,
                                           model=model)
                    with self.subTest(schedule, stages=stages, transformer=model is not None):
                        self.assert_right(program, "--processes")

    def test_several_stages_per_device_mirrors_and_pairs(self):
        for schedule, stages in (("chimera", 4), ("dualpipe", 4), ("hanayo", 2),
                                 ("interleaved-1f1b", 2)):
            with self.subTest(schedule):
                program = self.program(schedule, stages=stages, microbatches=8, batches=2)
                self.assert_right(program, "--processes")

    def test_replicas(self):
        for schedule, width in (("1f1b", 2), ("pipedream-2bw", 4), ("data-parallel", 3), ("asp", 3)):
            shape = {"stages": 1 if schedule in ("data-parallel", "asp") else 2}
            for model in (None, TRANSFORMER):
                with self.subTest(schedule, width=width, transformer=model is not None):
                    program = self.program(schedule, **shape, model=model, width=width)
                    self.assert_right(program, "--processes")

    def test_kernels_for_what_is_no_whole_pieces_are_loaded_before_the_run(self):
        for schedule, stages in (("1f1b", 2), ("asp", 1)):
            for vocabulary in (33, 35):
                odd = re.sub(r"vocab_size: \d+", f"vocab_size: {vocabulary}", TRANSFORMER)
                odd = re.sub(r"hidden_size: \d+", "hidden_size: 18", odd)
                program = self.program(schedule, stages=stages, model=odd, width=3)
                with self.subTest(schedule, vocabulary=vocabulary):
                    self.assert_right(program, "--processes", "--precision", "bf16")

    def test_a_message_does_not_arrive_before_it_left_though_clocks_differ(self):
        self.environment["PENSTOCK_EMULATED_TICK_NS"] = "3000000"
        program, record = self.program(stages=4), self.folder / "r.json"
        self.assert_right(program, "--processes", "--record", record)
        recording = self.recorded(record)
        self.assertRegex(recording["description"]["links"], "NCCL 2")
        self.assertIn("clock uncertainty", recording["description"])
        messages = [op for op in recording["runs"][0]["ops"] if "message_start_s" in op]
        self.assertGreater(len(messages), 0)
        code, out, err = self.penstock("validate", record, "--format", "json")
        self.assertIn(code, (0, 3), err)

    def test_ranks_by_hand(self):
        program = self.program(stages=4)
        ranks = [self.rank(program, r, 4, "--backend", "cuda",
                           extra={"PENSTOCK_RENDEZVOUS": str(self.meeting()),
                                  "LOCAL_RANK": str(r)}) for r in range(4)]
        results = [self.finish(r) for r in ranks]
        self.assertEqual([(r[0], r[2]) for r in results], [(0, "")] * 4)
        self.assertIs(json.loads(results[0][1])["weights_equal"], True)

    def test_ranks_that_see_one_gpu_each(self):
        program, record = self.program(stages=4, model=TRANSFORMER), self.folder / "r.json"
        meeting = str(self.meeting())
        ranks = [self.rank(program, r, 4, "--backend", "cuda", "--record", record,
                           extra={"PENSTOCK_RENDEZVOUS": meeting, "LOCAL_RANK": str(r),
                                  "CUDA_VISIBLE_DEVICES": str(r)}) for r in range(4)]
        results = [self.finish(r) for r in ranks]
        self.assertEqual([(r[0], r[2]) for r in results], [(0, "")] * 4)
        self.assertIs(json.loads(results[0][1])["weights_equal"], True)
        # The stages in between have four ends of channels, of four thread blocks each.
        self.assertEqual(self.recorded(record)["description"]["SMs of products"], str(132 - 4 * 4))

    def test_a_killed_process_ends_the_others(self):
        record = self.folder / "r.json"
        run = self.start(RUN, self.stuck(), "--processes", "--backend", "cuda", "--deadline", "30",
                         "--record", record)
        ranks = self.started(run, 4)
        os.kill(ranks[2], signal.SIGKILL)
        code, out, err = self.finish(run)
        self.assertEqual((code, out), (1, ""), err)
        self.assertRegex(err, r"device \d -> device \d|rank \d is gone|NCCL")
        self.assert_gone(ranks)

    def test_a_hung_process_ends_the_others(self):
        # Four processes with a sanitizer on a busy machine do not begin within two seconds.
        seconds = 10 if "PENSTOCK_SANITIZED" in os.environ else 2
        run = self.start(RUN, self.stuck(seconds=seconds), "--processes", "--backend", "cuda",
                         "--deadline", str(seconds))
        ranks = self.started(run, 4)
        os.kill(ranks[1], signal.SIGSTOP)
        code, out, err = self.finish(run)
        self.assertEqual((code, out), (1, ""), err)
        self.assert_gone(ranks)


class Calibrating(Emulated):
    def profile(self, *arguments):
        path = self.folder / "profile.yaml"
        code, out, err = self.penstock("calibrate", *arguments, "-o", path)
        self.assertEqual(code, 0, out)
        if err:  # other tests run beside the emulated GPU
            self.assertTrue(err.startswith("warning: this machine did other work"), err)
        return path.read_text()

    def request(self, *arguments):
        path = self.folder / "ask.json"
        code, out, err = self.penstock("calibrate", *arguments, "--request", path)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("penstock-run --calibrate", out)
        return path

    def test_elsewhere_is_as_here(self):
        model = self.scenario((GPT % "mixed-bf16").replace("stack: none", "") + "cluster: " + CLUSTER, "gpt.yaml")
        few = ("--backend", "cuda", "--workers", "2", "--repetitions", "3", "--microbatch-sizes",
               "1,2", "--link", "pinned")
        here = self.profile(model, *few)
        answer = self.folder / "answer.json"
        asked = self.request(model, *few)
        for size in (1, 2):  # the model's own messages, in bf16
            self.assertIn(size * 16 * 32 * 2, json.loads(asked.read_text())["message_bytes"])
        code, _, err = self.run_program("--calibrate", asked, "--backend", "cuda", "--output",
                                        answer)
        self.assertEqual(code, 0, err)
        there = self.profile("--result", answer)
        for text in (here, there):
            self.assertIn("emulated", text)
        keys = [re.findall(r"^ *(?:- )?([a-z_]+):", text, re.MULTILINE) for text in (here, there)]
        self.assertEqual(*keys)

    def test_a_calibration_that_is_cut_off_goes_on(self):
        model = self.scenario((GPT % "mixed-bf16").replace("stack: none", "") + "cluster: " + CLUSTER, "gpt.yaml")
        asked = self.request(model, "--backend", "cuda", "--workers", "2", "--repetitions", "2",
                             "--microbatch-sizes", "1", "--link", "pinned")
        answer = self.folder / "answer.json"
        go = ("--calibrate", asked, "--backend", "cuda", "--output", answer, "--resume")
        code, _, err = self.run_program(*go, "--budget", "0.01")
        self.assertEqual(code, 1)
        self.assertIn("the calibration is partial", err)
        code, _, err = self.penstock("calibrate", "--result", answer)
        self.assertEqual(code, 2, err)
        self.assertIn("is partial", err)
        self.assertEqual(self.run_program(*go)[0], 0)
        self.assertEqual(self.penstock("calibrate", "--result", answer, "-o",
                                       self.folder / "profile.yaml")[0], 0)

    def test_kernels_of_a_gpu_are_a_file_that_its_device_reads(self):
        path = self.folder / "mine.json"
        code, out, err = self.penstock("calibrate", "--device", "h100", "--largest", "256", "-o", path)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"products, bf16 +2 ")
        self.assertIn("not measured here: collectives of NCCL", out)
        mine = json.loads(path.read_text())
        shipped = json.loads((SOURCE / "models" / "devices" / "kernels" / "h100.json").read_text())
        self.assertEqual(mine["device"], "H100")
        self.assertIn("emulated", mine["source"])
        law = {p["type"]: p for p in mine["products"]}["bf16"]
        for key, value in {p["type"]: p for p in shipped["products"]}["bf16"].items():
            fitted = key in ("flops_per_s", "launch_s", "bytes_per_s")
            self.assertEqual(law[key] == value, not fitted, key)
        self.assertEqual(mine["collectives"], shipped["collectives"], "kept, as it says")
        self.assertEqual([p["bytes"] for p in mine["streams"] if p["op"] == "copy"], [[2 * 4 * 256 * 256]])
        self.assertEqual([a["framework"] for a in mine["attention"]],
                         [a["framework"] for a in shipped["attention"]] + ["penstock"])
        job = ("stack: megatron-kernels\nmodel: llama-3-8b\ncluster: {base: dgx-h100, device: {base: h100, "
               "kernels: %s}}\nschedule: 1f1b\npipeline: {stages: 4, microbatches: 4}\n")
        seconds = [json.loads(self.penstock("simulate", self.scenario(job % name, "job.yaml"), "--format", "json")[1])
                   ["iteration_time_s"] for name in ("h100", path)]
        self.assertGreater(seconds[1], 2 * seconds[0], "an emulated GPU is slow")

    def test_what_measures_kernels_takes_nothing_of_stages(self):
        for words, said in ((("--device", "h100", "--precision", "bf16"), "not for --device"),
                            (("--device", "h100", "--backend", "host"), "measures a GPU"),
                            (("--device", "h1000"), "h100"), (("--largest", "8"), "--device"),
                            (("--device", "titan-x"), "no kernel times")):
            self.assertIn(said, self.refused(2, "calibrate", *words, program=BINARY))

    def test_a_result_takes_nothing_that_says_how_to_measure(self):
        for option in ("--workers", "--microbatch-sizes"):
            self.assertIn("--result", self.refused(2, "calibrate", "--result", "x", option, "2",
                                                   program=BINARY))
        self.assertIn("cuda", self.refused(2, "calibrate", "--link", "d2d",
                                           program=BINARY))


class Recording(Emulated):
    """A whole session on a GPU machine, from its preparation to the validation of what came back."""

    def script(self, name, *arguments, **variables):
        environment = self.environment | {"PENSTOCK": BINARY, "PENSTOCK_RUN": RUN,
                                          **variables}
        code, out, err = self.finish(self.start(SOURCE / "scripts" / name, *arguments,
                                                env=environment))
        self.assertEqual(code, 0, out + err)
        return out + err

    def test_memory_is_that_of_each_gpu(self):
        spec = importlib.util.spec_from_file_location("gpu_recordings",
                                                      SOURCE / "scripts/gpu_recordings.py")
        recordings = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recordings)
        profile = recordings.Profile(8192, 2, "pinned", "bf16")
        room = {name: gpu.room_bytes for name, gpu in recordings.GPUS.items()}
        fits = {name: [size for size in (1, 2, 4) if recordings.fits(profile, 2, size, room[name])]
                for name in room}
        self.assertEqual(fits, {"h100": [1], "h200": [1, 2, 4]})

    def shortened(self, session):
        """Two runs for the first ten minutes and one for later, each with its calibration, and two
        checks: the script is the same, whatever the number."""
        programs = session / "programs"
        runs = programs / "runs.txt"
        kept = ("1f1b-p4-m8-pinned-bf16", "pipedream-p4-m1-pinned-bf16", "1f1b-p4-m8-d2d-bf16")
        lines = [x for x in runs.read_text().splitlines() if x.split()[1] in kept]
        self.assertEqual(sorted(x.split()[0] for x in lines), ["0", "0", "1"])
        runs.write_text("\n".join(lines) + "\n")
        for path in programs.glob("*.json"):
            if path.name.startswith(("calibrate-", "layer-")):
                if not re.search("p4-(pinned|d2d)[.]json|layer-", path.name):
                    path.unlink()
                    continue
                request = json.loads(path.read_text())
                sizes = [1, 2] if path.name.startswith("layer-") else [2]
                request |= {"min_repetitions": 2, "max_repetitions": 2, "microbatch_sizes": sizes,
                            "recompute": ["none"]}
                path.write_text(json.dumps(request))
            elif path.stem not in (*kept, "check-zb-h1", "check-pipedream"):
                path.unlink()

    def test_the_first_ten_minutes_and_the_rest_to_validation(self):
        session, out, rest, traces = (self.folder / name for name in
                                      ("session", "out", "rest", "traces"))
        said = self.script("gpu_recordings.py", "prepare", session, "--small", "--gpu", "h100")
        self.assertNotIn("left out", said)
        lines = (session / "programs" / "runs.txt").read_text().splitlines()
        first = sorted(x.split()[1] for x in lines if x.startswith("0 "))
        self.assertEqual(sorted(name.rsplit("-p4", 1)[0] for name in first),
                         ["1f1b", "gpipe", "pipedream", "pipedream-2bw", "v-half", "zb-h1"])
        self.assertLess(len([x for x in lines if x.startswith("1 ")]), 30)
        checks = {p.stem for p in (session / "programs").glob("check-*.json")}
        for name in ("zb-v", "dualpipe", "chimera", "pipemare"):
            self.assertIn(f"check-{name}", checks)
        test = session / "bin" / "cuda_test"
        if test.exists():  # it finds beside itself what a bare machine lacks
            self.assertIn(str(session / "bin" / "libfmt.so"),
                          subprocess.run(["ldd", test], capture_output=True, text=True).stdout)
        self.shortened(session)
        # A machine of two cores that others use needs more than a GPU; the parts are as bounded.
        scaled = {"PERCENT": "300", "REPEATS": "2", "TESTS": "Gpu.PacedWork*"}
        self.script("gpu_first.sh", session, out, **scaled)
        results = out / "results"
        log = (results / "session.log").read_text()
        self.assertNotRegex(log, "FAILED|left out")
        self.assertLessEqual(int(re.findall(r"^.(\d+) s", log, re.MULTILINE)[-1]), 3 * 540)
        for check in ("check-zb-h1", "check-pipedream"):
            self.assertIn('"weights_equal": true', (results / f"{check}.log").read_text())
        before = {p.name: p.stat().st_mtime_ns for p in results.glob("*.json.gz")}
        self.assertEqual(len(before), 2)
        self.script("gpu_second.sh", session, rest, REPEATS="2", BUDGET="1500",
                    FORMER=out / "results.tgz")
        self.assertEqual({p.stem for p in (rest / "results").glob("*.json.gz")} - {
            pathlib.Path(name).stem for name in before}, {"1f1b-p4-m8-d2d-bf16.json"})
        second = (rest / "results" / "session.log").read_text().removeprefix(log)
        self.assertNotIn("1f1b-p4-m8-pinned", second)  # not once more
        self.script("gpu_recordings.py", "collect", rest, traces, "--gpu", "h100")
        self.assertRegex((traces / "layers.txt").read_text(), r"F .* ms, B .* ms, .*% of the peak")
        self.assertRegex((traces / "launches.txt").read_text(), "1 to 2 sequences, .* times the time")
        self.assertIn("launches by 8 threads", (traces / "examination.log").read_text())
        profile = (traces / "gpt-1024-p4-pinned.yaml").read_text()
        self.assertIn("flash_attention: true", profile)
        for path in traces.glob("*.json.gz"):
            self.assertEqual([r["complete"] for r in self.recorded(path)["runs"]], [True, True])
            self.assertEqual([r["weights_equal"] for r in self.recorded(path)["runs"]], [None] * 2)
        code, text, err = self.penstock("validate", traces, "--format", "json")
        self.assertIn(code, (0, 3), err)
        rows = json.loads(text)["rows"]
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertLess(abs(row["memory_error"]), 0.01)

    def test_when_the_time_is_up_what_there_is_is_packed(self):
        session, out = self.folder / "session", self.folder / "out"
        self.script("gpu_recordings.py", "prepare", session, "--small")
        environment = self.environment | {"BUDGET": "0"}
        code, said, err = self.finish(self.start(SOURCE / "scripts" / "gpu_second.sh",
                                                 session / "session.tgz", out, env=environment))
        self.assertEqual(code, 0, err)
        self.assertIn("left out, the time of its part was up", said)
        self.assertTrue((out / "results.tgz").exists())
        self.assertEqual(list((out / "results").glob("*.json*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
