"""What Ikebana depends on. A user's WORKSPACE calls `ikebana_repositories()` alone."""

load(":headers_repository.bzl", "headers_repository")

def _maybe(name, **kwargs):
    if not native.existing_rule(name):
        headers_repository(name = name, **kwargs)

def ikebana_repositories():
    """Repositories of the library: Boost.Hana, for safetensors nlohmann/json, for mpi Open MPI."""
    _maybe(
        name = "hana",
        directories = ["boost/hana"],
        env = "IKEBANA_HANA_INCLUDE",
        files = ["boost/hana.hpp"],
        integrity = "sha256-TKxqCJQ5oy7OQ2WWqm9fMbx43CBwJeJ1+aVTPOmPJws=",
        package = "libboost1.81-dev",
        strip_prefix = "hana-boost-1.89.0",
        include_prefix = "include",
        url = "https://github.com/boostorg/hana/archive/refs/tags/boost-1.89.0.tar.gz",
    )
    _maybe(
        name = "nlohmann_json",
        directories = ["nlohmann"],
        env = "IKEBANA_JSON_INCLUDE",
        package = "nlohmann-json3-dev",
    )
    _maybe(
        name = "openmpi",
        env = "IKEBANA_MPI_INCLUDE",
        files = [
            "mpi.h",
            "mpi_portable_platform.h",
        ],
        linkopts = ["-lmpi"],
        package = "libopenmpi-dev",
        system = [
            "/usr/lib/x86_64-linux-gnu/openmpi/include",
            "/usr/lib/aarch64-linux-gnu/openmpi/include",
        ],
    )

def ikebana_dev_repositories():
    """Repositories of this project's own tests, examples and benchmarks."""
    _maybe(
        name = "doctest",
        directories = ["doctest"],
        env = "IKEBANA_DOCTEST_INCLUDE",
        integrity = "sha256-czgceqTe5wS9k1YJZoz0GIDqfxn6BQSiAOE7dJmcLXA=",
        package = "doctest-dev",
        strip_prefix = "doctest-2.4.12",
        url = "https://github.com/doctest/doctest/archive/refs/tags/v2.4.12.tar.gz",
    )
    _maybe(
        name = "cli11",
        directories = ["CLI"],
        env = "IKEBANA_CLI11_INCLUDE",
        package = "libcli11-dev",
    )
    _maybe(
        name = "google_benchmark",
        directories = ["benchmark"],
        env = "IKEBANA_BENCHMARK_INCLUDE",
        linkopts = ["-lbenchmark", "-pthread"],
        package = "libbenchmark-dev",
    )
