#!/usr/bin/env bash
# aarch64_test.sh NETWORK FLAGS EXPECTED CLOSE: frozen networks with embedded weights, without exceptions and type
# information, on an emulated aarch64 processor, by NEON and by scalar kernels.
set -euo pipefail
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v $program >/dev/null; then
    echo "skipped: there is no $program (tools/bazel test installs it)"
    exit 0
  fi
done
# shellcheck source=close.sh
. "$4"

for network in MLP CNN LSTM; do
  program=$TEST_TMPDIR/$network
  # The compiler notes that an interface has changed since its version 9.
  aarch64-linux-gnu-g++ -std=c++20 -Os -static -fno-exceptions -fno-rtti -Wall -Wextra -Werror -Wno-psabi -Iinclude \
    "@$2" -D$network "$1" -o "$program"
  neon=$(IKEBANA_ISA=neon qemu-aarch64 "$program")
  scalar=$(IKEBANA_ISA=scalar qemu-aarch64 "$program")
  close $network "$neon" "$3"
  close $network "$scalar" "$3"
done
