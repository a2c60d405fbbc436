#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// Options of a coalesced broadcast: the maximal bytes of a chunk, and the source rank.
struct coalescing {
  dim_t bytes = MiB(250);
  int src = 0;
};

namespace detail {

/// Broadcasts pieces of memory in chunks, at most two of them in flight. A piece that fills a chunk
/// by itself is sent in place; several are packed and unpacked.
template <class Group>
class coalescer {
 public:
  coalescer(Group& group, const coalescing& how) : group_{&group}, how_{how} {
    if (how.bytes <= 0)
      throw state_error("broadcast_coalesced: expected chunks of more than 0 bytes, got " +
                        std::to_string(how.bytes));
  }

  void add(std::span<std::byte> piece) {
    const auto most = static_cast<std::size_t>(how_.bytes);
    if (piece.empty()) return;
    if (waiting_bytes_ + piece.size() > most) flush();
    while (piece.size() >= most) {
      send({&piece, 1}, most);
      piece = piece.subspan(most);
    }
    if (piece.empty()) return;
    waiting_.push_back(piece);
    waiting_bytes_ += piece.size();
  }

  /// Sends the rest and waits for everything.
  void finish() {
    flush();
    for (std::size_t i = 0; i < 2; ++i, next_ ^= 1) land(flights_[next_]);
  }

 private:
  using work_type =
      decltype(std::declval<Group&>().broadcast_async(std::declval<std::span<std::byte>>(), 0));
  struct flight {
    aligned_buffer<std::byte> staged;
    std::vector<std::span<std::byte>> pieces;  ///< Of the staged bytes, in order.
    work_type work{};
  };

  void flush() {
    if (waiting_.empty()) return;
    send(waiting_, waiting_bytes_);
    waiting_.clear();
    waiting_bytes_ = 0;
  }

  void send(std::span<const std::span<std::byte>> pieces, std::size_t bytes) {
    flight& f = flights_[next_];
    next_ ^= 1;
    land(f);
    std::span<std::byte> data = pieces[0].first(std::min(bytes, pieces[0].size()));
    if (pieces.size() > 1) {
      if (f.staged.size() < static_cast<dim_t>(bytes))
        f.staged = aligned_buffer<std::byte>(static_cast<dim_t>(bytes));
      f.pieces.assign(pieces.begin(), pieces.end());
      data = f.staged.span().first(bytes);
      if (group_->rank() == how_.src) {
        std::byte* to = data.data();
        for (const auto& piece : pieces) {
          std::memcpy(to, piece.data(), piece.size());
          to += piece.size();
        }
      }
    }
    f.work = group_->broadcast_async(data, how_.src);
  }

  void land(flight& f) {
    f.work.wait();
    f.work = work_type{};
    if (group_->rank() != how_.src) {
      const std::byte* from = f.staged.data();
      for (const auto& piece : f.pieces) {
        std::memcpy(piece.data(), from, piece.size());
        from += piece.size();
      }
    }
    f.pieces.clear();
  }

  Group* group_;
  coalescing how_;
  std::vector<std::span<std::byte>> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::array<flight, 2> flights_;
  std::size_t next_ = 0;
};

/// What can be received into: a tensor, a view or a span of trivially copyable, non-const elements.
template <class X>
concept receivable = requires(X& x) {
  requires transferable<std::remove_pointer_t<decltype(x.data())>>;
  x.size();
};

template <class X>
std::span<std::byte> bytes_of(X& x) {
  return std::as_writable_bytes(std::span{x.data(), static_cast<std::size_t>(x.size())});
}

struct ignore_nothing {
  constexpr bool operator()(std::string_view) const { return false; }
};

/// Broadcasts the parameters, then the buffers, for which `sends(path, is_persistent)` is true.
template <class Model, process_group Group, class Sends>
void broadcast_some_states(Model& m, Group& group, const coalescing& how, const Sends& sends) {
  const auto& p = m.current_program();
  coalescer<Group> chunks(group, how);
  for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
    const program_parameter& parameter = p.all_parameters()[i];
    if (!sends(p.path(parameter).view(), true)) continue;
    chunks.add(std::as_writable_bytes(
        m.parameters().subspan(static_cast<std::size_t>(m.layout().offsets[i]),
                               static_cast<std::size_t>(parameter.spec.extents.numel()))));
  }
  for (std::size_t i = 0; i < p.all_buffers().size(); ++i) {
    const program_buffer& buffer = p.all_buffers()[i];
    if (!sends(p.path(buffer).view(), buffer.spec.persistent)) continue;
    const std::size_t element =
        buffer.spec.follows_model ? sizeof(typename Model::value_type) : size_of(buffer.spec.type);
    chunks.add(
        m.buffers().subspan(static_cast<std::size_t>(m.layout().buffer_offsets[i]),
                            static_cast<std::size_t>(buffer.spec.extents.numel()) * element));
  }
  chunks.finish();
}

}  // namespace detail

/// Broadcasts tensors (or spans) of any types from rank `how.src`, in chunks of at most
/// `how.bytes`: small ones share a chunk, one larger than a chunk is split; at most two chunks are
/// in flight. Tensors without elements are skipped. Every rank must call it with tensors of the
/// same sizes: verify_parameters first. Throws communication_error if a rank fails, state_error
/// unless `how.bytes` is above 0. Allocates at most two chunks.
template <process_group Group, detail::receivable... X>
void broadcast_coalesced(Group& group, const coalescing& how, X&&... tensors) {
  detail::coalescer<Group> chunks(group, how);
  (chunks.add(detail::bytes_of(tensors)), ...);
  chunks.finish();
}

/// Broadcasts the parameters of a model, then its buffers (non-persistent ones too), from rank
/// `how.src`, except those for which `ignore(path)` is true. Every rank must call it with the same
/// `ignore` and a model that verify_parameters found equal. Throws and allocates as
/// broadcast_coalesced does.
template <class Model, process_group Group, class Ignore = detail::ignore_nothing>
requires requires(Model& m) { m.current_program(); }
void sync_module_states(Model& m, Group& group, const coalescing& how = {},
                        const Ignore& ignore = {}) {
  detail::broadcast_some_states(m, group, how,
                                [&](std::string_view path, bool) { return !ignore(path); });
}

}  // namespace ikebana
