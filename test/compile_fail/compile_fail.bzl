"""Tests of what must not compile."""

load("//tools:header_flags.bzl", "header_flags")

def compile_fail_tests(name, srcs, deps):
    """Makes each source a test that it does not compile and says why (see compile_fail.sh), and one of all mended twins.

    Args:
      name: of the suite of all these tests.
      srcs: one broken thing each, beside its mended twin.
      deps: libraries whose headers the sources include.
    """
    flags = name + "_flags"
    header_flags(
        name = flags,
        deps = deps,
    )
    tests = []
    for source in srcs:
        test = source[:-len(".cc")]
        tests.append(test)
        native.sh_test(
            name = test,
            size = "small",
            srcs = ["compile_fail.sh"],
            args = ["$(location %s)" % source, "$(location %s)" % flags],
            data = [source, flags],
            tags = ["own_compilers"],
        )
    native.sh_test(
        name = "mended_test",
        size = "small",
        srcs = ["mended_test.sh"],
        args = ["$(location %s)" % flags] + ["$(location %s)" % source for source in srcs],
        data = srcs + [flags],
        tags = ["own_compilers"],
    )
    tests.append("mended_test")
    native.test_suite(
        name = name,
        tests = tests,
    )
