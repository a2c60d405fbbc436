#pragma once

// The operations on values of a graph (docs/formulas.md).

#include "ikebana/ops/along.hpp"
#include "ikebana/ops/constant.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/gaussian_nll_loss.hpp"
#include "ikebana/ops/index.hpp"
#include "ikebana/ops/place.hpp"
#include "ikebana/ops/product.hpp"
#include "ikebana/ops/random.hpp"
#include "ikebana/ops/ranking_loss.hpp"
#include "ikebana/ops/rearrange.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/ops/similarity.hpp"
#include "ikebana/ops/view.hpp"
