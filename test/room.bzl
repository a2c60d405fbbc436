"""The tests of a room."""

load("//tools:copts.bzl", "COPTS", "UNOPTIMISED")

def _test(name, srcs, instruction_sets, tags = [], **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs + native.glob(["*.hpp"], allow_empty = True),
        data = ["//test:data"],
        # Shared libraries would be compiled once more, for any address.
        linkstatic = True,
        tags = tags,
        visibility = ["//test:__subpackages__"],
        **kwargs
    )
    for isa in instruction_sets:
        native.sh_test(
            name = name + "." + isa,
            size = "small",
            srcs = ["//test:with_isa.sh"],
            args = [isa, "$(location :%s)" % name],
            data = [":" + name],
            tags = tags,
        )

def room_tests(units = None, corpus = {}, deps = [], instruction_sets = [], optimised = False, **kwargs):
    """Makes tests of every `*_test.cc` of the calling package, and of every `fuzz_*.cc`.

    Those of `*_test.cc` are compiled together, as `units` programs named tests_1, tests_2, ...: what
    they include is read once for each, and what several instantiate is compiled once. One file alone
    is tested by its name, `tools/bazel test //test/ROOM:NAME_test`, which `//...` leaves out.

    The test of a fuzz target runs it on a few thousand mutations; libFuzzer itself drives it by
    `tools/bazel run --config=fuzz //test/ROOM:fuzz_NAME`.

    A test may include the headers that stand beside it, and finds the files of test/data below
    its working directory.

    Args:
      units: how many programs to make of all tests, or none for one of each file, as tests need that
        leave something behind in their process.
      corpus: by name of a fuzz target, well formed files to start from.
      deps: what the tests need beside the library and doctest.
      instruction_sets: names that IKEBANA_ISA takes; each runs the same binaries once more.
      optimised: whether the tests themselves are optimised, as the kernels are, which are built
        once for all. Most run for less time than that takes.
      **kwargs: passed to each cc_test.
    """
    copts = COPTS if optimised else COPTS + UNOPTIMISED
    deps = deps + ["//:kernels"]
    sources = native.glob(["*_test.cc"], allow_empty = True)

    # What the documentation cites.
    native.filegroup(
        name = "sources",
        srcs = sources,
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
        # It would build every test for `//...`, also those that stand for others.
        tags = ["manual"],
        testonly = True,
        srcs = [source[:-len(".cc")] for source in sources],
        visibility = ["//test:__subpackages__"],
    )
    common = dict(
        deps = ["//:ikebana", "//test:main", "//test:recorded", "//test:support"] + deps,
        instruction_sets = instruction_sets,
        **kwargs
    )
    for source in sources:
        _test(
            name = source[:-len(".cc")],
            size = "small",
            srcs = [source],
            copts = copts,
            tags = ["manual"] if units else [],
            **common
        )
    for i in range(units or 0):
        name = "tests_%d" % (i + 1)
        native.genrule(
            name = name + "_unit",
            srcs = sources[i * len(sources) // units:(i + 1) * len(sources) // units],
            outs = [name + ".cc"],
            cmd = "$(location //test:unit.sh) $(SRCS) >$@",
            tools = ["//test:unit.sh"],
        )
        _test(
            name = name,
            size = "medium",
            srcs = [name + ".cc"],
            # They include what stands beside them.
            copts = copts + ["-iquote", native.package_name()],
            **common
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
