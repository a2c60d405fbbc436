#pragma once

// The losses of classification and regression, and what all losses have in common.

#include "ikebana/nn/cross_entropy.hpp"
#include "ikebana/nn/loss_values.hpp"
#include "ikebana/nn/mse_loss.hpp"
