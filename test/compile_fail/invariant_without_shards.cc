// expect: invariant expects a number of shards from 1 to 4096
// line: 6
// errors-clang: 2
// max-lines: 40
#include <ikebana/replicate/invariant.hpp>
#include <ikebana/replicate/policy.hpp>

namespace ike = ikebana;

#ifdef MENDED
using policy = ike::replicate_policy<ike::invariant<8>>;
#else
using policy = ike::replicate_policy<ike::invariant<0>>;
#endif

static_assert(policy::syncs_at_start);
