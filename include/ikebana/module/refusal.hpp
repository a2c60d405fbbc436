#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"

// Makes the compiler print a diagnostic: a refused call returns a type that is named after the
// diagnostic and never defined. The compiler then reports one error, in the user's line, without
// the type of a network before it.
//
// g++ prints a text in a template argument. clang from 18 on does so only for arrays of at most 36
// characters without unused elements, so the sentence is cut into pieces. Earlier versions of clang
// print only single characters, so path and numbers come before the sentence. If static_assert
// accepts a computed message, it prints the sentence.

namespace ikebana {

#if defined(__clang__) && __cpp_static_assert >= 202306L

template <sentence Message>
struct refused {
  static_assert(Message.empty(), Message.view());
};

#elif defined(__clang__) && (__clang_major__ < 18 || defined(__apple_build_version__))

template <class... What>
struct refused;

#elif defined(__clang__)

namespace detail {
/// A piece of a sentence.
template <std::size_t N>
struct says {
  char text[N];
};
}  // namespace detail
template <detail::says... Sentence>
struct refused;

#else

template <sentence Message>
struct refused;

#endif

// IKEBANA_MISUSE(name, "sentence"): `name<>` is the error for a constant sentence. For compilers
// that print only characters of types, it is a static_assert.

#if defined(__clang__) && (__clang_major__ < 18 || defined(__apple_build_version__))
#define IKEBANA_MISUSE(name, sentence_)       \
  template <bool Is = false>                  \
  struct name {                               \
    static_assert(Is, "ikebana: " sentence_); \
  }
#else
#define IKEBANA_MISUSE(name, sentence_) \
  template <bool = false>               \
  using name = refusal_t<path_text{}, 0, 0, sentence{sentence_}>
#endif

namespace detail {

#if !defined(__clang__) || __cpp_static_assert >= 202306L

template <path_text, dim_t, dim_t, sentence Message>
using refusal_t = refused<Message>;

#elif __clang_major__ < 18 || defined(__apple_build_version__)

namespace refusal {
template <char... C>
struct path;
template <dim_t N>
struct expected;
template <dim_t N>
struct got;
template <char... C>
struct message;
}  // namespace refusal

template <template <char...> class To, auto Text, std::size_t... I>
To<Text.data[I]...>* spell(std::index_sequence<I...>);
template <template <char...> class To, auto Text>
using spelled =
    std::remove_pointer_t<decltype(spell<To, Text>(std::make_index_sequence<Text.size()>{}))>;

template <path_text Path, dim_t Expected, dim_t Got, sentence Message>
constexpr auto find_refusal() {
  using whole = spelled<refusal::message, Message>;
  using refusal::expected, refusal::got;
  if constexpr (Path.empty() && Expected == 0 && Got == 0)
    return std::type_identity<refused<whole>>{};
  else if constexpr (Path.empty())
    return std::type_identity<refused<expected<Expected>, got<Got>, whole>>{};
  else if constexpr (Expected == 0 && Got == 0)
    return std::type_identity<refused<spelled<refusal::path, Path>, whole>>{};
  else
    return std::type_identity<
        refused<spelled<refusal::path, Path>, expected<Expected>, got<Got>, whole>>{};
}

template <path_text Path, dim_t Expected, dim_t Got, sentence Message>
using refusal_t = typename decltype(find_refusal<Path, Expected, Got, Message>())::type;

#else

/// The positions at which a sentence is divided into pieces, between words.
struct sentence_cuts {
  std::size_t count = 0;
  std::size_t at[64]{};
};
constexpr sentence_cuts cut(const sentence& s) {
  constexpr std::size_t most = 35;
  sentence_cuts cuts;
  const std::size_t size = s.size();
  std::size_t begin = 0;
  while (size - begin > most) {
    std::size_t end = begin + most;
    while (end > begin && s.data[end - 1] != ' ') --end;
    begin = end > begin ? end : begin + most;
    cuts.at[++cuts.count] = begin;
  }
  cuts.at[++cuts.count] = size;
  return cuts;
}
template <sentence Message, std::size_t I>
constexpr auto piece() {
  constexpr sentence_cuts cuts = cut(Message);
  constexpr std::size_t begin = cuts.at[I], size = cuts.at[I + 1] - begin;
  says<size + 1> out{};
  for (std::size_t i = 0; i < size; ++i) out.text[i] = Message.data[begin + i];
  // clang prints an array as text only if its last element was written.
  out.text[size] = '\0';
  return out;
}
template <sentence Message, std::size_t... I>
refused<piece<Message, I>()...>* in_pieces(std::index_sequence<I...>);

template <path_text, dim_t, dim_t, sentence Message>
using refusal_t = std::remove_pointer_t<decltype(in_pieces<Message>(
    std::make_index_sequence<cut(Message).count>{}))>;

#endif

/// The result of a search for a refusal if there is none; otherwise it is a std::type_identity of
/// it.
struct accepted {};

template <class Refusal>
Refusal declared(std::type_identity<Refusal>);

template <diagnostic (*Check)()>
constexpr auto find_refusal() {
  constexpr diagnostic wrong = Check();
  if constexpr (wrong.ok())
    return accepted{};
  else
    return std::type_identity<refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>>{};
}

/// Whether Check returns no error.
template <diagnostic (*Check)()>
inline constexpr bool accepts = std::is_same_v<decltype(find_refusal<Check>()), accepted>;

/// Not defined: its return type is that of the overloads for calls that Check refuses. These
/// overloads have no body, so that the only error is in the user's line.
template <diagnostic (*Check)()>
auto refuse() -> decltype(declared(find_refusal<Check>()));

/// The same for a given type of refusal.
template <class Refusal>
Refusal refuse_as();

}  // namespace detail
}  // namespace ikebana
