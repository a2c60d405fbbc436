#!/usr/bin/env bash
# neon_test.sh OBJECT...: the kernels' tests, which compare NEON with the scalar instruction set, pass on an emulated
# aarch64 processor.
set -uo pipefail

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $program >/dev/null; then
    echo "skipped: there is no $program (tools/bazel test installs it)"
    exit 0
  fi
done
aarch64-linux-gnu-g++ -static "$@" -pthread -o "$TEST_TMPDIR/kernels" || exit 1

failed=0
# Large products execute the instructions of small ones, and take the emulator minutes; so do cases with several
# threads, and the second type of the slowest cases.
slow='*span many blocks*,*span several blocks<double>,*bfloat16 that span several blocks*,*number of threads*'
slow+=',*same bits in any batch*,convolutions of every kind*<double>,convolutions give the same bits*'
slow+=',products of few rows*<double>,thin products<double>,what follows a product*<double>'
slow+=',an image of few channels*<double>,*do not depend on the caches*,an image gets the same bits*'
slow+=',each algorithm gives what loops*<double>,a row has the same bits*<double>,a plan that is kept gives*<double>'
said=$(qemu-aarch64 "$TEST_TMPDIR/kernels" -tce="$slow" 2>&1) || failed=1
tail -n 60 <<<"$said"
[ "$(qemu-aarch64 "$TEST_TMPDIR/kernels" --list-test-cases 2>/dev/null | wc -l)" -gt 20 ] || failed=1
exit $failed
