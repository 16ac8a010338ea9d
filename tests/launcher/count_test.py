#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/count_tests.py on logs as Meson 1.0 and GoogleTest 1.12 write them."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COUNT = Path(__file__).resolve().parents[2] / "scripts/count_tests.py"

GTEST = """<testsuites tests="99" failures="0">
  <testsuite name="penstock.penstock:unit / base.Units">
    <testcase name="Parses" status="run" classname="Units"/>
    <testcase name="Rounds" status="run" classname="Units">
      <failure message="short">units_test.cpp:5
expected 1, got 2</failure></testcase>
    <testcase name="OnDevice" status="run" classname="Units">
      <skipped message="units_test.cpp:7&#10;no GPU here">x</skipped></testcase>
    <testcase name="DISABLED_Later" status="notrun" classname="Units"/>
  </testsuite>
  <testsuite name="penstock.penstock:unit / base.All/Params">
    <testcase name="Even/0" status="run" classname="All/Params"/>
  </testsuite>
  <testsuite name="penstock"><testcase name="layers" classname="penstock"/></testsuite>
</testsuites>"""


def record(name: str, result: str = "OK", stdout: str = "", **more) -> dict:
    return {"name": name, "result": result, "stdout": stdout, "returncode": 0,
            "command": [name]} | more


class CountTests(unittest.TestCase):
    def count(self, *records: dict, junit: str = "<testsuites/>", arguments: tuple = ()):
        with tempfile.TemporaryDirectory() as build:
            logs = Path(build, "meson-logs")
            logs.mkdir()
            lines = "".join(json.dumps(r) + "\n" for r in records)
            (logs / "testlog.json").write_text(lines)
            (logs / "testlog.junit.xml").write_text(junit)
            return self.run_count("--log", build, "", *arguments)

    def run_count(self, *arguments: str):
        result = subprocess.run([sys.executable, COUNT, *arguments], text=True,
                                stdout=subprocess.PIPE)
        return result.stdout, result.stdout.splitlines()[-1], result.returncode

    def test_gtest_cases_count_one_by_one(self) -> None:
        output, last, status = self.count(
            record("penstock:unit / base", "FAIL"), record("penstock / layers"), junit=GTEST)
        self.assertEqual((last, status), ("3 passed, 1 failed, 2 skipped", 1))
        self.assertIn("FAILED Units.Rounds\n    units_test.cpp:5\n    expected 1, got 2\n", output)
        self.assertIn("skipped Units.OnDevice: no GPU here\n", output)
        self.assertIn("skipped Units.DISABLED_Later: disabled\n", output)

    def test_a_program_that_fails_after_its_cases_passed_is_one_failure(self) -> None:
        passed = GTEST.replace("failure", "system-out")
        output, last, _ = self.count(record("penstock:unit / base", "FAIL", "leaked 10 bytes"),
                                     junit=passed)
        self.assertEqual(last, "3 passed, 1 failed, 2 skipped")
        self.assertIn("FAILED base\n    leaked 10 bytes\n", output)

    def test_a_gtest_program_that_crashed_is_one_failure(self) -> None:
        output, last, _ = self.count(
            record("penstock / base", "FAIL", "about to", returncode=-11))
        self.assertEqual(last, "0 passed, 1 failed, 0 skipped")
        self.assertIn("exit status -11", output)

    def test_other_programs_count_by_result(self) -> None:
        results = ("OK", "EXPECTEDFAIL", "FAIL", "UNEXPECTEDPASS", "TIMEOUT", "ERROR",
                   "INTERRUPT", "SKIP")
        _, last, _ = self.count(*(record(result, result) for result in results))
        self.assertEqual(last, "2 passed, 5 failed, 1 skipped")

    def test_a_skipped_programs_last_line_is_the_reason(self) -> None:
        output, _, status = self.count(record("a", "SKIP", "trying\nno browser\n"))
        self.assertEqual((output.splitlines()[0], status), ("skipped a: no browser", 0))

    def test_output_of_a_failed_program_is_cut_from_the_front(self) -> None:
        output, _, _ = self.count(record("a", "FAIL", "\n".join(map(str, range(1000)))))
        self.assertIn("\n    999\n", output)
        self.assertNotIn("\n    900\n", output)

    def test_a_failed_step_and_a_missing_log_are_failures(self) -> None:
        _, last, _ = self.count(record("a"), arguments=("--failed", "sanitize: build"))
        self.assertEqual(last, "1 passed, 1 failed, 0 skipped")
        output, last, _ = self.run_count("--log", "/nowhere/build", "sanitize: ")
        self.assertEqual(last, "0 passed, 1 failed, 0 skipped")
        self.assertIn("FAILED sanitize: meson test in build\n", output)

    def test_a_log_without_tests_is_a_failure(self) -> None:
        self.assertEqual(self.count()[1:], ("0 passed, 1 failed, 0 skipped", 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
