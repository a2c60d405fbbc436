#!/usr/bin/env bash
# plain_test.sh COMPILER MAIN FLAGS: no build system at all; the second time with the kernels in a unit of
# their own, of the one type that the program needs.
set -euo pipefail
build=("$1" -std=c++20 -Iinclude "@$3")

"${build[@]}" -O2 "$2" -pthread -o "$TEST_TMPDIR/main"
"$TEST_TMPDIR/main"

# What takes longest to optimise is optimised by other tests.
"${build[@]}" -O0 -DIKEBANA_KERNELS_OF=float -c include/ikebana/cpu/kernels.cc -o "$TEST_TMPDIR/kernels.o"
"${build[@]}" -O0 -DIKEBANA_EXTERN_KERNELS "$2" "$TEST_TMPDIR/kernels.o" -pthread -o "$TEST_TMPDIR/linked"
"$TEST_TMPDIR/linked"
