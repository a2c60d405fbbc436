#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// 2^n names whose FNV-1a hashes share their 20 low bits: n pairs of blocks that lead from one
/// 2^n names whose FNV-1a hashes share their 20 low bits: all combinations of n pairs of blocks,
/// where both blocks of a pair lead from one state to the same next state (Joux, Multicollisions in
/// iterated hash functions, 2004).
inline std::vector<std::string> colliding_names(int n) {
  const auto fnv = [](std::uint32_t h, std::string_view s) {
    for (char c : s) h = ((h ^ static_cast<unsigned char>(c)) * 0x100000001b3u) & 0xfffffu;
    return h;
  };
  std::vector<std::string> names{""};
  std::uint32_t state = 0xcbf29ce484222325u & 0xfffffu;
  for (int k = 0; k < n; ++k) {
    std::map<std::uint32_t, std::string> seen;
    std::array<std::string, 2> pair;
    for (std::size_t i = 0; pair[1].empty(); ++i) {
      const std::string block{static_cast<char>('a' + i % 26), static_cast<char>('a' + i / 26 % 26),
                              static_cast<char>('A' + i / 676)};
      const auto [other, is_new] = seen.emplace(fnv(state, block), block);
      if (!is_new) pair = {other->second, block};
    }
    state = fnv(state, pair[0]);
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& block : pair) longer.push_back(name + block);
    names.swap(longer);
  }
  return names;
}
