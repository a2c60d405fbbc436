#!/usr/bin/env bash
# failing_rank_test.sh MPIRUN PROGRAM: one of three ranks fails; the other two must report it, and the job must end with
# an error soon; or, if the launcher keeps them running, they must continue.
set -euo pipefail

mpirun=$1 program=$2

# expect HOW PATTERN: both survivors throw a communication_error that matches.
expect() {
  local how=$1 pattern=$2 status=0 output start=$SECONDS
  output=$(timeout 100 bash "$mpirun" 3 "$program" "$how" 2>&1) || status=$?
  for rank in 0 1; do
    if ! grep -Eq "^caught rank $rank: (all_reduce of 100000? float32 \(avg\): )?$pattern" <<<"$output"; then
      echo "FAILED: $how, rank $rank, in $((SECONDS - start)) s, status $status: $output"
      exit 1
    fi
  done
  if [ $status = 0 ] || [ $status = 124 ]; then
    echo "FAILED: $how: status $status: $output"
    exit 1
  fi
}

waited='\(waited [0-9.]+ s'
# The first to notice notifies the other.
first='(rank [01] gave up \(waited [0-9.]+ s\): all_reduce of 100000? float32 \(avg\): )?'
died="$first(rank 2 has died $waited\)|the launcher ends the job.*$waited\))"

# both ONE OTHER PATTERN: two at a time, since most of the time is spent waiting for mpirun to end the others.
both() {
  expect "$1" "$3" &
  expect "$2" "$3"
  wait $!
}
both kill kill_amid "$died"
both throw throw_amid "rank 2 failed $waited\): (out of apples|an exception ended it)"
both exit return "${first}rank 2 has returned without it $waited\)"
expect hang "${first}rank 2 did not come $waited\)"

# go_on COUNT RANKS ARGUMENT...: that many survivors continue. mpirun does not end them here.
export MPIRUN_FLAGS=--enable-recovery
go_on() {
  local count=$1 ranks=$2 status=0 output
  shift 2
  output=$(timeout 100 bash "$mpirun" "$ranks" "$program" "$@" 2>&1) || status=$?
  if [ "$(grep -c '^went on$' <<<"$output")" != "$count" ]; then
    echo "FAILED: $*, status $status: $output"
    exit 1
  fi
}

go_on 2 6 shrink
# Two of each three, many times; one start of mpirun serves several groups of three.
threes=4 repetitions=${IKEBANA_REPETITIONS:-20}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for ((seed = 0; seed * threes < repetitions; seed++)); do
  go_on $((2 * threes)) $((3 * threes)) train "$seed" "$folder"
done
echo 'every time the others heard of it'
