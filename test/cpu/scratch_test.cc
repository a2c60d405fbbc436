#include "ikebana/cpu/detail/scratch.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "ikebana/cpu/detail/quotients.hpp"

namespace detail = ikebana::cpu::detail;

TEST_CASE("parts of a scratch begin at cache lines, one after the other") {
  auto scratch = detail::monotonic_scratch::of<float>();
  auto* const bytes = scratch.allocate<std::byte>(3);
  auto* const none = scratch.allocate<float>(0);
  auto* const doubles = scratch.allocate<double>(9);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes) % 64 == 0);
  CHECK(reinterpret_cast<std::byte*>(none) == bytes + 64);
  CHECK(reinterpret_cast<std::byte*>(doubles) == bytes + 64);
  CHECK(scratch.used() == 64 + 128);
  CHECK(scratch.fits());
}

TEST_CASE("what floats leave in the packing buffer is nothing that doubles read, nor are lists") {
  auto* const floats = reinterpret_cast<std::byte*>(detail::thread_scratch<float>());
  auto* const doubles = reinterpret_cast<std::byte*>(detail::thread_scratch<double>());
  CHECK(floats + detail::packing_bytes() <= detail::thread_lists());
  CHECK(detail::thread_lists() + detail::list_bytes <= doubles);
  CHECK(reinterpret_cast<std::uintptr_t>(doubles) % 64 == 0);
}

TEST_CASE("a part that does not fit is null, and so are those after it") {
  alignas(64) std::byte room[256];
  detail::monotonic_scratch scratch{room, sizeof room};
  CHECK(scratch.allocate<float>(32) != nullptr);
  CHECK(scratch.allocate<float>(33) == nullptr);
  CHECK(scratch.allocate<float>(1) == nullptr);
  CHECK_FALSE(scratch.fits());
}

TEST_CASE("a scratch without memory tells how many bytes parts take") {
  detail::monotonic_scratch scratch{nullptr, 0};
  CHECK(scratch.allocate<float>(100) == nullptr);
  CHECK(scratch.allocate<double>(1) == nullptr);
  CHECK(scratch.used() == 448 + 64);
}

TEST_CASE("counts are divided into parts of nearly the same size") {
  CHECK(detail::parts(0, 7) == 0);
  CHECK(detail::parts(14, 7) == 2);
  CHECK(detail::parts(15, 7) == 3);
  CHECK(detail::even_part(15, 7) == 5);
  CHECK(detail::even_part(5, 7) == 5);
  CHECK(detail::rounded_up(15, 7) == 21);
}
