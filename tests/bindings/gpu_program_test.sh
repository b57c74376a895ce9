#!/bin/bash
# Compiles the example for GPUs against the installed tree and CUDA's header, and runs it on three ranks
# over the driver without a GPU.
#
# usage: gpu_program_test.sh INSTALL_TARBALL PROGRAM.c NVCC DRIVER
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

readonly tarball=$1 program=$2 nvcc=$3
driver=$(dirname "$(readlink -f "$4")")
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
header=$(find "$cuda/" -name cuda.h -print -quit)
[ -n "$header" ] || fail "there is an nvcc in $cuda, and no cuda.h"
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/gpu_program.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/prefix"
tar -C "$work/prefix" -xzf "$tarball"
cp "$program" "$work/program.c"
cd "$work"

export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
# shellcheck disable=SC2046  # the flags are words
cc -std=c99 -Wall -Wextra -Werror program.c -o program -isystem "$(dirname "$header")" \
  $(pkg-config --cflags --libs tutti) -L"$driver" -l:libcuda.so.1

export LD_LIBRARY_PATH=$work/prefix/lib:$driver
export WORLD_SIZE=3 "TUTTI_TOKEN=the token of gpu_program_test" TUTTI_RENDEZVOUS=file:$work/rendezvous
pids=()
for rank in 0 1 2; do
  RANK=$rank timeout 100 ./program >"rank$rank.txt" 2>&1 &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
cat rank?.txt
[ "$status" -eq 0 ] || fail "exit code $status"
for rank in 0 1 2; do
  grep -q "^rank $rank of 3: the mean is 2$" "rank$rank.txt" || fail "rank $rank did not finish"
done
