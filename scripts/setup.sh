# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What ./penstock and ./check share: find out what is missing, install it, configure, build.
#
# A part is fresh when the sources look exactly (names, times, sizes) as they did before it was last
# built, so a warm start costs one `find` and neither meson nor ninja. The parts: `first`, what a
# table needs; `runtime`, all that predicts; `execution`, what runs a schedule, which takes long to
# compile and few commands need; `python`, the package for Python.
# The caller sets `root`. Everything said here goes to stderr, and stdin is left to the command.

: "${root:?must be set by the script that sources this one}"
build=$root/build

# PACKAGE | WHAT IT GIVES | HOW TO TELL THAT IT IS THERE ALREADY, from Debian or from elsewhere
# shellcheck disable=SC2034  # used by the sourcing scripts
runtime_packages=(
  'g++|C++ compiler|compiler'
  'meson|build system|tool meson'
  'ninja-build|build tool|tool ninja'
  'pkg-config|finds libraries|tool pkg-config'
  'libsimgrid-dev|SimGrid|library simgrid'
  'libyaml-cpp-dev|yaml-cpp|library yaml-cpp'
  'libboost-program-options-dev|Boost.Program_options|header boost/program_options.hpp'
  'libfmt-dev|fmt|library fmt'
  'nlohmann-json3-dev|JSON for C++|library nlohmann_json'
  'zlib1g-dev|zlib|library zlib'
  'libsqlite3-dev|SQLite, for sweeps|library sqlite3'
  'libopenblas-pthread-dev|matrix products|library openblas'
  'libgloo-dev|messages between processes|header gloo/context.h'
)
python_packages=(
  'python3|Python|test -x /usr/bin/python3'
  'python3-dev|headers of Python|python_headers'
  'pybind11-dev|C++ for Python|library pybind11'
  'python3-numpy|arrays for Python|python_module numpy'
)
# shellcheck disable=SC2034
test_packages=(
  "${python_packages[@]}"
  'libgtest-dev|GoogleTest|library gtest'
  'libbenchmark-dev|Google Benchmark|library benchmark'
  'python3-jsonschema|JSON schema checker|python_module jsonschema'
  'python3-yaml|YAML for Python|python_module yaml'
  'openmpi-bin|starts the shards of a sweep|tool mpirun'
  'zsh|shell, for its completion|tool zsh'
  'fish|shell, for its completion|tool fish'
  'groff-base|formats the manual page|tool groff'
)
# shellcheck disable=SC2034
all_packages=(
  'clang-format-16|formatter|tool clang-format-16'
  'clang-tidy-16|finds mistakes|tool clang-tidy-16'
  'python3-pandas|tables for Python|python_module pandas'
  'dpkg-dev|finds what a package needs|tool dpkg-shlibdeps'
  'emscripten|C++ for browsers|tool em++'
  'python3-distributed|a sweep on many machines, by Dask|python_module distributed'
  'python3-mpi4py|a sweep on many machines, by MPI|python_module mpi4py.futures'
  'python3-nbclient|runs notebooks|python_module nbclient'
  'python3-ipykernel|runs their cells|python_module ipykernel'
  'python3-pip|makes a wheel|python_module pip'
  'python3-venv|where it is tried|python_module ensurepip'
  'python3-mesonpy|makes a wheel of what meson builds|python_module mesonpy'
)
# shellcheck disable=SC2034
site_packages=(
  'python3-sphinx|makes a site of pages|python_module sphinx'
  'python3-myst-parser|Markdown for Sphinx|python_module myst_parser'
  'furo|looks of the site|python_module furo'
)
# shellcheck disable=SC2034
fuzz_packages=(
  'clang-16|compiler, for fuzzing|tool clang++-16'
  'libclang-rt-16-dev|its fuzzer and sanitizers|fuzzer_runtime'
)
# shellcheck disable=SC2034
coverage_packages=('llvm-16|reads what was covered|tool llvm-cov-16')
trace_viewer=/usr/share/go-1.19/src/cmd/trace/static/trace_viewer_full.html
# shellcheck disable=SC2034
browser_packages=(
  'chromium|browser|tool chromium'
  'nodejs|Node.js|tool node'
  'npm|Node.js package manager|tool npm'
  'golang-1.19-src|Catapult trace viewer|test -f '"$trace_viewer"
)

tool() { command -v "$1" >/dev/null; }
compiler() { local words=${CXX:-c++}; tool "${words%% *}"; }
library() { pkg-config --exists "$1" 2>/dev/null; }
header() { [[ -f /usr/include/$1 || -f /usr/local/include/$1 ]]; }
fuzzer_runtime() { compgen -G '/usr/lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.fuzzer-*' >/dev/null; }
python_headers() { /usr/bin/python3 -I -c 'import os, sysconfig; os.stat(sysconfig.get_paths()["include"] + "/Python.h")' 2>/dev/null; }
python_module() { /usr/bin/python3 -I -c "import $1" 2>/dev/null; }

# --- talking -------------------------------------------------------------------------------------

on_terminal() { [[ -t 2 && ${TERM:-dumb} != dumb ]]; }
clear_line() { if on_terminal; then printf '\r\033[K' >&2; fi; }

say() {
  clear_line
  printf '%s\n' "$*" >&2
}

die() {
  say "$@"
  exit 1
}

# One line that is overwritten on a terminal, a line every 15 seconds elsewhere.
next_line_at=0
show() {
  if on_terminal; then
    printf '\r\033[K%s' "$1" >&2
  elif ((SECONDS >= next_line_at)); then
    printf '%s\n' "$1" >&2
    next_line_at=$((SECONDS + 15))
  fi
}

# Reads the output of ninja ("[12/87] ...") or of meson test ("12/87 ...") and shows how far it is.
progress() {
  local line
  while IFS= read -r line; do
    if [[ $line =~ ^\ *\[?\ *([0-9]+)/([0-9]+) ]]; then
      show "$1 ${BASH_REMATCH[1]}/${BASH_REMATCH[2]}"
    fi
  done
  clear_line
}

# --- is there anything to do? --------------------------------------------------------------------

# One line for each file that can change the program: path, time, size.
fingerprint() {
  find "$root" -mindepth 1 \
    -type d \( -name build -o -name 'build-*' -o -name '.*' -o -name node_modules \
    -o -name tests -o -name bench -o -name docs \) -prune -o \
    \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.in' -o -name '*.js' -o -name '*.css' -o -path '*/python/penstock/*.py' \
    -o -name meson.build -o -name meson_options.txt \) -printf '%p %T@ %s\n'
}

# is_fresh PART...
is_fresh() {
  local sources part
  sources=$(fingerprint)
  for part in "$@"; do
    [[ -f $build/.built-$part && $sources == "$(<"$build/.built-$part")" ]] || return
    case $part in
      first) [[ -x $build/cli/penstock-first ]] || return ;;
      runtime) [[ -x $build/cli/penstock ]] || return ;;
      python) compgen -G "$build/python/penstock/_core.*" >/dev/null || return ;;
    esac
  done
}

# --- installing ----------------------------------------------------------------------------------

# install_missing ENTRY...: entries of the tables above.
install_missing() {
  local entry package gives present packages=() reasons=''
  for entry in "$@"; do
    IFS='|' read -r package gives present <<<"$entry"
    $present && continue
    packages+=("$package")
    reasons+="${reasons:+, }$package ($gives)"
  done
  if ((${#packages[@]})); then
    say "installing: $reasons"
    apt_install "${packages[@]}"
  fi
}

apt_install() {
  local log=$build/install.log install=(install -y --no-install-recommends "$@")
  if ! tool apt-get || { ((EUID)) && ! tool sudo; }; then
    say 'cannot install packages here; run this as root and try again:'
    die "  apt-get ${install[*]}"
  fi
  : >"$log"
  # The package lists may be absent or old: that shows when the first attempt fails.
  if ! apt_get "${install[@]}" && ! { apt_update && apt_get "${install[@]}"; }; then
    tail -n 30 "$log" >&2
    say "installing failed (all output: $log); the command was:"
    die "  apt-get ${install[*]}"
  fi
}

# The lock is closed, lest a service that a package starts keeps it.
apt_get() {
  local as_root=()
  if ((EUID)); then as_root=(sudo); fi
  "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null 9>&-
}

# DPkg::Lock::Timeout does not cover the lock of the package lists.
apt_update() {
  local attempt
  for ((attempt = 0; attempt < 60; attempt++)); do
    : >"$log"
    apt_get update && return 0
    grep -q 'Could not get lock' "$log" || return 1
    sleep 5
  done
  return 1
}

# --- building ------------------------------------------------------------------------------------

# One build at a time in a tree. Only ninja and meson inherit the lock, so that it lasts as long as
# they do even if this script is killed.
lock_build() {
  local built=$build/cli/${program:-penstock}
  { mkdir -p "$build" && : >>"$build/.lock"; } 2>/dev/null ||
    die "cannot write to $build, where what changed is built; make it writable, or run what was" \
      "built there before: $built"
  exec 9>"$build/.lock"
  flock -n 9 || {
    say 'another penstock is being built here: waiting for it'
    flock 9
  }
}
unlock_build() { exec 9>&-; }

is_configured() {
  [[ -f $1/build.ninja ]] && [[ ! -f $1/.source-root || $(<"$1/.source-root") == "$root" ]]
}

# configure DIR OPTION...: afresh also when the tree was moved or a configuration was interrupted.
configure() {
  local dir=$1
  shift
  is_configured "$dir" && return
  rm -rf "$dir"/meson-{private,info} "$dir"/build.ninja "$dir"/.ninja_{log,deps} "$dir"/.with-tests
  meson_setup "$dir" "$root" "$@"
  printf '%s\n' "$root" >"$dir/.source-root"
}

# What was not found when only ./penstock was built may be there now: look again, once.
configure_with_tests() {
  if is_configured "$1" && [[ ! -f $1/.with-tests ]]; then
    configure_again "$1"
  else
    configure "$@"
  fi
  touch "$1/.with-tests"
}

# The same for what the package for Python needs.
has_python_target() { grep -q '^build python:' "$build/build.ninja"; }
configure_with_python() {
  if has_python_target; then return; fi
  configure_again "$build"
  has_python_target || die "the package for Python cannot be built here: meson finds no pybind11 >= 2.10, or no" \
    "headers of /usr/bin/python3 ($build/configure.log)"
}

configure_again() {
  meson configure "$1" --clearcache >/dev/null 2>&1 </dev/null || true
  meson_setup --reconfigure "$1" "$root"
}

meson_setup() {
  local log=$build/configure.log
  show 'configuring penstock'
  meson setup "$@" >"$log" 2>&1 </dev/null || {
    clear_line
    tail -n 20 "$log" >&2
    die "meson setup failed (all output: $log)"
  }
  clear_line
}

# compile DIR LABEL TARGET...: without a target, everything.
compile() {
  local dir=$1 label=$2 log=$1/build.log
  shift 2
  if ! NINJA_STATUS='[%f/%t] ' ninja -C "$dir" "$@" 2>&1 </dev/null | tee "$log" | progress "$label"
  then
    sed -e '/^\[[0-9]*\/[0-9]*\] /d' -e '/^ninja: Entering/d' "$log" >&2
    die "building failed (all output: $log)"
  fi
}

# build_from_here PART... [-- TARGET...]: build/ from the sources as they are now.
build_from_here() {
  local sources part parts=()
  while (($#)) && [[ $1 != -- ]]; do
    parts+=("$1")
    shift
  done
  sources=$(fingerprint)
  for part in first runtime execution python; do  # the others may be half rebuilt now
    [[ ! -f $build/.built-$part || $sources == "$(<"$build/.built-$part")" ]] ||
      rm -f "$build/.built-$part"
  done
  compile "$build" 'building penstock' "${parts[@]}" "${@:2}"
  if [[ " ${parts[*]} " == *' runtime '* ]]; then parts+=(first); fi  # is part of it
  for part in "${parts[@]}"; do printf '%s\n' "$sources" >"$build/.built-$part"; done
}

# build_parts PART...
build_parts() {
  lock_build
  if ! is_fresh "$@"; then
    install_missing "${runtime_packages[@]}"
    if [[ " $* " == *' python '* ]]; then install_missing "${python_packages[@]}"; fi
    configure "$build" "$(cuda_if_driver)"
    if [[ " $* " == *' python '* ]]; then configure_with_python; fi
    build_from_here "$@"
  fi
  unlock_build
}

# The CUDA backend takes long to compile, and without a driver it cannot run.
cuda_if_driver() {
  if [[ -e /proc/driver/nvidia/version ]] || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so'; then
    echo -Dcuda=auto
  else
    echo -Dcuda=disabled
  fi
}

# build_fuzzers DIR [OPTIMIZATION]: what tests/fuzz needs. Without optimization (0) it compiles in two
# fifths of the time, which is more than some seconds of running save; ./check says what is left out of the sanitizers.
build_fuzzers() {
  mkdir -p "$1"
  CXX=clang++-16 configure "$1" "-Doptimization=${2:-0}" -Ddebug=true -Dcuda=disabled -Db_lundef=false \
    -Db_sanitize=address,undefined "-Dcpp_args=-gline-tables-only -fsanitize=fuzzer-no-link \
      -fno-sanitize=null,object-size,alignment,pointer-overflow"
  compile "$1" 'building the fuzzers' fuzzing
}

# build_covered DIR: the same, which counts the lines that are run instead of looking for mistakes.
build_covered() {
  mkdir -p "$1"
  CXX=clang++-16 configure "$1" -Doptimization=1 -Ddebug=true -Dcuda=disabled -Db_lundef=false \
    -Dcpp_link_args=-fprofile-instr-generate "-Dcpp_args=-gline-tables-only -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping"
  compile "$1" 'building the fuzzers' fuzzing
}
