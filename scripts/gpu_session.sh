# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What gpu_first.sh and gpu_second.sh share; they source it. Every part has a moment, in seconds from
# the beginning, at which it is over: no command of it starts later, and one that is running is ended.
# Results are kept as they come, in OUT/results, and what is there is not measured again.
set -u

elapsed() { echo $(($(date +%s) - began)); }
say() { echo "[$(elapsed) s] $*" | tee -a "$results/session.log"; }

# begin SESSION OUT: unpacks the session, and a former session's results ($FORMER) to go on from
begin() {
  began=$(date +%s) failed=0
  mkdir -p "$2/results" && out=$(cd "$2" && pwd) && results="$out/results" || exit 2
  if [ -f "$1" ]; then
    tar -xzf "$1" -C "$out" || exit 2
    session="$out/session"
  else
    session=$(cd "$1" && pwd) || exit 2
  fi
  [ -z "${FORMER-}" ] || tar -xzf "$FORMER" -C "$out" || exit 2
  bin="$session/bin" programs="$session/programs"
  if [ ! -x "$bin/penstock-run" ] || [ ! -d "$programs" ]; then
    echo "'$1' is no session" >&2
    exit 2
  fi
  # Libraries that a Python brings along, where the machine has no toolkit of its own.
  modules=${PENSTOCK_MODULES:-$bin}
  if ! ldd "$modules/libpenstock_cuda.so" | grep -q 'libcublasLt.*=> /'; then
    nvidia=$(cd / && python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) &&
      LD_LIBRARY_PATH="$nvidia/cu13/lib:$nvidia/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" &&
      export LD_LIBRARY_PATH
  fi
  export PENSTOCK_MODULES="$modules" CUDA_DEVICE_MAX_CONNECTIONS=32
  "$bin/penstock-run" --backend cuda --probe | tee "$results/gpu.txt" || exit
  [ -s "$results/gpu.txt" ] || exit 4
  nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >"$results/nvidia-smi.txt" 2>&1 || say "no nvidia-smi"
}

# until SECONDS: the part that begins now is over then
until_s() { over=$1; }

# try NAME COMMAND...: output goes to results/NAME.log; 1 where it failed or the part is over
try() {
  name=$1
  shift
  left=$((over - $(elapsed)))
  if [ "$left" -le 0 ]; then
    say "$name: left out, the time of its part was up"
    return 1
  fi
  if timeout "$left" "$@" >"$results/$name.log" 2>&1; then
    say "$name: ok"
  else
    status=$?
    say "$name: FAILED with status $status: $(tail -n 1 "$results/$name.log")"
    failed=$((failed + 1))
    return 1
  fi
}

# calibrate REQUEST: goes on where a former one ended; it ends itself in time, to keep what it has
calibrate() {
  name=$(basename "$1" .json)
  budget=$((over - $(elapsed) - 10))
  [ "$budget" -gt 0 ] || budget=1
  try "$name" "$bin/penstock-run" --calibrate "$1" --backend cuda --resume --budget "$budget" \
    --output "$results/$name.result.json"
}

# record PROGRAM LINK PRECISION: the repeats of a run in one process; weights are checked elsewhere
record() {
  recording="$results/$1.json.gz"
  [ -e "$recording" ] && return
  try "$1" "$bin/penstock-run" "$programs/$1.json" --backend cuda --precision "$3" --link "$2" \
    --repeats "${REPEATS:-3}" --check off --record "$recording" ||
    mv -f "$recording" "$results/$1.failed" 2>/dev/null || true # not taken for done
}

# record_priority N: the runs of runs.txt, shuffled with a fixed seed, so that drift of clocks and
# temperature does not look like a difference between schedules
record_priority() {
  awk -v priority="$1" 'BEGIN { srand(1) } $1 == priority { print rand(), $2, $3, $4 }' \
    "$programs/runs.txt" | sort -n | cut -d ' ' -f 2- >"$out/order.txt"
  while read -r program link precision; do record "$program" "$link" "$precision"; done <"$out/order.txt"
}

# finish: one tgz, in pieces of 15 MiB where it is larger; the exit status
finish() {
  nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >"$results/nvidia-smi-after.txt" 2>&1
  say "$failed failed"
  tar -czf "$out/results.tgz" -C "$out" results
  if [ "$(wc -c <"$out/results.tgz")" -gt 15728640 ]; then
    split -b 15728640 -d "$out/results.tgz" "$out/results.tgz." && rm "$out/results.tgz"
  fi
  [ "$failed" -eq 0 ]
}
