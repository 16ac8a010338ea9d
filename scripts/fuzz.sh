#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Feeds every reader of penstock what nobody would write, and ends with "N executions, N crashes".
set -euo pipefail

# shellcheck disable=SC2016  # nothing to expand
usage='usage: scripts/fuzz.sh [MINUTES] [TARGET...]
       scripts/fuzz.sh --coverage [EXECUTIONS] [TARGET...]

Builds the readers with clang 16, its fuzzer and its sanitizers in build-fuzz-long/, and runs every target
(tests/fuzz/fuzz.cpp has them), one on each core, for its share of MINUTES (10). What it learns stays in
build-fuzz-long/corpus/ for the next time. Every run adds a line to build-fuzz-long/runs: when, commit, targets, seconds of
each, executions, crashes (also of one that Ctrl-C ends); their sum is printed last. A crash is a file in build-fuzz-long/found/; it happens again with
  build-fuzz-long/tests/fuzz/penstock-fuzz --target=TARGET FILE

--coverage says how much of each reader is reached by the seeds, what was learned, and EXECUTIONS (3000) more, always
the same ones: lines of the files that tests/fuzz/fuzz.cpp names for the target, as a table for docs/reliability.md. It
builds in build-coverage/.

Exit status: 0 no crash, 1 a crash or the build failed, 2 usage.'

root=$(readlink -f -- "${BASH_SOURCE[0]}")
root=${root%/*/*}
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"

minutes=10
coverage=
executions=3000
case ${1-} in
  -h | --help) printf '%s\n' "$usage"; exit 0 ;;
  --coverage)
    coverage=1
    shift
    if [[ ${1-} =~ ^[0-9]+$ ]]; then executions=$1; shift; fi
    ;;
  [0-9]*) minutes=$1; shift ;;
esac
[[ $minutes =~ ^[0-9]+$ ]] || { printf '%s\n' "scripts/fuzz.sh: what is '$minutes'?" "$usage" >&2; exit 2; }

lock_build
packages=("${runtime_packages[@]}" "${fuzz_packages[@]}")
if [[ $coverage ]]; then
  install_missing "${packages[@]}" "${coverage_packages[@]}"
  dir=$root/build-coverage
  build_covered "$dir"
  export LLVM_PROFILE_FILE=$dir/other.profraw  # of runs that are not counted
else
  install_missing "${packages[@]}"
  dir=$root/build-fuzz-long
  build_fuzzers "$dir" 1
fi
unlock_build
fuzzer=$dir/tests/fuzz/penstock-fuzz
mapfile -t known < <("$fuzzer" --list)
targets=("${@:-${known[@]}}")
for target in "${targets[@]}"; do
  [[ " ${known[*]} " == *" $target "* ]] || {
    printf '%s\n' "scripts/fuzz.sh: there is no target '$target': ${known[*]}" >&2
    exit 2
  }
done

jobs=$(nproc)

# cover_one TARGET: its row of the table.
cover_one() {
  local target=$1 place=$dir/covered/$1 learned=$root/build-fuzz-long/corpus/$1 files file
  rm -rf "$place"
  mkdir -p "$place/new" "$learned"
  LLVM_PROFILE_FILE=$place/raw "$fuzzer" --target="$target" -runs="$executions" -seed=1 -timeout=60 -rss_limit_mb=2048 \
    -max_len=400000 -dict="$dir/tests/fuzz/seeds/$target.dict" -artifact_prefix="$place/" \
    "$place/new" "$dir/tests/fuzz/seeds/$target" "$learned" >"$place/log" 2>&1 </dev/null || {
    printf '%s\n' "scripts/fuzz.sh: $target crashed: $place/log" >&2
    return 1
  }
  llvm-profdata-16 merge -sparse "$place/raw" -o "$place/profile"
  mapfile -t files < <("$fuzzer" --covers="$target")
  for file in "${files[@]}"; do printf '%s\n' "$root/$file"; done >"$place/files"
  # Per file: name, regions, missed, %, functions, missed, %, lines, missed, %, ...
  xargs llvm-cov-16 report "$fuzzer" -instr-profile="$place/profile" <"$place/files" 2>"$place/report.log" |
    awk -v target="$target" -v files="$(sed "s|^$root/||" "$place/files" | paste -sd ' ')" '
      $1 == "TOTAL" { printf "| %s | %d | %d | %.1f %% | %s |\n", target, $8, $8 - $9, 100 * ($8 - $9) / $8, files }'
}
if [[ $coverage ]]; then
  export -f cover_one
  export dir fuzzer executions root
  printf '%s\n' '| target | lines | reached | share | files |' '|---|---|---|---|---|'
  # shellcheck disable=SC2016  # expands there
  printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'cover_one "$1"' - {} | LC_ALL=C sort
  exit 0
fi

share=$((minutes * 60 * jobs / ${#targets[@]}))
seconds=$((share > 0 ? share : 1))
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
# Of who allocated two frames are enough: the others take as long as the reader. So does keeping count
# of what is rare (entropic): a third of the inputs in the same time.
export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=2:quarantine_size_mb=256}

# fuzz_one TARGET: its line, and a crash's log on stderr.
fuzz_one() {
  local target=$1 log=$dir/found/$1.log status=0 crash=-
  mkdir -p "$dir/corpus/$target"
  "$fuzzer" --target="$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=400000 -entropic=0 \
    -print_final_stats=1 -dict="$dir/tests/fuzz/seeds/$target.dict" \
    -artifact_prefix="$dir/found/$target-" "$dir/corpus/$target" "$dir/tests/fuzz/seeds/$target" \
    >"$log" 2>&1 </dev/null || status=$?
  if ((status)) && ! grep -q '^==[0-9]*== libFuzzer: run interrupted' "$log"; then
    crash=$(sed -n 's/.*Test unit written to //p' "$log" | head -n 1)
    grep -m 1 -B 2 -A 12 -E 'runtime error|ERROR: ' "$log" >&2 || tail -n 15 "$log" >&2
    crash=${crash:-$log}
  fi
  awk -v target="$target" -v crash="$crash" '
    /^#[0-9]+\t/ {
      for (i = 1; i < NF; ++i) {
        if ($i == "cov:") edges = $(i + 1)
        if ($i == "ft:") features = $(i + 1)
      }
    }
    /^stat::number_of_executed_units:/ { executions = $2 }
    /^stat::average_exec_per_sec:/ { rate = $2 }
    END { printf "%-20s %11d %7d %9d %8d  %s\n", target, executions, edges, features, rate, crash }' "$log"
}
export -f fuzz_one
export dir fuzzer seconds

trap : INT  # ends the fuzzers; what they have done still counts
mkdir -p "$dir/found"
printf '%-20s %11s %7s %9s %8s  %s\n' target executions edges features per_s crash
# shellcheck disable=SC2016  # expands there
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz_one "$1"' - {} | tee -i "$dir/found/table"
counts=$(awk '{ executions += $2; crashes += $6 != "-" } END { print executions, crashes }' "$dir/found/table")
printf '%s %s %d %d %s\n' "$(date -u +%FT%TZ)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo -)" \
  "${#targets[@]}" "$seconds" "$counts" >>"$dir/runs"
awk '{ executions += $5; crashes += $6 }
  END { printf "in %d runs so far: %d executions, %d crashes\n", NR, executions, crashes }' "$dir/runs"
awk '{ printf "%d executions, %d crashes\n", $1, $2; exit $2 > 0 }' <<<"$counts"
