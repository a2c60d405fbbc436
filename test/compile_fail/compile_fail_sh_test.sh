#!/usr/bin/env bash
# compile_fail_sh_test.sh CHECKER MENDED UNIT: tests the checkers themselves. They must pass a good case, and fail each
# case that is wrong in one respect.
set -uo pipefail
checker=$1
mended=$PWD/$2
unit=$PWD/$3
cd "$(dirname "$checker")" || exit
checker=./$(basename "$checker")
flags=$TEST_TMPDIR/no.flags
case=$TEST_TMPDIR/case.cc
: >"$flags"
failed=0

# check CASE...: the checker's output for them, with either compiler.
check() {
  local status=0 compiler
  for compiler in g++ clang++; do
    "$checker" $compiler "$flags" "$@" || status=1
  done
  return $status
}

# try pass|fail SENTENCE: checks the case given on standard input.
try() {
  cat >"$case"
  if said=$(check "$case"); then got=pass; else got=fail; fi
  if [ "$got" = "$1" ] && { [ "$got" = pass ] || grep -q -- "$2" <<<"$said"; }; then return; fi
  printf 'a case that %s: %s, expected %s; it said:\n%s\n' "$2" "$got" "$1" "$said"
  failed=1
}

body='#ifdef MENDED
static_assert(true, "");
#else
static_assert(false, "a plain sentence");
#endif'

try pass 'is good' <<<"// expect: a plain sen.ence
// expect-gcc: static assertion failed
// expect-clang: static_assert(ion)? failed
// forbid: frame of another
// max-lines: 5
$body"
try fail 'does not say: another sentence' <<<"// expect: another sentence
$body"
try fail 'clang++: does not say: only for clang' <<<"// expect: a plain sentence
// expect-clang: only for clang
$body"
try fail 'must not: plain' <<<"// expect: a plain sentence
// forbid: plain
$body"
try fail 'lines, at most 1' <<<"// expect: a plain sentence
// max-lines: 1
$body"
try fail 'expects no sentence' <<<"$body"
try fail 'says 2 errors, at most 1' <<<"// expect: a plain sentence
$body
$body"
try pass 'says two errors, as it may' <<<"// expect: a plain sentence
// errors-gcc: 2
// errors-clang: 2
$body
$body"
try fail 'says it in line [1-9], not in the first 1' <<<"// expect: a plain sentence
// line: 1
#ifdef MENDED
#else
#pragma GCC warning \"first\"
#endif
$body"
try pass 'says in another line what no first line can' <<<"// note: declared here|explicitly deleted
#ifdef MENDED
#else
void f() = delete;
void g() { f(); }
#endif"
try fail 'compiles, but must not' <<<'// expect: x
#ifdef MENDED
#endif'
try fail 'no mended twin' <<<'// expect: x
static_assert(false, "x");'
try fail 'must not: boost/hana/' <<<'// expect: a plain sentence
#ifdef MENDED
#else
#line 1 "boost/hana/tuple.hpp"
static_assert(false, "a plain sentence");
#endif'

# One failing case suffices, and is named.
for place in first last; do
  good=$TEST_TMPDIR/good.cc
  printf '%s\n' '// expect: a plain sentence' "$body" >"$good"
  printf '%s\n' '// expect: another sentence' "$body" >"$case"
  cases=("$case" "$good")
  [ $place = first ] || cases=("$good" "$case")
  if said=$(check "${cases[@]}") || ! grep -q "$case, .*g++: does not say: another sentence" <<<"$said"; then
    printf 'the %s of two cases is bad; it said:\n%s\n' $place "$said"
    failed=1
  fi
done
# Together, the shards check everything exactly once.
said=$(for shard in 0 1; do TEST_TOTAL_SHARDS=2 TEST_SHARD_INDEX=$shard check "$case" "$good"; done)
if [ "$(grep -c 'does not say: another sentence' <<<"$said")" != 2 ] || [ "$(grep -c '^1 cases$' <<<"$said")" != 4 ]; then
  printf 'in two shards it said:\n%s\n' "$said"
  failed=1
fi

# mend CASE: the output of the checker of corrected twins for two cases, the other of which is good.
mend() {
  printf '%s\n' '#include <cstddef>' "$body" >"$TEST_TMPDIR/good.cc"
  printf '%s\n' "$1" >"$case"
  "$mended" "$unit" "$flags" "$TEST_TMPDIR/good.cc" "$case" >"$TEST_TMPDIR/said" 2>&1
}
if ! mend "$body"; then
  echo 'a good case fails when mended:'
  cat "$TEST_TMPDIR/said"
  failed=1
fi
if mend '#ifdef MENDED
#endif
static_assert(false, "x");' || ! grep -q 'case.cc:3:' "$TEST_TMPDIR/said"; then
  echo 'a case that does not compile when mended passes, or its line is not said:'
  cat "$TEST_TMPDIR/said"
  failed=1
fi
exit $failed
