#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Records real runs of two stages on this machine's cores, each predicted from one calibration that
# was made before and has seen none of them:
#   scripts/record_host.sh [FOLDER]        default: traces/recorded/host
# Leave the machine alone meanwhile (about ten minutes); what else runs is in the numbers.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/traces/recorded/host}
penstock=${PENSTOCK:-$root/penstock}
cd "$folder"

"$penstock" calibrate gpt-8-layers.yaml --microbatch-sizes 1,2,4 --recompute none,full --workers 2 \
  --repetitions "${REPETITIONS:-30}" -o profile.yaml >calibration.txt

# NAME SCHEDULE MICROBATCH_SIZE MICROBATCHES RECOMPUTE SPLIT UPDATES [OPTION]
configurations=(
  '1f1b-m8            1f1b          1 8  none even   22'
  '1f1b-m4-recompute  1f1b          2 4  full even   22'
  '1f1b-uneven        1f1b          2 6  none [3,5]  22'
  '1f1b-processes     1f1b          2 8  none even   22 --processes'
  'gpipe-m4           gpipe         2 4  none even   22'
  'gpipe-m8           gpipe         1 8  none even   22'
  '2bw-m4             pipedream-2bw 2 4  none even   32'
  '2bw-m2-b4          pipedream-2bw 4 2  none even   24'
  'pipedream          pipedream     2 1  none even   80'
)
scenario() {
  cat <<YAML
name: host $1
model: profile.yaml
cluster: profile.yaml
schedule: $2
batches: $7
pipeline: {stages: 2, microbatch_size: $3, microbatches: $4, recompute: $5, split: $6}
YAML
}
for line in "${configurations[@]}"; do
  read -r -a c <<<"$line"
  printf 'recording %s\n' "${c[0]}" >&2
  scenario "${c[@]}" >"run-${c[0]}.yaml"
  "$penstock" replay "run-${c[0]}.yaml" --record "${c[0]}.json.gz" "${c[@]:7}" >/dev/null
  rm "run-${c[0]}.yaml"
done
"$penstock" validate "$folder"
