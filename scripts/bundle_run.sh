#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts penstock-run into a folder with the libraries it needs that a bare machine lacks.
#
# usage: scripts/bundle_run.sh [--without-cublas] DIR
#
# --without-cublas leaves out the half gigabyte of cuBLASLt, for a machine that has CUDA.
# The program looks for libraries beside itself first (DT_RPATH, which their own libraries inherit).
# What every Linux has stays behind: the C and C++ libraries, and the GPU's driver. The program is
# $PENSTOCK_RUN or that of build/; the CUDA module is taken from beside it, or from hw/cuda/.
set -euo pipefail

stays='linux-vdso|ld-linux-.*|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libcuda'
if [[ ${1-} == --without-cublas ]]; then
  stays+='|libcublasLt'
  shift
fi
if (($# != 1)) || [[ $1 == -* ]]; then
  echo 'usage: scripts/bundle_run.sh [--without-cublas] DIR' >&2
  exit 2
fi
into=$1
root=$(readlink -f -- "${BASH_SOURCE[0]}")
root=${root%/scripts/*}
run=${PENSTOCK_RUN:-$root/build/hw/penstock-run}
[[ -x $run ]] || { echo "bundle_run.sh: '$run' is not there; ./penstock doctor builds it" >&2; exit 1; }

mkdir -p "$into"
cp -f -- "$run" "$into/penstock-run"
files=("$run")
for module in ${PENSTOCK_MODULES:+"$PENSTOCK_MODULES/libpenstock_cuda.so"} \
  "${run%/*}"/{,cuda/}libpenstock_cuda.so; do
  [[ -f $module ]] || continue
  cp -f -- "$module" "$into/"
  files+=("$module")
  break
done
if ((${#files[@]} == 1)); then
  echo 'note: without the CUDA backend, which ./penstock builds only where there is a driver; elsewhere:' \
    'meson configure build -Dcuda=enabled && ninja -C build execution tests/hw/cuda_test' >&2
fi

libraries=$(ldd "${files[@]}")
if grep 'not found' <<<"$libraries" | grep -vE 'libcuda\.so' >&2; then exit 1; fi
# "libgloo.so.0 => /usr/lib/x86_64-linux-gnu/libgloo.so.0 (0x...)"
awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' <<<"$libraries" | sort -u |
  while read -r name path; do
    [[ ${name%%.so*} =~ ^($stays)$ ]] || cp -fL -- "$path" "$into/$name"
  done
