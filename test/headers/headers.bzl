"""Translation units that include all headers."""

def _header_units_impl(ctx):
    names = [header.short_path[len("include/"):] for header in ctx.files.headers]

    # Two units, so that a definition without `inline` is a duplicate symbol.
    units = []
    for i in range(2):
        unit = ctx.actions.declare_file("%s/all_%d.cc" % (ctx.label.name, i + 1))
        ctx.actions.write(unit, "".join(["#include <%s>\n" % name for name in names]))
        units.append(unit)
    return [DefaultInfo(files = depset(units))]

header_units = rule(
    implementation = _header_units_impl,
    attrs = {"headers": attr.label_list(allow_files = True)},
)
