#!/usr/bin/env bash
# neon_test.sh OBJECT...: the kernels' tests pass on an emulated aarch64 processor, where they compare
# Neon with the scalar set.
set -uo pipefail

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $program >/dev/null; then
    echo "skipped: there is no $program (tools/bazel test installs it)"
    exit 0
  fi
done
aarch64-linux-gnu-g++ -static "$@" -pthread -o "$TEST_TMPDIR/kernels" || exit 1

failed=0
# Large products execute what small ones do, and the emulator takes minutes for them; the same for what
# is run on several threads, and for the second type of what takes longest.
slow='*span many blocks*,*span several blocks<double>,*bfloat16 that span several blocks*,*number of threads*'
slow+=',*same bits in any batch*,convolutions of every kind*<double>,convolutions give the same bits*'
slow+=',products of few rows*<double>,thin products<double>,what follows a product*<double>'
slow+=',an image of few channels*<double>'
said=$(qemu-aarch64 "$TEST_TMPDIR/kernels" -tce="$slow" 2>&1) || failed=1
tail -n 60 <<<"$said"
[ "$(qemu-aarch64 "$TEST_TMPDIR/kernels" --list-test-cases 2>/dev/null | wc -l)" -gt 20 ] || failed=1
exit $failed
