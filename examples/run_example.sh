#!/usr/bin/env bash
# run_example.sh BINARY [OPTION...]: runs an example as `bazel run` would, in its own directory.
set -euo pipefail
BUILD_WORKING_DIRECTORY=$TEST_TMPDIR exec "$@"
