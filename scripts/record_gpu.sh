#!/bin/sh
# Records a GPU machine: what it is, its calibration, and every run of a list, three times, in an
# order shuffled with a fixed seed, so that drift of clocks and temperature does not look like a
# difference between schedules. scripts/gpu_recordings.py prepares the folders, and takes the results.
#
#   scripts/record_gpu.sh BIN PROGRAMS OUT
#
#   BIN       folder of penstock-run, libpenstock_cuda.so and, if there, hwprobe and cuda_test
#   PROGRAMS  *.json of `penstock export SCENARIO --to program`, calibrate-*.json of `penstock
#             calibrate --request`, and runs.txt: lines of priority, program, link, precision
#   OUT       folder for the results; existing ones are kept, so that a cut-off session can go on
#
# Environment: REPEATS (3), LIMIT seconds for one run (120), BUDGET seconds for everything (1500): no
# run starts later. Runs of priority 2 come when all of priority 1 are done. A run that fails is
# reported and does not end the session.
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

# try NAME COMMAND...: output goes to OUT/NAME.log
try() {
  name=$1
  shift
  if [ "$(elapsed)" -ge "$budget" ]; then
    say "$name: not begun, the session's time is used up"
    return 1
  fi
  if timeout "$limit" "$@" >"$out/$name.log" 2>&1; then
    say "$name: ok"
  else
    status=$?
    say "$name: FAILED with status $status: $(tail -n 1 "$out/$name.log")"
    failed=$((failed + 1))
    return 1
  fi
}

failed=0
"$bin/penstock-run" --backend cuda --probe || exit
nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >"$out/nvidia-smi.txt" 2>&1 || say "no nvidia-smi"
[ -x "$bin/hwprobe" ] && try hwprobe "$bin/hwprobe"
[ -x "$bin/cuda_test" ] && try cuda_test "$bin/cuda_test"

for request in "$programs"/calibrate*.json; do
  [ -e "$request" ] || continue
  name=$(basename "$request" .json)
  [ -e "$out/$name.result.json" ] && continue
  try "$name" "$bin/penstock-run" --calibrate "$request" --backend cuda \
    --output "$out/$name.result.json"
done

# One line per run: repeat, program, link, precision.
plan=$(for repeat in $(seq "$repeats"); do
  sed "s/^/$repeat /" "$programs/runs.txt"
done | awk 'BEGIN { srand(1) } { print $2, rand(), $1, $3, $4, $5 }' | sort -k 1,1n -k 2,2n |
  cut -d ' ' -f 3-)

total=$(printf '%s\n' "$plan" | grep -c .)
done=0
while read -r repeat name link precision; do
  [ -n "$name" ] || continue
  done=$((done + 1))
  run="$name.$repeat"
  [ -e "$out/$run.json.gz" ] && continue
  # The weights are compared once per program: the reference takes as long as the run.
  [ "$repeat" = 1 ] && check=on || check=off
  try "$run" "$bin/penstock-run" "$programs/$name.json" --backend cuda --precision "$precision" \
    --link "$link" --check "$check" --record "$out/$run.json.gz" ||
    mv -f "$out/$run.json.gz" "$out/$run.failed" 2>/dev/null || true # not taken for done
  [ $((done % 10)) -ne 0 ] || say "$done of $total runs, $failed failed"
done <<EOF
$plan
EOF
nvidia-smi -q -d CLOCK,POWER,PERFORMANCE >"$out/nvidia-smi-after.txt" 2>&1
say "$done of $total runs, $failed failed"
[ "$failed" -eq 0 ]
