#!/usr/bin/env bash
# consumer_bazel_test.sh WORKSPACE: a user's workspace depends on this one.
set -euo pipefail
top=$(dirname "$(readlink -f "$1")")
consumer=$TEST_TMPDIR/consumer
mkdir "$consumer"
cp -RL test/consumer_bazel/. "$consumer"
sed -i "s|\"\.\./\.\.|\"$top|" "$consumer/WORKSPACE"
cd "$consumer"

bazel=(bazel "--output_user_root=$TEST_TMPDIR/root" --host_jvm_args=-Xmx512m --max_idle_secs=60)
trap '"${bazel[@]}" shutdown; chmod -R u+w "$TEST_TMPDIR/root"' EXIT
# Unoptimised, since optimising takes longest and other tests do it. The output is inside another Bazel's, and must not
# look like a part of it.
"${bazel[@]}" run --noshow_progress --curses=no --nosandbox_debug --jobs=2 --compilation_mode=fastbuild //:main 2>&1 | sed 's/^/  | /'
