#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/model_memory.hpp"
#include "ikebana/model/network_tables.hpp"
#include "ikebana/model/parameter_stamp.hpp"

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
  program<sizes> lowered;
  ikebana::seed seed;
  bool fuses;
  std::uint64_t stamp = new_parameter_stamp();
  aligned_buffer<T> parameters;
  aligned_buffer<std::byte> buffers;  ///< Those that are not persistent have their initial values.
  program_table<dim_t, sizes.parameters> offsets;
  program_table<dim_t, sizes.buffers> buffer_offsets;
  dim_t persistent_bytes;
  program_table<int, sizes.choices> choices{};
  aligned_buffer<T> packed_layers;
  by_node<std::uint64_t> transposed_stamps{};  ///< By node: dense_layer::turned_stamp.

  template <class Model>
  [[gnu::cold]] explicit frozen_weights(const Model& model)
      : module{model.module()},
        lowered{model.current_program()},
        seed{model.seed()},
        fuses{model.fuses()},
        parameters(static_cast<dim_t>(model.parameters().size())),
        buffers(static_cast<dim_t>(model.buffers().size())),
        offsets{model.layout().offsets},
        buffer_offsets{model.layout().buffer_offsets},
        persistent_bytes{model.layout().persistent_bytes} {
    for (std::size_t c = 0; c < sizes.choices; ++c) {
      choices[c] = model.set_choice(c);
      if (choices[c] < 0)
        throw state_error(std::string(lowered.path(lowered.choices[c]).view()) +
                          ": a function chooses the alternative; freeze needs one that is set");
    }
    std::copy_n(model.parameters().data(), parameters.size(), parameters.data());
    std::copy_n(model.buffers().data(), persistent_bytes, buffers.data());
    for (std::size_t b = 0; b < sizes.buffers; ++b)
      if (const program_buffer& own = lowered.buffers[b]; !own.spec.persistent)
        fill_buffer<T>(own.spec, {seed, hash_path(lowered.path(own).view(), seed.path)},
                       buffers.data() + buffer_offsets[b]);
  }
};

}  // namespace ikebana::detail
