#!/usr/bin/env bash
# starting_rank_test.sh MPIRUN PROGRAM: one of three ranks is killed, stops or is late while groups are made. The others
# must report it within about the timeout of 2 seconds, and end within 2 more; if a rank is killed, they must end.
# IKEBANA_REPETITIONS: how often each case is run (20: 60 kills and 60 stops); IKEBANA_VERBOSE=1: print what each rank
# wrote.
set -euo pipefail

mpirun=$1 program=$2
repetitions=${IKEBANA_REPETITIONS:-1}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# try WHEN SIGNAL DELAY
try() {
  local said=$folder/$1.$2.$3
  mkdir "$said"
  # mpirun itself sometimes hangs if a rank is killed during MPI_Init (Open MPI 4.1, in PMIx), although all ranks ended
  # long ago.
  if timeout -k 1 15 bash "$mpirun" 3 "$program" "$@" "$said" >"$said/output" 2>&1; then
    echo "FAILED: $*: mpirun noticed nothing"
    return 1
  fi
  local rank pid wrong="" in_time=0
  for rank in 0 1; do
    pid=$(head -n 1 "$said/$rank" 2>/dev/null || true)
    # Not the launcher, which sometimes crashes in PMIx while it ends the job.
    if [ -n "$pid" ] && grep -Eqs "\[[^]]*:0*$pid\] Signal: " "$said/output"; then wrong="rank $rank crashed"; fi
    if [ -n "$pid" ] && grep -Eqs '^State:[[:space:]]+[^Z]' "/proc/$pid/status"; then
      wrong="rank $rank is still running"
    fi
    # One second is added for a loaded machine.
    if grep -Eqs "^[0-2](\.[0-9]+)? s: rank $rank: " "$said/$rank" &&
      grep -Eqs '^[0-3](\.[0-9]+)? s: end$' "$said/$rank"; then
      in_time=$((in_time + 1))
    fi
  done
  # If a rank is killed, Open MPI may end the others before they can report it. Its shared-memory transport waits inside
  # MPI_Test for a rank that stopped while it wrote a message, but only one receiver is affected.
  if [ "$2" != 9 ] && [ $in_time = 0 ]; then wrong="no rank reported it and ended in time"; fi
  if grep -qs 'terminate called' "$said/output"; then wrong="a rank crashed"; fi
  if [ -n "$wrong" ]; then
    echo "FAILED: $*: $wrong:"
    tail -n +1 "$said"/*
    return 1
  fi
  [ "${IKEBANA_VERBOSE:-0}" = 0 ] || (echo "$*" && cat "$said/0" "$said/1")
}

# The tests mostly wait, so several run at a time.
RANDOM=26
status=0
for ((i = 0; i < repetitions; i++)); do
  for signal in 9 19; do
    jobs=()
    for when in start world split; do
      delay=$RANDOM
      [ $when != start ] || delay=$((8 * delay))
      try $when $signal $delay &
      jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || status=1; done
  done
done
try late 0 20000000 || status=1
[ $status = 0 ] || exit 1
echo 'every time the others heard of it'
