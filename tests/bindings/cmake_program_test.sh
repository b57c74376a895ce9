#!/bin/bash
# Unpacks the installed tree into an empty folder, moves it, and builds a C and a C++ program there by CMake
# with nothing but find_package(tutti); runs the first on two ranks that find each other through a file.
#
# usage: cmake_program_test.sh INSTALL_TARBALL PROGRAM.c
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

if ! command -v cmake >/dev/null; then
  echo "skipped: cmake is not installed"
  exit 0
fi
readonly tarball=$1 program=$2
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/cmake_program.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/first" "$work/source"
tar -C "$work/first" -xzf "$tarball"
mv "$work/first" "$work/moved"
cp "$program" "$work/source/program.c"
cat >"$work/source/also.cc" <<END
#include <tutti/tutti.hpp>

int main() { return tutti::name(tutti::DType::f32) == "f32" ? 0 : 1; }
END

# project VERSION: a CMakeLists.txt that requires this version or a compatible one.
project() {
  cat >"$work/source/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(program C CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(tutti $1 REQUIRED)
find_package(tutti REQUIRED)  # again, as a subproject might
add_executable(program program.c)
target_link_libraries(program tutti::tutti)
add_executable(also also.cc)
target_link_libraries(also tutti::tutti)
END
}

configure() {
  cmake -S "$work/source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/cmake.txt" 2>&1
}

for unfit in 1.0 0.999; do
  project "$unfit"
  ! configure || fail "version $unfit was found"
  grep -q "considered but not accepted" "$work/cmake.txt" || fail "$(cat "$work/cmake.txt")"
  rm -rf "$work/build"
done
project 0.1
configure || fail "$(cat "$work/cmake.txt")"
cmake --build "$work/build" >"$work/cmake.txt" 2>&1 || fail "$(cat "$work/cmake.txt")"

cd "$work"
libraries=$(ldd build/program)
[[ $libraries == *"libtutti.so.0 => $work/moved/lib/"* ]] || fail "it loads another library: $libraries"
build/also || fail "the C++ program failed"
export WORLD_SIZE=2 "TUTTI_TOKEN=the token of cmake_program_test" TUTTI_RENDEZVOUS=file:$work/rendezvous
RANK=0 timeout 60 build/program >rank0.txt 2>&1 &
first=$!
status=0
RANK=1 timeout 60 build/program >rank1.txt 2>&1 || status=$?
wait "$first" || status=$?
cat rank0.txt rank1.txt
[ "$status" -eq 0 ] || fail "exit code $status"
grep -q "^rank 0 of 2: ok" rank0.txt || fail "rank 0 did not finish"
grep -q "^rank 1 of 2: ok" rank1.txt || fail "rank 1 did not finish"
