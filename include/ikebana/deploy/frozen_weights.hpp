#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/deploy/embedded.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/network/model_memory.hpp"
#include "ikebana/model/network/network_tables.hpp"
#include "ikebana/model/network/parameter_stamp.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// What an inference_model holds and its lanes share: the network with copies of a model's
/// parameters and buffers, and what is made of the weights of layers that run in one call. Constant
/// once it exists.
template <class E, any_module M, std::size_t Inputs>
struct frozen_weights {
  using T = element_of<E>;
  using tables = network_tables<E, M, Inputs>;
  static constexpr program_sizes sizes = tables::sizes;
  template <class X>
  using by_node = program_table<X, tables::has_layers ? sizes.nodes : 0>;

  M module;
  program<sizes> lowered{};
  ikebana::seed seed;
  bool fuses;
  bool is_folded;  ///< Its parameters are not those of the model.
  std::uint64_t stamp = new_parameter_stamp();
  aligned_buffer<T> own_parameters;
  std::span<const T> parameters;  ///< The own ones, or memory that outlives this.
  program_table<const T*, sizes.parameters> parameter_table;
  aligned_buffer<std::byte> buffers;  ///< Those that are not persistent have their initial values.
  program_table<const std::byte*, sizes.buffers> buffer_table;
  dim_t persistent_bytes = 0;  ///< At the begin of `buffers`, not needed by a lane.
  program_table<int, sizes.choices> choices{};
  aligned_buffer<T> packed_layers;
  by_node<std::uint64_t> transposed_stamps{};  ///< By node: dense_layer::turned_stamp.

  /// Those of a model, folded into M.
  template <class Model, class Folding>
  [[gnu::cold]] frozen_weights(const Model& model, Folding)
      : module{Folding::fold(model.module())},
        seed{model.seed()},
        fuses{model.fuses()},
        is_folded{Folding::found.changes_weights} {
    const auto& from = model.current_program();
    own_tables own;
    allocate(from, own);
    for (std::size_t c = 0; c < sizes.choices; ++c) {
      choices[c] = model.set_choice(c);
      if (choices[c] < 0)
        throw_error(
            state_error(std::string(lowered.path(lowered.choices[c]).view()) +
                        ": a function chooses the alternative; freeze needs one that is set"));
    }
    constexpr program_sizes n = std::remove_cvref_t<decltype(from)>::sizes;
    program_table<const T*, n.parameters> parameters_from{};
    program_table<const std::byte*, n.buffers> buffers_from{};
    for (std::size_t i = 0; i < n.parameters; ++i)
      parameters_from[i] = model.parameters().data() + model.layout().offsets[i];
    for (std::size_t b = 0; b < n.buffers; ++b)
      buffers_from[b] = model.buffers().data() + model.layout().buffer_offsets[b];
    const program_view made = lowered.view();
    fold_values<T> write{from.nodes.data(),
                         from.leaves.data(),
                         parameters_from.data(),
                         buffers_from.data(),
                         made,
                         own.parameters.data(),
                         own.buffers.data(),
                         Folding::into.data()};
    for_each_leaf(model.module(), write);
  }

  /// Those of another frozen network, some of whose leaves M has replaced: `write`, a visitor of
  /// the other's leaves, converts them.
  template <any_module Other, class Write>
  [[gnu::cold]] frozen_weights(const frozen_weights<E, Other, Inputs>& from, const M& m,
                               Write& write)
      : module{m},
        seed{from.seed},
        fuses{from.fuses},
        is_folded{from.is_folded},
        choices{from.choices} {
    own_tables own;
    allocate(from.lowered, own);
    write.made = lowered.view();
    write.made_parameters = own.parameters.data();
    write.made_buffers = own.buffers.data();
    for_each_leaf(from.module, write);
  }

  /// Reads `given` in place: weights that the compiler compared with the network.
  [[gnu::cold]] frozen_weights(const M& m, const program<sizes>& p, const embedded_view<T>& given)
      : module{m},
        lowered{p},
        seed{0},
        fuses{false},
        is_folded{given.is_folded},
        parameters{given.data} {
    // What is read in place has no memory here.
    for (std::size_t b = 0; b < sizes.buffers; ++b)
      if (is_embedded(lowered.buffers[b].spec)) lowered.buffers[b].spec.extents = shape{0};
    const parameter_layout<sizes> layout = lay_out<T>(lowered);
    lowered = p;
    buffers = aligned_buffer<std::byte>(layout.buffer_bytes);
    persistent_bytes = layout.persistent_bytes;
    own_tables own;
    place_buffers(layout, own);
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      parameter_table[i] =
          static_cast<const T*>(given.at(lowered.path(lowered.parameters[i]).view()));
    for (std::size_t b = 0; b < sizes.buffers; ++b)
      if (is_embedded(lowered.buffers[b].spec))
        buffer_table[b] =
            static_cast<const std::byte*>(given.at(lowered.path(lowered.buffers[b]).view()));
  }

 private:
  /// Where a constructor writes its own parameters and buffers.
  struct own_tables {
    program_table<T*, sizes.parameters> parameters{};
    program_table<std::byte*, sizes.buffers> buffers{};
  };

  /// Memory for the parameters and buffers of `module`, for the inputs of this program.
  template <class Program>
  void allocate(const Program& from, own_tables& own) {
    shape_list inputs;
    for (std::size_t i = 0; i < Inputs; ++i) inputs.push_back(from.values[i]);
    lower_into(lowered, module, inputs);
    const parameter_layout<sizes> layout = lay_out<T>(lowered);
    own_parameters = aligned_buffer<T>(layout.parameter_elements);
    parameters = own_parameters.span();
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      parameter_table[i] = own.parameters[i] = own_parameters.data() + layout.offsets[i];
    buffers = aligned_buffer<std::byte>(layout.buffer_bytes);
    persistent_bytes = layout.persistent_bytes;
    place_buffers(layout, own);
  }

  /// Gives each buffer its place, and those that are not persistent their initial values.
  void place_buffers(const parameter_layout<sizes>& layout, own_tables& own) {
    for (std::size_t b = 0; b < sizes.buffers; ++b) {
      std::byte* const at = buffers.data() + layout.buffer_offsets[b];
      buffer_table[b] = own.buffers[b] = at;
      if (const program_buffer& buffer = lowered.buffers[b]; !buffer.spec.persistent)
        fill_buffer<T>(buffer.spec, {seed, hash_path(lowered.path(buffer).view(), seed.path)}, at);
    }
  }
};

}  // namespace ikebana::detail
