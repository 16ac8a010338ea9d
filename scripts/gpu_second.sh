#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What gpu_first.sh leaves: of each priority the calibrations, then the runs, in BUDGET seconds.
#
#   scripts/gpu_second.sh SESSION OUT          # as gpu_first.sh; its OUT may be used again
#
# Environment: BUDGET (530) seconds, after which nothing begins; REPEATS (3) of a run; FORMER, the
# results.tgz of a session to go on from. What fails is reported, and does not end the session.
[ $# -eq 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
# shellcheck source=scripts/gpu_session.sh
. "$(dirname "$0")/gpu_session.sh"

begin "$1" "$2"
until_s "${BUDGET:-530}"
for priority in 0 1 2; do
  for request in "$programs/calibrate-$priority"-*.json; do
    [ ! -e "$request" ] || calibrate "$request"
  done
  record_priority "$priority"
done
finish
