#!/usr/bin/env bash
# emulated_test.sh PROCESSOR SET FORBIDDEN PROBE PROGRAM...: the programs pass on an emulated x86-64 processor whose
# widest instruction set is SET. Instructions that it lacks (FORBIDDEN, separated by commas) are illegal there and end a
# program.
set -uo pipefail
processor=$1
set=$2
forbidden=$3
probe=$4
shift 4
failed=0

complain() {
  echo "$processor: $*"
  failed=1
}

if [ "$(uname -m)" != x86_64 ]; then
  echo 'skipped: these programs are not for x86-64'
  exit 0
fi
if ! command -v qemu-x86_64 >/dev/null; then
  echo 'skipped: there is no qemu-x86_64 (tools/bazel test installs it)'
  exit 0
fi
emulate() { qemu-x86_64 -cpu "$processor" "$@"; }
# The emulator reads the masked-out lanes of masked loads, too.
export IKEBANA_UNFENCED=1

picked=$(emulate "$probe" 2>/dev/null)
[ "$picked" = "$set" ] || complain "picks $picked, not $set"
# Without this, the rest would prove nothing.
for instruction in ${forbidden//,/ }; do
  if (emulate "$probe" "$instruction") >/dev/null 2>&1; then complain "executes $instruction"; fi
done

# These take an emulator minutes, and others execute the same instructions: large cases, several threads, the second
# element type, and plans that are used twice.
slow='*span several blocks*,*span many blocks*,depthwise and grouped convolutions*'
slow+=',convolutions give the same bits*,convolutions of every kind*,*same bits in any batch*'
slow+=',*number of threads*,*left out where exactness*,*in every direction*'
slow+=',what follows a product*,thin products*,products of few rows*<double>,fused attention: every mask*'
slow+=',convolutions of random geometries<double>,an image of few channels*,an image of few positions*<double>'
slow+=',average pooling*,batch norm with an activation*,weights are transposed anew*<double>'
slow+=",Winograd's convolution* forward and backward*,Winograd's gradient of the weights* overwriting*"
slow+=',*do not depend on the caches*,each algorithm gives what loops*<double>,an image gets the same bits*'
slow+=',a row has the same bits*,a plan that is kept gives*'
[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
at=0
for program in "$@"; do
  [[ $program != *threads_test ]] || continue
  # Vectors of 16 bytes do not use Winograd's convolution here; the wider ones have their own test.
  [[ $program != *winograd_test || $set == avx2 ]] || continue
  [ $((at++ % ${TEST_TOTAL_SHARDS:-1})) = "${TEST_SHARD_INDEX:-0}" ] || continue
  if ! said=$(emulate "$program" -tce="$slow" 2>&1); then
    complain "$program fails:"
    grep -v "TCG doesn't support" <<<"$said" | tail -n 40
  fi
done
[ $# != 0 ] || complain 'no programs'
exit $failed
