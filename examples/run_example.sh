#!/usr/bin/env bash
# run_example.sh BINARY [OPTION...]: runs an example as `bazel run` would, in its own directory. The option PLOT is the name
# of a file that it must write.
set -euo pipefail
plot=$TEST_TMPDIR/plot.svg
BUILD_WORKING_DIRECTORY=$TEST_TMPDIR "${@/#PLOT/$plot}"
[ "${*: -1}" != PLOT ] || grep -q '</svg>' "$plot"
