#!/usr/bin/env bash
# plain_test.sh COMPILER MAIN FLAGS KERNELS: without a build system; the second time with separately compiled kernels of
# the one type that the program needs.
set -euo pipefail
# The compiler's driver for C++.
compiler=${1/%gcc/g++}
compiler=${compiler/%clang/clang++}
# Other tests optimise what takes longest.
build=("$compiler" -std=c++20 -O0 -Iinclude "@$3")

"${build[@]}" "$2" -pthread -o "$TEST_TMPDIR/main"
"$TEST_TMPDIR/main"

"${build[@]}" -DIKEBANA_EXTERN_KERNELS "$2" "$4" -pthread -o "$TEST_TMPDIR/linked"
"$TEST_TMPDIR/linked"
