#!/usr/bin/env bash
# mpirun.sh RANKS PROGRAM [ARGUMENT...]: runs it on this many ranks of this machine, however many processors it has.
# MPIRUN_FLAGS: more options of mpirun.
set -euo pipefail

ranks=$1
shift
# Containers often forbid processes to read each other's memory, which Open MPI tries to do. A rank has its own threads,
# so a waiting one must yield, and may run on all processors.
flags=(--oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none --mca mpi_yield_when_idle 1)
# Open MPI names its files after its process id, which can be the same in several sandboxes: two jobs at a time then
# shared one piece of memory.
own=$(mktemp -d "${TEST_TMPDIR:-/tmp}/mpi.XXXXXX")
flags+=(--mca btl_vader_backing_directory "$own" --mca orte_tmpdir_base "$own")
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
# shellcheck disable=SC2086
exec mpirun "${flags[@]}" ${MPIRUN_FLAGS:-} -np "$ranks" "$@" </dev/null
