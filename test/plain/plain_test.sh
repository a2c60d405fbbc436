#!/usr/bin/env bash
# plain_test.sh MAIN FLAGS: no build system at all.
set -euo pipefail
for compiler in g++ clang++; do
  echo "$compiler"
  "$compiler" -std=c++20 -O2 -Iinclude "@$2" "$1" -pthread -o "$TEST_TMPDIR/main"
  "$TEST_TMPDIR/main"
done
