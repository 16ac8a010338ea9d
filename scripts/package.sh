#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Debian package of penstock and prints its path: all else is said on standard error.
#
# What `meson install` installs, moved to /usr, stripped, with the packages that it needs as
# dpkg-shlibdeps finds them. The same sources in the same folder give the same bytes: times are
# $SOURCE_DATE_EPOCH (default: the last commit's), the owner is root whoever makes it.
set -euo pipefail

# shellcheck disable=SC2016  # nothing to expand
usage='usage: scripts/package.sh [-o DIR] [--built BUILD]

  -o DIR         write penstock_VERSION_ARCHITECTURE.deb there; default: the current folder
  --built BUILD  package what is built in the folder BUILD, and build nothing

Builds first, as ./penstock does. The maintainer is $DEBFULLNAME <$DEBEMAIL>, if they are set.
Exit status: 0 the package is there, 1 it failed, 2 usage.'

into=. built=
while (($#)); do
  case $1 in
    -o | --built)
      (($# > 1)) || { printf '%s\n' "package.sh: $1 needs a folder" "$usage" >&2; exit 2; }
      if [[ $1 == -o ]]; then into=$2; else built=$2; fi
      shift 2
      ;;
    -h | --help) printf '%s\n' "$usage"; exit 0 ;;
    *) printf '%s\n' "package.sh: what is '$1'?" "$usage" >&2; exit 2 ;;
  esac
done

root=$(readlink -f -- "${BASH_SOURCE[0]}")
root=${root%/scripts/*}
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"

packaging_packages=(
  'dpkg|writes Debian packages|tool dpkg-deb'
  'dpkg-dev|finds the packages that programs need|tool dpkg-shlibdeps'
  'binutils|strips programs|tool strip'
)
#: of a build, what it then also makes
building_packages=(
  'pybind11-dev|C++ for Python|header pybind11/pybind11.h'
  'emscripten|C++ for browsers|tool em++'
  'python3-yaml|YAML for Python|python_module yaml'
)
#: of a build, by what it makes: neither is there where what it needs was not
optional=(python playground/index.html)

build_everything_to_install() {
  build_parts runtime execution
  lock_build
  install_missing "${packaging_packages[@]}" "${building_packages[@]}"
  knows "${optional[@]}" || configure_again "$build"
  compile "$build" 'building the library, the package for Python and the playground' written "${optional[@]}"
  unlock_build
}

# knows TARGET...: of what the build is configured for.
knows() {
  local target
  for target; do
    grep -qE "^build $target( |:)" "$build/build.ninja" || return
  done
}

if [[ $built ]]; then
  [[ -f $built/build.ninja ]] || die "package.sh: nothing is built in '$built'"
  build=$(realpath -- "$built")
  install_missing "${packaging_packages[@]}"
else
  build_everything_to_install
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-package-XXXXXX")
trap 'rm -rf -- "$work"' EXIT
tree=$work/debian/penstock  # where dpkg-shlibdeps looks for it
doc=$tree/usr/share/doc/penstock
python=usr/lib/penstock/python/penstock

version=$("$build/cli/penstock" --version)
version=${version#penstock }
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-penstock maintainers} <${DEBEMAIL:-maintainers@penstock.invalid}>"
if [[ -z ${SOURCE_DATE_EPOCH-} ]]; then
  SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null) ||
    SOURCE_DATE_EPOCH=$(stat -c %Y "$root/meson.build")
fi
export SOURCE_DATE_EPOCH

# --- the tree ------------------------------------------------------------------------------------

# The build may have any prefix; what is installed finds its files relative to the program.
install_tree() {
  local log=$work/install.log program
  meson install -C "$build" --no-rebuild --strip --destdir "$work/installed" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "package.sh: meson install failed; 'ninja -C $build' builds what it installs"
  }
  program=$(find "$work/installed" -path '*/bin/penstock' -type f)
  mkdir -p "$tree"
  mv -- "${program%/bin/penstock}" "$tree/usr"
  [[ -f $tree/usr/share/penstock/playground/index.html ]] ||
    say "package.sh: without the playground, which is not built: ninja -C $build playground/index.html"
  [[ -d $tree/$python ]] || say "package.sh: without the package for Python, which is not built: ninja -C $build python"
}

# Where Debian wants them.
adapt_to_debian() {
  if [[ -d $tree/$python ]]; then
    strip --strip-unneeded -- "$tree/$python"/_core.*.so
    mkdir -p "$tree/usr/lib/python3/dist-packages"
    ln -s ../../penstock/python/penstock "$tree/usr/lib/python3/dist-packages/penstock"
    # Else Python would, beside them, and dpkg would leave it there.
    /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$tree" "$tree/$python"
  fi
  mkdir -p "$tree/usr/share/zsh"
  mv -- "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
  rm -- "$doc/LICENSE"
  printf '%s\n' 'Copyright: the contributors of penstock' 'License: Apache-2.0' '' \
    'The licence is in /usr/share/common-licenses/Apache-2.0.' >"$doc/copyright"
  printf '%s\n' "penstock ($version) unstable; urgency=medium" '' "  * Version $version." '' \
    " -- $maintainer  $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %T +0000')" |
    gzip -9n >"$doc/changelog.gz"
  gzip -9n "$tree/usr/share/man/man1/penstock.1"
}

# --- what describes it ---------------------------------------------------------------------------

# packages_of ARGUMENT...: of dpkg-shlibdeps; prints fields of the package.
packages_of() {
  printf '%s\n' 'Source: penstock' '' 'Package: penstock' 'Architecture: any' \
    >"$work/debian/control"
  (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$@") 2>"$work/shlibs.log" |
    sed -nE 's/^shlibs:([A-Za-z-]+)=(.)/\1: \2/p'
}

# CUDA is used where it is, and its libraries often come from no package.
needs() {
  local usr=debian/penstock/usr
  local modules=$usr/lib/penstock
  local module=$modules/libpenstock_cuda.so
  local programs=("$usr/bin/penstock" "$usr/bin/penstock-run" "$modules/libpenstock_simgrid.so")
  local core=("$tree/$python"/_core.*.so)
  [[ ! -f ${core[0]} ]] || programs+=("${core[0]#"$work"/}")
  if [[ -f $work/$module ]] && packages_of -dDepends "${programs[@]}" -dSuggests "$module"; then
    :
  elif ! packages_of -dDepends "${programs[@]}"; then
    cat "$work/shlibs.log" >&2
    die 'package.sh: dpkg-shlibdeps failed'
  fi
  sed -nE 's/^dpkg-shlibdeps: warning: (.*no dependency information.*)/package.sh: \1/p' \
    "$work/shlibs.log" >&2
}

# What runs the package for Python, which is compiled for one version; the program alone does without.
python_packages() {
  local core=("$tree/$python"/_core.cpython-*.so) minor
  minor=${core[0]##*cpython-3}
  minor=${minor%%-*}
  echo "python3 (>= 3.$minor~), python3 (<< 3.$((minor + 1))~), python3-numpy"
}

# The sum over the files; what folders take depends on the file system.
kibibytes() {
  find "$tree/usr" -type f -printf '%s\n' |
    awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }'
}

control() {
  printf '%s\n' 'Package: penstock' "Version: $version" "Architecture: $architecture" \
    "Maintainer: $maintainer" "Installed-Size: $(kibibytes)"
  needs
  [[ ! -d $tree/$python ]] || printf 'Recommends: %s\n' "$(python_packages)"
  printf '%s\n' 'Section: science' 'Priority: optional' \
    'Description: simulator of pipeline-parallel training' \
    ' penstock predicts how a pipeline-parallel training job behaves: will it fit,' \
    ' how fast will it be, which schedule, and why. GPipe, 1F1B, PipeDream,' \
    ' PipeDream-2BW and the schedules published since run on the cluster that is' \
    ' described in a few lines of YAML. The same schedule can be executed for real' \
    ' (penstock-run) and the two timelines compared.'
}

checksums() {
  (cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum)
}

# Neither the umask nor the clock shows in the package.
level() {
  chmod -R u=rwX,go=rX -- "$tree"
  chmod 644 -- "$tree"/usr/lib/penstock/*.so
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" -- {} +
}

# -------------------------------------------------------------------------------------------------

say "package.sh: installing penstock $version into a temporary folder"
install_tree
adapt_to_debian
mkdir -p "$tree/DEBIAN" "$into"
level
control >"$tree/DEBIAN/control"
checksums >"$tree/DEBIAN/md5sums"
level
sed -nE 's/^(Depends|Suggests): /package.sh: \1: /p' "$tree/DEBIAN/control" >&2
package=$(realpath -- "$into")/penstock_${version}_$architecture.deb
say 'package.sh: compressing'
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
printf '%s\n' "$package"
