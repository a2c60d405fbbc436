"""Objects for another processor, for tests that run in an emulator."""

load("//tools:header_flags.bzl", "include_paths")

# Without such a compiler the test reports that it is skipped.
_COMPILE = """
out=$1 flags=$2 join=$3
shift 3
if ! command -v aarch64-linux-gnu-g++ >/dev/null; then : >"$out"; exit; fi
unit=$1
if [ $# -gt 1 ]; then
  unit=${out%.o}.cc
  "$join" "$@" >"$unit"
fi
aarch64-linux-gnu-g++ "@$flags" -c "$unit" -o "$out"
"""

def _aarch64_objects_impl(ctx):
    paths = include_paths(ctx.attr.deps)

    # Higher levels than -O1 cost more compile time than they save in the emulator.
    flags = ["-std=c++20", "-O1"] + ctx.attr.copts
    flags += ["-I" + path for path in paths.own]
    flags += ["-isystem" + path for path in paths.system]
    sources = [
        source
        for source in ctx.files.srcs
        if not [name for name in ctx.attr.without if source.basename.endswith(name)]
    ]
    flags += ["-iquote" + path for path in {source.dirname: None for source in sources}]
    flags.append("-iquote.")
    response = ctx.actions.declare_file(ctx.label.name + ".flags")
    ctx.actions.write(response, "\n".join(flags) + "\n")

    objects = []
    units = ctx.attr.units
    for i in range(units):
        unit = sources[i * len(sources) // units:(i + 1) * len(sources) // units]
        out = ctx.actions.declare_file("%s_%d.o" % (ctx.label.name, i + 1))
        objects.append(out)
        ctx.actions.run_shell(
            outputs = [out],
            inputs = depset(unit + ctx.files.hdrs + [response], transitive = [paths.headers]),
            tools = [ctx.file._unit],
            arguments = [out.path, response.path, ctx.file._unit.path] + [source.path for source in unit],
            command = _COMPILE,
            mnemonic = "Aarch64Compile",
            progress_message = "Compiling %s for aarch64" % ctx.label,
            use_default_shell_env = True,
        )
    return [DefaultInfo(files = depset(objects), runfiles = ctx.runfiles(files = objects))]

aarch64_objects = rule(
    implementation = _aarch64_objects_impl,
    doc = "Compiles sources for aarch64; to empty files if there is no compiler for it.",
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc"]),
        "hdrs": attr.label_list(allow_files = [".hpp"]),
        "without": attr.string_list(doc = "Suffixes of the names of sources that are left out."),
        "units": attr.int(default = 1, doc = "Number of objects into which the sources are divided."),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_unit": attr.label(default = "//test:unit.sh", allow_single_file = True),
    },
)
