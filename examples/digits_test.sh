#!/usr/bin/env bash
# digits_test.sh BINARY: trains to the documented accuracy; a second process that loads the saved network prints the
# same to the last digit.
set -euo pipefail
export BUILD_WORKING_DIRECTORY=$TEST_TMPDIR
options=(--require 0.985)
# Sanitizer runs are slow and do not check accuracy.
[ -z "${IKEBANA_QUICK:-}" ] || options=(--epochs 2)

"$1" "${options[@]}" | tee "$TEST_TMPDIR/trained"
"$1" --load "$TEST_TMPDIR/digits.safetensors" | tee "$TEST_TMPDIR/loaded"
for run in trained loaded; do
  grep '^test accuracy' "$TEST_TMPDIR/$run" >"$TEST_TMPDIR/$run.accuracy"
done
diff "$TEST_TMPDIR/trained.accuracy" "$TEST_TMPDIR/loaded.accuracy"
grep -q '</svg>' "$TEST_TMPDIR/training.svg"
"$1" --help | grep -q -- --mnist
