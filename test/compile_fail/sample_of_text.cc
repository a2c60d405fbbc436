// expect: a sample consists of up to 8 numbers and tensors, whose dimensions are static, but for the first one of a sequence
#include <cstdint>
#include <ikebana/io/sample_loader.hpp>
#include <string>
#include <tuple>

namespace ike = ikebana;

struct sentences {
  ike::dim_t size() const { return 2; }
#ifdef MENDED
  auto sample(ike::dim_t i) const { return std::tuple(1.0F, i); }
#else
  auto sample(ike::dim_t i) const { return std::tuple(std::string("a"), i); }
#endif
};

const sentences data;
ike::data_loader batches{data, {.batch = 32, .shuffle = ike::seed{1}}};
