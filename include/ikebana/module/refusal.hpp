#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"

namespace ikebana {

// How a diagnostic reaches the user from the compiler: as the name of a type that is never defined,
// in the first line of the error. g++ prints a string in a template argument as it is. clang prints
// such strings as numbers or cut short, but characters in full, so there the path and the numbers
// come first and the sentence follows, as characters.

#if defined(__clang__)

template <char... C>
struct path;
template <dim_t N>
struct expected;
template <dim_t N>
struct got;
template <char... C>
struct message;
template <class Path, class Expected, class Got, class Message>
struct shape_mismatch;

namespace detail {
template <template <char...> class To, auto Text, std::size_t... I>
To<Text.data[I]...>* spell(std::index_sequence<I...>);
template <template <char...> class To, auto Text>
using spelled =
    std::remove_pointer_t<decltype(spell<To, Text>(std::make_index_sequence<Text.size()>{}))>;

}  // namespace detail

/// A type that is incomplete and named after what is wrong. `sizeof` of it, in the function that
/// the user called, is the error.
template <path_text Path, dim_t Expected, dim_t Got, sentence Message>
using refusal_t = shape_mismatch<detail::spelled<path, Path>, expected<Expected>, got<Got>,
                                 detail::spelled<message, Message>>;

#else

template <sentence Message>
struct shape_mismatch;

template <path_text, dim_t, dim_t, sentence Message>
using refusal_t = shape_mismatch<Message>;

#endif

}  // namespace ikebana
