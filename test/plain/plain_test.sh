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

"${build[@]}" -DIKEBANA_EXTERN_KERNELS -c "$2" -o "$TEST_TMPDIR/main.o"
"$compiler" "$TEST_TMPDIR/main.o" "$4" -pthread -o "$TEST_TMPDIR/linked"
"$TEST_TMPDIR/linked"

# Without them, the linker's error says what to do.
if said=$("$compiler" "$TEST_TMPDIR/main.o" -pthread -o "$TEST_TMPDIR/unlinked" 2>&1); then
  echo 'linked without kernels'
  exit 1
fi
grep -q 'kernels_are_not_linked::compile_ikebana_kernels_cc_once_or_do_not_define_IKEBANA_EXTERN_KERNELS' <<<"$said"
