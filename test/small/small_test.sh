#!/usr/bin/env bash
# small_test.sh COMPILER NETWORK FLAGS KERNELS EXPECTED CLOSE MODULES TRAINING: frozen networks with embedded weights give PyTorch's
# numbers, and the same bits without exceptions and type information, with kernels apart and from headers alone,
# where they are small, too, with the kernels of one instruction set. The kernels of a program that trains an MLP are few.
set -euo pipefail
# The compiler's driver for C++.
compiler=${1/%gcc/g++}
compiler=${compiler/%clang/clang++}
# shellcheck source=close.sh
. "$6"
build=("$compiler" -std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude "@$3" "$2")
without=(-fno-exceptions -fno-rtti)
apart=(-O0 -DIKEBANA_EXTERN_KERNELS "$4" -pthread)
small=(-Os -DIKEBANA_ONE_INSTRUCTION_SET -ffunction-sections -fdata-sections -Wl,--gc-sections)

"$compiler" -std=c++20 -Wall -Wextra -Werror -Iinclude "@$3" "${without[@]}" -DIKEBANA_EXTERN_KERNELS -fsyntax-only "$7"

# Bytes of code and constants, for the larger of both compilers: docs/inference.md tells what they are with g++.
declare -A most=([MLP]=80000 [CNN]=110000 [LSTM]=95000)
for network in MLP CNN LSTM; do
  program=$TEST_TMPDIR/$network
  "${build[@]}" -D$network "${apart[@]}" -o "$program"
  "${build[@]}" -D$network "${without[@]}" "${apart[@]}" -o "$program.apart"
  "${build[@]}" -D$network "${without[@]}" "${small[@]}" -o "$program.small"
  close $network "$("$program")" "$5"
  expected=$(IKEBANA_ISA=scalar "$program")
  close $network "$expected" "$5"
  if [ "$("$program.apart")" != "$("$program")" ] || [ "$("$program.small")" != "$expected" ]; then
    echo "$network: without exceptions, other numbers"
    exit 1
  fi
  bytes=$(size "$program.small" | awk 'NR == 2 { print $1 }')
  echo "$network: $bytes bytes"
  [ "$bytes" -le "${most[$network]}" ]
done

"$compiler" -std=c++20 -O2 -Iinclude "@$3" -c "$8" -o "$TEST_TMPDIR/training.o"
bytes=$(nm -SC -t d --defined-only "$TEST_TMPDIR/training.o" |
  awk '$3 ~ /[tTwW]/ && /ikebana::cpu/ { s += $2 } END { print s }')
echo "training, functions of ikebana::cpu: $bytes bytes"
[[ $compiler == *clang* ]] && limit=112000 || limit=100000
[ "$bytes" -le $limit ]

# An error ends the process with its sentence.
status=0
said=$("$TEST_TMPDIR/MLP.small" 100 2>&1) || status=$?
[ $status -ge 128 ]
grep -q '^the memory given for a lane is too small' <<<"$said"
