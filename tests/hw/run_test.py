# SPDX-License-Identifier: Apache-2.0
"""penstock-run and `penstock replay` as their users run and misuse them.

Needs what run_case.py needs. One class of cases may be named as an argument. Nothing here measures time: a
program that does not end fails by its time-out.
"""

import itertools
import json
import pathlib
import re
import shutil
import socket
import sys
import unittest

from run_case import BINARY, Case, RUN, SMALL, SOURCE, TENSOR, TRANSFORMER, UNEVEN


class Weights(Case):
    """The weights of several processes equal, bit for bit, those of a sequential run."""

    def assert_equal_weights(self, program, *arguments):
        code, out, err = self.run_program(program, "--processes", *arguments)
        self.assertEqual((code, err), (0, ""))
        self.assertIs(json.loads(out)["weights_equal"], True)

    def shape(self, schedule, stages):
        # PipeDream updates after each microbatch.
        return {"stages": stages, "microbatches": 1 if schedule == "pipedream" else max(stages, 2),
                "batches": 3 * stages if schedule == "pipedream" else 3}

    def every_process_count(self, schedule):
        for stages, clock in itertools.product((1, 2, 4, 8), ("wall", "virtual")):
            program = self.program(schedule, **self.shape(schedule, stages))
            with self.subTest(stages=stages, clock=clock):
                self.assert_equal_weights(program, "--clock", clock)
        for stages, recompute in [*itertools.product((1, 2, 4, 8), ("none", "full")),
                                  (4, "[full, none, selective, full]")]:
            program = self.program(schedule, **self.shape(schedule, stages), model=TRANSFORMER,
                                   recompute=recompute, microbatch_size=2)
            with self.subTest(stages=stages, recompute=recompute):
                self.assert_equal_weights(program)
        self.assert_equal_weights(program, "--clock", "virtual")

    def test_gpipe(self):
        self.every_process_count("gpipe")

    def test_one_f_one_b(self):
        self.every_process_count("1f1b")

    def test_pipedream(self):
        self.every_process_count("pipedream")

    def test_pipedream_2bw(self):
        self.every_process_count("pipedream-2bw")

    def test_replicas(self):
        for schedule, stages in (("1f1b", 2), ("pipedream-2bw", 2), ("pipedream", 2), ("data-parallel", 1)):
            shape = self.shape(schedule, stages)
            for model in (None, TRANSFORMER):
                program = self.program(schedule, **shape, model=model, width=3)
                with self.subTest(schedule, transformer=model is not None):
                    self.assert_equal_weights(program)

    def test_replicas_that_wait_for_no_other(self):
        record = self.folder / "r.json"
        for model in (None, TRANSFORMER):
            program = self.program("asp", stages=1, microbatches=2, batches=4, model=model, width=3)
            for processes in ((), ("--processes",)):
                with self.subTest(processes, transformer=model is not None):
                    code, out, err = self.run_program(program, *processes, "--record", record)
                    self.assertEqual((code, err), (0, ""))
                    self.assertIs(json.loads(out)["weights_equal"], True)
                    ops = json.loads(record.read_text())["runs"][0]["ops"]
                    forwards = [op for op in ops if "F" in op["op"]]
                    self.assertEqual(len(forwards), 3 * 4 * 2)
                    # Each replica has what came of its last update, at least.
                    for device in range(3):
                        versions = [op["weight_version"] for op in forwards
                                    if op["device"] == device]
                        self.assertEqual(versions, sorted(versions))
                        self.assertEqual((len(set(versions)), versions[0]), (4, 0))

    def test_several_stages_per_device_mirrors_pairs_and_stored_microbatches(self):
        for schedule, stages in (("chimera", 4), ("dualpipe", 4), ("dualpipev", 2), ("hanayo", 2),
                                 ("interleaved-1f1b", 2), ("v-half", 2), ("torchgpipe", 4)):
            for model in (None, TRANSFORMER):
                program = self.program(schedule, stages=stages, microbatches=8, batches=2,
                                       model=model)
                with self.subTest(schedule, transformer=model is not None):
                    self.assert_equal_weights(program)


class Launching(Case):
    """Ranks that torchrun, mpirun, srun or a person starts."""

    def together(self, processes):
        results = [self.finish(p) for p in processes]
        self.assertEqual([(r[0], r[2]) for r in results], [(0, "")] * len(results))
        self.assertIs(json.loads(results[0][1])["weights_equal"], True)
        self.assertEqual([r[1] for r in results[1:]], [""] * (len(results) - 1))

    def free_port(self):
        # Rank 0 listens on the first of four from here that it gets.
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return min(s.getsockname()[1], 65000)

    def test_by_hand_with_an_address_and_a_port(self):
        program, port = self.program(), self.free_port()
        extra = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.together([self.rank(program, r, 4, extra=extra) for r in range(4)])

    def test_by_hand_in_a_folder_with_rank_0_last(self):
        program = self.program()
        ranks = [self.rank(program, r, 4) for r in (3, 2, 1, 0)]
        self.together(ranks[::-1])

    def test_open_mpi(self):
        program, port = self.program(), self.free_port()
        extra = {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_PORT": str(port)}
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
        self.together([self.rank(program, r, 4, variables=names, extra=extra) for r in range(4)])

    def test_slurm(self):
        program, port = self.program(), self.free_port()
        extra = {"SLURM_STEP_NODELIST": "localhost", "MASTER_PORT": str(port)}
        names = ("SLURM_PROCID", "SLURM_NTASKS")
        self.together([self.rank(program, r, 4, variables=names, extra=extra) for r in range(4)])

    def test_two_devices_in_each_process(self):
        program = self.program(stages=8)
        self.together([self.rank(program, r, 4) for r in range(4)])

    def test_more_processes_than_devices(self):
        program = self.program(stages=2)
        self.together([self.rank(program, r, 3) for r in range(3)])

    def test_repeats_are_recorded_one_after_the_other(self):
        program, record = self.program(), self.folder / "r.json"
        code, out, err = self.run_program(program, "--processes", "--repeats", "3", "--record",
                                          record)
        self.assertEqual((code, err, out.count("\n")), (0, "", 3))
        runs = json.loads(record.read_text())["runs"]
        self.assertEqual([r["complete"] for r in runs], [True] * 3)

    def test_a_process_that_is_done_early_waits_longer_than_the_deadline(self):
        # Model parallelism: the last stage is done while the first still has a second to go.
        def slow(costs):
            costs[0]["backward"]["compute_s"] = 1.5
        program = self.program("gpipe", stages=3, microbatches=2, batches=1, costs=slow)
        code, out, err = self.run_program(program, "--processes", "--deadline", "1")
        self.assertEqual((code, err), (0, ""))
        self.assertIs(json.loads(out)["weights_equal"], True)

    def test_a_rank_without_a_size_is_refused(self):
        program = self.program()
        error = self.finish(self.start(RUN, program, env=self.environment | {"RANK": "0"}))
        self.assertEqual((error[0], error[1]), (2, ""))
        self.assertIn("WORLD_SIZE", error[2])


def is_replicated(scenario):
    return "width: 4" in (SOURCE / scenario).read_text()


class VirtualClock(Case):
    """`--clock virtual` is the simulator, through the command line."""

    def compare(self, *arguments, scenarios=SMALL, simulated_with=()):
        for scenario in scenarios:
            with self.subTest(scenario):
                # One replica is executed.
                alone = ["--set", "pipeline.width=1"] if is_replicated(scenario) else []
                code, simulated, err = self.penstock("simulate", scenario, "--engine", "exact",
                                                     "--events", "--format", "json",
                                                     "--reproducible", *alone, *simulated_with)
                self.assertEqual((code, err), (0, ""))
                code, executed, err = self.penstock("replay", scenario, "--clock", "virtual",
                                                    "--events", "--format", "json",
                                                    "--reproducible", *alone, *arguments)
                self.assertEqual((code, err), (0, ""))
                simulated, executed = json.loads(simulated), json.loads(executed)
                self.assertTrue(simulated["events"])
                self.assertIs(executed.pop("weights_equal"), True)
                for key in ("backend", "clock", "compute", "description", "losses", "weights_digest"):
                    executed.pop(key)
                for result in (simulated, executed):
                    result.pop("engine")
                    result.pop("what_would_help")  # are simulated
                    result.pop("expected_error", None)  # of predictions
                    result.pop("what_to_change")
                    for link in result["links"]:
                        link.pop("peak_flows")  # of the network model
                if pathlib.Path(scenario).stem in self.HOLD_FEWER_VERSIONS:
                    self.take_versions_out(executed, simulated)
                self.assertEqual(executed, simulated)

    # What is predicted is what the rule allocates; a step that nobody's version is left behind for is made in place.
    HOLD_FEWER_VERSIONS = ("uneven", "beside")

    def take_versions_out(self, executed, simulated):
        for mine, theirs in zip(executed["devices"], simulated["devices"]):
            fewer = theirs["memory"].pop("weight_versions") - mine["memory"].pop("weight_versions")
            self.assertGreaterEqual(fewer, 0)
            self.assertEqual(theirs.pop("peak_memory_bytes") - mine.pop("peak_memory_bytes"), fewer)

    def test_threads(self):
        self.compare()

    def test_processes(self):
        self.compare("--processes")

    def test_replicas(self):
        """As many or unlike numbers of them, in turns, in buckets and beside the next batch."""
        def stages(name, schedule, pipeline):
            return self.scenario(UNEVEN.replace("devices: 4", "devices: 8") +
                                 f"schedule: {schedule}\npipeline: {{stages: 4, {pipeline}}}\n", f"{name}.yaml")
        scenarios = [
            stages("uneven", "pipedream", "width: [2, 1, 1, 1], reduction: {algorithm: formula}"),
            stages("buckets", "1f1b", "microbatches: 4, width: 2, reduction: {overlap: backward, algorithm: formula}"),
            stages("beside", "pipedream-2bw", "microbatches: 4, width: 2, reduction: {overlap: next-batch, algorithm: formula}"),
            stages("mirrored", "chimera", "microbatches: 4, width: 2, reduction: {algorithm: formula}"),
        ]
        for arguments in ((), ("--processes",)):
            self.compare(*arguments, scenarios=scenarios)

    def shown(self, *arguments):
        code, out, err = self.penstock(*arguments, "--events", "--format", "json")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def test_tensor_ranks(self):
        """Two stages of two GPUs that divide the model's matrices, and the sequence or not; and one stand-in for both."""
        for schedule, more in (("1f1b", ""), ("zb-h1", "sequence_parallel: true"),
                               ("1f1b", "sequence_parallel: true, recompute: full")):
            scenario = self.scenario(f"{TENSOR}schedule: {schedule}\npipeline: {{stages: 2, tensor: 2, "
                                     f"microbatches: 4, microbatch_size: 2, {more}}}\n")
            exact = self.shown("simulate", scenario, "--engine", "exact")
            for arguments in ((), ("--processes",)):
                with self.subTest(schedule, more=more, arguments=arguments):
                    executed = self.shown("replay", scenario, "--clock", "virtual", *arguments)
                    self.assertIs(executed["weights_equal"], True)
                    self.assertEqual(executed["compute"], "transformer")
                    self.assertEqual(executed["events"], exact["events"])
            self.compare("--compute", "stand-in", scenarios=[scenario])

    def test_experts(self):
        """GPUs with other experts each: replicas, those that split microbatches, tensor ranks."""
        for schedule, pipeline, more in (
                ("1f1b", "stages: 2, width: 2, expert: 2", "experts_per_token: 2, router_bias: true"),
                ("zb-h1", "stages: 2, width: 4, expert: 2", "experts_per_token: 1, first_dense_layers: 1, shared_expert_ffn_hidden_size: 64"),
                ("interleaved-1f1b", "stages: 2, width: 2, expert: 2, expert_overlap: true", "experts_per_token: 3"),
                ("1f1b", "stages: 2, width: 2, expert: 2, recompute: full", "experts_per_token: 2"),
                ("dapple", "stages: 1, width: 2, expert: 2", "experts_per_token: 2"),
                ("1f1b", "stages: 2, tensor: 2, sequence_parallel: true, expert_tensor: 1, expert: 2",
                 "experts_per_token: 1, shared_expert_ffn_hidden_size: 64"),
                ("1f1b", "stages: 1, width: 2, tensor: 2, sequence_parallel: true, expert_tensor: 1, expert: 4", "")):
            links = "{devices: 8, memory: 16 GiB, link: {latency: 1 us, bandwidth: 10 GB/s}, device: v100-32}"
            experts = ", ".join(["num_experts: 4", "expert_ffn_hidden_size: 96", more or "experts_per_token: 1"])
            model = TENSOR.replace("{base: p3.16xlarge, nodes: 1}", links)
            model = model.replace("num_layers: 4", f"num_layers: 4, {experts}")
            scenario = self.scenario(f"{model}schedule: {schedule}\npipeline: {{{pipeline}, microbatches: 8, "
                                     "microbatch_size: 2}\n")
            exact = self.shown("simulate", scenario, "--engine", "exact")
            for arguments in ((), ("--processes",), ("--compute", "stand-in")):
                with self.subTest(schedule, pipeline=pipeline, arguments=arguments):
                    executed = self.shown("replay", scenario, "--clock", "virtual", *arguments)
                    self.assertIs(executed["weights_equal"], True)
                    self.assertEqual(executed["compute"], "stand_in" if "stand-in" in arguments else "transformer")
                    self.assertEqual(executed["events"], exact["events"])

    def test_post_validation(self):
        """Steps wait for a partial norm, which is a message of the run."""
        post = self.scenario(UNEVEN + "schedule: zb-h1\npipeline: {stages: 4, microbatches: 6, "
                             "optimizer_sync: post-validation}\n")
        held = self.scenario(UNEVEN + "schedule: gpipe\ntransfers: blocking\npipeline: {stages: 4, "
                             "microbatches: 3, optimizer_sync: post-validation}\n", "held.yaml")
        for arguments in ((), ("--processes",)):
            self.compare(*arguments, scenarios=(post, held))

    def test_recomputation_by_stage(self):
        """Times and memory of stages that recompute and of those that do not."""
        mixed = [self.scenario(UNEVEN + f"schedule: {schedule}\npipeline: {{stages: 4, "
                               "microbatches: 6, recompute: [full, none, none, full]}\n",
                               f"{schedule}.yaml") for schedule in ("1f1b", "zb-h1")]
        for arguments in ((), ("--processes",)):
            self.compare(*arguments, scenarios=mixed)

    def test_times_of_replicas(self):
        more = ("--set", "pipeline.width=2", "--set", "cluster.devices=8")
        for scenario in ("scenarios/small-1f1b.yaml", "scenarios/small-pipedream-2bw.yaml"):
            self.compare(*more, scenarios=[scenario], simulated_with=more)

    def test_two_runs_are_byte_identical(self):
        for form in (("--format", "json", "--events"), ("--format", "csv"), ()):
            files = [self.folder / f"{i}" for i in range(2)]
            for file in files:
                code, out, err = self.penstock("replay", SMALL[0], "--clock", "virtual",
                                               "--reproducible", "-o", file, *form)
                self.assertEqual((code, out, err), (0, "", ""))
            self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
            self.assertTrue(files[0].read_bytes())

    def test_what_exact_refuses_is_refused(self):
        scenario = "scenarios/gpt-3.8b-2bw-64.yaml"  # eight replicas share the nodes' adapters
        exact = self.one_line(2, "simulate", scenario, "--engine", "exact", program=BINARY)
        virtual = self.one_line(2, "replay", scenario, "--clock", "virtual", program=BINARY)
        self.assertIn("nic0", exact)
        self.assertIn("nic0", virtual)
        self.assertIn("--clock wall", virtual)


class Calibrating(Case):
    def test_a_busy_machine_is_noticed(self):
        request, result, profile = (self.folder / name for name in ("request.json", "result.json", "profile.yaml"))
        code, _, err = self.penstock("calibrate", self.scenario(TRANSFORMER + "schedule: 1f1b\npipeline: {stages: 2}\n"),
                                     "--request", request, "--repetitions", "1", "--workers", "1", "--microbatch-sizes", "1")
        self.assertEqual((code, err), (0, ""))
        code, _, err = self.finish(self.start(RUN, "--calibrate", request, "--backend", "host", "--output", result))
        self.assertEqual(code, 0, err)
        measured = json.loads(result.read_text())
        times = [op["time"] for op in measured["ops"]]
        for time in times:  # whatever this machine does meanwhile
            time["p5_s"], time["p95_s"] = 0.9 * time["median_s"], 1.3 * time["median_s"]
        result.write_text(json.dumps(measured))
        self.assertEqual(self.penstock("calibrate", "--result", result, "-o", profile)[2], "")
        for time in times[:2]:
            time["p95_s"] = 110.59 * time["median_s"]
        result.write_text(json.dumps(measured))
        code, _, err = self.penstock("calibrate", "--result", result, "-o", profile)
        self.assertEqual(code, 0)
        self.assertIn(f"of {len(times)} times 2 vary by more than half of their median", err)
        self.assertIn("by 10969.0 %", err)
        self.assertIn("calibrate again", err)
        # What it predicts is held against a run: its note says so, too.
        scenario = self.scenario(f"model: {profile}\ncluster: {{devices: 2, memory: 16 GiB, link: {{latency: 1 us}}}}\n"
                                 "schedule: 1f1b\nbatches: 3\npipeline: {stages: 2, microbatches: 4}\n", "run.yaml")
        record = self.folder / "run.json"
        self.assertEqual(self.penstock("replay", scenario, "--record", record)[0], 0)
        code, out, err = self.penstock("validate", record)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("measured on a busy machine", out)


class OwnSchedules(Case):
    """A table or a block of the user's own is a schedule like any other: the same in both engines
    and executed, bit for bit, under times that differ from stage to stage."""

    TABLES = [("1f1b", 4, 7), ("gpipe", 3, 4), ("interleaved-1f1b", 3, 6), ("looped-bfs", 2, 5),
              ("zb-h1", 4, 6), ("zb-v", 3, 7), ("v-half", 4, 6), ("1f1b-v", 3, 5),
              ("interleaved-zb", 2, 6), ("hanayo", 2, 4), ("dualpipev", 2, 6), ("dualpipe", 4, 10),
              ("chimera", 4, 8)]
    # By name: devices, microbatches, the block.
    BLOCKS = {
        "one chunk": (3, 7, "{layout: loop, forward: [0, 1, 2], backward: [7, 5, 3]}"),
        "one chunk, split": (
            3, 6, "{layout: loop, forward: [0, 1, 2], backward_input: [7, 5, 3]}"),
        "V, whole": (2, 5, "{layout: snake, forward: [0, 1, 2, 5], backward: [15, 11, 9, 7]}"),
        "V, split": (3, 7, "{layout: snake, forward: [0, 1, 2, 3, 4, 5], "
                           "backward_input: [14, 12, 11, 10, 8, 7]}"),
        "two chunks in turn": (
            2, 6, "{layout: loop, chunks: 2, forward: [0, 2, 5, 7], backward: [21, 17, 13, 9]}"),
        "wide passes": (2, 6, "{layout: loop, forward: [0, 2], backward_input: [9, 4], "
                              "slots: {forward: 2, backward_input: 3, backward_weight: 2}}")}

    @staticmethod
    def uneven(stages):
        """Costs that differ by stage, in whole microseconds and bytes."""
        def listed(first, step, unit):
            return "[" + ", ".join(f"{first + (s * step) % 11} {unit}" for s in range(stages)) + "]"
        return f"""
model: {{forward: {listed(3, 4, "us")}, backward_input: {listed(2, 5, "us")},
        backward_weight: {listed(1, 3, "us")}, activation: {listed(1, 2, "KiB")},
        parameters: {listed(1, 7, "KiB")}, output: {listed(1, 6, "KiB")}}}
cluster: {{devices: 8, memory: 16 GiB, link: {{latency: 1 us, bandwidth: 1 GB/s}}}}
batches: 2
"""

    def own(self, schedule, stages, devices, microbatches):
        # Mirrored devices reduce over links that their messages use, too, which `exact` refuses.
        return self.scenario(f"{self.uneven(stages)}schedule: {schedule}\n"
                             f"pipeline: {{stages: {devices}, microbatches: {microbatches}, "
                             "reduction: {algorithm: formula}}\n")

    def said(self, command, scenario, *arguments):
        code, out, err = self.penstock(command, scenario, "--events", "--format", "json",
                                       "--reproducible", *arguments)
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def expect_alike(self, scenario):
        """The result of `exact`, which the other engine and the executor give, too."""
        exact = self.said("simulate", scenario, "--engine", "exact")
        simgrid = self.said("simulate", scenario, "--engine", "simgrid")
        executed = self.said("replay", scenario, "--backend", "host", "--clock", "virtual")
        self.assertIs(executed["weights_equal"], True)
        self.assertEqual(executed["makespan_s"], exact["makespan_s"])
        self.assertEqual(executed["events"], exact["events"])
        for one, other in zip(executed["devices"], exact["devices"], strict=True):
            self.assertEqual(one["memory"], other["memory"])
        self.assertEqual(len(simgrid["events"]), len(exact["events"]))
        self.close(simgrid["makespan_s"], exact["makespan_s"])
        for one, other in zip(simgrid["events"], exact["events"]):
            self.assertEqual(one.keys(), other.keys())
            for key, value in other.items():
                self.close(one[key], value)
        return exact

    def close(self, one, other):
        if not isinstance(other, float):
            return self.assertEqual(one, other)
        self.assertLessEqual(abs(one - other), 1e-12 * max(abs(one), abs(other)))

    def test_a_table_is_the_schedule_it_was_written_from(self):
        for schedule, devices, microbatches in self.TABLES:
            with self.subTest(schedule):
                table = self.folder / "own.csv"
                code, _, err = self.penstock("schedule", "export", schedule, "--set",
                                             f"stages={devices}", "--set",
                                             f"microbatches={microbatches}", "-o", table)
                self.assertEqual((code, err), (0, ""))
                stages = 1 + max(int(s) for s in re.findall(r"(\d+)F\d", table.read_text()))
                mine = self.expect_alike(self.own(table, stages, devices, microbatches))
                shipped = self.said("simulate", self.own(schedule, stages, devices, microbatches),
                                    "--engine", "exact")
                self.assertEqual(mine["events"], shipped["events"])
                self.assertEqual(mine["makespan_s"], shipped["makespan_s"])

    def test_a_block_runs_everywhere(self):
        for name, (devices, microbatches, block) in self.BLOCKS.items():
            for form in ("map", "file"):
                with self.subTest(name, form=form):
                    stages = len(re.search(r"forward: \[([^]]*)\]", block)[1].split(","))
                    given = block
                    if form == "file":
                        given = self.folder / "own.yml"
                        given.write_text(block + "\n")
                    self.expect_alike(self.own(given, stages, devices, microbatches))


class Refusals(Case):
    """Scenarios that cannot be executed, and wrong command lines: why, in one line."""

    def replay(self, code, scenario, *arguments):
        return self.one_line(code, "replay", scenario, *arguments, program=BINARY)

    def test_replicas(self):
        error = self.replay(2, "scenarios/small-asp.yaml", "--clock", "virtual")
        self.assertIn("wait for no other", error)

    def test_a_global_step(self):
        error = self.replay(2, SMALL[0], "--set", "optimizer_sync=global")
        self.assertIn("optimizer_sync", error)
        self.assertIn(f"{SMALL[0]}: ", error)  # the user's file, not the executor's

    def test_llama(self):
        text = """
name: llama
model: llama-3-8b
stack: none
cluster: dgx-a100
schedule: 1f1b
batches: 1
pipeline: {stages: 4, microbatches: 4}
"""
        self.assertIn("llama", self.replay(2, self.scenario(text)))

    def test_a_model_larger_than_the_machine(self):
        error = self.replay(2, "scenarios/gpt3-175b-1f1b.yaml")
        self.assertRegex(error, "needs more than")

    def test_an_abstract_model_has_nothing_real(self):
        self.assertIn("--compute real", self.replay(2, SMALL[0], "--compute", "real"))

    def test_no_gpu(self):
        if pathlib.Path("/dev/nvidia0").exists():
            self.skipTest("this machine has a GPU")
        self.assertIn("cuda", self.replay(4, SMALL[0], "--backend", "cuda").lower())

    def test_a_folder_that_is_not_there(self):
        missing = self.folder / "no" / "r.json"
        for option in ("--record", "--trace", "-o"):
            with self.subTest(option):
                self.assertIn("no folder", self.replay(2, SMALL[0], option, missing))
        self.assertIn("no folder", self.one_line(2, self.program(), "--record", missing))

    def test_wrong_numbers(self):
        program = self.program()
        for option, value in (("deadline", "nan"), ("deadline", "-1"), ("deadline", "1e300"),
                              ("deadline", "5x"), ("repeats", "0"), ("repeats", "1.5"),
                              ("repeats", "1e30"), ("repeats", "inf")):
            with self.subTest(option=option, value=value):
                self.assertIn(f"--{option}", self.one_line(2, program, f"--{option}", value))

    def test_wrong_words(self):
        program = self.program()
        self.assertIn("--clock", self.one_line(2, program, "--clok", "wall"))
        self.assertIn("wall|virtual", self.one_line(2, program, "--clock", "sundial"))
        self.assertIn("--record", self.one_line(2, program, "--record"))
        self.assertIn("one program file", self.one_line(2))
        self.assertIn("bf16", self.one_line(2, program, "--precision", "bf16"))
        self.assertIn("takes no value", self.one_line(2, program, "--processes=4"))

    def test_gpt_2_2b_on_a_virtual_clock(self):
        scenario = "scenarios/gpt-2.2b-2bw.yaml"
        exact = self.penstock("simulate", scenario, "--engine", "exact", "--format", "json",
                              "--reproducible")
        replay = self.penstock("replay", scenario, "--clock", "virtual", "--format", "json",
                               "--reproducible")
        self.assertEqual((exact[0], replay[0]), (0, 0), exact[2] + replay[2])
        exact, replay = json.loads(exact[1]), json.loads(replay[1])
        self.assertEqual(replay["makespan_s"], exact["makespan_s"])
        self.assertIs(replay["weights_equal"], True)


class Streams(Case):
    """What cannot be written is a failure, what cannot be said is none."""

    def test_output_that_is_lost(self):
        program = self.program()
        with open("/dev/full", "w") as full:
            for words in ((program,), (program, "--processes"), ("--help",), ("--probe",)):
                code, _, err = self.run_program(*words, stdout=full)
                self.assertEqual(code, 1, (words, err))
                self.assertIn("No space left on device", err)

    def test_errors_that_nobody_can_read(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(self.run_program("missing.json", "--what", stderr=full)[0], 2)


class BareMachine(Case):
    """penstock-run where neither yaml-cpp, Boost nor SimGrid are, and no environment."""

    def test_none_of_those_libraries_is_needed(self):
        code, out, err = self.finish(self.start("ldd", RUN))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("libgloo", out)
        self.assertNotRegex(out.lower(), "yaml|boost|simgrid")

    def test_a_copied_program_runs(self):
        program = self.program()
        shutil.copy(RUN, self.folder / "penstock-run")
        for processes in ((), ("--processes",)):
            code, out, err = self.finish(self.start(
                "env", "-i", f"TMPDIR={self.temporary}", "./penstock-run", program.name, *processes,
                cwd=self.folder))
            self.assertEqual((code, err), (0, ""))
            self.assertIs(json.loads(out)["weights_equal"], True)

    def test_a_bundle_brings_its_libraries(self):
        bundle = self.folder / "bundle"
        environment = self.environment | {"PENSTOCK_RUN": RUN}
        code, out, err = self.finish(self.start(SOURCE / "scripts/bundle_run.sh", bundle,
                                                env=environment))
        self.assertEqual(code, 0, out)
        if err:  # a build without the CUDA backend is told, and nothing else
            self.assertRegex(err, r"^note: without the CUDA backend[^\n]*\n$")
        code, out, err = self.finish(self.start(
            "env", "-i", f"TMPDIR={self.temporary}", "LD_DEBUG=libs", "./penstock-run",
            self.program(), cwd=bundle))
        self.assertEqual(code, 0, err)
        initialized = set(re.findall(r"calling init: (/\S+)", err))
        system = {"libc", "libm", "libstdc++", "libgcc_s", "ld-linux-x86-64", "libasan", "libubsan",
                  "libtsan"}
        foreign = [p for p in initialized if not p.startswith(str(bundle)) and
                   pathlib.Path(p).name.split(".so")[0] not in system]
        self.assertEqual(foreign, [])
        self.assertTrue(any("libgloo" in p for p in initialized))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv[:1] + sys.argv[1:])
