#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a site of README.md and docs/ by Sphinx, and prints the path of its first page.
set -euo pipefail

usage='usage: scripts/site.sh [DIR]

Writes the site into DIR (default: build/site), after installing what is missing. Links that lead nowhere are errors.
Exit status: 0 the site is there, 1 it failed, 2 usage.'

case ${1-} in
  -h | --help) printf '%s\n' "$usage"; exit 0 ;;
  -*) printf '%s\n' "scripts/site.sh: what is '$1'?" "$usage" >&2; exit 2 ;;
esac
root=$(readlink -f -- "${BASH_SOURCE[0]}")
root=${root%/*/*}
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
mkdir -p "$build"
install_missing "${site_packages[@]}"
site=$(realpath -m -- "${1:-$build/site}")
/usr/bin/python3 -m sphinx -q -W --keep-going -c "$root/docs" -d "$site/.doctrees" "$root" "$site"
printf '%s\n' "$site/docs/index.html"
