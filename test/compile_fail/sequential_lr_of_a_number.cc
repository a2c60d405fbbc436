// expect: sequential_lr takes schedules: sequential_lr\{for_steps\{500, linear_lr\{\}\}, cosine_annealing_lr\{.t_max = 10000\}\}
#include <ikebana/optim/lr_scheduler.hpp>
#include <ikebana/optim/schedule/combined_lr.hpp>

namespace ike = ikebana;

#ifdef MENDED
ike::sequential_lr schedule{ike::for_steps{100, ike::linear_lr{}}, ike::linear_lr{}};
#else
ike::sequential_lr schedule{ike::linear_lr{}, 100};
#endif
