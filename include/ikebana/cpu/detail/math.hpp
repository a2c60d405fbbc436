#pragma once

#include "ikebana/cpu/detail/vec.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/polynomial-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/detail/math-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/detail/distributions-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
