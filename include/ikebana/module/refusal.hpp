#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#if defined(__clang__) && (__clang_major__ < 18 || defined(__apple_build_version__))
#include <iterator>
#include <string_view>

#include "ikebana/module/vocabulary.hpp"
#endif

// Makes the compiler print a diagnostic: a refused call returns a type that is named after the
// diagnostic and never defined. The compiler then reports one error, in the user's line, without
// the type of a network before it.
//
// g++ prints a text in a template argument. clang from 18 on does so only for arrays of at most 36
// characters without unused elements, so the sentence is cut into pieces. Earlier versions of clang
// print only names, numbers and single characters, so the sentence becomes a list of types that are
// named after its words, without punctuation: `linear, expects, in_features, n[12], got, n[10],
// detail::at<'f', 'c', '2'>`, where the path follows the first clause. If static_assert accepts a
// computed message, it prints the sentence.

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

// IKEBANA_MISUSE(name, "sentence"): `name<>` is the refusal for a constant sentence.

#define IKEBANA_MISUSE(name, sentence_) \
  template <bool Lazy = false>          \
  using name = misuse_t<Lazy, sentence{sentence_}>

namespace detail {

#if !defined(__clang__) || __cpp_static_assert >= 202306L

template <path_text, dim_t, dim_t, sentence Message>
using refusal_t = refused<Message>;

#elif __clang_major__ < 18 || defined(__apple_build_version__)

/// A path, and a word that is not in the vocabulary.
template <char... C>
struct at;
template <char... C>
struct letters;

template <template <char...> class To, auto Text, std::size_t... I>
To<Text.data[I]...>* spell(std::index_sequence<I...>);
template <template <char...> class To, auto Text>
using spelled =
    std::remove_pointer_t<decltype(spell<To, Text>(std::make_index_sequence<Text.size()>{}))>;

/// A word or number of a sentence.
struct piece_of_sentence {
  std::size_t begin = 0;
  std::size_t size = 0;
};

/// A sentence divided into words and numbers. Of "input's" it has "input".
struct divided_sentence {
  std::size_t count = 0;
  std::size_t first_clause = 0;  ///< The number of words before the first '(' or ';'.
  piece_of_sentence at[160]{};
};
constexpr divided_sentence divide(const sentence& s, std::size_t from) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const auto is_inner = [](char c) { return c == '.' || c == '-' || c == '^' || c == '\''; };
  divided_sentence out;
  bool in_first_clause = true;
  const std::size_t size = s.size();
  for (std::size_t i = from; i < size && out.count < 160;) {
    if (!is_letter(s.data[i]) &&
        !(s.data[i] == '-' && i + 1 < size && s.data[i + 1] >= '0' && s.data[i + 1] <= '9')) {
      in_first_clause = in_first_clause && s.data[i] != '(' && s.data[i] != ';';
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < size && (is_letter(s.data[end]) ||
                          (is_inner(s.data[end]) && end + 1 < size && is_letter(s.data[end + 1]))))
      ++end;
    const bool is_genitive = end - i > 2 && s.data[end - 1] == 's' && s.data[end - 2] == '\'';
    out.at[out.count++] = {i, end - i - (is_genitive ? 2 : 0)};
    if (in_first_clause) out.first_clause = out.count;
    i = end;
  }
  return out;
}

/// The number that a text is, or `no_number`.
inline constexpr dim_t no_number = dim_t{1} << 56;
constexpr dim_t number_in(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  dim_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || n > no_number / 16) return no_number;
    n = 10 * n + (c - '0');
  }
  return is_negative ? -n : n;
}

template <class... Word>
struct word_list {};

template <sentence Message, piece_of_sentence Piece>
constexpr auto find_word() {
  constexpr std::string_view text{Message.data + Piece.begin, Piece.size};
  constexpr std::size_t index = find_word(text);
  constexpr dim_t number = number_in(text);
  using n = word<find_word("n")>;
  if constexpr (index < std::size(word_names))
    return word_list<word<index>>{};
  else if constexpr (number == no_number)
    return word_list<spelled<letters, sentence{text}>>{};
  else if constexpr (number == 0)
    return word_list<word<find_word("zero")>>{};
  else if constexpr (number < 0)
    return word_list<word<find_word("minus")>, n[-number]>{};
  else
    return word_list<n[number]>{};
}

template <path_text Path>
constexpr auto path_words() {
  if constexpr (Path.empty())
    return word_list<>{};
  else
    return word_list<spelled<at, Path>>{};
}

template <class... List>
struct refused_words;
template <class... Word>
struct refused_words<word_list<Word...>> : std::type_identity<refused<Word...>> {};
template <class... A, class... B, class... C>
struct refused_words<word_list<A...>, word_list<B...>, C...>
    : refused_words<word_list<A..., B...>, C...> {};

/// A sentence without the path that it begins with.
template <path_text Path, sentence Message>
inline constexpr divided_sentence divided =
    divide(Message, !Path.empty() && Message.view().starts_with(Path.view()) ? Path.size() : 0);

template <path_text Path, sentence Message, std::size_t... I, std::size_t... J>
auto find_words(std::index_sequence<I...>, std::index_sequence<J...>) -> refused_words<
    word_list<>, decltype(find_word<Message, divided<Path, Message>.at[I]>())...,
    decltype(path_words<Path>()),
    decltype(find_word<Message,
                       divided<Path, Message>.at[divided<Path, Message>.first_clause + J]>())...>;

template <path_text Path, dim_t, dim_t, sentence Message>
using refusal_t = typename decltype(find_words<Path, Message>(
    std::make_index_sequence<divided<Path, Message>.first_clause>{},
    std::make_index_sequence<divided<Path, Message>.count -
                             divided<Path, Message>.first_clause>{}))::type;

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

/// Makes a refusal only where it is used.
template <bool, sentence Message>
struct misuse_of {
  using type = refusal_t<path_text{}, 0, 0, Message>;
};
template <bool Lazy, sentence Message>
using misuse_t = typename misuse_of<Lazy, Message>::type;

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

/// An argument of a refused call. Not a template parameter, for which g++ also reports that a
/// function with a local type is not defined.
struct anything {
  template <class X>
  anything(const X&) {}
};

}  // namespace detail
}  // namespace ikebana
