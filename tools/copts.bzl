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

# For tests whose kernels are built apart: what is left takes longer to optimise than to run.
UNOPTIMISED = [
    "-O0",
    # It warns where nothing is optimised.
    "-U_FORTIFY_SOURCE",
]
