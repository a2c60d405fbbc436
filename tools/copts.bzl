"""Compiler options of this project's own tests, examples and benchmarks.

They are never part of the library: what a user compiles with is the user's choice.
"""

COPTS = [
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
]

# For tests that link separately compiled kernels: optimising the rest takes longer than running it.
UNOPTIMISED = [
    "-O0",
    # It warns without optimisation.
    "-U_FORTIFY_SOURCE",
]
