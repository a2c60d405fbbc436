// Every module with an inferable dimension: what is uninitialized, and how a state resolves it.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/bilinear.hpp"
#include "ikebana/nn/group_norm.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/positional_encoding.hpp"
#include "ikebana/nn/rms_norm.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/rnn_cell.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"

namespace ike = ikebana;
using ike::dtype;
using ike::shape;

namespace {

/// A state with the shapes of a model of the module.
template <class M>
ike::state_dict state_for(const M& m) {
  const auto p = ike::outline(m);
  ike::state_dict dict;
  for (const auto& leaf : p.all_leaves()) {
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const auto& spec = p.parameters[static_cast<std::size_t>(leaf.first_parameter) + i].spec;
      dict.add_owned(p.path(leaf, spec.name).view(), dtype::float32, spec.extents);
    }
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const auto& spec = p.buffers[static_cast<std::size_t>(leaf.first_buffer) + i].spec;
      if (spec.persistent)
        dict.add_owned(p.path(leaf, spec.name).view(),
                       spec.follows_model ? dtype::float32 : spec.type, spec.extents);
    }
  }
  return dict;
}

/// The lazy form lists what is uninitialized; after loading a state, it prints like the module for
/// inputs of the shapes In.
template <class Lazy, shape... In>
void check_form() {
  static_assert(ike::has_uninitialized_params(Lazy{}));
  using concrete = ike::become_t<Lazy, In...>;
  static_assert(!ike::is_lazy_v<concrete> && ike::uninitialized_params(concrete{}).empty());
  const ike::state_dict state = state_for(concrete{});
  ike::lazy_model holder{Lazy{}, ike::seed{1}};
  std::size_t marks = 0;
  const ike::state_view before = ike::get_state_dict(holder);
  for (const auto& e : before) marks += e.uninitialized;
  CHECK(marks == ike::uninitialized_params(Lazy{}).size());
  ike::load_state_dict(holder, state);
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(holder.printed() == ike::to_string(concrete{}));
  for (const auto& e : ike::get_state_dict(holder)) CHECK(e.extents == state.at(e.name).extents);
}

}  // namespace

TEST_CASE("lazy forms that PyTorch does not have: bilinear") {
  check_form<ike::lazy_bilinear<4>, shape{2, 3}, shape{2, 5}>();
}
TEST_CASE("lazy forms that PyTorch does not have: normalizations") {
  check_form<ike::lazy_layer_norm<>, shape{2, 3, 6}>();
  check_form<ike::lazy_rms_norm<>, shape{2, 3, 6}>();
  check_form<ike::lazy_group_norm<2>, shape{2, 6, 5}>();
}
TEST_CASE("lazy forms that PyTorch does not have: recurrent modules") {
  check_form<ike::lazy_rnn<4>, shape{5, 2, 3}>();
  check_form<ike::lazy_lstm<4, ike::num_layers<2>, ike::bidirectional<true>>, shape{5, 2, 3}>();
  check_form<ike::lazy_gru<4>, shape{5, 2, 3}>();
  check_form<ike::lazy_rnn_cell<4>, shape{2, 3}>();
  check_form<ike::lazy_lstm_cell<4>, shape{2, 3}>();
  check_form<ike::lazy_gru_cell<4>, shape{2, 3}>();
}
TEST_CASE("lazy forms that PyTorch does not have: attention") {
  check_form<ike::lazy_multihead_attention<2>, shape{5, 2, 6}, shape{5, 2, 6}, shape{5, 2, 6}>();
  check_form<ike::lazy_learned_positions<7>, shape{5, 2, 6}>();
  check_form<ike::lazy_transformer_encoder_layer<2, 7>, shape{5, 2, 6}>();
}
