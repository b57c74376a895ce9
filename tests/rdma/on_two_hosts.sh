#!/bin/bash
# on_two_hosts.sh FOLDER TRANSPORT [VARIABLE=VALUE...]: run by rdma_test.cc where h1 and h2 are two
# hosts. FOLDER contains the programs, and their libraries in lib/; both hosts see it at the same
# path. `h1 COMMAND` runs a command on a host, and so does the program named by TUTTI_RSH. The
# processes of both hosts are visible in this script's /proc, as those of containers are.
# TUTTI_RDMA_LINK is the interface of h2 that carries all traffic, if it may be taken down.
set -euo pipefail
programs=$1
transport=$2
shift 2
for assignment in "$@"; do export "${assignment?}"; done
link=${TUTTI_RDMA_LINK:-}
unset TUTTI_RDMA_LINK  # no setting of the programs
export TUTTI_RSH=${TUTTI_RSH:-nsrsh} LD_LIBRARY_PATH=$programs/lib RANDOM_BATCHES=${RANDOM_BATCHES:-25}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# on RANKS COMMAND...: ranks in blocks on both hosts.
on() {
  local ranks=$1
  shift
  "$programs/tutti" run -n "$ranks" --hosts h1,h2 --no-prefix --set "TUTTI_TRANSPORT=$transport" -- "$@"
}
# The same on one host over shared memory.
near() {
  local ranks=$1
  shift
  h1 "$programs/tutti" run -n "$ranks" --no-prefix --set TUTTI_TRANSPORT=shm -- "$@"
}

echo "== every collective, type and operator, v-variants, in every form of call"
on 2 "$programs/random_calls" --gtest_brief=1
on 3 "$programs/random_calls" --gtest_brief=1

echo "== the same bits as over shared memory"
export TUTTI_DETERMINISTIC=1
# same WHAT FILE FILE: `WHAT FILE` prints at least three lines, equal for both files.
same() {
  local far near
  far=$($1 "$2")
  near=$($1 "$3")
  [ "$(wc -l <<<"$far")" -ge 3 ] && [ "$far" = "$near" ]
}
digests() { grep -o '"digest": *"[0-9a-f]*"' "$1"; }
bench=("$programs/tutti" bench all_reduce --digest --min 64 --max 256K --factor 64 --iterations 2)
on 2 "${bench[@]}" --json "$work/far.json"
near 2 "${bench[@]}" --json "$work/near.json"
same digests "$work/far.json" "$work/near.json"
grep -q "\"transport\": *\"$transport\"" "$work/far.json"

echo "== the same losses as over shared memory"
for i in $(seq 2000); do echo "the quick brown fox $((i * 7919 % 1000)) jumps"; done >text.txt
train=("$programs/tutti" train --data "$work/text.txt" --model gpt2 --layers 1 --width 32 --heads 2 --context 16
  --batch 8 --micro-batch 4 --steps 3)
losses() { grep -o '"loss": *[-0-9.e]*' "$1"; }
on 2 "${train[@]}" --json "$work/far.jsonl"
near 2 "${train[@]}" --json "$work/near.jsonl"
same losses "$work/far.jsonl" "$work/near.jsonl"

# Starts an endless job of two ranks in the background, as $job.
start_endless() {
  : >out.txt  # not the last job's
  on 2 "$programs/tutti" bench all_reduce --min 64K --max 64K --iterations 1000000 >out.txt 2>err.txt &
  job=$!
  until grep -q transport out.txt && [ -n "$(rank_1)" ]; do kill -0 $job; done
}
rank_1() { grep -lzx RANK=1 /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | head -1; }
# ended_with CODE: the job has ended, and so has rank 1's process.
ended_with() {
  local code=0
  wait $job || code=$?
  cat err.txt
  [ $code -eq "$1" ]
  [ -z "$(rank_1)" ]
}

echo "== a death ends all"
start_endless
kill -9 "$(rank_1)"
ended_with 137
grep -q "rank 1" err.txt

echo "== a stopped rank is told of at the deadline"
export TUTTI_TIMEOUT=5
start_endless
kill -STOP "$(rank_1)"
ended_with 1
grep -q "tutti: rank 0 .* timed out after 5 s .* waiting for rank 1 .* which does not answer" err.txt
unset TUTTI_TIMEOUT

if [ -n "$link" ]; then
  echo "== a link that goes down ends all"
  export TUTTI_TIMEOUT=60
  start_endless
  h2 ip link set "$link" down
  ended_with 1
  grep -q "^tutti: .*rank 1 (" err.txt
fi
