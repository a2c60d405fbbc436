"""Translation units that include each header alone."""

def _header_units_impl(ctx):
    names = [header.short_path[len("include/"):] for header in ctx.files.headers]
    names = [name for name in names if name not in ctx.attr.exclude]
    units = []

    # First of all, for what a header forgot to include; twice, for its guard.
    for name in names:
        unit = ctx.actions.declare_file("%s/%s.cc" % (ctx.label.name, name[:-len(".hpp")]))
        # The bodies of kernels are read beside those headers that include them.
        kernels = "" if name.startswith("ikebana/cpu/") else "#define IKEBANA_EXTERN_KERNELS\n"
        ctx.actions.write(unit, "{1}#include <{0}>\n#include <{0}>\n".format(name, kernels))
        units.append(unit)

    # All together, so that a definition that lacks `inline` stands in two units at least.
    unit = ctx.actions.declare_file(ctx.label.name + "/all.cc")
    ctx.actions.write(unit, "".join(["#include <%s>\n" % name for name in names]))
    return [DefaultInfo(files = depset(units + [unit]))]

header_units = rule(
    implementation = _header_units_impl,
    attrs = {
        "exclude": attr.string_list(),
        "headers": attr.label_list(allow_files = True),
    },
)
