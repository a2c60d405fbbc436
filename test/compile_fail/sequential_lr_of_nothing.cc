// expect: sequential_lr takes schedules: sequential_lr\{for_steps\{500, linear_lr\{\}\}, cosine_annealing_lr\{.t_max = 10000\}\}
#include <ikebana/optim/lr_scheduler.hpp>
#include <ikebana/optim/schedule/combined_lr.hpp>

namespace ike = ikebana;

#ifdef MENDED
auto schedule = ike::sequential_lr{ike::linear_lr{}};
#else
auto schedule = ike::sequential_lr{};
#endif
