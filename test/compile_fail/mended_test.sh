#!/usr/bin/env bash
# mended_test.sh UNIT FLAGS CASE...: the corrected cases compile, so each has no other mistake. One compiler suffices to
# show that.
set -uo pipefail
unit=$1
flags=$2
shift 2

"$unit" "$@" >"$TEST_TMPDIR/mended.cc" || exit
g++ -std=c++20 -DIKEBANA_EXTERN_KERNELS -DMENDED -fsyntax-only -Wall -Wextra -Werror \
  "@$flags" "$TEST_TMPDIR/mended.cc"
