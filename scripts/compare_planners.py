#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table of throughput by planner, all simulated alike (`penstock plan --compare`, docs/plan.md).

    scripts/compare_planners.py ../shared/data > planners.tsv
    scripts/compare_planners.py ../shared/data --rows done.jsonl --page docs/planners-compared.md
    scripts/compare_planners.py vgg16/graph.txt layers.csv --time-limit 20
    scripts/compare_planners.py ../shared/data --only OPT-350 --only 'vgg16 | C'

A folder of data gives PipeDream's, DAPPLE's, Sailor's and vTrain's models on their clusters; a
profile stands on the clusters of PipeDream's paper. Columns: simulated samples/s, and by how much
our plan is faster; then our plan, and why a planner has none that runs. With --rows what is done is
kept, and not done again. Progress on stderr. Exit 1 when any planner's plan beats ours."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from planner_table import profiles, sailor, vtrain

ROUNDING = 1e-6  # of two sums of the same times
READERS = (profiles, sailor, vtrain)
PUBLISHED = ["pipedream", "2bw", "dapple", "torchgpipe", "uniform"]
OURS, OURS_SEVERAL = "full", "full, several versions"
MARK = "<!-- scripts/compare_planners.py makes what is below -->\n"


def rows_of(paths, folder):
    for path in map(pathlib.Path, paths):
        if path.is_file():
            yield from profiles.rows_of(path)
        elif (path / "measured").is_dir():
            for reader in READERS:
                yield from reader.rows(path, folder)
        else:
            for file in sorted(path.rglob("*.txt")):
                yield from profiles.rows_of(file)


def compare(row, options):
    """The row as it is kept: planners, or why there are none; seconds."""
    words = [options.binary, "plan", *row.words, "--search", "full", "--compare", "--top", "1",
             "--time-limit", str(options.time_limit), "--format", "json"]
    if options.effort:
        words += ["--effort", str(options.effort)]
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    result = {"key": row.key, "time_limit": options.time_limit,
              "seconds": round(time.monotonic() - began, 1)}
    if done.returncode != 0:
        return result | {"error": done.stderr.strip() or f"ended by signal {-done.returncode}"}
    answer = json.loads(done.stdout)
    return result | {"planners": answer["planners"], "gap": answer["gap"]}


class Results:
    """Those of a file are not computed again; new ones are appended to it."""

    def __init__(self, path):
        self.path = path and pathlib.Path(path)
        self.known = {}
        if self.path and self.path.exists():
            for line in self.path.read_text().splitlines():
                result = json.loads(line)
                if "error" not in result:
                    self.known[result["key"]] = result

    def of(self, row, options):
        return self.known.get(row.key) or compare(row, options)

    def keep(self, result):
        if self.path and result["key"] not in self.known:
            with self.path.open("a") as file:
                file.write(json.dumps(result) + "\n")


def margins(result):
    """By how much ours is faster than each published planner's plan that runs."""
    return [p["ours_is_faster_by"] for p in result.get("planners", [])
            if p["planner"] in PUBLISHED and p["ours_is_faster_by"] is not None]


def beaten(result):
    return "error" in result or min(margins(result), default=0) < -ROUNDING


def verdict(result):
    return "failed" if "error" in result else "BEATEN" if beaten(result) else "best or equal"


def planner(result, name):
    return next(p for p in result["planners"] if p["planner"] == name)


def digits(rate):
    return "–" if rate is None else f"{rate:.0f}" if rate >= 1000 else f"{rate:.4g}"


def cell(result, name):
    found = planner(result, name)
    rate = found["throughput_samples_per_s"]
    if rate is None:
        return digits(rate)
    faster = found["ours_is_faster_by"]
    margin = f" ({faster * 100:+.1f} %)" if name in PUBLISHED else ""
    return digits(rate) + margin


def tsv_line(row, result):
    words = [row.group, row.model, row.cluster]
    if "error" in result:
        return "\t".join([*words, "failed: " + " ".join(result["error"].split())])
    why = "; ".join(f"{p['planner']}: {p['why_not']}" for p in result["planners"] if p["why_not"])
    cells = [cell(result, name) for name in [*PUBLISHED, OURS, OURS_SEVERAL]]
    return "\t".join([*words, *cells, planner(result, OURS)["plan"], why])


def print_tsv(pairs):
    print("\t".join(["data", "model", "cluster", *PUBLISHED, OURS, OURS_SEVERAL, "our plan",
                     "no plan"]))
    printed = []
    for row, result in pairs:
        print(tsv_line(row, result), flush=True)
        printed.append((row, result))
    return printed


def markdown_row(row, result):
    words = [row.model, row.cluster]
    if "error" in result:
        return [*words, "failed", *[""] * (len(PUBLISHED) + 2)]
    rates = [planner(result, name)["throughput_samples_per_s"]
             for name in [*PUBLISHED, OURS, OURS_SEVERAL]]
    cells = [digits(rate) for rate in rates]
    least = min(margins(result), default=None)
    return [*words, *cells, "–" if least is None else f"{least * 100 + 0.0:+.1f} %"]


def markdown(pairs):
    """The summary, then a table of samples/s for the data of each source."""
    limits = sorted({f"{result['time_limit']:g}" for _, result in pairs}, key=float)
    lines = [f"{len(pairs)} rows; a search had {' or '.join(limits)} s.", "",
             summary([result for _, result in pairs])]
    head = ["model", "devices", *PUBLISHED, "ours", "ours, async", "margin"]
    group = None
    for row, result in pairs:
        if row.group != group:
            group = row.group
            lines += ["", f"## {group}", "", "| " + " | ".join(head) + " |",
                      "|---|---|" + "--:|" * (len(head) - 2)]
        lines.append("| " + " | ".join(markdown_row(row, result)) + " |")
    return "\n".join(lines) + "\n"


def write_page(path, text):
    """Replaces what is below the page's mark."""
    page = pathlib.Path(path)
    above, mark, _ = page.read_text().partition(MARK)
    if not mark:
        raise SystemExit(f"{path}: has no line '{MARK.strip()}', below which the tables go")
    new = page.with_name(page.name + ".new")
    new.write_text(above + MARK + "\n" + text)
    new.replace(page)


def summary(results):
    """A line per planner: in how many rows it has a plan, and how ours compares."""
    good = [r for r in results if "error" not in r]
    lines = ["| planner | rows with a plan | ours is faster in | margin: median | largest |",
             "|---|--:|--:|--:|--:|"]
    for name in PUBLISHED:
        found = [planner(r, name)["ours_is_faster_by"] for r in good]
        found = [f for f in found if f is not None]
        if not found:
            lines.append(f"| {name} | 0 of {len(good)} | – | – | – |")
            continue
        faster = sum(f > ROUNDING for f in found)
        lines.append(f"| {name} | {len(found)} of {len(good)} | {faster} | "
                     f"{statistics.median(found) * 100:.1f} % | {max(found) * 100:.0f} % |")
    best = [min(margins(r), default=None) for r in good]
    best = [b for b in best if b is not None]
    if best:
        faster = sum(b > ROUNDING for b in best)
        lines.append(f"| the best of them | {len(best)} of {len(good)} | {faster} | "
                     f"{statistics.median(best) * 100:.1f} % | {max(best) * 100:.0f} % |")
    return "\n".join(lines)


def wanted(row, options):
    return not options.only or any(text in row.key for text in options.only)


def computed(rows, options):
    """Pairs of row and result, in order, each as soon as it and those before it are there."""
    results = Results(options.rows)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(results.of, row, options) for row in rows]
        try:
            for i, (row, future) in enumerate(zip(rows, futures), 1):
                result = future.result()
                results.keep(result)
                print(f"{i}/{len(rows)} {row.key}: {verdict(result)}, {result['seconds']} s",
                      file=sys.stderr)
                yield row, result
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", help="data folder, profiles, or folders of .txt files")
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="rows with this in 'data | model | cluster'; repeatable")
    parser.add_argument("--time-limit", type=float, default=20,
                        help="seconds of one search; default 20")
    parser.add_argument("--effort", type=int, help="simulations of one search; default penstock's")
    parser.add_argument("--jobs", type=int, default=1, help="rows side by side; default 1")
    parser.add_argument("--rows", metavar="FILE", help="where finished rows are kept")
    parser.add_argument("--no-run", action="store_true", help="only what FILE of --rows has")
    parser.add_argument("--format", choices=("tsv", "markdown"), default="tsv")
    parser.add_argument("--page", metavar="FILE", help="a page whose tables are made again, too")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    options = parser.parse_args()
    options.binary = os.environ.get("PENSTOCK_BINARY", "penstock")
    return options


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for row in rows_of(options.paths, pathlib.Path(folder)) if wanted(row, options)]
        if options.no_run:
            known = Results(options.rows).known
            rows = [row for row in rows if row.key in known]
        if not rows:
            raise SystemExit("no rows: " + ", ".join(options.paths))
        if options.list:
            print("\n".join(row.key for row in rows))
            return 0
        done = computed(rows, options)
        pairs = print_tsv(done) if options.format == "tsv" else list(done)
        results = [result for _, result in pairs]
        if options.format == "markdown":
            print(markdown(pairs), end="")
        if options.page:
            write_page(options.page, markdown(pairs))
        good = sum(not beaten(result) for result in results)
        print(f"{len(results)} rows; ours is best or equal in {good}", file=sys.stderr)
        for row, result in pairs:
            if beaten(result):
                print(f"beaten or failed: {row.key}: penstock plan "
                      + " ".join(map(str, row.words)) + " --search full --compare; "
                      + result.get("error", ""), file=sys.stderr)
        return 1 if any(map(beaten, results)) else 0


if __name__ == "__main__":
    sys.exit(main())
