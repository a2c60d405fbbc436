#!/usr/bin/env bash
# instructions_test.sh ARCHIVE...: only functions in an instruction set's namespace contain its instructions.
#
# Code for machines without an instruction set must not call a function of the standard library, or a shared one of
# ours, that was compiled with it. None may touch MMX, whose registers are the x87's: afterwards, a long double is NaN
# until the next emms.
set -uo pipefail

if [ "$(uname -m)" != x86_64 ]; then
  echo 'skipped: these programs are not for x86-64'
  exit 0
fi
if ! command -v objdump >/dev/null; then
  echo 'skipped: there is no objdump (it comes with the compiler)'
  exit 0
fi

# 0: every x86-64 processor, 1: SSE4.2, 2: AVX2 and FMA, 3: AVX-512 F, BW, DQ, VL, 4: beyond those.
for archive in "$@"; do objdump -d --no-show-raw-insn "$archive"; done | awk -F '\t' '
  /^[0-9a-f]+ <.*>:$/ {
    name = $0
    sub(/^[0-9a-f]+ </, "", name)
    sub(/>:$/, "", name)
    allowed = 0
    if (name ~ /5sse42/) allowed = 1
    if (name ~ /4avx2/) allowed = 2
    if (name ~ /6avx512/) allowed = 3
    # The last one packs floats for processors that only multiply bfloat16, by one line of assembly.
    if (name ~ /[0-9](avx512_[a-z]|amx)|6avx51212word_operandIf/) allowed = 4
    ++functions[allowed]
    next
  }
  NF >= 2 {
    text = $2
    sub(/^\{[a-z]+\} /, "", text)
    needed = 0
    if (text ~ /^v(pdp|dpbf16|cvtne|popcnt|pcompress[bw]|pexpand[bw]|perm[it]?2?b |pmadd52|psh[lr]d|aes|pclmul|gf2p8)/ ||
        text ~ /^v[a-z0-9]*(ph|sh) / || text ~ /^(tdp|tile|ldtile|sttile|gf2p8|aes|pclmul)/ ||
        text ~ /^(andn|bextr|blsi|blsr|bzhi|pdep|pext|rorx|sarx|shlx|shrx|mulx|adcx|adox|lzcnt|movbe) /)
      needed = 4
    else if (text ~ /%mm[0-7]/)
      needed = 5
    else if (text ~ /%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])|\{1to/)
      needed = 3
    else if (text ~ /^v/)
      needed = 2
    else if (text ~ /^(addsub|hadd|hsub|lddqu|movs[hl]dup|movddup|pabs|palignr|ph(add|sub)|pmaddubsw|pmulhrsw|pshufb|psign)/ ||
             text ~ /^(p?blend|dpp[sd]|extractps|insertps|movntdqa|mpsadbw|packusdw|pcmp(eqq|gtq|[ei]str)|p(extr|insr)[bdq])/ ||
             text ~ /^(phminposuw|p(max|min)(sb|sd|ud|uw)|pmov[sz]x|pmuldq|pmulld|ptest|round[ps][sd]|crc32|popcnt)/)
      needed = 1
    if (needed > allowed && !(name in told)) {
      told[name] = 1
      print name ": " text
      failed = 1
    }
    if (needed > 0) ++seen[needed]
  }
  END {
    printf "functions: %d common, %d of SSE4.2, %d of AVX2, %d of AVX-512, %d beyond\n", functions[0], functions[1],
           functions[2], functions[3], functions[4]
    # An empty listing proves nothing.
    if (!(seen[1] && seen[2] && seen[3] && functions[0])) {
      print "the archives do not hold all sets"
      failed = 1
    }
    exit failed
  }'
