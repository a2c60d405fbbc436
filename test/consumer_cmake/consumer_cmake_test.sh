#!/usr/bin/env bash
# A CMake project finds the installed library by find_package, or adds the source tree; it links the installed kernels,
# or compiles its own.
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

# The kernels of one type and, as far as this machine has it, one instruction set: others take as long again.
cmake -S "$top" -B "$TEST_TMPDIR/library" "-DCMAKE_INSTALL_PREFIX=$prefix" "${options[@]}" \
  -DIKEBANA_KERNELS=ON -DIKEBANA_KERNEL_TYPES=float -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-march=native"
cmake --build "$TEST_TMPDIR/library"
cmake --install "$TEST_TMPDIR/library"
if grep -rlF "$top" "$prefix"; then
  echo 'the installed files name the directory they were installed from'
  exit 1
fi
build_and_run "$consumer" "$TEST_TMPDIR/installed" "-DCMAKE_PREFIX_PATH=$prefix"
(cd "$TEST_TMPDIR/installed" && ./linked)
# kernels_in TARGET: how many kernels its main.cc has compiled.
kernels_in() {
  find "$TEST_TMPDIR/installed/CMakeFiles/$1.dir" -name main.cc.o -exec nm -C {} + | grep -cE 'ikebana::cpu::(scalar|avx2|avx512|neon)::'
}
if [ "$(kernels_in linked)" != 0 ] || [ "$(kernels_in main)" = 0 ]; then
  echo 'what links ikebana::kernels compiles its own, or what does not has none'
  exit 1
fi

mkdir "$TEST_TMPDIR/outer"
cat >"$TEST_TMPDIR/outer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(outer LANGUAGES CXX)
add_subdirectory($top ikebana)
if(NOT TARGET ikebana::kernels)
  message(FATAL_ERROR "no ikebana::kernels")
endif()
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
