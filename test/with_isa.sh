#!/usr/bin/env bash
# with_isa.sh SET COMMAND...: runs COMMAND with the kernels of one instruction set forced.
set -euo pipefail
isa=$1
shift
case $isa in
  scalar) flags= ;;
  neon) flags=asimd ;;
  sse42) flags=sse4_2 ;;
  avx2) flags='avx2 fma' ;;
  avx512) flags='avx512f avx512bw avx512dq avx512vl' ;;
  *) echo "with_isa.sh: no instruction set is called $isa" >&2; exit 2 ;;
esac
for flag in $flags; do
  if ! grep -qw "$flag" /proc/cpuinfo; then
    echo "skipped: this processor has no $flag"
    exit 0
  fi
done
IKEBANA_ISA=$isa exec "$@"
