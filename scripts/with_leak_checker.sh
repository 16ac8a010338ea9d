#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_leak_checker.sh TEST ARGUMENT...: runs a sanitized test. GCC 12's LeakSanitizer stops the
# process when it ends and looks at its threads from another one, which now and then crashes itself
# ("Tracer caught signal 11") after all has passed. It has then checked nothing, so the test is run
# once more; a leak, or a second crash, is a failure.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2> >(tee "$log" >&2)
code=$?
if ((code != 0)) && grep -q 'LeakSanitizer has encountered a fatal error' "$log"; then
  echo "the leak checker crashed: the test runs once more" >&2
  "$@"
  code=$?
fi
exit "$code"
