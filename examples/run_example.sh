#!/usr/bin/env bash
# run_example.sh BINARY [OPTION...]: runs an example as `bazel run` would, from a directory of its own.
set -euo pipefail
BUILD_WORKING_DIRECTORY=$TEST_TMPDIR exec "$@"
