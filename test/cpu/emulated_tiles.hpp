#pragma once

// Runs AMX and AVX512-BF16 code on machines with AVX-512 but without these extensions. The
// processor raises a signal, whose handler performs the instruction according to Intel's manual
// (volume 2) and continues after it. What the manual forbids ends the program. For one thread at a
// time.

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cpu_test {

struct emulated_tile {
  unsigned rows = 0, row_bytes = 0;
  unsigned char data[16][64] = {};
};

class emulated_tiles {
 public:
  emulated_tiles() {
    struct sigaction action = {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
    unsigned c = 0, d = 0;
    __get_cpuid_count(13, 6, &upper_size_, &upper_halves_, &c, &d);
    __get_cpuid_count(13, 7, &upper_size_, &upper_registers_, &c, &d);
  }
  ~emulated_tiles() { sigaction(SIGILL, &before_, nullptr); }
  emulated_tiles(const emulated_tiles&) = delete;
  emulated_tiles& operator=(const emulated_tiles&) = delete;

  /// The number of emulated instructions.
  static inline long instructions = 0;

 private:
  using tile = emulated_tile;
  static inline tile tiles_[8];
  static inline unsigned char configuration_[64];
  static inline unsigned upper_size_ = 0, upper_halves_ = 0, upper_registers_ = 0;
  struct sigaction before_ = {};

  [[noreturn]] static void refuse(const char* what) {
    std::fprintf(stderr, "emulated tiles: %s\n", what);
    std::abort();
  }

  static std::uint64_t general_register(const ucontext_t& u, unsigned i) {
    constexpr int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::uint64_t>(u.uc_mcontext.gregs[places[i]]);
  }

  /// An instruction's memory operand: its address without the index, and the index.
  struct memory_operand {
    std::uint64_t base = 0, index = 0;
    bool has_index = false;
    unsigned length = 0;  // Of ModRM, SIB and displacement.
  };
  static memory_operand decode(const ucontext_t& u, const unsigned char* modrm, bool x, bool b) {
    memory_operand m;
    const unsigned mod = modrm[0] >> 6, rm = modrm[0] & 7;
    unsigned at = 1;
    bool displaced = mod == 2;
    if (rm == 4) {
      const unsigned sib = modrm[at++];
      const unsigned index = ((sib >> 3) & 7) | (x ? 8u : 0u), base = sib & 7;
      m.has_index = index != 4;
      if (m.has_index) m.index = general_register(u, index) << (sib >> 6);
      if (mod == 0 && base == 5)
        displaced = true;
      else
        m.base = general_register(u, base | (b ? 8u : 0u));
    } else if (mod == 0 && rm == 5) {
      m.base = reinterpret_cast<std::uint64_t>(modrm) + 5;
      displaced = true;
    } else {
      m.base = general_register(u, rm | (b ? 8u : 0u));
    }
    if (displaced) {
      std::int32_t d;
      std::memcpy(&d, modrm + at, 4);
      m.base += static_cast<std::uint64_t>(std::int64_t{d});
      at += 4;
    } else if (mod == 1) {
      m.base += static_cast<std::uint64_t>(std::int64_t{static_cast<signed char>(modrm[at])});
      at += 1;
    }
    m.length = at;
    return m;
  }

  static void configure(const unsigned char* from) {
    for (tile& t : tiles_) t = tile{};
    std::memcpy(configuration_, from, 64);
    if (from[0] == 0) {
      std::memset(configuration_, 0, 64);
      return;
    }
    if (from[0] != 1) refuse("an unknown palette");
    for (int i = 2; i < 16; ++i)
      if (from[i] != 0) refuse("a reserved byte of the configuration is not zero");
    for (int i = 32; i < 48; ++i)
      if (from[i] != 0) refuse("a reserved byte of the configuration is not zero");
    for (int i = 56; i < 64; ++i)
      if (from[i] != 0) refuse("a reserved byte of the configuration is not zero");
    for (int t = 0; t < 8; ++t) {
      std::uint16_t bytes;
      std::memcpy(&bytes, from + 16 + 2 * t, 2);
      const unsigned rows = from[48 + t];
      if (bytes > 64 || rows > 16 || (bytes == 0) != (rows == 0)) refuse("a tile's size");
      tiles_[t].rows = rows;
      tiles_[t].row_bytes = bytes;
    }
  }

  static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f * x : x; }
  static float of_bf16(const unsigned char* p) {
    std::uint16_t bits;
    std::memcpy(&bits, p, 2);
    return flushed(std::bit_cast<float>(std::uint32_t{bits} << 16));
  }

  static std::uint16_t rounded(const unsigned char* p) {
    float x;
    std::memcpy(&x, p, 4);
    const auto bits = std::bit_cast<std::uint32_t>(flushed(x));
    if (x != x) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }

  static tile& valid(unsigned t) {
    if (t > 7 || tiles_[t].rows == 0 || tiles_[t].row_bytes % 4 != 0)
      refuse("a tile that is not configured");
    return tiles_[t];
  }

  template <class Word>
  static void multiply(unsigned to, unsigned first, unsigned second, Word word) {
    if (to == first || to == second || first == second) refuse("a product of a tile with itself");
    tile &c = valid(to), &a = valid(first), &b = valid(second);
    if (c.rows != a.rows || a.row_bytes / 4 != b.rows || c.row_bytes != b.row_bytes)
      refuse("a product of tiles that do not fit");
    for (unsigned m = 0; m < c.rows; ++m)
      for (unsigned n = 0; n < c.row_bytes / 4; ++n) word(c, a, b, m, n);
    for (unsigned m = c.rows; m < 16; ++m) std::memset(c.data[m], 0, 64);
  }
  static void multiply_bf16(tile& c, const tile& a, const tile& b, unsigned m, unsigned n) {
    float even = 0, odd = 0, sum;
    for (unsigned k = 0; k < b.rows; ++k) {
      even = flushed(std::fmaf(of_bf16(a.data[m] + 4 * k), of_bf16(b.data[k] + 4 * n), even));
      odd = flushed(std::fmaf(of_bf16(a.data[m] + 4 * k + 2), of_bf16(b.data[k] + 4 * n + 2), odd));
    }
    std::memcpy(&sum, c.data[m] + 4 * n, 4);
    sum = flushed(flushed(sum) + flushed(even + odd));
    std::memcpy(c.data[m] + 4 * n, &sum, 4);
  }
  static void multiply_bytes(tile& c, const tile& a, const tile& b, unsigned m, unsigned n) {
    std::int32_t sum;
    std::memcpy(&sum, c.data[m] + 4 * n, 4);
    for (unsigned k = 0; k < b.rows; ++k)
      for (unsigned e = 0; e < 4; ++e)
        sum = static_cast<std::int32_t>(
            static_cast<std::uint32_t>(sum) +
            static_cast<std::uint32_t>(int{a.data[m][4 * k + e]} *
                                       int{static_cast<signed char>(b.data[k][4 * n + e])}));
    std::memcpy(c.data[m] + 4 * n, &sum, 4);
  }

  /// The length of the emulated instruction, or 0.
  static unsigned run_vex(const ucontext_t& u, const unsigned char* at) {
    if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || (at[2] & 0x84) != 0) return 0;
    const bool r = (at[1] & 0x80) == 0, x = (at[1] & 0x40) == 0, b = (at[1] & 0x20) == 0;
    const unsigned second = (~at[2] >> 3) & 15, prefix = at[2] & 3, opcode = at[3];
    const unsigned char* const modrm = at + 4;
    const unsigned reg = ((modrm[0] >> 3) & 7) | (r ? 8u : 0u), rm = modrm[0] & 7;
    const bool in_memory = modrm[0] < 0xC0;
    if (in_memory) {
      const memory_operand m = decode(u, modrm, x, b);
      auto* const p = reinterpret_cast<unsigned char*>(m.base + m.index);
      if (opcode == 0x49 && prefix == 0 && reg == 0) {
        configure(p);
      } else if (opcode == 0x49 && prefix == 1 && reg == 0) {
        std::memcpy(p, configuration_, 64);
      } else if (opcode == 0x4B && prefix != 0) {
        if (rm != 4) refuse("a tile in memory without a stride");
        tile& t = valid(reg);
        auto* row = reinterpret_cast<unsigned char*>(m.base);
        for (unsigned i = 0; i < t.rows; ++i, row += m.index)
          if (prefix == 2)
            std::memcpy(row, t.data[i], t.row_bytes);
          else
            std::memcpy(t.data[i], row, t.row_bytes);
      } else {
        return 0;
      }
      return 4 + m.length;
    }
    if (opcode == 0x49 && prefix == 0 && modrm[0] == 0xC0) {
      const unsigned char none[64] = {};
      configure(none);
    } else if (opcode == 0x49 && prefix == 3 && rm == 0) {
      std::memset(valid(reg).data, 0, sizeof(tile::data));
    } else if (opcode == 0x5E && prefix == 1) {
      multiply(reg, rm | (b ? 8u : 0u), second, &multiply_bytes);
    } else if (opcode == 0x5C && prefix == 2) {
      multiply(reg, rm | (b ? 8u : 0u), second, &multiply_bf16);
    } else {
      return 0;
    }
    return 5;
  }

  /// The parts of a 64-byte register in the saved state.
  static void copy_register(unsigned char* area, unsigned i, unsigned char* value, bool write) {
    const auto copy = [&](unsigned offset, unsigned from, unsigned count) {
      write ? std::memcpy(area + offset, value + from, count)
            : std::memcpy(value + from, area + offset, count);
    };
    if (i >= 16) return copy(upper_registers_ + 64 * (i - 16), 0, 64);
    copy(160 + 16 * i, 0, 16);
    copy(576 + 16 * i, 16, 16);
    copy(upper_halves_ + 32 * i, 32, 32);
  }
  static unsigned run_evex(ucontext_t& u, const unsigned char* at) {
    // vdpbf16ps and vcvtne2ps2bf16 with three full registers, without a mask.
    if (at[0] != 0x62 || (at[1] & 7) != 2 || (at[2] & 0x84) != 4 || at[5] < 0xC0) return 0;
    const bool rounds = (at[2] & 3) == 3 && at[4] == 0x72;
    if (!rounds && ((at[2] & 3) != 2 || at[4] != 0x52)) return 0;
    if ((at[3] & 0xF7) != 0x40) refuse("a form of an instruction that is not known here");
    const unsigned modrm = at[5];
    const unsigned to = ((modrm >> 3) & 7) | (at[1] & 0x80 ? 0u : 8u) | (at[1] & 0x10 ? 0u : 16u),
                   first = ((~at[2] >> 3) & 15) | (at[3] & 8 ? 0u : 16u),
                   second = (modrm & 7) | (at[1] & 0x20 ? 0u : 8u) | (at[1] & 0x40 ? 0u : 16u);
    auto* const area = reinterpret_cast<unsigned char*>(u.uc_mcontext.fpregs);
    // Registers in their initial state are not saved, so memory may contain anything there.
    std::uint64_t saved;
    std::memcpy(&saved, area + 512, 8);
    if ((saved & 4) == 0) std::memset(area + 576, 0, 256);
    if ((saved & 64) == 0) std::memset(area + upper_halves_, 0, 512);
    if ((saved & 128) == 0) std::memset(area + upper_registers_, 0, 1024);
    if ((saved & 2) == 0) std::memset(area + 160, 0, 256);
    saved |= 2 | 4 | 64 | 128;
    std::memcpy(area + 512, &saved, 8);
    unsigned char c[64], a[64], b[64];
    copy_register(area, to, c, false);
    copy_register(area, first, a, false);
    copy_register(area, second, b, false);
    for (unsigned i = 0; rounds && i < 32; ++i) {
      const std::uint16_t y = rounded(i < 16 ? b + 4 * i : a + 4 * (i - 16));
      std::memcpy(c + 2 * i, &y, 2);
    }
    for (unsigned i = 0; !rounds && i < 64; i += 4) {
      float sum;
      std::memcpy(&sum, c + i, 4);
      sum = flushed(std::fmaf(of_bf16(a + i + 2), of_bf16(b + i + 2), flushed(sum)));
      sum = flushed(std::fmaf(of_bf16(a + i), of_bf16(b + i), sum));
      std::memcpy(c + i, &sum, 4);
    }
    copy_register(area, to, c, true);
    return 6;
  }

  static void on_signal(int, siginfo_t*, void* context) {
    auto& u = *static_cast<ucontext_t*>(context);
    auto& rip = u.uc_mcontext.gregs[REG_RIP];
    const auto* const at = reinterpret_cast<const unsigned char*>(rip);
    unsigned length = run_vex(u, at);
    if (length == 0) length = run_evex(u, at);
    if (length == 0) refuse("an instruction that is not known here");
    rip += length;
    ++instructions;
  }
};

}  // namespace cpu_test

#endif
