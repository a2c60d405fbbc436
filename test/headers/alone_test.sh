#!/usr/bin/env bash
# alone_test.sh COMPILER FLAGS HEADER...: each header compiles by itself, which finds missing includes, and a second
# time after itself, which tests its guard.
set -uo pipefail
compiler=$1
flags=$2
shift 2
failed=0

# Including one of these is equivalent to using a precompiled one, which saves half of all work. From large to small.
bases='model/model optim/optimizer replicate/policy model/network/network_state module/lowering module/module cpu/gemm'
bases+=' cpu/elementwise core/tensor cpu/dispatch core/text'

compile=("$compiler" -std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror "@$flags")

# read_before BASE MACRO: sets `before` to the options that use the precompiled BASE.
read_before() {
  local house=$TEST_TMPDIR/${1//\//_}$2.hpp
  before=()
  [ "$1" != none ] || return 0
  if "$compiler" --version | grep -q clang; then
    before=(-include-pch "$house.pch")
    [ -e "$house.pch" ] && return
    echo "#include <${1#include/}>" >"$house"
    "${compile[@]}" $2 -x c++-header "$house" -o "$house.pch"
  else
    before=(-include "$house")
    [ -e "$house.gch" ] && return
    echo "#include <${1#include/}>" >"$house"
    "${compile[@]}" $2 -x c++-header "$house" -o "$house.gch"
  fi
}

[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
for base in $bases; do
  [[ " $* " == *" include/ikebana/$base.hpp "* ]] || { echo "there is no header $base"; failed=1; }
done

# Per line: the largest base that the header includes, directly or not, a macro, and the header.
awk -v bases="$bases" '
  function includes(header, base,  i, n, list) {
    if (header == base) return 1
    if (!((header, base) in known)) {
      known[header, base] = 0
      n = split(edges[header], list, " ")
      for (i = 1; i <= n; ++i) if (includes(list[i], base)) known[header, base] = 1
    }
    return known[header, base]
  }
  FNR == 1 { headers[++count] = FILENAME }
  /^#include "ikebana\// { split($0, part, "\""); edges[FILENAME] = edges[FILENAME] " include/" part[2] }
  END {
    total = split(bases, base, " ")
    for (b = 1; b <= total; ++b) base[b] = "include/ikebana/" base[b] ".hpp"
    for (h = 1; h <= count; ++h) {
      header = headers[h]
      for (b = 1; b <= total && (base[b] == header || !includes(header, base[b])); ++b) {}
      # The bodies of kernels are parsed with the headers that include them.
      macro = header ~ /ikebana\/cpu\// ? "" : "-DIKEBANA_EXTERN_KERNELS"
      print b <= total ? base[b] : "none", header, macro
    }
  }' "$@" | sort >"$TEST_TMPDIR/headers"

# Each shard has consecutive headers, which have bases in common.
lines=$(wc -l <"$TEST_TMPDIR/headers")
shards=${TEST_TOTAL_SHARDS:-1}
shard=${TEST_SHARD_INDEX:-0}
first=$((shard * lines / shards + 1))
last=$(((shard + 1) * lines / shards))
while read -r base header macro; do
  name=${header#include/}
  if ! read_before "$base" "$macro"; then
    echo "$base does not compile"
    exit 1
  fi
  printf '#include <%s>\n#include <%s>\n' "$name" "$name" |
    "${compile[@]}" $macro ${before[@]+"${before[@]}"} -fsyntax-only -x c++ - || {
    echo "$name does not compile alone"
    failed=1
  }
done < <(sed -n "${first},${last}p" "$TEST_TMPDIR/headers")
echo "$compiler: $((last - first + 1)) of $lines headers"
exit $failed
