#pragma once

#include <cstdint>

namespace ikebana::detail {

enum class mpi_notice_kind : std::int32_t { thrown, gave_up, left };

/// What a rank tells the others outside of all collectives.
struct mpi_notice {
  mpi_notice_kind kind = mpi_notice_kind::thrown;
  std::int32_t rank = 0;     // in the world, of the one it began with
  std::int32_t sender = 0;   // in the world
  std::uint64_t group = 0;   // the one it concerns; 0: all
  std::uint64_t issued = 0;  // left: how many collectives of the group this rank has called
  char text[480]{};
};
static_assert(sizeof(mpi_notice) == 512);

/// Who hears of notices that concern a group.
class mpi_listener {
 public:
  virtual void hear(const mpi_notice& notice) = 0;

 protected:
  ~mpi_listener() = default;
};

}  // namespace ikebana::detail
