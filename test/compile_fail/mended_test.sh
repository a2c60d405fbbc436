#!/usr/bin/env bash
# mended_test.sh FLAGS CASE...: the cases, mended, do compile: each is right but for what it breaks. One compiler
# is enough to know that; and one unit, each case in a namespace of its own, takes a fifteenth of the time.
set -uo pipefail
flags=$1
shift

{
  sed -n '/^#include/p' "$@" | sort -u
  for case in "$@"; do
    printf 'namespace %s_mended {\n#line 1 "%s"\n' "$(basename "$case" .cc)" "$case"
    sed 's/^#include.*//' "$case"
    printf '}\n'
  done
} >"$TEST_TMPDIR/mended.cc"

"${IKEBANA_GXX:-g++}" -std=c++20 -DIKEBANA_EXTERN_KERNELS -DMENDED -fsyntax-only -Wall -Wextra -Werror \
  "@$flags" "$TEST_TMPDIR/mended.cc"
