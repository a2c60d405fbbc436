#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/buckets/reduction.hpp"
#include "ikebana/replicate/mpi/mpi_error.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/request.hpp"

namespace ikebana::detail {

/// Reduces one element type over `size` pieces of memory; see reduce_slice.
using reduce_function = void (*)(reduce_op op, dim_t n, const std::byte* const* in, int size,
                                 std::byte* out);

template <class T>
void reduce_bytes(reduce_op op, dim_t n, const std::byte* const* in, int size, std::byte* out) {
  std::array<const T*, 64> few{};
  const auto count = static_cast<std::size_t>(size);
  std::vector<const T*> many(count > few.size() ? count : 0);
  const T** const pieces = many.empty() ? few.data() : many.data();
  for (int r = 0; r < size; ++r) pieces[r] = reinterpret_cast<const T*>(in[r]);
  T* const to = reinterpret_cast<T*>(out);
  reduce_slice<T>(op, n, pieces, size, 0, &to, 1, 0);
}

/// What ranks exchange before they exchange data.
struct mpi_header {
  std::uint64_t number = 0;
  std::int64_t length = 0;
  std::int32_t root = 0;
  std::uint32_t element_size = 0;
  std::uint8_t what = 0, op = 0;
  char element_kind = 'x';
  std::uint8_t unused[5]{};

  explicit mpi_header(const request& r = {}, std::uint64_t n = 0)
      : number{n},
        length{r.length},
        root{r.root},
        element_size{r.element.size},
        what{static_cast<std::uint8_t>(r.what)},
        op{static_cast<std::uint8_t>(r.op)},
        element_kind{r.element.kind} {}

  request asked() const {
    request r;
    r.what = static_cast<collective>(what);
    r.op = static_cast<reduce_op>(op);
    r.element = {element_kind, element_size};
    r.root = root;
    r.length = length;
    return r;
  }
};
static_assert(sizeof(mpi_header) == 32);

/// A collective in flight, on one rank.
struct mpi_operation {
  request asked{};
  reduce_function reduce = nullptr;
  std::uint64_t number = 0;
  int phase = 0;
  bool active = false;
  mpi_header own;
  std::vector<mpi_header> headers;
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  // By request: the rank it receives from, or sent_to(rank).
  aligned_buffer<std::byte> scratch;

  static constexpr int sent_to(int rank) { return -1 - rank; }

  void prepare(int size) {
    headers.resize(static_cast<std::size_t>(size));
    requests.reserve(2 * headers.size());
    peers.reserve(2 * headers.size());
  }

  /// Whether all messages of the phase are complete.
  bool test() {
    int all = 1;
    if (!requests.empty())
      check_mpi("MPI_Testall", MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all,
                                           MPI_STATUSES_IGNORE));
    if (all == 0) return false;
    requests.clear();
    peers.clear();
    return true;
  }
};

}  // namespace ikebana::detail
