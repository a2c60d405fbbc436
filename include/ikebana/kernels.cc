// What is compiled once for programs that define IKEBANA_EXTERN_KERNELS: the kernels, and what else
// no type of a network changes, such as the planning of memory. For float and double, or for the
// type IKEBANA_KERNELS_OF alone, so that two units can be built side by side.
#ifndef IKEBANA_KERNELS_OF
#define IKEBANA_ALL_KERNELS
#endif

#include "ikebana/cpu/adaptive_pool.hpp"
#include "ikebana/cpu/attention.hpp"
#include "ikebana/cpu/attention/weights.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/collective.hpp"
#include "ikebana/cpu/contract.hpp"
#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/dense_layers.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/embedding.hpp"
#include "ikebana/cpu/fold.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/grouped_conv.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/lstm_step.hpp"
#include "ikebana/cpu/norm.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/cpu/pointwise.hpp"
#include "ikebana/cpu/pool.hpp"
#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/round.hpp"
#include "ikebana/cpu/softmax.hpp"
#include "ikebana/cpu/weight_norm.hpp"
#include "ikebana/model/loop_builder.hpp"
#include "ikebana/model/passes/dense_chains.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/plan/memory_plan.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/ops/elementwise.hpp"
