// expect: a data_loader of a dataset with sample\(i\) needs a header: #include <ikebana/io/sample_loader.hpp>
#include <ikebana/io/data_loader.hpp>
#ifdef MENDED
#include <ikebana/io/sample_loader.hpp>
#endif

namespace ike = ikebana;

struct numbers {
  ike::dim_t size() const { return 2; }
  double sample(ike::dim_t i) const { return static_cast<double>(i); }
};

const numbers data;
ike::data_loader batches{data, {.batch = 32, .shuffle = ike::seed{1}}};
