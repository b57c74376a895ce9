#!/bin/bash
# Unpacks the installed tree into an empty folder, compiles the C++ program of the project's README
# there with nothing but pkg-config's flags, and runs it on two ranks.
#
# usage: cpp_program_test.sh INSTALL_TARBALL README.md TUTTI
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

tutti=$(realpath "$3")
readonly tarball=$1 readme=$2 tutti
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/cpp_program.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/prefix"
tar -C "$work/prefix" -xzf "$tarball"
snippet=$(sed -n '/^```cpp$/,/^```$/p' "$readme" | sed '/^```$/q' | sed '/^```/d')
[ -n "$snippet" ] || fail "the README has no C++ program"
words=$(wc -w <"$readme")
[ "$words" -le 800 ] || fail "the README has $words words, more than the 800 that people read"
cat >"$work/program.cc" <<END
#include <tutti/tutti.hpp>

#include <cstdio>
#include <span>
#include <vector>

int main() {
  constexpr size_t n = 1000;
  const std::vector<float> in(n, 2);
  std::vector<float> out(n);
$snippet
  try {
    world.broadcast(std::span(gradients), 99);
    return 1;
  } catch (const tutti::Error& error) {  // its type is the library's
    if (error.code() != tutti::ErrorCode::invalid_argument) return 2;
  }
  if (out[n - 1] != 2) return 3;
  // One-sided calls: each rank writes its number into the next one's window.
  std::vector<int> table(2, -1);
  tutti::Window window(world, std::as_writable_bytes(std::span(table)));
  const int own = world.rank();
  window.put({&own, 1, tutti::DType::i32}, (own + 1) % world.size(), sizeof(int));
  window.fence();
  if (table[0] != -1 || table[1] != (own + world.size() - 1) % world.size()) return 4;
  window.free();
  std::printf("rank %d of %d: ok\n", world.rank(), world.size());
}
END
cd "$work"

export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
# shellcheck disable=SC2046  # the flags are words
c++ -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers program.cc -o program \
  $(pkg-config --cflags --libs tutti)

# A program's include path contains only tutti/ and tutti.h of Tutti.
[ "$(pkg-config --cflags-only-I tutti | wc -w)" = 1 ] || fail "more than one folder is on the path"
ls prefix/include | sort | paste -sd ' ' | grep -qx "tutti tutti.h" || fail "$(ls prefix/include)"

export LD_LIBRARY_PATH=$work/prefix/lib
timeout 60 "$tutti" run -n 2 --set TUTTI_TIMEOUT=30 -- ./program >output.txt 2>&1 ||
  fail "exit code $?: $(cat output.txt)"
cat output.txt
grep -q "rank 0 of 2: ok" output.txt || fail "rank 0 did not finish"
grep -q "rank 1 of 2: ok" output.txt || fail "rank 1 did not finish"
