# SPDX-License-Identifier: Apache-2.0
"""penstock validate on Sailor's measured configurations, as its users run it.

Needs $PENSTOCK_BINARY and $PENSTOCK_SOURCE; the measurements are in $PENSTOCK_SHARED.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SHARED = pathlib.Path(os.environ.get("PENSTOCK_SHARED", SOURCE.parent / "shared"))
DATA = SHARED / "data/measured/sailor"
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "PENSTOCK_HOME": str(SOURCE),
                            "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}


def run(*arguments):
    return subprocess.run([os.environ["PENSTOCK_BINARY"], "validate", *map(str, arguments)],
                          env=ENVIRONMENT, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=120)


@unittest.skipUnless(DATA.is_dir(), f"no measurements in {DATA}")
class SailorCommand(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-sailor-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.plan = self.folder / "plan_config_N2_D1.json"
        shutil.copy(DATA / "OPT-350/N2/plan_config_N2_D1.json", self.plan)

    def result(self, *arguments):
        done = run(*arguments, "--format", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return json.loads(done.stdout)

    def refused(self, *arguments):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        return done.stderr

    def test_folder_is_read_with_its_profiles_and_split_by_depth(self):
        result = self.result(DATA / "OPT-350")
        self.assertEqual(len(result["rows"]), 15)
        self.assertEqual({depth: errors["n"] for depth, errors in result["time_by_pp"].items()},
                         {"1": 6, "2": 5, "4": 4})
        for summary in result["time"], result["memory"]:
            self.assertEqual(set(summary), {"mape", "median", "max", "bias", "n"})
            self.assertEqual(summary["n"], 15)
        for row in result["rows"]:
            self.assertAlmostEqual(row["error"], row["predicted_s"] / row["measured_s"] - 1)
            self.assertAlmostEqual(row["memory_error"],
                                   row["predicted_bytes"] / row["measured_bytes"] - 1)

    def test_one_file_is_predicted_as_in_its_folder(self):
        alone = self.result(self.plan, "--profiles", DATA / "profiles")["rows"]
        among = [row for row in self.result(DATA / "OPT-350")["rows"]
                 if row["name"] == "plan_config_N2_D1"]
        for key in "predicted_s", "predicted_bytes":
            self.assertEqual(alone[0][key], among[0][key])

    def test_errors_are_as_the_documentation_says(self):
        result = self.result(DATA / "OPT-350")
        deep = [abs(row["error"]) for row in result["rows"] if row["depth"] > 1]
        self.assertEqual(len(deep), 9)
        self.assertLess(sum(deep) / 9, 0.012)
        self.assertLess(result["memory"]["mape"], 0.009)

    def test_simulate_says_of_a_printed_row_what_validate_says(self):
        for row in self.result(DATA / "OPT-350")["rows"]:
            scenario = self.folder / "row.yaml"
            scenario.write_text(run(DATA / "OPT-350", "--print", row["name"]).stdout)
            done = subprocess.run([os.environ["PENSTOCK_BINARY"], "simulate", scenario, "--engine", "auto",
                                   "--format", "json"], env=ENVIRONMENT, text=True, capture_output=True, check=True)
            self.assertEqual(json.loads(done.stdout)["iteration_time_s"], row["predicted_s"])

    def test_another_model_is_inferred_from_its_layers(self):
        plan = json.loads(self.plan.read_text())
        pipeline = plan["pipeline_list"][0]
        pipeline["layers_per_stage"] = [list(range(17)), list(range(17, 34))]
        for stage in pipeline["tmp_per_stage"]:
            stage[0][0][0][0] = "A100-40"
        self.plan.write_text(json.dumps(plan))
        result = self.result(self.plan, "--profiles", DATA / "profiles")
        self.assertIn("GPT-Neo-2.7", result["measured"][0]["format"])

    def test_errors(self):
        self.assertIn("give one with --profiles DIR", self.refused(self.plan))
        profiles = ("--profiles", DATA / "profiles")
        self.assertIn("'OPT-35' has no profile", self.refused(self.plan, *profiles, "--model",
                                                              "OPT-35"))
        self.plan.write_text(self.plan.read_text().replace("GH-96", "TPU"))
        self.assertIn("has 26 layers on TPU", self.refused(self.plan, *profiles))
        self.plan.write_text('{"pipeline_list": [}')
        self.assertIn("plan_config_N2_D1.json:1:20: is not JSON", self.refused(self.plan))

    def test_what_lies_in_the_current_folder_is_not_executed(self):
        for module in ("json", "csv", "argparse"):
            (self.folder / f"{module}.py").write_text(f"open({str(self.folder / 'executed')!r}, 'w')\n")
        done = subprocess.run([os.environ["PENSTOCK_BINARY"], "validate", self.plan.name, "--profiles", DATA / "profiles"],
                              env=ENVIRONMENT | {"PYTHONPATH": str(self.folder)}, text=True, capture_output=True, check=False,
                              cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse((self.folder / "executed").exists())

    def test_a_machine_without_python_says_so(self):
        done = subprocess.run([os.environ["PENSTOCK_BINARY"], "validate", self.plan, "--profiles", DATA / "profiles"],
                              env=ENVIRONMENT | {"PENSTOCK_PYTHON": "/no/python"}, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("cannot start '/no/python'", done.stderr)

    def test_tolerance(self):
        self.assertEqual(run(DATA / "OPT-350", "--tolerance", "14%").returncode, 0)
        self.assertEqual(run(DATA / "OPT-350", "--tolerance", "10%").returncode, 3)


if __name__ == "__main__":
    unittest.main()
