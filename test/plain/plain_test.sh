#!/usr/bin/env bash
# plain_test.sh MAIN FLAGS: no build system at all; the second time with the kernels in a unit of their own.
set -euo pipefail
for compiler in g++ clang++; do
  echo "$compiler"
  build=("$compiler" -std=c++20 -O2 -Iinclude "@$2")
  "${build[@]}" "$1" -pthread -o "$TEST_TMPDIR/main"
  "$TEST_TMPDIR/main"
  "${build[@]}" -DIKEBANA_EXTERN_KERNELS "$1" include/ikebana/cpu/kernels.cc -pthread -o "$TEST_TMPDIR/linked"
  "$TEST_TMPDIR/linked"
done
