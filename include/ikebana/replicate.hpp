#pragma once

// Replicas: process groups of threads, `replicate` and its policies, communication hooks,
// averaging, elastic groups and traces. To be included by those who use them:
// <ikebana/replicate/mpi_group.hpp> (MPI), <ikebana/replicate/trace_json.hpp> (nlohmann/json) and
// the utilities of <ikebana/replicate/utils/..>, such as map_tensors.hpp.

// <ikebana/replicate/mpi_group.hpp> (MPI), <ikebana/model/precision.hpp> (products of bfloat16),
// <ikebana/replicate/utils/..>, such as map_tensors.hpp.
#include "ikebana/core/with_exceptions.hpp"
#include "ikebana/replicate/compress.hpp"
#include "ikebana/replicate/convert_sync_batch_norm.hpp"
#include "ikebana/replicate/elastic_threads.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mesh.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/model_averager.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/post_local_sgd.hpp"
#include "ikebana/replicate/post_local_sgd_optimizer.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/quantization.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/thread_group.hpp"
#include "ikebana/replicate/trace.hpp"
#include "ikebana/replicate/unused.hpp"
