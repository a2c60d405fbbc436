#pragma once

#include <cstddef>
#include <utility>

#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// A child of a graph as a value of unknown type.
// Pointers to functions instead of virtual ones: g++ 12 does not find the destructor of a class
// template in a constant expression.
struct held_child {
  void (*destroy)(held_child*) = nullptr;
  bool (*equals)(const held_child&, const held_child&) = nullptr;
  held_child* next = nullptr;
};

template <class C>
struct traced_child final : held_child {
  C child;

  constexpr explicit traced_child(const C& c) : child{c} {
    destroy = [](held_child* self) { delete static_cast<traced_child*>(self); };
    // What cannot be compared is another child each time.
    equals = [](const held_child& a, const held_child& b) {
      if constexpr (requires(const C& x) { bool{x == x}; })
        return bool{static_cast<const traced_child&>(a).child ==
                    static_cast<const traced_child&>(b).child};
      else
        return &a == &b;
    };
  }
};

/// A growing array. Not std::vector, which takes several times as many of the steps to which clang
/// limits a constant expression.
template <class X>
struct trace_list {
  X* data = nullptr;
  int size = 0, capacity = 0;

  constexpr trace_list() = default;
  trace_list(const trace_list&) = delete;
  constexpr ~trace_list() { delete[] data; }
  constexpr X& operator[](int i) { return data[i]; }
  constexpr const X& operator[](int i) const { return data[i]; }
  constexpr int push(const X& x) {
    if (size == capacity) {
      capacity = capacity == 0 ? 16 : 2 * capacity;
      X* const larger = new X[static_cast<std::size_t>(capacity)]{};
      for (int i = 0; i < size; ++i) larger[i] = data[i];
      delete[] data;
      data = larger;
    }
    data[size] = x;
    return size++;
  }
};

/// An application in a graph under construction.
struct traced_step {
  int type = 0;  ///< The number of its child's type; after finish(), the position in the last set.
  int inputs[max_arity]{};  ///< Values.
  int input_count = 0;
  int outputs = 1;
  int first_value = 0;
  int shape_options = 0;             ///< Of options on which output shapes depend.
  bool exchanges_last = false;       ///< It exchanges the last two dimensions of its input.
  bool is_shared = false;            ///< Several applications are of one child.
  const held_child* held = nullptr;  ///< Null if the child's type determines it.
};

/// Owns children that are held.
// A template, because clang 14 crashes on another constexpr destructor if it is not asked for
// C++20.
template <class Held>
struct held_list {
  Held* last = nullptr;

  constexpr held_list() = default;
  held_list(const held_list&) = delete;
  constexpr ~held_list() {
    while (last != nullptr) {
      Held* const ended = last;
      last = ended->next;
      ended->destroy(ended);
    }
  }
};

/// The applications of a graph under construction, in the order in which its function makes them. A
/// value belongs to a set of types of children, as its symbol says; `numbers` holds, for each set
/// that arises, the numbers of its types. Two branches may give one type two numbers, which become
/// one when the branches meet.
class trace_builder {
 public:
  constexpr explicit trace_builder(int inputs) : inputs_{inputs} {
    for (int i = 0; i < inputs; ++i) makers_.push({-1, 0});
  }
  trace_builder(const trace_builder&) = delete;

  /// The numbers of the set of a value.
  constexpr int numbers_of(int value) const { return makers_[value].numbers; }

  /// A new set, none of whose types has a number yet.
  constexpr int add_numbers(int types) {
    const int first = numbers_.size;
    for (int i = 0; i < types; ++i) numbers_.push(-1);
    return first;
  }
  /// Gives a type of one set the number that it has in another.
  constexpr void unite(int to, int from) {
    const int b = root(numbers_[from]);
    if (numbers_[to] < 0)
      numbers_[to] = b;
    else
      same_as_[b] = root(numbers_[to]);
  }
  /// Gives a type of a set a number, unless it has one.
  constexpr int number(int at) {
    if (numbers_[at] < 0) {
      numbers_[at] = same_as_.size;
      same_as_.push(same_as_.size);
    }
    return numbers_[at];
  }

  /// Adds an application; returns its first value.
  constexpr int add_step(traced_step step, int numbers) {
    step.first_value = makers_.size;
    const int s = steps_.push(step);
    for (int i = 0; i < step.outputs; ++i) makers_.push({s, numbers});
    return step.first_value;
  }
  /// The input of the application that exchanges its last two dimensions to make this value; the
  /// value itself if another makes it.
  constexpr int without_exchange(int value) const {
    const int s = makers_[value].step;
    return s >= 0 && steps_[s].exchanges_last ? steps_[s].inputs[0] : value;
  }
  /// Makes the application whose output this is read another value as its input i.
  constexpr void redirect(int value, int i, int to) { steps_[makers_[value].step].inputs[i] = to; }
  template <class C>
  constexpr const held_child* hold(const C& child) {
    auto* const h = new traced_child<C>{child};
    h->next = held_.last;
    held_.last = h;
    return h;
  }

  /// Leaves the applications that the outputs depend on, each once, in the order in which the
  /// outputs need them, which is that of their inputs and then themselves. Numbers the values anew:
  /// the inputs of the graph, then the outputs of each application. `numbers` are those of the set
  /// of all outputs. With `merges`, equal applications are one.
  constexpr void finish(int* outputs, int output_count, int numbers, int types, bool merges);

  constexpr int size() const { return kept_.size; }
  constexpr const traced_step& operator[](int s) const { return kept_[s]; }

 private:
  struct maker {
    int step;
    int numbers;
  };
  struct visit {
    int step;
    int input;
  };

  constexpr int root(int number) const {
    while (same_as_[number] != number) number = same_as_[number];
    return number;
  }
  constexpr void keep(const traced_step& step, trace_list<int>& now);

  int inputs_;
  trace_list<traced_step> steps_, kept_;
  trace_list<maker> makers_;                    ///< By value.
  trace_list<int> numbers_;                     ///< By set and type; negative for none.
  trace_list<int> same_as_;                     ///< By number.
  trace_list<int> first_reader_, next_reader_;  ///< Of the kept steps, by their first input.
  held_list<held_child> held_;
  bool merges_ = true;
  int values_ = 0;
};

constexpr void trace_builder::keep(const traced_step& made, trace_list<int>& now) {
  traced_step step = made;
  for (int i = 0; i < step.input_count; ++i) step.inputs[i] = now[step.inputs[i]];
  const int first = step.inputs[0];
  int equal = -1;
  for (int k = first_reader_[first]; k >= 0 && equal < 0; k = next_reader_[k]) {
    const traced_step& other = kept_[k];
    if (other.type != step.type || other.input_count != step.input_count) continue;
    bool same = true;
    for (int i = 1; i < step.input_count; ++i) same = same && other.inputs[i] == step.inputs[i];
    if (same && !step.is_shared && step.held != nullptr)
      same = merges_ && step.held->equals(*step.held, *other.held);
    if (same) equal = k;
  }
  if (equal < 0) {
    step.first_value = values_;
    values_ += step.outputs;
    for (int i = 0; i < step.outputs; ++i) first_reader_.push(-1);
    equal = kept_.push(step);
    next_reader_.push(first_reader_[first]);
    first_reader_[first] = equal;
  }
  for (int i = 0; i < step.outputs; ++i) now[made.first_value + i] = kept_[equal].first_value + i;
}

constexpr void trace_builder::finish(int* outputs, int output_count, int numbers, int types,
                                     bool merges) {
  merges_ = merges;
  trace_list<int> position;  // By number: the type's position in the set.
  for (int i = 0; i < same_as_.size; ++i) position.push(-1);
  for (int i = 0; i < types; ++i) position[root(numbers_[numbers + i])] = i;
  trace_list<int> now;  // By value: its number among the values that stay.
  for (int v = 0; v < makers_.size; ++v) now.push(v < inputs_ ? v : -1);
  for (int i = 0; i < inputs_; ++i) first_reader_.push(-1);
  values_ = inputs_;
  trace_list<visit> open;
  for (int o = 0; o < output_count; ++o) {
    if (now[outputs[o]] < 0) open.push({makers_[outputs[o]].step, 0});
    while (open.size > 0) {
      visit& at = open[open.size - 1];
      traced_step& step = steps_[at.step];
      while (at.input < step.input_count && now[step.inputs[at.input]] >= 0) ++at.input;
      if (at.input < step.input_count) {
        open.push({makers_[step.inputs[at.input]].step, 0});
        continue;
      }
      --open.size;
      step.type = position[root(step.type)];
      keep(step, now);
    }
    outputs[o] = now[outputs[o]];
  }
}

}  // namespace ikebana::detail
