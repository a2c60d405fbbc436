#pragma once

#include <cstdint>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// timed_out: gave up because another rank did not arrive within the timeout.
enum class mpi_notice_kind : std::int32_t { thrown, gave_up, timed_out, left };

/// A message between ranks outside of collectives.
struct mpi_notice {
  mpi_notice_kind kind = mpi_notice_kind::thrown;
  std::int32_t rank = 0;     // In the world: where it started.
  std::int32_t sender = 0;   // In the world.
  std::uint64_t group = 0;   // The group concerned; 0: all.
  std::uint64_t issued = 0;  // left: how many collectives of the group this rank called.
  char text[480]{};
};
static_assert(sizeof(mpi_notice) == 512);

/// Receives notices that concern a group.
class mpi_listener {
 public:
  /// Whether the notice is for this listener.
  virtual bool handle(const mpi_notice& notice) = 0;

 protected:
  ~mpi_listener() = default;
};

}  // namespace ikebana::detail
