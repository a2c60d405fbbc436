"""Tests of sources that must not compile."""

load("//tools:header_flags.bzl", "header_flags")

def compile_fail_tests(srcs, deps):
    """Makes a test that every source fails to compile with the expected message (see compile_fail.sh), and a test of all
    corrected twins.

    Args:
      srcs: one broken thing each, beside its mended twin.
      deps: libraries whose headers the sources include.
    """
    flags = "compile_fail_flags"
    header_flags(
        name = flags,
        deps = deps,
    )
    cases = ["$(location %s)" % source for source in srcs]
    native.sh_test(
        name = "compile_fail_test",
        size = "medium",
        srcs = ["compile_fail.sh"],
        args = ["$(CC)", "$(location %s)" % flags] + cases,
        data = srcs + [flags, "//:docs"],
        shard_count = 2,
        tags = ["unsanitized"],
        toolchains = ["@bazel_tools//tools/cpp:current_cc_toolchain"],
    )
    native.sh_test(
        name = "mended_test",
        size = "small",
        srcs = ["mended_test.sh"],
        args = ["$(location //test:unit.sh)", "$(location %s)" % flags] + cases,
        data = srcs + [flags, "//test:unit.sh"],
        tags = ["own_compilers"],
    )
