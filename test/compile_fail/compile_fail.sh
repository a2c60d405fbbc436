#!/usr/bin/env bash
# compile_fail.sh COMPILER FLAGS CASE...: no CASE must compile, and each must say why. That it compiles when it is
# mended, mended_test.sh sees to, for all cases at once.
#
# The case itself says what is expected:
#   // expect: REGEX        in what either compiler prints (extended, by the line)
#   // expect-gcc: REGEX    in what g++ prints
#   // expect-clang: REGEX  in what clang++ prints
#   // forbid: REGEX        in what neither prints
#   // max-lines: N         of output at most, 25 if not said
# and holds the good line under `#ifdef MENDED`, the bad one under `#else`. Some cases alone are taken by
# --test_filter=PATTERN, of a shell, that their names match.
set -uo pipefail
compiler=$1
flags=$2
shift 2
output=$TEST_TMPDIR/output
# A line of Hana's: a place in its headers, or a function of its own. Names are
# hana::string in the types of a network, and may be printed as such.
hana="boost/hana/|instantiation of [a-z ]+'boost::hana"

if ! command -v "$compiler" >/dev/null; then
  echo "$compiler is not installed (tools/bazel test installs it)"
  exit 1
fi
if "$compiler" --version | grep -q clang; then kind=clang; else kind=gcc; fi
compile=("$compiler" -std=c++20 -DIKEBANA_EXTERN_KERNELS -Wall -Wextra -Werror "@$flags")

# The house, read before: that takes a compiler longer than what most cases have it say.
house=$TEST_TMPDIR/house.hpp
house_read=()
if grep -q '^#include <ikebana/' "$@"; then
  echo '#include <ikebana/ikebana.hpp>' >"$house"
  if [ "$kind" = gcc ]; then
    "${compile[@]}" -x c++-header "$house" -o "$house.gch" || exit 1
    house_read=(-include "$house")
  else
    "${compile[@]}" -fpch-instantiate-templates -x c++-header "$house" -o "$house.pch" || exit 1
    house_read=(-include-pch "$house.pch")
  fi
fi

complain() {
  echo "$case, $compiler: $*"
  failed=1
}

said() { sed -n "s|^// $1: *||p" "$case" | sed 's/[[:space:]]*$//'; }

# fails_well [OPTION...]: whether the case fails as it says.
fails_well() {
  local expected pattern
  failed=0
  lines=0
  if ! grep -q '^#ifdef MENDED' "$case"; then
    complain 'no mended twin (#ifdef MENDED)'
    return 1
  fi
  if "${compile[@]}" "$@" -fsyntax-only "$case" >"$output" 2>&1; then
    complain 'compiles, but must not'
    return 1
  fi
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
  [ $failed = 0 ]
}

# check: the same of a case read as a user's is, where a house read before could make a difference: it moves
# the place that a header is included from, by a few lines.
check() {
  local limit lines failed
  limit=$(said max-lines)
  limit=${limit:-25}
  if [ ${#house_read[@]} != 0 ] && [ -z "${VERBOSE:-}" ] && fails_well "${house_read[@]}" >"$output.read" && [ "$lines" -le $((limit - 4)) ]; then
    return 0
  fi
  fails_well && [ -z "${VERBOSE:-}" ] && return 0
  head -n 100 "$output"
  return $failed
}

[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
number=0
checked=0
status=0
for case in "$@"; do
  [ $((number++ % ${TEST_TOTAL_SHARDS:-1})) = "${TEST_SHARD_INDEX:-0}" ] || continue
  # shellcheck disable=SC2053
  [[ $(basename "$case" .cc) == ${TESTBRIDGE_TEST_ONLY:-*} ]] || continue
  check || status=1
  : $((checked++))
done
echo "$checked cases"
exit $status
