#!/usr/bin/env bash
# emulated_test.sh PROCESSOR SET FORBIDDEN PROBE PROGRAM...: the programs pass on an emulated x86-64
# processor, whose widest set is SET. There, what is not its own (FORBIDDEN, by commas) is an illegal
# instruction, which ends a program.
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
# It reads the lanes of masked loads that the mask leaves out, too.
export IKEBANA_UNFENCED=1

picked=$(emulate "$probe" 2>/dev/null)
[ "$picked" = "$set" ] || complain "picks $picked, not $set"
# Else the rest would prove nothing.
for instruction in ${forbidden//,/ }; do
  if (emulate "$probe" "$instruction") >/dev/null 2>&1; then complain "executes $instruction"; fi
done

# An emulator takes minutes for these, and others execute the same instructions: what is large, what is run
# on several threads, and twice what differs in the type alone.
slow='*span several blocks*,*span many blocks*,depthwise and grouped convolutions*'
slow+=',convolutions give the same bits*,convolutions of every kind*,*same bits in any batch*'
slow+=',*number of threads*,*left out where exactness*,*in every direction*'
slow+=',what follows a product*,thin products*,products of few rows*<double>,fused attention: every mask*'
slow+=',convolutions of random geometries<double>,an image of few channels*,an image of few positions*<double>'
slow+=',average pooling*,batch norm with an activation*,weights are transposed anew*<double>'
slow+=",Winograd's convolution* forward and backward*,Winograd's gradient of the weights* overwriting*"
[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
at=0
for program in "$@"; do
  [[ $program != *threads_test ]] || continue
  # Registers of 16 bytes do without Winograd's convolution here; the other one has its own test.
  [[ $program != *winograd_test || $set == avx2 ]] || continue
  [ $((at++ % ${TEST_TOTAL_SHARDS:-1})) = "${TEST_SHARD_INDEX:-0}" ] || continue
  if ! said=$(emulate "$program" -tce="$slow" 2>&1); then
    complain "$program fails:"
    grep -v "TCG doesn't support" <<<"$said" | tail -n 40
  fi
done
[ $# != 0 ] || complain 'no programs'
exit $failed
