// What compiles without exceptions and type information.
#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/methods.hpp"
#include "ikebana/compose/observe.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy.hpp"
#include "ikebana/deploy/quantize.hpp"
#include "ikebana/nn.hpp"
#include "ikebana/ops.hpp"

int main() {}
