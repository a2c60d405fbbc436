"""Libraries that Ikebana is compared with; those that the system does not have are left out."""

_BUILD = """\
cc_library(
    name = "{name}",
    hdrs = glob({globs}),
    defines = {defines},
    includes = {includes},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

_SYSTEM = [
    "/usr/local/include",
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
]

def _peer_repository_impl(ctx):
    attr = ctx.attr
    given = ctx.os.environ.get(attr.env, "") if attr.env else ""
    root = None
    for candidate in [given] if given else _SYSTEM if attr.is_packaged else []:
        if ctx.path(candidate + "/" + attr.header).exists:
            root = candidate
            break
    if given and not root:
        fail("%s is %s, but that directory holds no %s." % (attr.env, given, attr.header))
    includes = []
    if root:
        # The compiler searches the system's directories by default.
        for i, directory in enumerate([""] + attr.includes if given else attr.includes):
            path = root + "/" + directory
            if ctx.path(path).exists:
                ctx.symlink(path, "include_%d" % i)
                includes.append("include_%d" % i)
    ctx.file("BUILD", _BUILD.format(
        name = attr.name,
        defines = ["IKEBANA_HAS_" + attr.name.upper()] if root else [],
        globs = [i + "/**" for i in includes],
        includes = includes,
        linkopts = attr.linkopts if root else [],
    ))

_peer_repository = repository_rule(
    implementation = _peer_repository_impl,
    doc = """A library that defines IKEBANA_HAS_<NAME>, and is empty where `header` is found neither
in the directory that the variable `env` names nor in the system.""",
    environ = [
        "IKEBANA_MLPACK_INCLUDE",
        "IKEBANA_RTNEURAL_INCLUDE",
    ],
    local = True,
    attrs = {
        "env": attr.string(),
        "header": attr.string(mandatory = True),
        "includes": attr.string_list(doc = "Further include paths, below that of the header."),
        "is_packaged": attr.bool(default = True, doc = "Whether the system may have it."),
        "linkopts": attr.string_list(),
    },
)

def benchmark_peers():
    """The libraries that tools/benchmark_peers installs, and those that only a variable can name."""
    _peer_repository(name = "openblas", header = "cblas-openblas.h", linkopts = ["-lopenblas"])
    _peer_repository(name = "blis", header = "blis.h", linkopts = ["-lblis"])
    _peer_repository(name = "onednn", header = "dnnl.hpp", linkopts = ["-ldnnl"])
    _peer_repository(name = "eigen", header = "eigen3/Eigen/Core", includes = ["eigen3"])
    _peer_repository(
        name = "libxsmm",
        header = "libxsmm.h",
        linkopts = ["-lxsmm", "-lxsmmnoblas", "-ldl", "-lm", "-lrt"],
    )
    _peer_repository(
        name = "torch",
        header = "torch/csrc/api/include/torch/torch.h",
        includes = ["torch/csrc/api/include"],
        linkopts = ["-ltorch", "-ltorch_cpu", "-lc10"],
    )
    _peer_repository(name = "dlib", header = "dlib/dnn.h", linkopts = ["-ldlib"])
    _peer_repository(
        name = "mlpack",
        env = "IKEBANA_MLPACK_INCLUDE",
        header = "mlpack.hpp",
        is_packaged = False,
        linkopts = ["-larmadillo"],
    )
    _peer_repository(
        name = "rtneural",
        env = "IKEBANA_RTNEURAL_INCLUDE",
        header = "RTNeural/RTNeural.h",
        includes = ["modules/Eigen", "modules/json"],
        is_packaged = False,
    )
