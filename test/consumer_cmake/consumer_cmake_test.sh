#!/usr/bin/env bash
# A CMake project finds the installed library by find_package, or adds the source tree.
set -euo pipefail
top=$PWD
consumer=$top/test/consumer_cmake
prefix=$TEST_TMPDIR/prefix
# Where Bazel found them, which CMake may not search by itself.
options=(
  "-DIKEBANA_HANA_INCLUDE=$top/../hana/include"
  "-DIKEBANA_JSON_INCLUDE=$top/../nlohmann_json/include"
)

# build_and_run SOURCE BUILD [OPTION...]
build_and_run() {
  # Unoptimised, since optimising takes longest and other tests do it.
  cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=Debug "${options[@]}" "${@:3}"
  cmake --build "$2"
  (cd "$2" && ./main)
}

cmake -S "$top" -B "$TEST_TMPDIR/library" "-DCMAKE_INSTALL_PREFIX=$prefix" "${options[@]}"
cmake --install "$TEST_TMPDIR/library"
if grep -rlF "$top" "$prefix"; then
  echo 'the installed files name the directory they were installed from'
  exit 1
fi
build_and_run "$consumer" "$TEST_TMPDIR/installed" "-DCMAKE_PREFIX_PATH=$prefix"

mkdir "$TEST_TMPDIR/outer"
cat >"$TEST_TMPDIR/outer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(outer LANGUAGES CXX)
add_subdirectory($top ikebana)
add_executable(main main.cc)
target_link_libraries(main PRIVATE ikebana::safetensors)
END
# Shorter than the program above, which takes long to compile.
cat >"$TEST_TMPDIR/outer/main.cc" <<END
#include <ikebana/ikebana.hpp>
#include <ikebana/io/safetensors.hpp>

static_assert(ikebana::shape{2, 3}.rank() == 2);
int main() {}
END
build_and_run "$TEST_TMPDIR/outer" "$TEST_TMPDIR/inner"
