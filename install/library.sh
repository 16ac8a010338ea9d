#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# library.sh OUT.a ARCHIVE...: one archive of the rooms, whose own archives only refer to their objects.
# (meson's link_whole counts the objects of a room wrong when its sources fill its files exactly.)
set -euo pipefail

out=$1
shift
rm -f -- "$out"
{
  printf 'CREATE %s\n' "$out"
  printf 'ADDLIB %s\n' "$@"
  printf '%s\n' SAVE END
} | ar -M
