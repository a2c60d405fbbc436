#!/usr/bin/env bash
# failing_rank_test.sh MPIRUN PROGRAM: one of three ranks fails; the other two must say so, and the
# job must end with an error, soon.
set -euo pipefail

mpirun=$1 program=$2

# expect HOW PATTERN [STATUS]: both survivors throw a communication_error that matches.
expect() {
  local how=$1 pattern=$2 status=0 output start=$SECONDS
  output=$(timeout 100 bash "$mpirun" 3 "$program" "$how" 2>&1) || status=$?
  for rank in 0 1; do
    if ! grep -Eq "^caught rank $rank: (all_reduce of 100000? float32 \(avg\): )?$pattern" <<<"$output"; then
      echo "FAILED: $how, rank $rank, in $((SECONDS - start)) s, status $status: $output"
      exit 1
    fi
  done
  # Where mpirun is told to go on without the dead, it also forgets about them.
  if [ -z "${MPIRUN_FLAGS:-}" ] && { [ $status = 0 ] || [ $status = 124 ]; }; then
    echo "FAILED: $how: status $status: $output"
    exit 1
  fi
}

waited='\(waited [0-9.]+ s'
# Who notices first tells the other.
first='(rank [01] gave up \(waited [0-9.]+ s\): all_reduce of 100000? float32 \(avg\): )?'
died="$first(rank 2 has died $waited\)|the launcher ends the job.*$waited\))"

for how in kill kill_amid; do
  expect $how "$died"
done
for how in throw throw_amid; do
  expect $how "rank 2 failed $waited\): (out of apples|an exception ended it)"
done
for how in exit return; do
  expect $how "${first}rank 2 has returned without it $waited\)"
done
expect hang "${first}rank 2 did not come $waited\)"

# Without the second that mpirun takes to end the survivors, many times.
export MPIRUN_FLAGS=--enable-recovery
for ((i = 0; i < ${IKEBANA_REPETITIONS:-25}; i++)); do
  expect kill "$died"
  expect kill_amid "$died"
done
echo 'every time the others heard of it'
