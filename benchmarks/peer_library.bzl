"""A peer's implementation of a family of problems."""

load("//tools:copts.bzl", "COPTS")

# Peers are optimised for this machine, which Ikebana does not need. Their headers cause warnings.
_PEER_COPTS = [
    "-O3",
    "-w",
]

_HEADERS = {
    "arrays": "array_peers.hpp",
    "layers": "layer_peers.hpp",
    "networks": "network_peers.hpp",
    "sequences": "sequence_peers.hpp",
    "streams": "stream_peers.hpp",
}

def _build(name, family, peer, sources, copts):
    native.cc_library(
        name = name,
        srcs = sources + native.glob(["peers/" + peer + ".hpp"]) + [
            _HEADERS.get(family, family + "_peers.hpp"),
        ],
        copts = COPTS + _PEER_COPTS + copts,
        tags = ["manual"],
        deps = [":contest"] + ([] if peer in _WITHOUT_LIBRARY else ["@" + peer]),
    )

# Header-only peers choose their instruction set at compile time. They are built twice, under different names, for
# programs that can limit the instruction set.
_BUILT_TWICE = ["eigen", "loops", "rtneural"]

# Written by hand.
_WITHOUT_LIBRARY = ["loops"]

def peer_library(family, peer):
    """The library peers/PEER_FAMILY, from the source of that name."""
    name = "peers/%s_%s" % (peer, family)
    source = [name + ".cc"]
    native_copts = ["-march=native"]
    if peer not in _BUILT_TWICE:
        _build(name, family, peer, source, native_copts)
        return
    builds = {
        "avx2": select({
            "@platforms//cpu:x86_64": ["-mavx2", "-mfma"],
            "//conditions:default": [],
        }),
        "native": native_copts,
    }
    for build, copts in builds.items():
        copts = copts + [
            "-DEigen=eigen_%s_%s" % (peer, build),
            "-DIKEBANA_PEER_BUILD=%s_%s_%s" % (peer, build, family),
        ]
        if peer == "rtneural":
            copts += [
                "-DRTNeural=rtneural_" + build,
                "-DEIGEN_STACK_ALLOCATION_LIMIT=0",
            ]
        _build("%s_%s" % (name, build), family, peer, source, copts)
    native.cc_library(
        name = name,
        tags = ["manual"],
        deps = [":%s_%s" % (name, build) for build in builds],
    )
