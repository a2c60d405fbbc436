"""A repository of headers that the system has, or that a pinned archive brings."""

_BUILD = """\
cc_library(
    name = "{name}",
    hdrs = glob({hdrs}),
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

_SYSTEM = ["/usr/local/include", "/usr/include"]

def _has_all(ctx, root, entries):
    for entry in entries:
        if not ctx.path(root + "/" + entry).exists:
            return False
    return True

def _headers_repository_impl(ctx):
    attr = ctx.attr
    entries = attr.directories + attr.files
    given = ctx.os.environ.get(attr.env, "")
    root = None
    for candidate in [given] if given else attr.system or _SYSTEM:
        if _has_all(ctx, candidate, entries):
            root = candidate
            break
    if not root:
        if given:
            fail("%s is %s, but that directory holds no %s." % (attr.env, given, entries[0]))
        if not attr.url:
            fail(("No %s in %s: install the package %s (tools/bazel does), or let %s name the " +
                  "directory that holds it.") % (entries[0], attr.system or _SYSTEM, attr.package, attr.env))
        ctx.download_and_extract(
            integrity = attr.integrity,
            output = "archive",
            stripPrefix = attr.strip_prefix,
            url = attr.url,
        )
        root = str(ctx.path("archive"))
        if attr.include_prefix:
            root += "/" + attr.include_prefix
    for entry in entries:
        ctx.symlink(root + "/" + entry, "include/" + entry)
    ctx.file("BUILD", _BUILD.format(
        name = attr.name,
        hdrs = ["include/" + d + "/**" for d in attr.directories] +
               ["include/" + f for f in attr.files],
        linkopts = attr.linkopts,
    ))

headers_repository = repository_rule(
    implementation = _headers_repository_impl,
    doc = "Looks in the directory named by the variable `env`, in the system, at `url`.",
    environ = [
        "IKEBANA_BENCHMARK_INCLUDE",
        "IKEBANA_CLI11_INCLUDE",
        "IKEBANA_DOCTEST_INCLUDE",
        "IKEBANA_HANA_INCLUDE",
        "IKEBANA_JSON_INCLUDE",
        "IKEBANA_MPI_INCLUDE",
    ],
    local = True,
    attrs = {
        "directories": attr.string_list(doc = "Directories to take, below an include path."),
        "env": attr.string(doc = "Variable that may name the include path."),
        "files": attr.string_list(doc = "Files to take, below an include path."),
        "include_prefix": attr.string(doc = "The include path inside the archive."),
        "integrity": attr.string(),
        "linkopts": attr.string_list(),
        "package": attr.string(doc = "Debian's package, for the message."),
        "strip_prefix": attr.string(),
        "system": attr.string_list(doc = "Where the system has it, if not where it has most."),
        "url": attr.string(),
    },
)
