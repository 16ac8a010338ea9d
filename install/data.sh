#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Called by `meson install`: copies what is shipped besides programs. Everything in models/ and
# scenarios/ that is no source, so that a file which a new scenario refers to is not forgotten, the
# documentation with its pictures, and of what not every build has what is there: the playground and
# the package for Python, which finds the program, and the program it, by relative paths.
set -euo pipefail

[[ -z ${MESON_INSTALL_DRY_RUN-} ]] || exit 0
cd "$MESON_SOURCE_ROOT"
shipped=(models scenarios cli/shipped validate/sailor_runs.py ! -name '*.cpp' ! -name '*.hpp' ! -name meson.build ! -name '.*' ! -name '*~')
if [[ ${1-} == --list ]]; then  # for a wheel: what is shipped, and no documentation
  find "${shipped[@]}" -type f | LC_ALL=C sort
  exit
fi
if [[ ${1-} == --headers ]]; then  # those of the library, and what they include
  find base program models schedules traces sim -name '*.hpp' ! -path 'base/precompiled/*' | LC_ALL=C sort
  exit
fi
share=$MESON_INSTALL_DESTDIR_PREFIX/share

# copy_files FOLDER FIND-ARGUMENT...: the files found here, by their paths, into FOLDER.
copy_files() {
  local folder=$1 file
  shift
  find "$@" -type f -print0 | while IFS= read -r -d '' file; do
    install -D -m 644 -- "$file" "$folder/$file"
  done
}

rm -rf -- "$share/penstock/models" "$share/penstock/scenarios" "$share/penstock"/{cli,validate}  # what an older version has shipped
copy_files "$share/penstock" "${shipped[@]}"
copy_files "$share/doc/penstock" README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs \
  \( -name '*.md' -o -name '*.png' -o -name '*.svg' \)

page=$MESON_BUILD_ROOT/playground/index.html
package=$MESON_INSTALL_DESTDIR_PREFIX/lib/penstock/python/penstock
rm -rf -- "$package" "$share/penstock/playground"
[[ ! -f $page ]] || install -D -m 644 -- "$page" "$share/penstock/playground/index.html"
if compgen -G "$MESON_BUILD_ROOT/python/penstock/_core.*.so" >/dev/null; then
  mkdir -p -- "$package"
  install -m 644 -- "$MESON_BUILD_ROOT"/python/penstock/{*.py,*.pyi,py.typed,_core.*.so} "$package"
  ln -s ../../../../bin "$package/bin"
fi
install -D -m 644 LICENSE "$share/doc/penstock/LICENSE"
