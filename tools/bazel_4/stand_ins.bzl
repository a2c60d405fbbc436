"""Stand-ins for the repositories that Bazel 4 downloads even for plain C++."""

def bazel_4_stand_ins(path):
    """Lets Bazel 4 build and test without network; later versions use their own repositories.

    Debian's Bazel 4.2.3 does not state its version, so an empty one counts as 4.

    Args:
      path: this directory, absolute or relative to the workspace that calls.
    """
    version = getattr(native, "bazel_version", "")
    if version and int(version.split(".")[0]) > 4:
        return
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        if not native.existing_rule(name):
            native.local_repository(name = name, path = path + "/" + name)
