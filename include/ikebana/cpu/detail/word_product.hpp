#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/low_precision_intrinsics.hpp"
#include "ikebana/cpu/detail/tile_kernel.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/detail/word_kernel.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/word_tile-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/words-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/word_operand-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/word_product-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/tile_product-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/word_tile-inl.hpp"
#include "ikebana/cpu/detail/foreach_low_precision_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/row_bytes-inl.hpp"
#include "ikebana/cpu/detail/foreach_low_precision_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/low_precision/tile_panels-inl.hpp"
#include "ikebana/cpu/detail/foreach_low_precision_target.hpp"
