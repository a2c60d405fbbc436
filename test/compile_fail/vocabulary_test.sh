#!/usr/bin/env bash
# vocabulary_test.sh HEADER...: module/vocabulary.hpp has the kind of every module and every word of the constant
# sentences, which clang 14 would otherwise print in single characters.
set -uo pipefail
words() { sed 's/\\[nt"]/ /g' | grep -oE '[A-Za-z_][A-Za-z_0-9]*' | sort -u; }

vocabulary=$(printf '%s\n' "$@" | grep '/module/vocabulary\.hpp$')
known=$(grep -oE '(WORD|KEYWORD)\([A-Za-z_0-9]+\)' "$vocabulary" | sed 's/.*(//; s/)//' | sort -u)
said=$({
  grep -ohE 'kind = "[a-z_0-9]+"' "$@" | cut -d'"' -f2
  grep -v '#include' "$(printf '%s\n' "$@" | grep '/module/protocol\.hpp$')" | grep -oE '"[^"]+"'
  awk '/^IKEBANA_MISUSE\(/ { on = 1 } on { while (match($0, /"(\\.|[^"\\])*"/)) {
    printf "%s", substr($0, RSTART + 1, RLENGTH - 2); $0 = substr($0, RSTART + RLENGTH) } }
    on && /\);$|"\)$/ { on = 0; print "" }' "$@"
} | words)
[ "$(wc -l <<<"$said")" -gt 300 ] || { echo "only $(wc -l <<<"$said") words were found"; exit 1; }
missing=$(comm -23 <(echo "$said") <(echo "$known"))
[ -z "$missing" ] || { printf 'not in %s:\n%s\n' "$vocabulary" "$missing"; exit 1; }
