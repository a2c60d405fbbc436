#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#if defined(__clang__) && (__clang_major__ < 18 || defined(__apple_build_version__))
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

// IKEBANA_MISUSE(name, "sentence"): `name<later<T>>` is the refusal for a constant sentence, made
// only once T is known: g++ takes 3 ms for each, clang 8. A result is refuse_for<name, T>(), for
// g++ prints the alias of a result before its sentence.

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

/// A sentence as types: words of the vocabulary, numbers, others as letters, and the path, each
/// with its position in the text.
struct encoded_sentence {
  enum class kind : unsigned char { word, number, letters, path };
  struct code {
    kind what = kind::word;
    dim_t value = 0;  ///< The index of the word, or the number.
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  std::size_t count = 0;
  code at[160]{};
  sentence text{};
  path_text path{};

  constexpr void add(const code& c) {
    if (count < 160) at[count++] = c;
  }
};

/// The number that a text is, or `no_number`.
inline constexpr dim_t no_number = dim_t{1} << 56;
constexpr dim_t number_in(std::string_view text) {
  dim_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || n > no_number / 16) return no_number;
    n = 10 * n + (c - '0');
  }
  return n;
}

/// Divides a sentence into words and numbers. The path that it begins with follows the first
/// clause, which ends before the first '(' or ';'. Of "input's" it takes "input".
template <class X>
constexpr encoded_sentence encode(const path_text& path, const sentence& s) {
  using kind = encoded_sentence::kind;
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const auto is_inner = [](char c) { return c == '.' || c == '-' || c == '^' || c == '\''; };
  encoded_sentence out;
  out.text = s;
  out.path = path;
  const std::string_view all = s.view();
  std::size_t i = !path.empty() && all.starts_with(path.view()) ? path.size() : 0;
  bool has_path = path.empty();
  const auto end_clause = [&] {
    if (!has_path) out.add({kind::path});
    has_path = true;
  };
  while (i < all.size()) {
    const bool is_negative =
        all[i] == '-' && i + 1 < all.size() && all[i + 1] >= '0' && all[i + 1] <= '9';
    if (!is_letter(all[i]) && !is_negative) {
      if (all[i] == '(' || all[i] == ';') end_clause();
      ++i;
      continue;
    }
    if (is_negative) {
      out.add({kind::word, static_cast<dim_t>(find_word<X>("minus"))});
      ++i;
    }
    std::size_t end = i + 1;
    while (end < all.size() &&
           (is_letter(all[end]) ||
            (is_inner(all[end]) && end + 1 < all.size() && is_letter(all[end + 1]))))
      ++end;
    const bool is_genitive = end - i > 2 && all[end - 1] == 's' && all[end - 2] == '\'';
    const std::size_t size = end - i - (is_genitive ? 2 : 0);
    const std::string_view text = all.substr(i, size);
    if (const dim_t n = number_in(text); n == 0)
      out.add({kind::word, static_cast<dim_t>(find_word<X>("zero"))});
    else if (n != no_number)
      out.add({kind::number, n});
    else if (const std::size_t w = find_word<X>(text); w < words_by_hash<X>.count)
      out.add({kind::word, static_cast<dim_t>(w)});
    else
      out.add({kind::letters, 0, i, size});
    i = end;
  }
  end_clause();
  return out;
}

// Templates of sentences are few: each one costs clang as much as the sentence has room for
// characters. The others take a reference to the constant below.
// `encode` is of a dependent void, or clang would make the table of words where it reads this.
template <path_text Path, sentence Message>
inline constexpr encoded_sentence encoded = encode<std::enable_if_t<Message.size() != 0>>(Path,
                                                                                          Message);

template <const encoded_sentence& E, std::size_t Begin, std::size_t... I>
letters<E.text.data[Begin + I]...>* spell_letters(std::index_sequence<I...>);
template <const encoded_sentence& E, std::size_t... I>
at<E.path.data[I]...>* spell_path(std::index_sequence<I...>);

template <const encoded_sentence& E, encoded_sentence::kind, dim_t, std::size_t, std::size_t>
struct type_of_code;
template <const encoded_sentence& E, dim_t W, std::size_t B, std::size_t N>
struct type_of_code<E, encoded_sentence::kind::word, W, B, N>
    : std::type_identity<word<static_cast<std::size_t>(W)>> {};
template <const encoded_sentence& E, dim_t Number, std::size_t B, std::size_t N>
struct type_of_code<E, encoded_sentence::kind::number, Number, B, N>
    : std::type_identity<number_word[Number]> {};
template <const encoded_sentence& E, dim_t W, std::size_t B, std::size_t N>
struct type_of_code<E, encoded_sentence::kind::letters, W, B, N>
    : std::remove_pointer<decltype(spell_letters<E, B>(std::make_index_sequence<N>{}))> {};
template <const encoded_sentence& E, dim_t W, std::size_t B, std::size_t N>
struct type_of_code<E, encoded_sentence::kind::path, W, B, N>
    : std::remove_pointer<decltype(spell_path<E>(std::make_index_sequence<E.path.size()>{}))> {};

template <const encoded_sentence& E, std::size_t... I>
refused<typename type_of_code<E, E.at[I].what, E.at[I].value, E.at[I].begin,
                              E.at[I].size>::type...>* in_words(std::index_sequence<I...>);

template <path_text Path, dim_t, dim_t, sentence Message>
using refusal_t = std::remove_pointer_t<decltype(in_words<encoded<Path, Message>>(
    std::make_index_sequence<encoded<Path, Message>.count>{}))>;

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

/// The result of a search that found a misuse.
template <template <bool> class Misuse>
struct because {};
template <template <bool> class Misuse>
auto declared(because<Misuse>) -> decltype(declared(std::type_identity<Misuse<false>>{}));

/// false, but not before T... are known.
template <class... T>
inline constexpr bool later = sizeof...(T) == ~std::size_t{};

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

/// The same for a misuse by arguments of types T...
template <template <bool> class Misuse, class... T>
auto refuse_for() -> decltype(refuse_as<Misuse<later<T...>>>());

/// An argument of a refused call. Not a template parameter, for which g++ also reports that a
/// function with a local type is not defined.
struct anything {
  template <class X>
  anything(const X&) {}
};

}  // namespace detail
}  // namespace ikebana
