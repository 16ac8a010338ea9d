#!/bin/sh
# Records a GPU machine: what it is, its calibration, and every run of a list, three times, in an
# order shuffled with a fixed seed, so that drift of clocks and temperature does not look like a
# difference between schedules. scripts/gpu_recordings.py prepares the folders, and takes the results.
#
#   scripts/record_gpu.sh BIN PROGRAMS OUT
#
#   BIN       folder of penstock-run, libpenstock_cuda.so and, if there, hwprobe and cuda_test
#   PROGRAMS  *.json of `penstock export SCENARIO --to program`, calibrate-PRIORITY-*.json of
#             `penstock calibrate --request`, and runs.txt: lines of priority, program, link, precision
#   OUT       folder for the results; existing ones are kept, so that a cut-off session can go on
#
# Environment: REPEATS (3), LIMIT seconds for one run (120), BUDGET seconds for everything (1500): no
# run starts later. Of each priority, first 1, then 2, the calibrations come before the runs. What
# fails is reported and does not end the session.
set -u
[ $# -eq 3 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2; }
bin=$(cd "$1" && pwd) || exit 2
programs=$(cd "$2" && pwd) || exit 2
mkdir -p "$3" && out=$(cd "$3" && pwd) || exit 2
repeats=${REPEATS:-3} limit=${LIMIT:-120} budget=${BUDGET:-1500}
began=$(date +%s)

# Libraries that a Python brings along, where the machine has no toolkit of its own.
if ! ldd "$bin/libpenstock_cuda.so" | grep -q 'libcublasLt.*=> /'; then
  nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) &&
    LD_LIBRARY_PATH="$nvidia/cu13/lib:$nvidia/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export LD_LIBRARY_PATH
fi
export PENSTOCK_MODULES="$bin" CUDA_DEVICE_MAX_CONNECTIONS=32

elapsed() { echo $(($(date +%s) - began)); }
say() { echo "[$(elapsed) s] $*"; }

failed=0
time_is_up() { [ "$(elapsed)" -ge "$budget" ]; }

# try NAME COMMAND...: output goes to OUT/NAME.log
try() {
  name=$1
  shift
  if timeout "$limit" "$@" >"$out/$name.log" 2>&1; then
    say "$name: ok"
  else
    status=$?
    say "$name: FAILED with status $status: $(tail -n 1 "$out/$name.log")"
    failed=$((failed + 1))
    return 1
  fi
}

# calibrate PRIORITY
calibrate() {
  for request in "$programs/calibrate-$1"-*.json; do
    name=$(basename "$request" .json)
    if [ ! -e "$request" ] || [ -e "$out/$name.result.json" ]; then continue; fi
    if time_is_up; then return; fi
    try "$name" "$bin/penstock-run" --calibrate "$request" --backend cuda \
      --output "$out/$name.result.json"
  done
}

# shuffled PRIORITY: a line for every repeat of a run: repeat, program, link, precision
shuffled() {
  for repeat in $(seq "$repeats"); do
    sed "s/^/$repeat /" "$programs/runs.txt"
  done | awk -v priority="$1" 'BEGIN { srand(1) } $2 == priority { print rand(), $1, $3, $4, $5 }' |
    sort -n | cut -d ' ' -f 2-
}

# record REPEAT PROGRAM LINK PRECISION
record() {
  run="$2.$1"
  [ -e "$out/$run.json.gz" ] && return
  # The weights are compared once per program: the reference takes as long as the run.
  [ "$1" = 1 ] && check=on || check=off
  try "$run" "$bin/penstock-run" "$programs/$2.json" --backend cuda --precision "$4" --link "$3" \
    --check "$check" --record "$out/$run.json.gz" ||
    mv -f "$out/$run.json.gz" "$out/$run.failed" 2>/dev/null || true # not taken for done
}

"$bin/penstock-run" --backend cuda --probe || exit
nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >"$out/nvidia-smi.txt" 2>&1 || say "no nvidia-smi"
[ -x "$bin/hwprobe" ] && try hwprobe "$bin/hwprobe"
[ -x "$bin/cuda_test" ] && try cuda_test "$bin/cuda_test"

total=0 done=0
for priority in 1 2; do
  calibrate "$priority"
  shuffled "$priority" >"$out/order-$priority.txt"
  while read -r repeat program link precision; do
    total=$((total + 1))
    if time_is_up; then continue; fi
    record "$repeat" "$program" "$link" "$precision"
    done=$((done + 1))
    [ $((done % 10)) -ne 0 ] || say "$done runs, $failed failed"
  done <"$out/order-$priority.txt"
done
nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >"$out/nvidia-smi-after.txt" 2>&1
say "$done of $total runs, $failed failed"
[ "$failed" -eq 0 ]
