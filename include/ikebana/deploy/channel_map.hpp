#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/broadcast.hpp"

namespace ikebana::detail {

/// y = scale x + shift for each channel, or for all if there is one of each. It is applied to
/// weights in double.
struct channel_map {
  std::vector<double> scale{1}, shift{0};

  std::size_t size() const { return scale.size(); }
  bool is_identity() const { return size() == 1 && scale[0] == 1 && shift[0] == 0; }

  /// f of x and a number; of the number and x, if x is not its first operand.
  static std::pair<double, double> of(cpu::tensor_op f, bool x_is_first, double number) {
    switch (f) {
      case cpu::tensor_op::neg:
        return {-1, 0};
      case cpu::tensor_op::add:
        return {1, number};
      case cpu::tensor_op::sub:
        return x_is_first ? std::pair{1.0, -number} : std::pair{-1.0, number};
      case cpu::tensor_op::div:
        return {1 / number, 0};
      default:
        return {number, 0};
    }
  }
  void push(const std::pair<double, double>& of_channel) {
    scale.push_back(of_channel.first);
    shift.push_back(of_channel.second);
  }
  static channel_map empty() {
    channel_map m;
    m.scale.clear();
    m.shift.clear();
    return m;
  }

  /// Applies `next` to its results.
  void then(const channel_map& next) {
    if (size() == 1) {
      scale.resize(next.size(), scale[0]);
      shift.resize(next.size(), shift[0]);
    }
    for (std::size_t c = 0; c < size(); ++c) {
      const std::size_t n = next.size() == 1 ? 0 : c;
      scale[c] *= next.scale[n];
      shift[c] = shift[c] * next.scale[n] + next.shift[n];
    }
  }

  /// Lets weights (out, ..), or (in, out of a group, ..) of transposed groups, and their bias, null
  /// if nothing is shifted, give what the map makes of their results.
  template <class T>
  void map_outputs(const shape& extents, dim_t transposed_groups, T* weight, T* bias) const {
    const bool turned = transposed_groups > 0;
    const dim_t ins = turned ? extents[0] / transposed_groups : 1;
    const dim_t columns = turned ? extents[1] : 1;
    const dim_t inner = extents.numel(turned ? 2 : 1, extents.rank());
    for (dim_t row = 0; row < extents[0]; ++row)
      for (dim_t column = 0; column < columns; ++column, weight += inner) {
        const double by = scale[at(row / ins * columns + column)];
        for (dim_t i = 0; i < inner; ++i) multiply(weight[i], by);
      }
    if (bias == nullptr) return;
    const dim_t outs = turned ? transposed_groups * columns : extents[0];
    for (dim_t o = 0; o < outs; ++o)
      bias[o] = static_cast<T>(static_cast<double>(bias[o]) * scale[at(o)] + shift[at(o)]);
  }

  /// Lets weights (out, in of a group, ..) and their bias take what the map takes.
  template <class T>
  void map_inputs(const shape& extents, T* weight, T* bias) const {
    const dim_t outs = extents[0], ins = extents[1], inner = extents.numel(2, extents.rank());
    const auto channels = static_cast<dim_t>(size());
    const dim_t groups = ins > 0 && channels > ins ? channels / ins : 1;
    for (dim_t o = 0; o < outs; ++o) {
      double sum = 0;
      for (dim_t i = 0; i < ins; ++i) {
        const std::size_t c = at(o / (outs / groups) * ins + i);
        T* const w = weight + (o * ins + i) * inner;
        for (dim_t k = 0; k < inner; ++k) {
          if (shift[c] != 0) sum += static_cast<double>(w[k]) * shift[c];
          multiply(w[k], scale[c]);
        }
      }
      if (bias != nullptr) bias[o] = static_cast<T>(static_cast<double>(bias[o]) + sum);
    }
  }

 private:
  std::size_t at(dim_t channel) const {
    return size() == 1 ? 0 : static_cast<std::size_t>(channel);
  }
  template <class T>
  static void multiply(T& w, double by) {
    w = static_cast<T>(static_cast<double>(w) * by);
  }
};

}  // namespace ikebana::detail
