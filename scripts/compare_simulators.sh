#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CPU seconds of penstock's engines and of another simulator for the same 1F1B pipeline with transfers.
#   scripts/compare_simulators.sh [--loggopsim FOLDER] [STAGESxMICROBATCHES]...
#
# FOLDER: the sources of LogGOPSim (https://github.com/spcl/LogGOPSim). It is built there as a copy with
# -O3 (its Makefile says -O0), reads what `penstock export --to goal` writes, and is timed without reading
# it (txt2bin). Needs re2c, gengetopt and libgraphviz-dev then. Without it only penstock is timed.
# Each time is the least of three, of the engine alone: from the ops to the timeline, memory included.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rival='' sizes=()
while (($#)); do
  case $1 in
    --loggopsim) rival=$(realpath -- "$2"); shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    [0-9]*x[0-9]*) sizes+=("$1") ;;
    *) printf '%s: unknown: %s (see --help)\n' "${0##*/}" "$1" >&2; exit 2 ;;
  esac
  shift
done
((${#sizes[@]})) || sizes=(64x512 128x1024 256x2048)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [[ $rival ]]; then
  cp -r "$rival" "$folder/loggopsim"
  make -C "$folder/loggopsim" CXXFLAGS='-O3 -Wno-deprecated -I/usr/include/graphviz' CCFLAGS=-O3 >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    exit 1
  }
fi

# least COMMAND...: the least user and system time of three runs.
least() {
  local TIMEFORMAT='%U %S' spent=()
  for _ in 1 2 3; do
    spent+=("$({ time "$@" >/dev/null 2>&1; } 2>&1 | awk '{ print $1 + $2 }')")
  done
  printf '%s\n' "${spent[@]}" | sort -g | head -n 1
}

# engine NAME: as the result says.
engine() {
  for _ in 1 2 3; do
    "$root/penstock" simulate "$folder/case.yaml" --engine "$1" --format json |
      sed -n 's/^ *"engine_seconds": \([0-9.e-]*\).*/\1/p'
  done | sort -g | head -n 1
}

printf '| stages x microbatches | exact | simgrid | LogGOPSim -O3 |\n|---|---|---|---|\n'
for size in "${sizes[@]}"; do
  # LogGOPSim takes whole nanoseconds per byte: G = 1 is 1 GB/s; all messages are eager, o = g = 0.
  cat >"$folder/case.yaml" <<END
model: {forward: 1 ms, backward: 2 ms, output: 64 KiB, activation: 64 MiB}
cluster: {link: {latency: 10 us, bandwidth: 1 GB/s}}
schedule: 1f1b
pipeline: {stages: ${size%x*}, microbatches: ${size#*x}}
END
  theirs='-'
  if [[ $rival ]]; then
    "$root/penstock" export "$folder/case.yaml" --to goal -o "$folder/case.goal"
    "$folder/loggopsim/txt2bin" -i "$folder/case.goal" -o "$folder/case.bin" >/dev/null
    theirs="$(least "$folder/loggopsim/LogGOPSim" -b -f "$folder/case.bin" -L 10000 -o 0 -g 0 -G 1 -O 0 -S 1000000000) s"
  fi
  printf '| %s | %.4g s | %.4g s | %s |\n' "$size" "$(engine exact)" "$(engine simgrid)" "$theirs"
done
