#!/usr/bin/env bash
# mended_test.sh UNIT FLAGS CASE...: the cases, mended, do compile: each is right but for what it breaks. One compiler
# is enough to know that.
set -uo pipefail
unit=$1
flags=$2
shift 2

"$unit" "$@" >"$TEST_TMPDIR/mended.cc" || exit
g++ -std=c++20 -DIKEBANA_EXTERN_KERNELS -DMENDED -fsyntax-only -Wall -Wextra -Werror \
  "@$flags" "$TEST_TMPDIR/mended.cc"
