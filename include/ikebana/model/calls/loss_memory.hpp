#pragma once

#include <memory>
#include <utility>

namespace ikebana::detail {

/// What a model keeps of a graph loss between steps.
class loss_memory {
 public:
  loss_memory() = default;
  loss_memory(const loss_memory&) = delete;
  // Not inlined into itself along the list.
  [[gnu::noinline]] virtual ~loss_memory() {}

  const void* type = nullptr;
  std::unique_ptr<loss_memory> next;
};

template <class Network>
inline constexpr char loss_network_mark{};

/// The network of a loss, made when it is first asked for.
template <class Network, class Graph>
Network& loss_network_in(std::unique_ptr<loss_memory>& list, const Graph& g) {
  std::unique_ptr<loss_memory>* at = &list;
  for (; *at != nullptr; at = &(*at)->next)
    if ((*at)->type == &loss_network_mark<Network>) return static_cast<Network&>(**at);
  auto made = std::make_unique<Network>(g);
  made->type = &loss_network_mark<Network>;
  Network& made_network = *made;
  *at = std::move(made);
  return made_network;
}

}  // namespace ikebana::detail
