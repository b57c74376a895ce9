#!/bin/bash
# Unpacks the installed tree into an empty folder, builds the training examples there with nothing
# but pkg-config's flags, and again by CMake after moving the tree, and runs them on two ranks.
#
# usage: examples_test.sh INSTALL_TARBALL TRAINING_TARBALL TUTTI
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

tutti=$(realpath "$3")
readonly tutti library=$1 training=$2
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/training_examples.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/prefix" "$work/pkg-config"
tar -C "$work/prefix" -xzf "$library"
tar -C "$work/prefix" -xzf "$training"
cp -r "$work/prefix/share/tutti/examples/training" "$work/examples"
cd "$work"
export TUTTI_TIMEOUT=60 OMP_NUM_THREADS=1

# run PROGRAM PREFIX: runs on two ranks with the libraries of that prefix. Both must reach a low
# loss.
run() {
  LD_LIBRARY_PATH=$2/lib timeout 100 "$tutti" run -n 2 -- "$1" >output.txt 2>&1 || fail "$1: exit code $?: $(cat output.txt)"
  cat output.txt
  local wanted='(9[5-9]|100)% accuracy$'
  [[ $1 != *regression ]] || wanted='mean squared error 0\.00'
  for rank in 0 1; do
    grep -qE "rank $rank of 2: .*$wanted" output.txt || fail "$1, rank $rank: $(cat output.txt)"
  done
}

export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
for source in examples/*.cc; do
  program=$work/pkg-config/$(basename "$source" .cc)
  # shellcheck disable=SC2046  # the flags are words
  c++ -std=c++20 -O1 -Wall -Werror "$source" -o "$program" \
    $(pkg-config --cflags --libs tutti-training)
  run "$program" "$work/prefix"
done

# A model with DDP takes less than 60 lines, not counting comments and includes.
lines=$(grep -cvE '^ *//|^#include|^$' examples/own_model.cc)
[ "$lines" -lt 60 ] || fail "own_model.cc has $lines lines"

# Every installed header finds its includes.
(cd "$work/prefix/include/tutti" && find training -name '*.h' | sed 's,.*,#include <tutti/&>,') >all.cc
c++ -std=c++20 -fsyntax-only $(pkg-config --cflags tutti-training) all.cc

# A process has one Communicator class: the training layer uses that of libtutti.so.
nm -C --defined-only "$work/prefix/lib/libtutti_training.so" | grep -E ' tutti::Communicator::(init|split|barrier)\(' &&
  fail "the training layer has a Communicator of its own"
# It exports only its headers' names.
foreign=$(nm -D --defined-only "$work/prefix/lib/libtutti_training.so" | awk '/5tutti/ && $3 !~ /@@?TUTTI_TRAINING_/ {print $3}')
[ -z "$foreign" ] || fail "the library exports more than its interface: $foreign"

if ! command -v cmake >/dev/null; then
  echo "by CMake: skipped, it is not installed"
  exit 0
fi
unset PKG_CONFIG_PATH
mv prefix moved
(cmake -S examples -B build -DCMAKE_PREFIX_PATH="$work/moved" && cmake --build build) >cmake.txt 2>&1 || fail "$(cat cmake.txt)"
for example in own_model regression own_optimizer; do
  run "$work/build/$example" "$work/moved"
done

# CMake reports if the training layer is not installed.
rm moved/lib/cmake/tutti/tutti-training.cmake
! cmake -S examples -B other -DCMAKE_PREFIX_PATH="$work/moved" >cmake.txt 2>&1 || fail "CMake found what is not there"
grep -q "Tutti is installed here without training" cmake.txt || fail "$(cat cmake.txt)"
