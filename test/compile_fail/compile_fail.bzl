"""Tests of what must not compile."""

load("//tools:header_flags.bzl", "header_flags")

def compile_fail_tests(srcs, deps):
    """Makes a test that no source compiles, and that each says why (see compile_fail.sh), and one of all mended twins.

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
        data = srcs + [flags],
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
