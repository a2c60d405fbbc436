// expect: this mesh has no dimension of that name
#include <ikebana/replicate/mesh.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;

#ifdef MENDED
using columns = ike::process_mesh<ike::thread_group, "dp", "tp">;
#else
using columns = ike::process_mesh<ike::thread_group, "dp", "pp">;
#endif

int along(const columns& mesh) { return mesh.get_group<"tp">().size(); }
