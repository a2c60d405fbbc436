#!/usr/bin/env bash
# neon_test.sh FLAGS UNIT MAIN TEST...: the kernels' tests pass on an emulated aarch64 processor, where they
# compare Neon with the scalar set.
set -uo pipefail
flags=$1
unit=$2
main=$3
shift 3
cd "$(dirname "$0")/../.." || exit

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $program >/dev/null; then
    echo "skipped: there is no $program (tools/bazel test installs it)"
    exit 0
  fi
done

[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
shards=${TEST_TOTAL_SHARDS:-1}

# Those of threads execute what the others do, and an emulator takes minutes for them; registers of 16
# bytes do without Winograd's convolution.
tests=()
at=0
for test in "$@"; do
  [[ $test != *threads_test.cc && $test != *winograd_test.cc ]] || continue
  [ $((at++ % shards)) != "${TEST_SHARD_INDEX:-0}" ] || tests+=("$test")
done

{
  printf '#include "%s"\n' "$main"
  "$unit" "${tests[@]}"
} >"$TEST_TMPDIR/kernels.cc"
aarch64-linux-gnu-g++ -std=c++20 -O1 "@$flags" -I. -Itest/cpu -static \
  "$TEST_TMPDIR/kernels.cc" -o "$TEST_TMPDIR/kernels" -pthread || exit 1

failed=0
# Large products of one type are enough: the emulator takes half a minute for them.
slow='*span several blocks<double>,*bfloat16 that span several blocks*,*same bits in any batch*'
said=$(qemu-aarch64 "$TEST_TMPDIR/kernels" -tce="$slow" 2>&1) || failed=1
tail -n 60 <<<"$said"
[ "$(qemu-aarch64 "$TEST_TMPDIR/kernels" --list-test-cases 2>/dev/null | wc -l)" -gt $((20 / shards)) ] || failed=1
exit $failed
