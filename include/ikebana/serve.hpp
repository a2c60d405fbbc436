#pragma once

// Serving: threads that answer requests with batches. Not in <ikebana/deploy.hpp>, for it includes
// the standard headers of threads.

#include "ikebana/deploy/dynamic_batcher.hpp"
