"""The rules that Bazel's own packages load from rules_java, as Bazel 4 has them built in."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
