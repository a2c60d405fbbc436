#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ikebana/core/shape.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/vec-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/transpose_block-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
