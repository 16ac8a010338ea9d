#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first ten minutes on a GPU machine: does it work, what is it, do the weights come out right,
# one calibration and the runs that it predicts. Every part is bounded; what it found is kept as it
# comes and packed at the end, so that a machine that is ours for minutes gives all it can.
#
#   scripts/gpu_first.sh SESSION OUT
#
#   SESSION  session.tgz of scripts/gpu_recordings.py prepare, or its folder
#   OUT      folder for the results; OUT/results.tgz is to be carried home (in pieces where large)
#
# Environment: PERCENT (100) of the times below; REPEATS (3) of a run; FORMER, the results.tgz of a
# session to go on from. What fails is reported, and does not end the session.
[ $# -eq 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
# shellcheck source=scripts/gpu_session.sh
. "$(dirname "$0")/gpu_session.sh"
at() { until_s $(($1 * ${PERCENT:-100} / 100)); }

begin "$1" "$2"

at 90 # arithmetic, links and schedules; then under the sanitizers, which are slow
if [ -x "$bin/cuda_test" ]; then
  try cuda_test "$bin/cuda_test" --gtest_filter="${TESTS:-Gpu.*}"
  for tool in memcheck racecheck; do
    command -v compute-sanitizer >/dev/null || { say "no compute-sanitizer"; break; }
    try "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/cuda_test" \
      --gtest_filter='Gpu.EveryLink*:Gpu.MatrixProducts*'
  done
fi

at 180 # what the GPU is like: partitions, streams, timer, events, launches, memory, copies
try examination "$bin/penstock-run" --backend cuda --examine

at 320 # ops of one layer with the whole GPU for itself
for request in "$programs"/layer-*.json; do calibrate "$request"; done

at 400 # the weights of every schedule against a sequential run
for program in "$programs"/check-*.json; do
  try "$(basename "$program" .json)" "$bin/penstock-run" "$program" --backend cuda --precision bf16
done

at 470
for request in "$programs"/calibrate-0-*.json; do calibrate "$request"; done
at 530
record_priority 0
finish
