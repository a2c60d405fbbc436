#!/usr/bin/env bash
# mpirun.sh RANKS PROGRAM [ARGUMENT...]: runs it on so many ranks of this machine, however many
# processors that has. MPIRUN_FLAGS: more options of mpirun.
set -euo pipefail

ranks=$1
shift
# Containers often forbid processes to read each other's memory, which Open MPI tries to do. A rank has
# threads of its own, which one that waits must leave some time, and two of all processors to run on.
flags=(--oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none --mca mpi_yield_when_idle 1)
# Open MPI names its files after its process id, which in sandboxes is that of others, too: two jobs at a
# time met in one piece of shared memory.
own=$(mktemp -d "${TEST_TMPDIR:-/tmp}/mpi.XXXXXX")
flags+=(--mca btl_vader_backing_directory "$own" --mca orte_tmpdir_base "$own")
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
# shellcheck disable=SC2086
exec mpirun "${flags[@]}" ${MPIRUN_FLAGS:-} -np "$ranks" "$@" </dev/null
