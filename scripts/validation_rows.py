# SPDX-License-Identifier: Apache-2.0
"""Rows of the table in docs/validation.md from a result of `penstock validate FOLDER --format json`:
python3 scripts/validation_rows.py FOLDER RESULT.json"""
import json
import pathlib
import sys


def share(values, pick):
    return f"{100 * pick(values):.1f} %" if values else "–"


def mean(values):
    return sum(values) / len(values)


def main():
    folder, result = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    about = (folder / "about.md").read_text().strip().replace("](../../../docs/", "](")
    rows = result["rows"]
    schedules = list(dict.fromkeys(row["schedule"] for row in rows))
    for schedule in schedules + (["all"] if len(schedules) > 1 else []):
        mine = [row for row in rows if schedule in (row["schedule"], "all")]
        times = [abs(row["error"]) for row in mine if row["error"] is not None]
        # Stand-in stages state their bytes; only real ones have memory to measure.
        memory = [abs(row["memory_error"]) for row in mine
                  if row["compute"] == "transformer" and row["memory_error"] is not None]
        if len(times) != len(mine):
            sys.exit(f"{folder}: a recording of {schedule} has no whole iteration")
        what = about if schedule == schedules[0] else ""
        print(f"| {what} | {schedule} | {len(mine)} | {share(times, mean)} | {share(times, max)} "
              f"| {share(memory, mean)} |")


if __name__ == "__main__":
    main()
