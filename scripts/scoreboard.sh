#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/scoreboard.md and its page: every published data set of SHARED/data, predicted by `simulate`, beside what others state.
#   scripts/scoreboard.sh [SHARED [FOLDER]]
# SHARED is where the measured data are (default: $PENSTOCK_SHARED), FOLDER gets scoreboard.md and scoreboard.html
# (default: docs, the page in a temporary folder). Some minutes. The program is $PENSTOCK, or ./penstock.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
exec "$here/scripts/scoreboard.py" "${1:-${PENSTOCK_SHARED:-$here/../shared}}" "${2:-$here/docs}"
