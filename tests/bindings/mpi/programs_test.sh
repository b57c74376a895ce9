#!/bin/bash
# programs_test.sh MPI LAUNCHER FORTRAN TUTTI PROGRAM...: the same MPI programs with and without Tutti, on 1 to 8
# ranks. With it, rank 0's report must show that the calls went through.
set -euo pipefail

mpi=$1 launcher=$2 fortran_compiler=$3
tutti=$(realpath "$4")
shift 4
# shellcheck disable=SC2154 # the names are those of the programs
for path in "$@"; do # reductions=.../reductions_mpich and so on
  name=$(basename "$path" .f90)
  declare "${name%_"$mpi"}=$(realpath "$path")"
done
if ! command -v "$launcher" > /dev/null; then
  echo "skipped: $launcher is not installed"
  exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
# The libraries' own search for network cards is irrelevant here and may take seconds.
export OMPI_MCA_btl=vader,self OMPI_MCA_pml=ob1
export TUTTI_MPI_REPORT=1 TUTTI_MPI_SMALLEST=0
export TMPDIR=${TEST_TMPDIR:-/tmp}

fail() {
  echo "FAILED: $1"
  cat out.txt report.txt
  exit 1
}

cd "$(mktemp -d)"

# expect_right RANKS WORD...: the program reports success on rank 0.
expect_right() {
  local ranks=$1
  shift
  "$@" > out.txt 2> report.txt || fail "$* on $ranks ranks: exit code $?"
  grep -q '^all right' out.txt || fail "$* on $ranks ranks: no word of rank 0"
}

# expect_through NAME...: Tutti handled at least half of these calls, and at least one.
expect_through() {
  local call
  for call in "$@"; do
    awk -v call="MPI_$call" '
      $1 == call && $2 > 0 && $2 >= $3 + $4 + $5 + $6 + $7 + $8 + $9 + $10 + $11 { found = 1 }
      END { exit !found }' report.txt || fail "$call did not go through"
  done
}

calls='Allreduce Reduce Reduce_scatter Reduce_scatter_block Scan Exscan Bcast Allgather Allgatherv
  Gather Gatherv Scatter Scatterv Alltoall Alltoallv Barrier'
starting_calls='Iallreduce Ireduce Ireduce_scatter Ireduce_scatter_block Iscan Iexscan Ibcast
  Iallgather Iallgatherv Igather Igatherv Iscatter Iscatterv Ialltoall Ialltoallv Ibarrier'

for program in "$reductions" "$movements" "$nonblocking" "$threads"; do # the others want Tutti
  for ranks in 1 2; do expect_right $ranks "$launcher" -n $ranks "$program"; done
done
for ranks in 1 2 3; do
  expect_right $ranks "$tutti" mpi -- "$launcher" -n $ranks "$reductions"
  expect_right $ranks "$tutti" mpi -- "$launcher" -n $ranks "$movements"
  expect_right $ranks "$tutti" mpi -- "$launcher" -n $ranks "$nonblocking" tutti
done
# Every call with every type and operator: random ones on each number of ranks.
for some in 1:50 2:300 3:300 4:80 5:60 8:40; do
  ranks=${some%:*}
  expect_right "$ranks" "$tutti" mpi -- "$launcher" -n "$ranks" "$random_calls" "${some#*:}" "$ranks" \
    wild
  # shellcheck disable=SC2086
  if [ "$ranks" -eq 3 ]; then expect_through $calls $starting_calls; fi
done

# Windows have the same contents with and without Tutti.
# shellcheck disable=SC2154
expect_same_windows() {
  expect_right "$1" "$launcher" -n "$1" "$windows" "$2" "$1" "$3"
  mv out.txt plain.txt
  expect_right "$1" "$tutti" mpi -- "$launcher" -n "$1" "$windows" "$2" "$1" "$3"
  diff plain.txt out.txt || fail "windows on $1 ranks are not those of the plain library"
}
for some in 1:20 2:20 3:8 4:4 5:3 8:2; do
  ranks=${some%:*} rounds=${some#*:} scope=careful
  if [ "$mpi" != openmpi ] && [ "$ranks" -le 3 ]; then scope=all; fi
  if [ "$ranks" -gt 1 ] || [ $scope = all ]; then expect_same_windows "$ranks" "$rounds" $scope; fi
  expect_right "$ranks" "$tutti" mpi -- "$launcher" -n "$ranks" "$windows" $((4 * rounds)) "$ranks" served
  if [ "$ranks" -eq 3 ]; then
    expect_through Win_create Win_allocate Win_fence Win_lock Win_lock_all Win_start Win_post Put Get \
      Accumulate Get_accumulate Fetch_and_op Compare_and_swap Rput Rget
  fi
done
expect_right 3 "$tutti" mpi -- "$launcher" -n 3 "$threads"
expect_through Allreduce Iallreduce Ibcast Ibarrier

if command -v gfortran > /dev/null && command -v "$fortran_compiler" > /dev/null; then
  "$fortran_compiler" "$fortran" -o fortran_program > out.txt 2>&1 || fail 'the program in Fortran'
  expect_right 2 "$launcher" -n 2 ./fortran_program
  expect_right 3 "$tutti" mpi -- "$launcher" -n 3 ./fortran_program
  expect_through Allreduce Allgather Allgatherv Bcast Barrier
else
  echo 'without the program in Fortran: there is no compiler for it'
fi
for ranks in 1 2 3; do
  expect_right $ranks "$tutti" mpi -- "$launcher" -n $ranks "$communicators"
done
grep -q 'collective mismatch' report.txt || fail 'the text of an error is not on standard error'

# Erroneous calls return the same as in the plain library, which crashes if built without checks.
for ranks in 2 3; do
  # shellcheck disable=SC2154
  if ! "$launcher" -n $ranks "$errors" > plain.txt 2> report.txt; then
    [ "$mpi" = mpi_abi ] || fail 'erroneous calls without Tutti'
    echo 'without erroneous calls: this library does not check arguments'
    break
  fi
  expect_right $ranks "$tutti" mpi -- "$launcher" -n $ranks "$errors"
  diff plain.txt out.txt || fail 'errors are not those of the plain library'
  expect_through Allreduce
done

# Calls below the smallest size, and only these, are left to the MPI library.
TUTTI_MPI_SMALLEST=1G expect_right 2 "$tutti" mpi -- "$launcher" -n 2 "$reductions"
awk '$1 == "MPI_Allreduce" && $2 == 0 && $3 > 1000 { found = 1 } END { exit !found }' report.txt ||
  fail 'small calls went through'

# By default the measured sizes apply, equally on all ranks.
TUTTI_MPI_SMALLEST=auto expect_right 3 "$tutti" mpi -- "$launcher" -n 3 "$movements"
awk '$1 == "MPI_Allgather" && $2 > 0 && $3 > 0 { found = 1 } END { exit !found }' report.txt ||
  fail 'of Allgather some sizes go through, and some do not'

# A killed rank ends the job and is named. The launcher, which would end the job first, sees a shell
# that lives until the others have noticed.
# expect_named CALL PROGRAM
expect_named() {
  rm -f noticed
  mkfifo noticed
  exec 9<> noticed
  # shellcheck disable=SC2016
  if timeout 60 "$tutti" mpi -- "$launcher" -n 3 bash -c '
    "$0" killed
    status=$?
    if [ $status -eq 137 ]; then read -r _ < noticed; else echo > noticed; fi
    exit $status' "$2" > out.txt 2> report.txt; then
    fail 'a rank was killed, and nobody noticed'
  elif [ $? -eq 124 ]; then
    fail 'a rank was killed, and the others went on waiting'
  fi
  grep -q "tutti mpi: $1: rank 2 (.*, pid [0-9]*)" report.txt || fail 'who was killed is not said'
}
expect_named MPI_Barrier "$communicators"
expect_named MPI_Win_lock "$windows"

# A clear message if it cannot work.
other=mpich
[ "$mpi" = mpich ] && other=openmpi
if [ "$mpi" != mpi_abi ] && command -v "mpirun.$other" > /dev/null; then
  "$tutti" mpi -- "mpirun.$other" -n 2 "$reductions" > out.txt 2>&1 && fail 'a wrong launcher'
  grep -q 'is linked to' out.txt || fail 'no word of the wrong launcher'
fi
"$tutti" mpi -- true > out.txt 2>&1 && fail 'a program without MPI'
grep -q 'which MPI library' out.txt || fail 'no word of what is missing'
echo PASSED
