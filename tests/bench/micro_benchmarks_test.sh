#!/bin/bash
# Runs a few iterations of each micro-benchmark, so that they keep working. The times do not matter.
#
# usage: micro_benchmarks_test.sh BENCHMARK...
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

export TUTTI_TUNE_FILE=none
for benchmark in "$@"; do
  output=$("$benchmark" --benchmark_min_time=0.001 --benchmark_filter='/(8|1024)(/|$)') ||
    fail "$benchmark: exit code $?"
  echo "$output"
  grep -q ' ns ' <<<"$output" || fail "$benchmark measured nothing"
  ! grep -q 'ERROR OCCURRED' <<<"$output" || fail "$benchmark: an error occurred"
done
