#include "ikebana/io/image_file.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

template <class X>
std::vector<int> values(const X& x) {
  return {x.begin(), x.end()};
}
using list = std::vector<int>;
constexpr shape any_rgb{3, dynamic, dynamic}, any_grey{1, dynamic, dynamic},
    any_rgba{4, dynamic, dynamic};

/// The colour of a block of 8 x 8 pixels.
constexpr int blocks[4][3] = {{255, 0, 0}, {0, 128, 0}, {20, 40, 200}, {255, 255, 255}};

/// A JPEG file of 16 x 16 pixels in four blocks, as libjpeg writes it. A grey one has 48 columns,
/// the channels of each pixel.
std::string jpeg(bool grey = false) {
  jpeg_compress_struct state{};
  jpeg_error_mgr errors{};
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* bytes = nullptr;
  unsigned long n = 0;
  jpeg_mem_dest(&state, &bytes, &n);
  state.image_width = grey ? 48 : 16;
  state.image_height = 16;
  state.input_components = grey ? 1 : 3;
  state.in_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&state);
  jpeg_set_quality(&state, 100, TRUE);
  state.comp_info[0].h_samp_factor = state.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&state, TRUE);
  for (int i = 0; i < 16; ++i) {
    unsigned char row[48];
    for (int j = 0; j < 48; ++j)
      row[j] = static_cast<unsigned char>(blocks[2 * (i / 8) + j / 24][j % 3]);
    JSAMPROW at = row;
    jpeg_write_scanlines(&state, &at, 1);
  }
  jpeg_finish_compress(&state);
  const std::string file(reinterpret_cast<char*>(bytes), n);
  jpeg_destroy_compress(&state);
  std::free(bytes);
  return file;
}

}  // namespace

TEST_CASE("a PNG file is read with the channels that are asked for") {
  const char* const path = "test/data/image.png";
  const auto rgb = ike::load_image<std::uint8_t, any_rgb>(path);
  CHECK(rgb.extents() == shape{3, 2, 3});
  CHECK(values(rgb) == list{255, 0, 0, 10, 10, 255,  //
                            0, 255, 0, 20, 20, 0,    //
                            0, 0, 255, 30, 30, 0});
  const auto alpha = ike::load_image<std::uint8_t, shape{4, 2, 3}>(path);
  CHECK(list{alpha.begin() + 18, alpha.end()} == list{255, 255, 255, 128, 128, 255});
  CHECK(values(ike::load_image<std::uint8_t, any_grey>(path)) == list{76, 150, 29, 18, 18, 76});
  const auto numbers = ike::load_image<double, any_rgb>(path);
  CHECK(numbers[3] == 10. / 255);
  CHECK(message_of<ike::shape_error>([&] {
          ike::load_image<float, shape{3, 2, 2}>(path);
        }) == "load_image expects [3, 2, 2], got [3, 2, 3]");
}

TEST_CASE("images that were saved are read again") {
  scratch_directory scratch;
  const auto path = scratch.path() / "a.png";
  ike::tensor<std::uint8_t, shape{4, 3, 5}> x;
  for (dim_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(4 * i);
  ike::save_png(path, x);
  CHECK(values(ike::load_image<std::uint8_t, any_rgba>(path)) == values(x));
  ike::tensor<float, shape{1, 1, 4}> grey;
  grey[0] = -1;
  grey[1] = 0.5F;
  grey[2] = 7;
  grey[3] = std::numeric_limits<float>::quiet_NaN();
  ike::save_png(path, grey);
  CHECK(values(ike::load_image<std::uint8_t, any_grey>(path)) == list{0, 128, 255, 0});
  CHECK(values(ike::load_image<std::uint8_t, any_rgba>(path)) ==
        list{0, 128, 255, 0, 0, 128, 255, 0, 0, 128, 255, 0, 255, 255, 255, 255});
  CHECK_THROWS_AS(ike::save_png(path, ike::zeros<float, shape{2, 3, 3}>()), ike::shape_error);
  CHECK_THROWS_AS(ike::save_png(path, ike::zeros<float, shape{3, 0, 3}>()), ike::shape_error);
  CHECK_THROWS_AS(ike::save_png(scratch.path() / "none" / "a.png", grey), ike::io_error);
  CHECK(values(ike::load_image<std::uint8_t, any_grey>(path)) == list{0, 128, 255, 0});
}

TEST_CASE("a JPEG file is read as what was compressed, to rounding") {
  scratch_directory scratch;
  const auto path = scratch.path() / "a.jpg";
  scratch.write("a.jpg", jpeg());
  const auto rgb = ike::load_image<std::uint8_t, any_rgb>(path);
  const auto grey = ike::load_image<std::uint8_t, shape{1, 16, 16}>(path);
  REQUIRE(rgb.extents() == shape{3, 16, 16});
  for (dim_t i = 0; i < 16; ++i)
    for (dim_t j = 0; j < 16; ++j) {
      const int* const c = blocks[2 * (i / 8) + j / 8];
      for (dim_t k = 0; k < 3; ++k) CHECK(std::abs(rgb(k, i, j) - c[k]) <= 3);
      CHECK(std::abs(grey(0, i, j) - (0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2])) <= 2);
    }
  CHECK(values(ike::load_image<std::uint8_t, any_rgb>("test/data/image.jpg")) == values(rgb));
  scratch.write("a.jpg", jpeg(true));
  const auto opaque = ike::load_image<std::uint8_t, any_rgba>(path);
  REQUIRE(opaque.extents() == shape{4, 16, 48});
  CHECK(opaque(1, 9, 45) == opaque(0, 9, 45));
  CHECK(opaque(3, 9, 2) == 255);
  CHECK(std::abs(opaque(0, 9, 2) - 200) <= 40);
}

TEST_CASE("damaged images are refused") {
  scratch_directory scratch;
  const auto refused = [&](const std::string& file) {
    scratch.write("x", file);
    return message_of<ike::io_error>(
               [&] { ike::load_image<std::uint8_t, any_rgb>(scratch.path() / "x"); })
        .substr((scratch.path() / "x").string().size());
  };
  const std::string jpg = jpeg();
  CHECK(refused(jpg.substr(0, jpg.size() / 2)).starts_with(": a damaged JPEG file: Premature end"));
  CHECK(refused(jpg.substr(0, 20)).starts_with(": a damaged JPEG file: "));
  const std::string png = ike::detail::read_file("test/data/image.png");
  CHECK(refused(png.substr(0, 60)).starts_with(": a damaged PNG file: "));
  std::string large = png;
  large[17] = large[21] = 1;  // Width and height; the checksum is then wrong, too.
  CHECK(refused(large) != "");
  CHECK(refused("GIF89a..") == ": expected a PNG or JPEG file, got \"GIF89a..\"");
  ike::detail::pixels none;
  CHECK_THROWS_AS(none.allocate("x", 1 << 15, 1 << 15, 3), ike::io_error);
  CHECK_THROWS_AS(none.allocate("x", 0, 1, 3), ike::io_error);
}
