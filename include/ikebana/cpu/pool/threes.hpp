#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/detail/strided.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/pool/rows.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/pool/threes-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
