"""The tests of one directory of test/."""

load("//tools:copts.bzl", "COPTS", "UNOPTIMISED")

def _test(name, srcs, instruction_sets, tags = [], data = [], **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs + native.glob(["*.hpp"], allow_empty = True),
        data = ["//test:data"] + data,
        # Shared libraries need position-independent code, so everything would be compiled a second time.
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

    The files `*_test.cc` are compiled into `units` programs named tests_1, tests_2, ..., so that
    headers are parsed and templates are instantiated once per program. A single file can be tested
    by its name, `tools/bazel test //test/ROOM:NAME_test`; `//...` does not include these targets.

    The test of a fuzz target runs a few thousand mutations. `tools/bazel run --config=fuzz
    //test/ROOM:fuzz_NAME` runs it with libFuzzer.

    A test can include headers of its directory, and finds the files of test/data relative to its
    working directory.

    Args:
      units: number of programs, or None for one per file, if tests change the state of their
        process.
      corpus: well-formed files to start from, by name of a fuzz target.
      deps: dependencies of the tests in addition to the library and doctest.
      instruction_sets: values of IKEBANA_ISA; the same binaries run once more with each.
      optimised: whether the tests themselves are optimised. The kernels, which are built once for
        all tests, always are. Most tests run for less time than their optimisation would take.
      **kwargs: passed to each cc_test; `data` in addition to test/data.
    """
    copts = COPTS if optimised else COPTS + UNOPTIMISED
    deps = deps + ["//:kernels"]
    sources = native.glob(["*_test.cc"], allow_empty = True)

    # The documentation cites these sources.
    native.filegroup(
        name = "sources",
        srcs = sources,
        visibility = ["//test:__subpackages__"],
    )
    # test/isa compiles these headers for other processors and runs the tests in an emulator.
    native.filegroup(
        name = "own_headers",
        srcs = native.glob(["*.hpp"], allow_empty = True),
        visibility = ["//test:__subpackages__"],
    )
    native.filegroup(
        name = "programs",
        # Otherwise `//...` would build every test a second time, as a single program.
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
            # The sources include headers from their own directory.
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
