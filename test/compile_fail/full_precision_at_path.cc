// expect: fc3: is not the path of a module to say a precision of
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/precision.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::lazy_linear<5>{});

#ifdef MENDED
using element = ike::precision<ike::bf16, ike::full_precision_at<"fc2">>;
#else
using element = ike::precision<ike::bf16, ike::full_precision_at<"fc3">>;
#endif

auto model = ike::initialize<element, ike::shape{32, 20}>(net, ike::seed{1});
