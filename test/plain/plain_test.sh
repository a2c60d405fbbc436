#!/usr/bin/env bash
# plain_test.sh COMPILER MAIN FLAGS KERNELS: no build system at all; the second time with the kernels built apart, of
# the one type that the program needs.
set -euo pipefail
# Its driver for C++.
compiler=${1/%gcc/g++}
compiler=${compiler/%clang/clang++}
# What takes longest to optimise is optimised by other tests.
build=("$compiler" -std=c++20 -O0 -Iinclude "@$3")

"${build[@]}" "$2" -pthread -o "$TEST_TMPDIR/main"
"$TEST_TMPDIR/main"

"${build[@]}" -DIKEBANA_EXTERN_KERNELS "$2" "$4" -pthread -o "$TEST_TMPDIR/linked"
"$TEST_TMPDIR/linked"
