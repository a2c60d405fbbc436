#!/usr/bin/env bash
# small_test.sh COMPILER NETWORK FLAGS KERNELS EXPECTED CLOSE: frozen networks with embedded weights give PyTorch's numbers,
# and the same bits without exceptions and type information, with kernels apart and from headers alone.
set -euo pipefail
# The compiler's driver for C++.
compiler=${1/%gcc/g++}
compiler=${compiler/%clang/clang++}
# shellcheck source=close.sh
. "$6"
build=("$compiler" -std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude "@$3" "$2")
without=(-fno-exceptions -fno-rtti)
apart=(-O0 -DIKEBANA_EXTERN_KERNELS "$4" -pthread)
small=(-Os -ffunction-sections -fdata-sections -Wl,--gc-sections)

for network in MLP CNN LSTM; do
  program=$TEST_TMPDIR/$network
  "${build[@]}" -D$network "${apart[@]}" -o "$program"
  "${build[@]}" -D$network "${without[@]}" "${apart[@]}" -o "$program.apart"
  "${build[@]}" -D$network "${without[@]}" "${small[@]}" -o "$program.small"
  expected=$("$program")
  close $network "$expected" "$5"
  for other in apart small; do
    if [ "$("$program.$other")" != "$expected" ]; then
      echo "$network: without exceptions ($other), other numbers"
      exit 1
    fi
  done
done

# An error ends the process with its sentence.
status=0
said=$("$TEST_TMPDIR/MLP.small" 100 2>&1) || status=$?
[ $status -ge 128 ]
grep -q '^the memory given for a lane is too small' <<<"$said"
