#!/bin/bash
# Compiles the examples against the installed tree as their comments say, and runs each on two
# ranks; those for MPI with each installed MPI library.
#
# usage: examples_test.sh INSTALL_TARBALL TUTTI EXAMPLE...
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

tutti=$(realpath "$2")
tarball=$(realpath "$1")
shift 2
mapfile -t examples < <(realpath "$@")
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/examples.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/prefix"
tar -C "$work/prefix" -xzf "$tarball"
cd "$work"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib TUTTI_TIMEOUT=60
export TMPDIR=$work  # Open MPI's directories are named by process numbers
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=vader,self OMPI_MCA_pml=ob1

# expect_mean COMMAND...: both ranks print it.
expect_mean() {
  timeout 100 "$@" >output.txt 2>&1 || fail "$*: exit code $?: $(cat output.txt)"
  for rank in 0 1; do
    grep -q "rank $rank of 2: the mean is 0.5$" output.txt || fail "$*, rank $rank: $(cat output.txt)"
  done
}

for example in "${examples[@]}"; do
  # shellcheck disable=SC2046  # pkg-config's flags are words
  case $example in
    */mpi/*)
      for mpi in openmpi mpich; do
        if command -v "mpirun.$mpi" >/dev/null && command -v "mpicc.$mpi" >/dev/null; then
          "mpicc.$mpi" -Wall -Wextra -Werror "$example" -o program
          expect_mean "$tutti" mpi -- "mpirun.$mpi" -n 2 ./program
          echo "$example over $mpi: ok"
        else
          echo "$example over $mpi: skipped, it is not installed"
        fi
      done
      continue
      ;;
    *.c) cc -std=c99 -pedantic -Wall -Wextra -Werror "$example" -o program $(pkg-config --cflags --libs tutti) ;;
    *.cc) c++ -std=c++20 -Wall -Wextra -Werror "$example" -o program $(pkg-config --cflags --libs tutti) ;;
    *) fail "how is $example compiled?" ;;
  esac
  expect_mean "$tutti" run -n 2 -- ./program
  case $example in
    */survive.c) expect_mean "$tutti" run -n 3 --min-ranks 2 -- ./program 2 ;;  # which dies
  esac
  echo "$example: ok"
done
