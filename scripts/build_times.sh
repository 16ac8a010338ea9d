#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long building and testing take: the table in docs/performance.md.
#   scripts/build_times.sh [--check] [--all] [--edit] [COMMIT]
#
# In a clean clone of COMMIT (default: HEAD) it prints the wall and CPU time of the first command, and
# of that the seconds of compiling by room (by ninja's log, so two at a time on two cores). --check and
# --all time those checks, each in a clone of its own; --edit how long it takes in a build of single
# files (-Dunity=off) until an edited source is built and its test has run. Packages are there already.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
commit=HEAD checks=() edit=
for argument in "$@"; do
  case $argument in
    --check) checks+=('') ;;
    --all) checks+=(--all) ;;
    --edit) edit=yes ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) commit=$argument ;;
  esac
done
PENSTOCK_SHARED=$(realpath -m -- "${PENSTOCK_SHARED:-$root/../shared}")
export PENSTOCK_SHARED TIMEFORMAT='%R s wall, %U s user, %S s system'
export CCACHE_DISABLE=1  # meson takes a compiler cache where there is one, and it knows an edited comment already
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# clone NAME: a clean clone of the commit.
clone() {
  git clone -q --no-hardlinks "$root" "$folder/$1"
  git -C "$folder/$1" checkout -q "$commit"
}

# timed LABEL COMMAND...
timed() {
  local label=$1
  shift
  printf '%-34s ' "$label"
  time "$@" >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; printf '%s failed\n' "$label"; }
}

# Lines of ninja's log: start, end (milliseconds), time stamp, output, hash.
by_room() {
  awk -F '\t' 'NR > 1 && $4 ~ /\.o$|\.gch$/ { split($4, part, "/")
      room = part[1] == "tests" ? "tests/" part[2] : part[1]
      if ($4 ~ /^plan\/search/) room = "plan/search"
      spent[room] += ($2 - $1) / 1000; all += ($2 - $1) / 1000 }
    END { for (room in spent) printf "  %-20s %6.1f s\n", room, spent[room] | "sort -k2 -rn"
      close("sort -k2 -rn"); printf "  %-20s %6.1f s\n", "all rooms", all }' "$1"
}

exec 2>&1
clone first
timed 'first command' "$folder/first/penstock" simulate "$folder/first/scenarios/gpt-2.2b-2bw.yaml"
by_room "$folder/first/build/.ninja_log"
timed 'the same again' "$folder/first/penstock" simulate "$folder/first/scenarios/gpt-2.2b-2bw.yaml"
for check in "${checks[@]}"; do
  clone "check$check"
  timed "./check $check" "$folder/check$check/check" ${check:+"$check"}
  tail -n 1 "$folder/log"
done
if [[ $edit ]]; then
  clone edit
  meson setup "$folder/edit/build-dev" "$folder/edit" -Dunity=off >/dev/null
  for pair in cli/result_table.cpp:'cli result' program/check.cpp:schedules \
    sim/exact.cpp:'sim exact' sim/simgrid/engine.cpp:'sim communication' models/collectives.cpp:models base/units.cpp:base; do
    meson test -C "$folder/edit/build-dev" "${pair#*:}" >/dev/null || true
    echo '// edited' >>"$folder/edit/${pair%%:*}"
    timed "edit ${pair%%:*}" meson test -C "$folder/edit/build-dev" "${pair#*:}"
    grep -q '^Ok: *[1-9]' "$folder/log" || printf '%s: no test ran\n' "${pair#*:}"
  done
fi
