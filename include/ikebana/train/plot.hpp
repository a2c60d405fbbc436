#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/zip.hpp"
#include "ikebana/train/metrics.hpp"

namespace ikebana {

/// A line of plot::curves. Without x, the values stand at 1, 2, 3, ...; where y is not a number,
/// the line is interrupted.
struct curve {
  std::string name;
  std::vector<double> y;
  std::vector<double> x = {};
};

/// Options of plot::curves.
struct curve_options {
  std::string title = {};
  std::string x_label = "epoch";
  bool logarithmic_x = false, logarithmic_y = false;
};

/// Panels side by side, written as an SVG file:
///
///     plot figure;
///     figure.curves({.title = "loss"}, {{"train", train_losses}, {"test", test_losses}});
///     figure.confusion("test set", matrix, {"cat", "dog"});
///     figure.weights("fc1.weight", model["fc1.weight"_s]);
///     figure.images("samples", x);
///     figure.save("run.svg");
///
/// Each function allocates. A template, so that it is compiled only where it is used.
template <class>
class basic_plot {
 public:
  /// The number of panels in a row.
  explicit basic_plot(int columns = 3) : columns_{columns < 1 ? 1 : columns} {}

  /// Curves with common axes. On a logarithmic axis only positive numbers are drawn.
  basic_plot& curves(const curve_options& options, const std::vector<curve>& lines) {
    const auto scale_x = [&](double v) { return options.logarithmic_x ? std::log10(v) : v; };
    const auto scale_y = [&](double v) { return options.logarithmic_y ? std::log10(v) : v; };
    const auto x_of = [&](const curve& line, std::size_t i) {
      return scale_x(line.x.empty() ? static_cast<double>(i + 1) : line.x[i]);
    };
    interval in_x, in_y;
    bool whole = !options.logarithmic_x;
    for (const curve& line : lines) {
      if (!line.x.empty() && line.x.size() != line.y.size())
        throw error("plot: the curve " + line.name + " has " + std::to_string(line.x.size()) +
                    " x and " + std::to_string(line.y.size()) + " y");
      whole = whole && line.x.empty();
      for (std::size_t i = 0; i < line.y.size(); ++i) {
        const double x = x_of(line, i), y = scale_y(line.y[i]);
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        in_x.add(x);
        in_y.add(y);
      }
    }
    in_x.widen();
    in_y.widen();
    constexpr double left = 62, right = width - 22, top = 56, bottom = height - 46;
    const auto at_x = [&](double v) {
      return left + (right - left) * (v - in_x.low) / (in_x.high - in_x.low);
    };
    const auto at_y = [&](double v) {
      return bottom + (top - bottom) * (v - in_y.low) / (in_y.high - in_y.low);
    };
    std::string s = title_text(options.title);
    for (int tick = 0; tick <= 4; ++tick) {
      const double v = in_y.low + (in_y.high - in_y.low) * tick / 4, y = at_y(v);
      s += line_from(left, y, right, y, "#e0e0e0");
      s += text_at(left - 6, y + 4, "end", number(options.logarithmic_y ? std::pow(10, v) : v));
    }
    const double step = whole ? std::max(1.0, std::ceil((in_x.high - in_x.low + 1) / 5))
                              : (in_x.high - in_x.low) / 4;
    for (double v = in_x.low; v <= in_x.high + 1e-9 * step; v += step)
      s += text_at(at_x(v), bottom + 16, "middle",
                   number(options.logarithmic_x ? std::pow(10, v) : v));
    s += text_at((left + right) / 2, height - 10, "middle", options.x_label);
    s += "<path d=\"M" + number(left) + " " + number(top) + " V" + number(bottom) + " H" +
         number(right) + "\" fill=\"none\" stroke=\"#404040\"/>\n";
    double legend = left;
    for (std::size_t l = 0; l < lines.size(); ++l) {
      const std::string colour = colours[l % std::size(colours)];
      std::string points;
      std::size_t run = 0;
      const auto end_run = [&] {
        if (run == 1)
          s += "<circle r=\"2.5\" fill=\"" + colour + "\" cx=\"" +
               points.substr(0, points.find(',')) + "\" cy=\"" +
               points.substr(points.find(',') + 1) + "\"/>\n";
        else if (run > 1)
          s += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + colour + "\" points=\"" +
               points + "\"/>\n";
        points.clear();
        run = 0;
      };
      for (std::size_t i = 0; i < lines[l].y.size(); ++i) {
        const double x = x_of(lines[l], i), y = scale_y(lines[l].y[i]);
        if (!std::isfinite(x) || !std::isfinite(y)) {
          end_run();
          continue;
        }
        points += (run++ == 0 ? "" : " ") + number(at_x(x), 5) + "," + number(at_y(y), 5);
      }
      end_run();
      s += rectangle(legend, top - 20, 12, 4, colour);
      s += text_at(legend + 18, top - 14, "start", lines[l].name);
      legend += 32 + 7 * static_cast<double>(lines[l].name.size());
    }
    panels_.push_back(std::move(s));
    return *this;
  }

  /// A confusion matrix: true classes as rows, shaded by their share of the row. Without names,
  /// classes are numbered.
  basic_plot& confusion(std::string_view title, const confusion_matrix& matrix,
                        const std::vector<std::string>& names = {}) {
    const dim_t n = matrix.classes();
    const auto name = [&](dim_t c) {
      return static_cast<std::size_t>(c) < names.size() ? names[static_cast<std::size_t>(c)]
                                                        : std::to_string(c);
    };
    constexpr double left = 96, top = 50;
    const double side = (height - top - 46) / static_cast<double>(n < 1 ? 1 : n);
    std::string s = title_text(title);
    const double font = std::min(12.0, 0.42 * side);
    for (dim_t i = 0; i < n; ++i) {
      const double y = top + side * static_cast<double>(i);
      std::int64_t row = 0;
      for (dim_t j = 0; j < n; ++j) row += matrix.count(i, j);
      s += text_at(left - 6, y + 0.5 * side + 0.35 * font, "end", name(i), font);
      s += text_at(left + side * (static_cast<double>(i) + 0.5),
                   top + side * static_cast<double>(n) + 4 + font, "middle", name(i), font);
      for (dim_t j = 0; j < n; ++j) {
        const double share =
            row == 0 ? 0 : static_cast<double>(matrix.count(i, j)) / static_cast<double>(row);
        const double x = left + side * static_cast<double>(j);
        s += rectangle(x, y, side, side, hex(blend({255, 255, 255}, {31, 111, 139}, share)),
                       " stroke=\"#d0d0d0\" stroke-width=\"0.5\"");
        if (matrix.count(i, j) != 0)
          s += text_at(x + 0.5 * side, y + 0.5 * side + 0.35 * font, "middle",
                       std::to_string(matrix.count(i, j)), font, share > 0.5 ? "white" : "#202020");
      }
    }
    s += text_at(left + side * static_cast<double>(n) / 2, height - 6, "middle", "predicted");
    panels_.push_back(std::move(s));
    return *this;
  }

  /// A tensor as colours: blue where it is negative, white at 0, red where it is positive. A vector
  /// is one row, a matrix itself; kernels [out, in, height, width] are tiles in `out` rows and `in`
  /// columns. Throws shape_error for another rank.
  template <tensor_like X>
  basic_plot& weights(std::string_view title, const X& x) {
    const shape e = x.extents();
    const std::size_t rank = e.rank();
    if (rank != 1 && rank != 2 && rank != 4)
      throw shape_error(
          diagnostic{"plot::weights expects a tensor of rank 1, 2 or 4, got {input}", 0, 0, e});
    const dim_t h = rank == 4 ? e[2] : 1, w = rank == 4 ? e[3] : 1;
    const dim_t tile_rows = rank == 1 ? 1 : e[0], tile_columns = rank == 1 ? e[0] : e[1];
    double most = 0;
    for (dim_t i = 0; i < e.numel(); ++i) {
      const auto v = static_cast<double>(x.data()[i]);
      if (std::isfinite(v)) most = std::max(most, std::abs(v));
    }
    raster picture(tile_rows, tile_columns, h, w, rank == 4 ? 1 : 0);
    for (dim_t i = 0; i < e.numel(); ++i) {
      const auto v = static_cast<double>(x.data()[i]);
      const double share = most > 0 && std::isfinite(v) ? v / most : 0;
      picture.set(i / (w * h) / tile_columns, i / (w * h) % tile_columns, i / w % h, i % w,
                  !std::isfinite(v) ? rgb{0, 0, 0}
                  : share < 0       ? blend({255, 255, 255}, {31, 80, 150}, -share)
                                    : blend({255, 255, 255}, {178, 45, 40}, share));
    }
    panels_.push_back(title_text(title) + picture.embed() +
                      text_at(width / 2, height - 8, "middle",
                              "-" + number(most) + " (blue) to " + number(most) + " (red)"));
    return *this;
  }

  /// Images [N, channels, height, width], [channels, height, width] or [height, width] with 1 or 3
  /// channels, as tiles. Black is the least value of all, white the largest. Throws shape_error for
  /// another shape.
  template <tensor_like X>
  basic_plot& images(std::string_view title, const X& x) {
    shape e = x.extents();
    while (e.rank() < 4 && e.rank() >= 2) {
      shape wider{1};
      for (const dim_t d : e) wider.push_back(d);
      e = wider;
    }
    if (e.rank() != 4 || (e[1] != 1 && e[1] != 3))
      throw shape_error(
          diagnostic{"plot::images expects images [N, 1 or 3, height, width], got {input}", 0, 0,
                     x.extents()});
    const dim_t n = e[0], channels = e[1], h = e[2], w = e[3];
    interval in;
    for (dim_t i = 0; i < e.numel(); ++i) {
      const auto v = static_cast<double>(x.data()[i]);
      if (std::isfinite(v)) in.add(v);
    }
    in.widen();
    const auto columns = static_cast<dim_t>(
        std::ceil(std::sqrt(static_cast<double>(n) * static_cast<double>(h < 1 ? 1 : h) /
                            static_cast<double>(w < 1 ? 1 : w))));
    raster picture(columns < 1 ? 1 : (n + columns - 1) / columns, columns < 1 ? 1 : columns, h, w,
                   n > 1 ? 1 : 0);
    const auto level = [&](dim_t at) {
      const auto v = static_cast<double>(x.data()[at]);
      return std::isfinite(v)
                 ? static_cast<unsigned char>(255 * (v - in.low) / (in.high - in.low) + 0.5)
                 : static_cast<unsigned char>(0);
    };
    for (dim_t k = 0; k < n; ++k)
      for (dim_t i = 0; i < h * w; ++i) {
        const dim_t first = k * channels * h * w + i, step = channels == 3 ? h * w : 0;
        picture.set(k / columns, k % columns, i / w, i % w,
                    {level(first), level(first + step), level(first + 2 * step)});
      }
    panels_.push_back(title_text(title) + picture.embed());
    return *this;
  }

  /// The figure as SVG.
  std::string to_svg() const {
    const auto n = static_cast<int>(panels_.size());
    const int columns = n < columns_ ? n : columns_;
    const int rows = columns == 0 ? 0 : (n + columns - 1) / columns;
    std::string s = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                    number(width * columns, 6) + "\" height=\"" + number(height * rows, 6) +
                    "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    for (int i = 0; i < n; ++i)
      s += "<g transform=\"translate(" + number(width * (i % columns), 6) + "," +
           number(height * (i / columns), 6) + ")\">\n" + panels_[static_cast<std::size_t>(i)] +
           "</g>\n";
    return s + "</svg>\n";
  }

  /// Writes the figure. Throws io_error.
  void save(const std::filesystem::path& path) const {
    std::ofstream file(path, std::ios::binary);
    file << to_svg();
    file.close();
    if (!file) throw io_error(path.string() + ": cannot write");
  }

 private:
  static constexpr double width = 420, height = 320;
  static constexpr const char* colours[] = {"#1f6f8b", "#c8553d", "#588157",
                                            "#6d597a", "#b08900", "#404040"};

  struct interval {
    double low = std::numeric_limits<double>::infinity(),
           high = -std::numeric_limits<double>::infinity();
    void add(double v) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
    /// Never empty.
    void widen() {
      if (low > high) low = 0, high = 1;
      if (!(high - low > 1e-9 * std::abs(low))) high = low + (low == 0 ? 1 : 0.1 * std::abs(low));
    }
  };

  struct rgb {
    unsigned char r, g, b;
  };
  static rgb blend(rgb from, rgb to, double share) {
    const auto between = [share](unsigned char a, unsigned char b) {
      return static_cast<unsigned char>(a + share * (b - a) + 0.5);
    };
    return {between(from.r, to.r), between(from.g, to.g), between(from.b, to.b)};
  }

  /// Tiles of pixels with gaps, as an image of its own inside of the SVG: a rectangle for each
  /// pixel would take 50 times the bytes.
  class raster {
   public:
    raster(dim_t rows, dim_t columns, dim_t h, dim_t w, dim_t gap)
        : h_{h + gap},
          w_{w + gap},
          height_{std::max(dim_t{1}, rows * h_ - gap)},
          width_{std::max(dim_t{1}, columns * w_ - gap)},
          pixels_(static_cast<std::size_t>(3 * height_ * width_), 208) {}

    void set(dim_t tile_row, dim_t tile_column, dim_t i, dim_t j, rgb c) {
      unsigned char* const to =
          pixels_.data() + 3 * ((tile_row * h_ + i) * width_ + tile_column * w_ + j);
      to[0] = c.r;
      to[1] = c.g;
      to[2] = c.b;
    }

    std::string embed() const {
      constexpr double left = 20, top = 36, most_wide = width - 40, most_high = height - 64;
      const double pixel = std::min(most_wide / static_cast<double>(width_),
                                    most_high / static_cast<double>(height_));
      const double wide = pixel * static_cast<double>(width_),
                   high = pixel * static_cast<double>(height_);
      return "<image x=\"" + number(left + (most_wide - wide) / 2, 5) + "\" y=\"" +
             number(top + (most_high - high) / 2, 5) + "\" width=\"" + number(wide, 5) +
             "\" height=\"" + number(high, 5) +
             "\" preserveAspectRatio=\"none\" "
             "style=\"image-rendering:pixelated\" "
             "href=\"data:image/png;base64," +
             base64(png()) + "\"/>\n";
    }

   private:
    /// A PNG file (ISO/IEC 15948) without compression.
    std::string png() const {
      std::string out = "\x89PNG\r\n\x1a\n";
      std::string header = big_endian(static_cast<std::uint32_t>(width_)) +
                           big_endian(static_cast<std::uint32_t>(height_));
      header += '\x08';
      header += '\x02';
      header += std::string(3, '\0');
      chunk(out, "IHDR", header);
      std::string raw;
      for (dim_t i = 0; i < height_; ++i) {
        raw += '\0';
        raw.append(reinterpret_cast<const char*>(pixels_.data()) + 3 * i * width_,
                   static_cast<std::size_t>(3 * width_));
      }
      std::string stream = "\x78\x01";
      std::uint32_t a = 1, b = 0;
      for (const char c : raw) {
        a = (a + static_cast<unsigned char>(c)) % 65521;
        b = (b + a) % 65521;
      }
      for (std::size_t at = 0; at < raw.size(); at += 65535) {
        const std::size_t n = std::min<std::size_t>(65535, raw.size() - at);
        stream += at + n == raw.size() ? '\1' : '\0';
        for (const std::size_t bits : {n, ~n})
          for (const int k : {0, 8}) stream += static_cast<char>(bits >> k & 0xff);
        stream.append(raw, at, n);
      }
      stream += big_endian(b << 16 | a);
      chunk(out, "IDAT", stream);
      chunk(out, "IEND", "");
      return out;
    }
    static std::string big_endian(std::uint32_t x) {
      std::string s;
      for (const int k : {24, 16, 8, 0}) s += static_cast<char>(x >> k & 0xff);
      return s;
    }
    static void chunk(std::string& out, const char* type, const std::string& data) {
      const std::string body = type + data;
      out += big_endian(static_cast<std::uint32_t>(data.size())) + body +
             big_endian(detail::crc32(body));
    }
    static std::string base64(const std::string& bytes) {
      constexpr std::string_view digits =
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      std::string out;
      for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t word = 0;
        for (std::size_t k = 0; k < 3; ++k)
          word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
        for (std::size_t k = 0; k < 4; ++k)
          out += i + k > bytes.size() ? '=' : digits[word >> (18 - 6 * k) & 63];
      }
      return out;
    }

    dim_t h_, w_, height_, width_;
    std::vector<unsigned char> pixels_;
  };

  static std::string number(double v, int digits = 3) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, v);
    return text;
  }
  static std::string escaped(std::string_view text) {
    std::string s;
    for (const char c : text)
      c == '<' ? s += "&lt;" : c == '>' ? s += "&gt;" : c == '&' ? s += "&amp;" : s += c;
    return s;
  }
  static std::string text_at(double x, double y, const char* anchor, std::string_view text,
                             double font = 12, const char* colour = "#202020") {
    return "<text x=\"" + number(x, 5) + "\" y=\"" + number(y, 5) + "\" text-anchor=\"" + anchor +
           "\" font-size=\"" + number(font) + "\" fill=\"" + colour + "\">" + escaped(text) +
           "</text>\n";
  }
  static std::string title_text(std::string_view title) {
    return text_at(width / 2, 22, "middle", title, 14);
  }
  static std::string line_from(double x1, double y1, double x2, double y2, const char* colour) {
    return "<line x1=\"" + number(x1, 5) + "\" y1=\"" + number(y1, 5) + "\" x2=\"" + number(x2, 5) +
           "\" y2=\"" + number(y2, 5) + "\" stroke=\"" + colour + "\"/>\n";
  }
  static std::string rectangle(double x, double y, double w, double h, const std::string& colour,
                               const char* more = "") {
    return "<rect x=\"" + number(x, 5) + "\" y=\"" + number(y, 5) + "\" width=\"" + number(w, 5) +
           "\" height=\"" + number(h, 5) + "\" fill=\"" + colour + "\"" + more + "/>\n";
  }
  static std::string hex(rgb c) {
    char text[8];
    std::snprintf(text, sizeof text, "#%02x%02x%02x", c.r, c.g, c.b);
    return text;
  }

  int columns_;
  std::vector<std::string> panels_;
};
using plot = basic_plot<void>;

}  // namespace ikebana
