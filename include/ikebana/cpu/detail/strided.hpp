#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ikebana/cpu/detail/vec.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/strided-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
