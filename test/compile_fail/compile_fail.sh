#!/usr/bin/env bash
# compile_fail.sh COMPILER FLAGS CASE...: no CASE must compile, and each must print why. mended_test.sh checks that the
# corrected cases compile, all at once.
#
# Comments of the case say what is expected:
#   // expect: REGEX        in the first line with an error (extended; one REGEX per comment)
#   // expect-gcc: REGEX    the same, for g++ only
#   // expect-clang: REGEX  the same, for clang++ only
#   // flags: OPTION...     further options for the compiler
#   // page: NN TITLE       docs/errors.md contains the first line of g++ 12 and clang 14 (tools/errors_page writes it)
#   // note: REGEX          in any line, for what cannot be in the first one
#   // forbid: REGEX        in no line
#   // errors-gcc: N        the maximum number of errors of g++, by default 1; likewise errors-clang: clang also reports
#                           constants of a class whose static_assert failed, and uses of the type of a refused call
#   // line: N              the last line in which the first error may be; by default 2 if a call is refused by its return
#                           type, else 4, because g++ prints the instantiations that lead to a static_assert before it
#   // max-lines: N         the maximum number of lines of output, by default 20
# The corrected line is under `#ifdef MENDED`, the wrong one under `#else`. --test_filter=PATTERN selects cases by their
# names, with a shell pattern.
#
# Lines that say from where a header is included are not counted. Texts that a compiler prints as single characters, in
# pieces or as the name of a misuse (module/refusal.hpp) are compared as plain text. Where it prints a list of words, words
# and numbers alone are compared, and each word must be in module/vocabulary.hpp unless it is of the case.
set -uo pipefail
compiler=$1
flags=$2
shift 2
output=$TEST_TMPDIR/output
# A line from Hana: a location in its headers, or one of its functions. Names are hana::string in the types of a
# network, and may be printed as such.
hana="boost/hana/|instantiation of [a-z ]+'boost::hana"

if ! command -v "$compiler" >/dev/null; then
  echo "$compiler is not installed (tools/bazel test installs it)"
  exit 1
fi
if "$compiler" --version | grep -q clang; then kind=clang; else kind=gcc; fi
prints_words=
[ $kind = gcc ] || [ "$("$compiler" -dumpversion | cut -d. -f1)" -ge 18 ] || prints_words=1
compile=("$compiler" -std=c++20 -DIKEBANA_EXTERN_KERNELS -Wall -Wextra -Werror "@$flags")

# The library as a precompiled header: parsing it takes longer than most cases' own code.
house=$TEST_TMPDIR/house.hpp
house_read=()
if grep -q '^#include <ikebana/' "$@"; then
  printf '#include <ikebana/%s.hpp>\n' ikebana replicate >"$house"
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

# decode: joins the pieces of texts in a compiler's output and removes the lines on includes.
decode() {
  perl -ne '
    next if /^In file included from / || /^                 from /;
    s/(?:\x27(?:\\.|[^\x27\\])\x27(?:, |(?=>))){2,}/join "", ($& =~ m{\x27(?:\\(?=.))?(.)\x27}g)/ge;
    s/"\}, (?:(?:ikebana::)?detail::)?says<\d+>\{"//g;
    s/\\(["\x27])/$1/g;
    s/misuse::(\w+)/$1 =~ tr{_}{ }r/ge;
    s{(?:ikebana::)?(?:detail::)?(at|letters)<\x27?([^\x27<>]*)\x27?>}{$1<$2>}g;
    s{(ikebana::refused<)((?:(?:at|letters)<[^<>]*>|[\w\[\]]+|, )+)>}{
      my ($head, $words, $path) = ($1, $2, "");
      $path = "$1: " if $words =~ s/(?:^|, )at<([^<>]*)>//;
      $words =~ s/letters<([^<>]*)>/`$1`/g;
      $words =~ s/n\[(\d+)\]/$1/g;
      $words =~ s/\bzero\b/0/g;
      $words =~ s/\bminus, /-/g;
      $words =~ s/(\w)_(?=,|$)/$1/g;
      "$head$path$words>"}ge;
    print'
}

# first_line: prints the first line with an error as the page shows it: without directories, columns and line numbers of
# headers.
first_line() {
  grep -E -m 1 '(^|[: ])error: ' "$output.raw" | perl -pe '
    s/\xe2\x80[\x98\x99]/\x27/g;
    s{[^ \x27]*/ikebana/([\w/.-]+):\d+:\d+:}{ikebana/$1:};
    s{^\S*/(\w+\.cc):(\d+):\d+:}{$1:$2:};
    s/^(.{300}).*/$1 .../'
}

# on_page: checks that docs/errors.md contains this line, if the page exists and was made with this compiler.
on_page() {
  [ -e docs/errors.md ] && [ -n "$(said page)" ] || return 0
  case $kind-$("$compiler" -dumpversion) in gcc-12* | clang-14*) ;; *) return 0 ;; esac
  grep -qF -- "$(first_line)" docs/errors.md || complain "docs/errors.md does not have: $(first_line); run tools/errors_page"
}

# plain: the words and numbers of a text or of a regular expression, which stays one in its ".*". A number keeps its sign.
plain() {
  perl -pe 's/\\//g; s/\.\*/\x01/g; s/\x27s\b//g; s/(?<!\w)-(?=\d)/\x02/g; s/[^\w\x01\x02]+/ /g; s/^ | $//g;
            s/ ?\x01 ?/.*/g; s/\x02/-/g'
}

# says PATTERN: whether the text on the standard input contains this regular expression, or its words if the compiler prints
# no text.
says() {
  local text pattern
  text=$(cat)
  grep -Eq -- "$1" <<<"$text" && return
  [ -n "$prints_words" ] || return
  pattern=$(plain <<<"$1")
  [ -n "$pattern" ] && plain <<<"$text" | grep -Eq -- "$pattern"
}

said() { sed -n "s|^// $1: *||p" "$case" | sed 's/[[:space:]]*$//'; }

# fails_well [OPTION...]: whether the case fails as it declares.
fails_well() {
  local expected pattern word first errors limit lines flags
  failed=0
  if ! grep -q '^#ifdef MENDED' "$case"; then
    complain 'no mended twin (#ifdef MENDED)'
    return 1
  fi
  read -ra flags <<<"$(said flags)"
  if "${compile[@]}" "${flags[@]}" "$@" -fsyntax-only "$case" >"$output.raw" 2>&1; then
    complain 'compiles, but must not'
    return 1
  fi
  decode <"$output.raw" >"$output"
  first=$(grep -nE -m 1 '(^|[: ])error: ' "$output")
  expected=$(said expect; said "expect-$kind")
  [ -n "$expected" ] || [ -n "$(said note)" ] || complain 'expects no sentence (// expect: ...)'
  while IFS= read -r pattern; do
    [ -z "$pattern" ] || says "$pattern" <<<"$first" || complain "does not say: $pattern"
  done <<<"$expected"
  while IFS= read -r pattern; do
    [ -z "$pattern" ] || says "$pattern" <"$output" || complain "does not say: $pattern"
  done <<<"$(said note)"
  while IFS= read -r pattern; do
    [ -z "$pattern" ] || ! grep -Eq -- "$pattern" "$output" || complain "says what it must not: $pattern"
  done <<<"$hana
$(said forbid)"
  while IFS= read -r word; do
    [ -z "$word" ] || grep -qF -- "$word" "$case" || complain "module/vocabulary.hpp lacks the word $word"
  done <<<"$(grep -oE '`[a-z_]+`' <<<"$first" | tr -d '`')"
  errors=$(grep -cE '(^|[: ])error: ' "$output")
  limit=$(said "errors-$kind")
  [ "$errors" -le "${limit:-1}" ] || complain "says $errors errors, at most ${limit:-1} are allowed"
  limit=$(said line)
  if [ -z "$limit" ]; then
    limit=4
    [[ $first != *ikebana::refused\<* ]] || limit=2
  fi
  [ "${first%%:*}" -le "$limit" ] || complain "says it in line ${first%%:*}, not in the first $limit"
  if [ -n "${PRINT_FIRST_LINES:-}" ]; then
    printf '%s|%s\n' "$(basename "$case")" "$(first_line)"
    return 0
  fi
  on_page
  lines=$(wc -l <"$output")
  limit=$(said max-lines)
  limit=${limit:-20}
  [ "$lines" -le "$limit" ] || complain "says it in $lines lines, at most $limit are allowed"
  [ $failed = 0 ]
}

# check: the same with the headers parsed as a user does, if the precompiled header could make a difference.
check() {
  local failed
  if [ ${#house_read[@]} != 0 ] && [ -z "$(said flags)" ] && [ -z "${VERBOSE:-}" ] && fails_well "${house_read[@]}" >"$output.read"; then
    [ -z "${PRINT_FIRST_LINES:-}" ] || cat "$output.read"
    return 0
  fi
  fails_well && [ -z "${VERBOSE:-}" ] && return 0
  head -n 100 "$output.raw"
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
