#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rewrites the table of measured runs between the `validation` markers of docs/validation.md: a row per folder
# of traces/recorded/ and schedule, every recording predicted again. `--check` only says whether the
# table is up to date. Each folder says in `about.md`, in one line, what was run.
#   scripts/validation_table.sh [--check] [PAGE]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
check=no
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
page=${1:-$root/docs/validation.md}
begin='<!-- validation:begin -->'
end='<!-- validation:end -->'

if [ "$(grep -cxF "$begin" "$page")" != 1 ] || [ "$(grep -cxF "$end" "$page")" != 1 ]; then
  echo "$page: needs the lines '$begin' and '$end', once each" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in "$root"/traces/recorded/*/; do
  "${PENSTOCK_BINARY:-$root/penstock}" validate "$folder" --format json >"$work/result.json"
  python3 "$root/scripts/validation_rows.py" "$folder" "$work/result.json" >>"$work/rows"
done
{
  echo '| recorded runs | schedule | runs | iteration time: mean \|error\| | largest | peak memory: mean \|error\| |'
  echo '|---|---|--:|--:|--:|--:|'
  cat "$work/rows"
} >"$work/table"
awk -v begin="$begin" -v end="$end" -v table="$work/table" '
  $0 == end { inside = 0 }
  !inside { print }
  $0 == begin { inside = 1; print ""; while ((getline line < table) > 0) print line; print "" }
' "$page" >"$work/new"
if cmp -s "$work/new" "$page"; then
  echo "$page: up to date"
elif [ "$check" = yes ]; then
  echo "$page: the table of measured runs is out of date; run scripts/validation_table.sh" >&2
  exit 1
else
  cat "$work/new" >"$page"
  echo "$page: rewritten"
fi
