#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the playground: the rooms that predict with `exact`, compiled to WebAssembly by Debian's
# emscripten, and the page, in one file that needs neither a server nor a network.
set -euo pipefail

usage='usage: playground/build.sh INTO

Writes INTO/index.html. What is compiled stays in INTO/objects, or in $PENSTOCK_PLAYGROUND_OBJECTS,
and is used again where nothing that it is made of has changed.'
[[ $# == 1 && $1 != -* ]] || { printf '%s\n' "$usage" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
into=$(cd "$1" && pwd)
objects=${PENSTOCK_PLAYGROUND_OBJECTS:-$into/objects}
mkdir -p "$objects/include"
export EMCC_SKIP_SANITY_CHECK=1 NODE_PATH=/usr/share/nodejs  # where Debian has acorn
for library in fmt nlohmann; do ln -sfn "/usr/include/$library" "$objects/include/$library"; done

version=$(sed -nE "s/^ *version: '(.*)',/\1/p" "$root/meson.build" | head -n 1)
flags=(-std=c++20 -fwasm-exceptions -DFMT_HEADER_ONLY -DFMT_CONSTEVAL= -DPENSTOCK_IN_BROWSER
  -DPENSTOCK_DATA_FOLDER='"/shipped"' "-DPENSTOCK_VERSION=\"$version\""
  -include "$root/playground/shims/missing.hpp" -I"$root/playground/shims" -I"$root" -isystem "$objects/include" -w)

# A room as one file, as meson compiles it. What starts processes, loads modules or talks to a terminal
# has no place here (playground/without.cpp).
sources_of() {
  local room=$1
  case $room in
    engine) echo "$root"/playground/*.cpp "$root"/playground/shims/*.cpp "$root"/cli/{heading,simulation_report}.cpp ;;
    report) echo "$root"/report/*.cpp "$objects/embedded.cpp" ;;
    models) find "$root/models" -name '*.cpp' | LC_ALL=C sort ;;
    schedules_*) find "$root/schedules/${room#schedules_}" -name '*.cpp' | LC_ALL=C sort ;;
    *) find "$root/$room" -maxdepth 1 -name '*.cpp' ! -name child_process.cpp ! -name folder.cpp ! -name last_words.cpp \
        ! -name simgrid_loader.cpp | LC_ALL=C sort ;;
  esac
}

# Nothing that the object was made of has changed since.
is_fresh() {
  [[ -f $1.o && -f $1.d ]] || return 1
  local made_of
  mapfile -t made_of < <(sed -e 's/^[^:]*://' -e 's/\\$//' "$1.d" | tr ' ' '\n' | grep .)
  [[ -z $(find "${made_of[@]}" -newer "$1.o" -print -quit 2>&1) ]]
}

# Rooms that compute are optimized; those that read and print compile faster without.
compile() {
  local object=$objects/$1 listed level=-O2
  case $1 in scenarios | results | report | traces | schedules_formats | engine) level=-O1 ;; esac
  listed=$(for source in $(sources_of "$1"); do printf '#include "%s"\n' "$source"; done)
  if [[ -f $object.cc && $(<"$object.cc") == "$listed" ]] && is_fresh "$object"; then return 0; fi
  printf '%s\n' "$listed" >"$object.cc"
  em++ $level "${flags[@]}" -MMD -MF "$object.d" -c "$object.cc" -o "$object.o"
}

embed_report() {
  local page
  page=$(sed -n '/^report_page = /,/)/p' "$root/report/meson.build" | grep -oE "page/[a-z_]+\.(js|css)")
  # shellcheck disable=SC2086  # one a word
  (cd "$root/report" && python3 embed.py "$objects/embedded.new" vendor/echarts.min.js $page)
  cmp -s "$objects/embedded.new" "$objects/embedded.cpp" || mv "$objects/embedded.new" "$objects/embedded.cpp"
}

embed_report
rooms=(base program models schedules schedules_catalog schedules_formats schedules_search traces sim scenarios results report engine)
for room in "${rooms[@]}"; do compile "$room"; done

python3 "$root/playground/assemble.py" shipped "$objects/shipped"
(cd "$objects" && em++ -O2 -fwasm-exceptions "${rooms[@]/%/.o}" -o "$objects/engine.js" \
  -sSINGLE_FILE=1 -sMODULARIZE=1 -sEXPORT_NAME=makePenstock -sALLOW_MEMORY_GROWTH=1 -sENVIRONMENT=web,node \
  -sEXPORTED_RUNTIME_METHODS=ccall,UTF8ToString,HEAPU8 --embed-file shipped@/shipped)
python3 "$root/playground/assemble.py" page "$objects/engine.js" "$into/index.html"
