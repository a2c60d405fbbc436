#pragma once

#include "ikebana/cpu/detail/vec.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/math-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
