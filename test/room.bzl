"""One test per source file of a room."""

load("//tools:copts.bzl", "COPTS", "UNOPTIMISED")

def room_tests(corpus = {}, deps = [], instruction_sets = [], optimised = False, **kwargs):
    """Makes every `*_test.cc` of the calling package a test of its own, and every `fuzz_*.cc`.

    The test of a fuzz target runs it on a few thousand mutations; libFuzzer itself drives it by
    `tools/bazel run --config=fuzz //test/ROOM:fuzz_NAME`.

    A test may include the headers that stand beside it, and finds the files of test/data below
    its working directory.

    Args:
      corpus: by name of a fuzz target, well formed files to start from.
      deps: what the tests need beside the library and doctest.
      instruction_sets: names that IKEBANA_ISA takes; each runs the same binaries once more.
      optimised: whether the tests themselves are optimised, as the kernels are, which are built
        once for all. Most run for less time than that takes.
      **kwargs: passed to each cc_test.
    """
    copts = COPTS if optimised else COPTS + UNOPTIMISED
    deps = deps + ["//:kernels"]

    # What the documentation cites.
    native.filegroup(
        name = "sources",
        srcs = native.glob(["*_test.cc"], allow_empty = True),
        visibility = ["//test:__subpackages__"],
    )
    # What test/isa compiles and runs on other processors.
    native.filegroup(
        name = "own_headers",
        srcs = native.glob(["*.hpp"], allow_empty = True),
        visibility = ["//test:__subpackages__"],
    )
    native.filegroup(
        name = "programs",
        testonly = True,
        srcs = [source[:-len(".cc")] for source in native.glob(["*_test.cc"], allow_empty = True)],
        visibility = ["//test:__subpackages__"],
    )
    for source in native.glob(["*_test.cc"], allow_empty = True):
        name = source[:-len(".cc")]
        native.cc_test(
            name = name,
            size = "small",
            srcs = [source] + native.glob(["*.hpp"], allow_empty = True),
            copts = copts,
            data = ["//test:data"],
            # Shared libraries would be compiled once more, for any address.
            linkstatic = True,
            visibility = ["//test:__subpackages__"],
            deps = ["//:ikebana", "//test:main", "//test:recorded", "//test:support"] + deps,
            **kwargs
        )
        for isa in instruction_sets:
            native.sh_test(
                name = name + "." + isa,
                size = "small",
                srcs = ["//test:with_isa.sh"],
                args = [isa, "$(location :%s)" % name],
                data = [":" + name],
            )
    for source in native.glob(["fuzz_*.cc"], allow_empty = True):
        name = source[:-len(".cc")]
        files = corpus.get(name, [])
        attributes = {
            "copts": copts,
            "deps": ["//:ikebana"] + deps,
        }
        native.cc_test(
            name = name + "_test",
            size = "small",
            srcs = [source, "//test:main_without_fuzzer.cc"],
            args = ["$(location %s)" % file for file in files],
            data = files,
            linkstatic = True,
            **attributes
        )
        native.cc_binary(
            name = name,
            srcs = [source],
            tags = ["manual"],
            **attributes
        )
