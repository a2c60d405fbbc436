#pragma once

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// It takes std::FILE and std::size_t as known.
#include <jpeglib.h>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/posix_file.hpp"

// PNG and JPEG files as tensors. Opt-in: needs libpng and libjpeg (Debian: libpng-dev, libjpeg-dev;
// Bazel: //:images; otherwise link -lpng -ljpeg).

namespace ikebana {

namespace detail {

/// An image of 8 bits per sample, rows of pixels of interleaved channels.
struct pixels {
  dim_t height = 0, width = 0, channels = 0;
  std::vector<unsigned char> samples;

  /// More than 2^28 bytes are refused: a header alone must not allocate all memory.
  void allocate(std::string_view path, std::uint64_t h, std::uint64_t w, std::uint64_t c) {
    if (h == 0 || w == 0 || h > (1U << 20) || w > (1U << 20) || h * w * c > (1U << 28))
      fail_io(path, "an image of " + std::to_string(w) + " x " + std::to_string(h) +
                        " pixels is empty or takes more than 2^28 bytes");
    height = static_cast<dim_t>(h);
    width = static_cast<dim_t>(w);
    channels = static_cast<dim_t>(c);
    samples.resize(h * w * c);
  }
};

/// As RGBA, since every PNG is that without loss but of bits beyond 8.
template <class = void>
pixels decode_png(std::string_view path, std::string_view file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  struct guard {
    png_image* of;
    ~guard() { png_image_free(of); }
  } const free_in_the_end{&image};
  if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0)
    fail_io(path, std::string("a damaged PNG file: ") + image.message);
  image.format = PNG_FORMAT_RGBA;
  pixels out;
  out.allocate(path, image.height, image.width, 4);
  if (png_image_finish_read(&image, nullptr, out.samples.data(), 0, nullptr) == 0 ||
      PNG_IMAGE_FAILED(image))
    fail_io(path, std::string("a damaged PNG file: ") + image.message);
  return out;
}

/// libjpeg reports errors by a jump, which must not pass objects of C++: each function that sets
/// one has none.
struct jpeg_reader {
  jpeg_decompress_struct state{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX]{};

  jpeg_reader() {
    state.err = jpeg_std_error(&errors);
    state.client_data = this;
    errors.error_exit = [](j_common_ptr s) {
      auto* const self = static_cast<jpeg_reader*>(s->client_data);
      s->err->format_message(s, self->message);
      std::longjmp(self->jump, 1);
    };
    // Warnings are of damaged data.
    errors.emit_message = [](j_common_ptr s, int level) {
      if (level < 0) s->err->error_exit(s);
    };
  }
  jpeg_reader(const jpeg_reader&) = delete;
  jpeg_reader& operator=(const jpeg_reader&) = delete;
  ~jpeg_reader() { jpeg_destroy_decompress(&state); }

  bool start(const unsigned char* bytes, std::size_t n, bool grey) {
    if (setjmp(jump) != 0) return false;
    jpeg_create_decompress(&state);
    jpeg_mem_src(&state, bytes, static_cast<unsigned long>(n));
    jpeg_read_header(&state, TRUE);
    state.out_color_space =
        grey || state.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    state.dct_method = JDCT_ISLOW;
    jpeg_calc_output_dimensions(&state);
    return true;
  }
  bool read(unsigned char* to) {
    if (setjmp(jump) != 0) return false;
    jpeg_start_decompress(&state);
    const std::size_t row = static_cast<std::size_t>(state.output_width) *
                            static_cast<unsigned>(state.output_components);
    while (state.output_scanline < state.output_height) {
      JSAMPROW at = to + row * state.output_scanline;
      jpeg_read_scanlines(&state, &at, 1);
    }
    jpeg_finish_decompress(&state);
    return true;
  }
};

/// With one channel if the file has one, or if that is asked for; otherwise with three.
template <class = void>
pixels decode_jpeg(std::string_view path, std::string_view file, bool grey) {
  jpeg_reader reader;
  const auto fail = [&] { fail_io(path, std::string("a damaged JPEG file: ") + reader.message); };
  if (!reader.start(reinterpret_cast<const unsigned char*>(file.data()), file.size(), grey)) fail();
  pixels out;
  out.allocate(path, reader.state.output_height, reader.state.output_width,
               static_cast<std::uint64_t>(reader.state.output_components));
  if (!reader.read(out.samples.data())) fail();
  return out;
}

template <class = void>
pixels decode_image(std::string_view path, std::string_view file, dim_t channels) {
  if (file.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(path, file);
  if (file.starts_with("\xff\xd8\xff")) return decode_jpeg(path, file, channels == 1);
  fail_io(path, "expected a PNG or JPEG file, got " + in_quotes(file, 8));
}

template <class T, shape S>
tensor<T, S> parse_image(std::string_view path, std::string_view file) {
  static_assert(S.rank() == 3 && (S[0] == 1 || S[0] == 3 || S[0] == 4),
                "ikebana: an image is a tensor [1, 3 or 4, height, width]");
  static_assert(std::is_floating_point_v<T> || std::is_same_v<T, std::uint8_t>,
                "ikebana: images are read as floating-point numbers or std::uint8_t");
  constexpr dim_t channels = S[0];
  const pixels in = decode_image(path, file, channels);
  const shape extents{channels, in.height, in.width};
  if (!compatible(S, extents))
    throw shape_error(diagnostic{"load_image expects {input}, got {other}", 0, 0, S, extents});
  tensor<T, S> out(extents);
  const dim_t area = in.height * in.width;
  for (dim_t i = 0; i < area; ++i) {
    const unsigned char* const p = in.samples.data() + i * in.channels;
    for (dim_t c = 0; c < channels; ++c) {
      unsigned value = 255;  // An image without alpha is opaque.
      if (in.channels < 3)
        value = c < 3 ? p[0] : 255;
      else if (channels == 1)  // ITU-R 601, as in JPEG; exact for equal channels.
        value = (299U * p[0] + 587U * p[1] + 114U * p[2] + 500U) / 1000U;
      else if (c < in.channels)
        value = p[c];
      if constexpr (std::is_floating_point_v<T>)
        out.data()[c * area + i] = static_cast<T>(value) / 255;
      else
        out.data()[c * area + i] = static_cast<T>(value);
    }
  }
  return out;
}

}  // namespace detail

/// Reads a PNG or JPEG file as a tensor [channels, height, width] of one (grey), three (RGB) or
/// four channels (RGBA), of std::uint8_t or of numbers in [0, 1]: `load_image<float, shape{3, 32,
/// 32}>("cat.png")`, `load_image<std::uint8_t, shape{3, dynamic, dynamic}>(path)`. Colours become
/// grey by the weights of ITU-R 601; alpha is dropped where it is not asked for (torchvision's
/// read_image). More than 8 bits are rounded; an orientation in EXIF data is not applied. Throws
/// io_error for a file that is damaged, of another format or of more than 2^28 bytes of pixels;
/// shape_error for another shape. Allocates; O(pixels).
template <class T, shape S>
tensor<T, S> load_image(const std::filesystem::path& path) {
  return detail::parse_image<T, S>(path.string(), detail::read_file(path.string()));
}

/// Writes a tensor [1, 3 or 4, height, width] of std::uint8_t or of numbers in [0, 1], which are
/// rounded and limited to that, as a PNG file. The file appears completely or not at all. Throws
/// io_error; shape_error for another shape. Allocates; O(pixels).
template <tensor_like X>
void save_png(const std::filesystem::path& path, const X& x) {
  using T = typename X::value_type;
  static_assert(std::is_floating_point_v<T> || std::is_same_v<T, std::uint8_t>,
                "ikebana: save_png writes floating-point numbers or std::uint8_t");
  const shape s = x.extents();
  if (s.rank() != 3 || (s[0] != 1 && s[0] != 3 && s[0] != 4) || s.numel() == 0)
    throw shape_error(
        diagnostic{"save_png expects an image [1, 3 or 4, height, width], got {input}", 0, 0, s});
  const dim_t channels = s[0], area = s[1] * s[2];
  std::vector<unsigned char> interleaved(static_cast<std::size_t>(s.numel()));
  for (dim_t c = 0; c < channels; ++c)
    for (dim_t i = 0; i < area; ++i) {
      unsigned char& to = interleaved[static_cast<std::size_t>(i * channels + c)];
      const T value = x.data()[c * area + i];
      if constexpr (std::is_floating_point_v<T>)  // A NaN is black.
        to = static_cast<unsigned char>(value > 0 ? std::min(value, T{1}) * 255 + T{0.5} : T{0});
      else
        to = value;
    }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(s[1]);
  image.width = static_cast<png_uint_32>(s[2]);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = 0;
  if (png_image_write_get_memory_size(image, bytes, 0, interleaved.data(), 0, nullptr) == 0)
    detail::fail_io(path.string(), std::string("cannot write: ") + image.message);
  std::vector<unsigned char> encoded(bytes);
  if (png_image_write_to_memory(&image, encoded.data(), &bytes, 0, interleaved.data(), 0,
                                nullptr) == 0)
    detail::fail_io(path.string(), std::string("cannot write: ") + image.message);
  detail::atomic_file file(path);
  file.write(std::as_bytes(std::span(encoded.data(), bytes)));
  file.commit();
}

}  // namespace ikebana
