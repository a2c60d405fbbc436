#pragma once

// All optimizers, and averages of models. <ikebana/ikebana.hpp> has sgd, adam and adamw, and the
// schedules.

#include "ikebana/core/with_exceptions.hpp"
#include "ikebana/optim/adadelta.hpp"
#include "ikebana/optim/adafactor.hpp"
#include "ikebana/optim/adagrad.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/adamax.hpp"
#include "ikebana/optim/asgd.hpp"
#include "ikebana/optim/averaged_model.hpp"
#include "ikebana/optim/lamb.hpp"
#include "ikebana/optim/lbfgs.hpp"
#include "ikebana/optim/lion.hpp"
#include "ikebana/optim/muon.hpp"
#include "ikebana/optim/nadam.hpp"
#include "ikebana/optim/radam.hpp"
#include "ikebana/optim/rmsprop.hpp"
#include "ikebana/optim/rprop.hpp"
#include "ikebana/optim/schedule/swa_lr.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/optim/sparse_adam.hpp"
#include "ikebana/optim/update_bn.hpp"
