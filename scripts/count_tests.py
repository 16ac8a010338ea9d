#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts tests: every GoogleTest case is one test, every other `meson test` is one.

Reads what `meson test` left in DIR/meson-logs. testlog.json has one record per program;
testlog.junit.xml has the cases of the GoogleTest programs (its totals are wrong in Meson 1.0, so
only the cases are used). A program that failed though none of its cases did (a crash, a time-out,
a leak found at exit) counts as one failed test more.
"""

import argparse
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Iterator, NamedTuple

TAIL_LINES = 40
CASE_PASSED = ("[ RUN      ]", "[       OK ]")  # GoogleTest's lines that tell nothing of a failure


class Outcome(NamedTuple):
    status: str  # passed, failed or skipped
    name: str
    detail: str  # of a failed test its output, of a skipped one the reason


def output_of(record: dict) -> str:
    return "\n".join(filter(None, (record.get("stdout"), record.get("stderr")))).strip()


def program_status(record: dict) -> str:
    return {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}.get(
        record["result"], "failed")


def program_outcome(record: dict) -> Outcome:
    """The outcome of a whole program; why it skipped stands in the last line it printed."""
    name = record["name"].rpartition(" / ")[2]  # PROJECT:SUITE / NAME
    status, output = program_status(record), output_of(record)
    if status == "skipped":
        return Outcome(status, name, (output.splitlines() or ["no reason given"])[-1])
    ending = f"{record['result']}, exit status {record['returncode']}"
    return Outcome(status, name, f"{output}\n({ending})")


def skip_reason(skipped: xml.Element) -> str:
    """The message without the position "file.cpp:12" that GoogleTest puts on its first line."""
    lines = (skipped.get("message") or skipped.text or "").strip().splitlines()
    if len(lines) > 1 and lines[0].rpartition(":")[2].isdigit():
        lines = lines[1:]
    return " ".join(line.strip() for line in lines if line.strip()) or "no reason given"


def case_outcome(suite: str, case: xml.Element) -> Outcome:
    name = f"{suite}.{case.get('name')}"
    failures = [node.text or node.get("message") or ""
                for node in case if node.tag in ("failure", "error")]
    if failures:
        return Outcome("failed", name, "\n".join(failures))
    skipped = case.find("skipped")
    if skipped is not None:
        return Outcome("skipped", name, skip_reason(skipped))
    if case.get("status") == "notrun":
        return Outcome("skipped", name, "disabled")
    return Outcome("passed", name, "")


def gtest_cases(junit: Path) -> dict[str, list[Outcome]]:
    """The cases by program, from suites named PROJECT.PROGRAM.SUITE."""
    cases: dict[str, list[Outcome]] = {}
    for suite in xml.parse(junit).getroot().iter("testsuite"):
        program, dot, name = suite.get("name", "").partition(".")[2].rpartition(".")
        if dot:
            outcomes = [case_outcome(name, case) for case in suite.iter("testcase")]
            cases.setdefault(program, []).extend(outcomes)
    return cases


def outcomes_of(record: dict, cases: dict[str, list[Outcome]]) -> list[Outcome]:
    outcomes = cases.get(record["name"], [])
    case_failed = any(outcome.status == "failed" for outcome in outcomes)
    if not outcomes or (program_status(record) == "failed" and not case_failed):
        return outcomes + [program_outcome(record)]
    return outcomes


def read_log(build: Path, prefix: str) -> Iterator[Outcome]:
    logs = build / "meson-logs"
    try:
        records = [json.loads(line) for line in (logs / "testlog.json").open(encoding="utf-8")]
        cases = gtest_cases(logs / "testlog.junit.xml")
    except (OSError, ValueError, xml.ParseError) as error:
        yield Outcome("failed", f"{prefix}meson test in {build.name}", str(error))
        return
    if not records:
        yield Outcome("failed", f"{prefix}meson test in {build.name}", "ran no test")
    for record in records:
        for outcome in outcomes_of(record, cases):
            yield outcome._replace(name=prefix + outcome.name)


def print_report(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.status == "skipped":
            print(f"skipped {outcome.name}: {outcome.detail}")
    for outcome in outcomes:
        if outcome.status == "failed":
            print(f"FAILED {outcome.name}")
            lines = [line for line in outcome.detail.strip().splitlines()
                     if not line.startswith(CASE_PASSED)]
            for line in lines[-TAIL_LINES:]:
                print(f"    {line}")
    count = {status: sum(outcome.status == status for outcome in outcomes)
             for status in ("passed", "failed", "skipped")}
    print(", ".join(f"{number} {status}" for status, number in count.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", nargs=2, action="append", default=[], metavar=("DIR", "PREFIX"),
                        help="a build directory, and what to put before the names of its tests")
    parser.add_argument("--failed", action="append", default=[], metavar="STEP",
                        help="a step that failed by itself, counted as one failed test")
    arguments = parser.parse_args()
    outcomes = [outcome for build, prefix in arguments.log
                for outcome in read_log(Path(build), prefix)]
    outcomes += [Outcome("failed", step, "see above") for step in arguments.failed]
    print_report(outcomes)
    return 1 if any(outcome.status == "failed" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
