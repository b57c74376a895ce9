#!/bin/bash
# Unpacks the installed tree into an empty folder, compiles a C program there with nothing but
# pkg-config's flags, and runs it on two ranks that find each other through a file.
#
# usage: c_program_test.sh INSTALL_TARBALL PROGRAM.c
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

readonly tarball=$1 program=$2
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/c_program.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/prefix"
tar -C "$work/prefix" -xzf "$tarball"
cp "$program" "$work/program.c"
cd "$work"

export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
# shellcheck disable=SC2046  # the flags are words
cc -std=c99 -pedantic -Wall -Wextra -Werror program.c -o program $(pkg-config --cflags --libs tutti)

export LD_LIBRARY_PATH=$work/prefix/lib
ldd program >loaded.txt
grep -q "libtutti.so.0 => $work" loaded.txt || fail "the program does not load the installed library"
# Exported names: those of C, and the versioned ones of C++.
foreign=$(nm -D --defined-only prefix/lib/libtutti.so |
  awk '$2 != "A" && $3 !~ /^tutti_/ && $3 !~ /@@?TUTTI_CPP_/ {print $3}')
[ -z "$foreign" ] || fail "the library exports more than its interface: $foreign"

export WORLD_SIZE=2 "TUTTI_TOKEN=the token of c_program_test" TUTTI_RENDEZVOUS=file:$work/rendezvous
RANK=0 timeout 60 ./program >rank0.txt 2>&1 &
first=$!
status=0
RANK=1 timeout 60 ./program >rank1.txt 2>&1 || status=$?
wait "$first" || status=$?
cat rank0.txt rank1.txt
[ "$status" -eq 0 ] || fail "exit code $status"
grep -q "^rank 0 of 2: ok" rank0.txt || fail "rank 0 did not finish"
grep -q "^rank 1 of 2: ok" rank1.txt || fail "rank 1 did not finish"
