#!/usr/bin/env bash
# compile_fail.sh CASE FLAGS: CASE must not compile, and must say why. That it compiles when it is mended, mended_test.sh
# sees to, for all cases at once.
#
# With g++ and with clang++, for users have either. The case itself says what is expected:
#   // expect: REGEX        in what either compiler prints (extended, by the line)
#   // expect-gcc: REGEX    in what g++ prints
#   // expect-clang: REGEX  in what clang++ prints
#   // forbid: REGEX        in what neither prints
#   // max-lines: N         of output at most, 25 if not said
# and holds the good line under `#ifdef MENDED`, the bad one under `#else`. Another compiler of the
# same kind is taken by --test_env=IKEBANA_GXX=... and --test_env=IKEBANA_CLANGXX=...
set -uo pipefail
source=$1
flags=$2
output=$TEST_TMPDIR/output
failed=0
# A line of Hana's: a place in its headers, or a function of its own. Names are
# hana::string in the types of a network, and may be printed as such.
hana="boost/hana/|instantiation of [a-z ]+'boost::hana"

complain() {
  echo "$source, $compiler: $*"
  failed=1
}

said() { sed -n "s|^// $1: *||p" "$source" | sed 's/[[:space:]]*$//'; }

compile() {
  "$compiler" -std=c++20 -DIKEBANA_EXTERN_KERNELS -fsyntax-only -Wall -Wextra -Werror "@$flags" "$source" >"$output" 2>&1
}

limit=$(said max-lines)
limit=${limit:-25}

if ! grep -q '^#ifdef MENDED' "$source"; then
  echo "$source: no mended twin (#ifdef MENDED)"
  exit 1
fi

for kind in gcc clang; do
  if [ $kind = gcc ]; then compiler=${IKEBANA_GXX:-g++}; else compiler=${IKEBANA_CLANGXX:-clang++}; fi
  if ! command -v "$compiler" >/dev/null; then
    complain 'this compiler is not installed (tools/bazel test installs it)'
    continue
  fi

  if compile; then
    complain 'compiles, but must not'
    continue
  fi
  before=$failed
  expected=$(said expect; said "expect-$kind")
  [ -n "$expected" ] || complain 'expects no sentence (// expect: ...)'
  while IFS= read -r pattern; do
    [ -z "$pattern" ] || grep -Eq -- "$pattern" "$output" || complain "does not say: $pattern"
  done <<<"$expected"
  while IFS= read -r pattern; do
    [ -z "$pattern" ] || ! grep -Eq -- "$pattern" "$output" || complain "says what it must not: $pattern"
  done <<<"$hana
$(said forbid)"
  lines=$(wc -l <"$output")
  [ "$lines" -le "$limit" ] || complain "says it in $lines lines, at most $limit are allowed"
  if [ $failed != "$before" ] || [ "${VERBOSE:-}" ]; then head -n 100 "$output"; fi
done
exit $failed
