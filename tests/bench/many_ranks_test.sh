#!/bin/bash
# Runs a job of a few hundred ranks in a few processes: all join, add, split and leave. Fails if
# their results are wrong, or if a rank needs more memory or messages than it should. Both limits
# are far above what is measured, and far below what a table or a plan for each pair of ranks needs.
#
# usage: many_ranks_test.sh MANY_RANKS
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

for transport in shm tcp; do
  output=$(TUTTI_TUNE_FILE=none TUTTI_TRANSPORT=$transport "$1" 256 4) ||
    fail "$transport: exit code $?"
  echo "$output"
  kibibytes=$(awk '/all-reduces/ { print int($4) }' <<<"$output")
  messages=$(awk '/messages of the join/ { print int($5) }' <<<"$output")
  [[ -n $kibibytes && -n $messages ]] || fail "$transport: nothing was measured"
  ((kibibytes <= 1024)) || fail "$transport: a rank needs $kibibytes KiB"
  ((messages <= 24)) || fail "$transport: a rank's join takes $messages messages"
done
