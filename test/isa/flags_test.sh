#!/usr/bin/env bash
# flags_test.sh COMPILER FLAGS SOURCE: the effect of a user's own -m flags. With those of an instruction set, the
# kernels of narrower ones are not compiled; with those of the widest, there is no dispatch. Translation units with
# different flags can be linked into one program (whose instruction sets are told apart with g++ only).
set -uo pipefail
# The compiler's driver for C++.
compiler=${1/%gcc/g++}
compiler=${compiler/%clang/clang++}
flags=$2
source=$3
failed=0
cd "$(dirname "$0")/../.." || exit

complain() {
  echo "$*"
  failed=1
}

if [ "$(uname -m)" != x86_64 ]; then
  echo 'skipped: these flags are those of x86-64'
  exit 0
fi

# compile OBJECT OPTION...
compile() {
  local object=$TEST_TMPDIR/$1.o
  shift
  "$compiler" -std=c++20 -O1 -Wall -Wextra -Werror "@$flags" "$@" -c "$source" -o "$object" || complain "does not compile with $*"
}

# sets OBJECT [KERNEL]: the instruction sets for which it contains a kernel.
sets() {
  nm -C "$TEST_TMPDIR/$1.o" | grep -oE "(scalar|sse42|avx2|avx512)::${2-map_tanh}\\b" | sed 's/::.*//' | sort -u | tr '\n' ' '
}

# expect WHAT GOT EXPECTED
expect() { [ "$2" = "$3" ] || complain "$1: $2, expected: $3"; }

# apart WHAT GOT EXPECTED: for a program whose units must not share kernels.
apart() { "$compiler" --version | grep -q clang || expect "$@"; }

# The namespace of such a unit must be declared before ikebana::cpu is opened.
for header in $(grep -l 'namespace ikebana::cpu' -R include); do
  case $header in */detail/targets.hpp | *-inl.hpp) continue ;; esac
  if grep -m1 -E 'namespace ikebana::cpu|#include "ikebana/(cpu|module|nn)' "$header" | grep -q namespace; then
    echo "$header opens ikebana::cpu, but does not include cpu/detail/targets.hpp, or another header of cpu/, before"
    failed=1
  fi
done

compile plain -DFUNCTION=plain -DOTHER=widest
compile plain2 -DFUNCTION=plain -DOTHER=avx2
compile sse42 -DFUNCTION=sse42 -msse4.2
compile avx2 -DFUNCTION=avx2 -march=x86-64-v3
compile widest -DFUNCTION=widest -march=x86-64-v4
compile native -DFUNCTION=widest -march=native
compile one -DFUNCTION=one -DOTHER=one2 -DIKEBANA_ONE_INSTRUCTION_SET -march=x86-64-v3
compile one2 -DFUNCTION=one2 -DIKEBANA_ONE_INSTRUCTION_SET -march=x86-64-v3
compile one_without_flags -DFUNCTION=one -DIKEBANA_ONE_INSTRUCTION_SET
compile one_kernels -DFUNCTION=one -DIKEBANA_ALL_KERNELS -DIKEBANA_ONE_INSTRUCTION_SET -march=x86-64-v3
# kernels.cc, and a unit that takes its kernels from there.
compile kernels -DFUNCTION=kernels -DIKEBANA_ALL_KERNELS -march=x86-64-v3
compile all_kernels -DFUNCTION=all_kernels -DIKEBANA_ALL_KERNELS
compile user -DFUNCTION=user -DIKEBANA_EXTERN_KERNELS -DOTHER=user2
compile user2 -DFUNCTION=user2 -DIKEBANA_EXTERN_KERNELS -march=x86-64-v3
[ $failed = 0 ] || exit 1

expect 'without flags' "$(sets plain)" 'avx2 avx512 scalar '
expect 'bound by memory' "$(sets plain map_relu)" 'avx2 scalar '
expect 'all functions of exp' "$(sets all_kernels)" 'avx2 avx512 scalar '
expect 'all that is bound by memory' "$(sets all_kernels map_relu)" 'avx2 scalar '
expect 'with SSE4.2' "$(sets sse42)" 'avx2 avx512 sse42 '
expect 'with AVX2' "$(sets avx2)" 'avx2 avx512 '
# Even inlined, since there is no dispatch.
expect 'with AVX-512' "$(sets widest | sed 's/avx512 //')" ''
expect 'one, with AVX2' "$(sets one | sed 's/avx2 //')" ''
expect 'one without flags' "$(sets one_without_flags | sed 's/scalar //')" ''
expect 'kernels of one' "$(sets one_kernels)" 'avx2 '
expect 'elsewhere' "$(sets user)" ''

# run OBJECT...: prints the output of the program made of these units.
run() {
  (cd "$TEST_TMPDIR" && "$compiler" "${@/%/.o}" -o program && ./program)
}
if grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo; then
  widest=avx2
  if grep -qw avx512vl /proc/cpuinfo && grep -qw avx512bw /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo; then
    widest=avx512
    apart 'with none and AVX-512' "$(run plain widest)" 'scalar avx512'
  fi
  apart 'with none and AVX2' "$(run plain2 avx2)" "scalar $widest"
  apart 'forced to AVX2' "$(IKEBANA_ISA=avx2 run plain2 avx2)" 'scalar avx2'
  apart 'with none and native' "$(run plain native)" "scalar $("$compiler" -march=native -dM -E -x c++ /dev/null |
    awk '/__AVX512VL__/ { wide = 1 } END { print wide ? "avx512" : "avx2" }')"
  expect 'another than the one' "$(run one one2)" 'this build has no kernels for the instruction set scalar'
  expect 'kernels elsewhere' "$(run kernels user user2)" 'this build has no kernels for the instruction set scalar'
fi
exit $failed
