#!/usr/bin/env bash
# Feeds every reader of penstock what nobody would write, and ends with "N executions, N crashes".
set -euo pipefail

# shellcheck disable=SC2016  # nothing to expand
usage='usage: scripts/fuzz.sh [MINUTES] [TARGET...]

Builds the readers with clang 16, its fuzzer and its sanitizers in build-fuzz/, and runs every target
(tests/fuzz/fuzz.cpp has them), one on each core, for its share of MINUTES (10). What it learns stays in
build-fuzz/corpus/ for the next time. A crash is a file in build-fuzz/found/; it happens again with
  build-fuzz/tests/fuzz/penstock-fuzz --target=TARGET FILE

Exit status: 0 no crash, 1 a crash or the build failed, 2 usage.'

root=$(readlink -f -- "${BASH_SOURCE[0]}")
root=${root%/*/*}
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"

minutes=10
case ${1-} in
  -h | --help) printf '%s\n' "$usage"; exit 0 ;;
  [0-9]*) minutes=$1; shift ;;
esac
[[ $minutes =~ ^[0-9]+$ ]] || { printf '%s\n' "scripts/fuzz.sh: what is '$minutes'?" "$usage" >&2; exit 2; }

lock_build
install_missing "${runtime_packages[@]}" "${fuzz_packages[@]}"
dir=$root/build-fuzz
build_fuzzers "$dir"
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
share=$((minutes * 60 * jobs / ${#targets[@]}))
seconds=$((share > 0 ? share : 1))
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}

# fuzz_one TARGET: its line, and a crash's log on stderr.
fuzz_one() {
  local target=$1 log=$dir/found/$1.log status=0 crash=-
  mkdir -p "$dir/corpus/$target"
  "$fuzzer" --target="$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=20000 \
    -print_final_stats=1 -dict="$dir/tests/fuzz/seeds/$target.dict" \
    -artifact_prefix="$dir/found/$target-" "$dir/corpus/$target" "$dir/tests/fuzz/seeds/$target" \
    >"$log" 2>&1 </dev/null || status=$?
  if ((status)); then
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

mkdir -p "$dir/found"
printf '%-20s %11s %7s %9s %8s  %s\n' target executions edges features per_s crash
# shellcheck disable=SC2016  # expands there
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz_one "$1"' - {} | tee "$dir/found/table"
awk '{ executions += $2; crashes += $6 != "-" }
  END { printf "%d executions, %d crashes\n", executions, crashes; exit crashes > 0 }' "$dir/found/table"
