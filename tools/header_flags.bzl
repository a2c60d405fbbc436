"""The include options of a library, for tests that call a compiler themselves."""

def include_paths(deps):
    """Returns the headers of libraries, and the directories for -I and for -isystem."""
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in deps],
    ).compilation_context
    system = context.system_includes.to_list()
    if hasattr(context, "external_includes"):
        system = system + context.external_includes.to_list()
    return struct(
        headers = context.headers,
        own = context.includes.to_list(),
        system = system,
    )

def _runfile(ctx, path):
    for root in [ctx.bin_dir.path + "/", ctx.genfiles_dir.path + "/"]:
        if path.startswith(root):
            path = path[len(root):]
    if path.startswith("external/"):
        path = "../" + path[len("external/"):]
    return path

def _header_flags_impl(ctx):
    paths = include_paths(ctx.attr.deps)
    flags = ["-I" + _runfile(ctx, path) for path in paths.own]
    flags += ["-isystem" + _runfile(ctx, path) for path in paths.system]
    out = ctx.actions.declare_file(ctx.label.name + ".flags")
    ctx.actions.write(out, "\n".join(flags) + "\n")
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles(files = [out], transitive_files = paths.headers),
    )]

header_flags = rule(
    implementation = _header_flags_impl,
    doc = "Writes a response file of -I and -isystem, valid where a test runs.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)
