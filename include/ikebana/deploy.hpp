#pragma once

// Inference: networks frozen from models, shared by threads and called with lanes.

#include "ikebana/deploy/embedded.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/fuse_weights.hpp"
#include "ikebana/deploy/generate.hpp"
#include "ikebana/deploy/prepare_thread.hpp"
#include "ikebana/deploy/remove_parametrizations.hpp"
