#!/usr/bin/env bash
# neon_test.sh FLAGS MAIN TEST...: the kernels' tests pass on an emulated aarch64 processor, where they
# compare Neon with the scalar set.
set -uo pipefail
flags=$1
main=$2
shift 2
cd "$(dirname "$0")/../.." || exit

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $program >/dev/null; then
    echo "skipped: there is no $program (tools/bazel test installs it)"
    exit 0
  fi
done

# Those of threads execute what the others do, and an emulator takes minutes for them.
tests=()
for test in "$@"; do
  [[ $test == *threads_test.cc ]] || tests+=("$test")
done

# One unit of all tests, each in a namespace of its own, takes a third of the compiler's time.
{
  printf '#include "%s"\n' "$main"
  sed -n '/^#include/p' "${tests[@]}" | sort -u
  for test in "${tests[@]}"; do
    printf 'namespace %s {\n#line 1 "%s"\n' "$(basename "$test" .cc)" "$test"
    cat "$test"
    printf '}\n'
  done
} >"$TEST_TMPDIR/kernels.cc"
aarch64-linux-gnu-g++ -std=c++20 -O1 "@$flags" -I. -Itest/cpu -static \
  "$TEST_TMPDIR/kernels.cc" -o "$TEST_TMPDIR/kernels" -pthread || exit 1

failed=0
# Large products of one type are enough: the emulator takes half a minute for them.
slow='*span several blocks<double>,*bfloat16 that span several blocks*,*same bits in any batch*'
said=$(qemu-aarch64 "$TEST_TMPDIR/kernels" -tce="$slow" 2>&1) || failed=1
tail -n 60 <<<"$said"
[ "$(qemu-aarch64 "$TEST_TMPDIR/kernels" --list-test-cases 2>/dev/null | wc -l)" -gt 20 ] || failed=1
exit $failed
