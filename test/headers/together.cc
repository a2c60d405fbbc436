// Headers that a program includes together, where names of one could meet those of another: with
// their kernels elsewhere, where each kernel is declared by its name.
// clang-format off
#include <ikebana/nn.hpp>
#include <ikebana/ops.hpp>
#include <ikebana/optim.hpp>
#include <ikebana/io.hpp>
#include <ikebana/replicate.hpp>
#include <ikebana/deploy.hpp>
#include <ikebana/serve.hpp>
#include <ikebana/ikebana.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/model/dot.hpp>
#include <ikebana/model/gradient_check.hpp>
#include <ikebana/model/precision.hpp>
#include <ikebana/train/checkpointer.hpp>
#include <ikebana/train/find_lr.hpp>
#include <ikebana/train/fit.hpp>
#include <ikebana/train/log.hpp>
#include <ikebana/train/plot.hpp>
// clang-format on
