#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/core/error.hpp"

/// A line of a plot: y over 1, 2, 3, ...
struct line_series {
  std::string name;
  std::vector<double> values;
};

/// A panel with its own axis and lines.
struct line_panel {
  std::string title;
  std::vector<line_series> lines;
  bool logarithmic = false;
};

/// Writes panels side by side as an SVG image. Throws ikebana::io_error.
inline void write_line_plot(const std::string& path, const std::string& x_label,
                            const std::vector<line_panel>& panels) {
  constexpr double width = 420, height = 320, left = 62, right = 22, top = 56, bottom = 46;
  const char* const colours[] = {"#1f6f8b", "#c8553d", "#588157", "#6d597a"};
  const auto number = [](double v) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", v);
    return std::string{text};
  };
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                    number(width * static_cast<double>(panels.size())) + "\" height=\"" +
                    number(height) +
                    "\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (std::size_t p = 0; p < panels.size(); ++p) {
    const line_panel& panel = panels[p];
    const auto scale = [&](double v) {
      return panel.logarithmic ? std::log10(std::max(v, 1e-12)) : v;
    };
    double low = std::numeric_limits<double>::max(), high = std::numeric_limits<double>::lowest();
    std::size_t count = 1;
    for (const line_series& line : panel.lines) {
      count = std::max(count, line.values.size());
      for (double v : line.values) {
        low = std::min(low, scale(v));
        high = std::max(high, scale(v));
      }
    }
    if (low > high) low = 0, high = 1;
    if (high - low < 1e-9) high = low + 1;
    const double x0 = width * static_cast<double>(p) + left,
                 x1 = width * static_cast<double>(p + 1) - right;
    const double y0 = height - bottom, y1 = top;
    const auto at_x = [&](std::size_t i) {
      return count == 1 ? x0
                        : x0 + (x1 - x0) * static_cast<double>(i) / static_cast<double>(count - 1);
    };
    const auto at_y = [&](double v) { return y0 + (y1 - y0) * (scale(v) - low) / (high - low); };
    svg += "<text x=\"" + number((x0 + x1) / 2) +
           "\" y=\"22\" text-anchor=\"middle\" font-size=\"14\">" + panel.title + "</text>\n";
    for (int tick = 0; tick <= 4; ++tick) {
      const double v = low + (high - low) * tick / 4;
      const double y = y0 + (y1 - y0) * tick / 4;
      svg += "<line x1=\"" + number(x0) + "\" y1=\"" + number(y) + "\" x2=\"" + number(x1) +
             "\" y2=\"" + number(y) + "\" stroke=\"#e0e0e0\"/>\n<text x=\"" + number(x0 - 6) +
             "\" y=\"" + number(y + 4) + "\" text-anchor=\"end\">" +
             number(panel.logarithmic ? std::pow(10, v) : v) + "</text>\n";
    }
    const std::size_t step = std::max<std::size_t>(1, (count + 4) / 5);
    for (std::size_t i = 0; i < count; i += step)
      svg += "<text x=\"" + number(at_x(i)) + "\" y=\"" + number(y0 + 16) +
             "\" text-anchor=\"middle\">" + std::to_string(i + 1) + "</text>\n";
    svg += "<text x=\"" + number((x0 + x1) / 2) + "\" y=\"" + number(height - 10) +
           "\" text-anchor=\"middle\">" + x_label + "</text>\n<path d=\"M" + number(x0) + " " +
           number(y1) + " V" + number(y0) + " H" + number(x1) +
           "\" fill=\"none\" stroke=\"#404040\"/>\n";
    for (std::size_t l = 0; l < panel.lines.size(); ++l) {
      const line_series& line = panel.lines[l];
      const std::string colour = colours[l % 4];
      svg += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + colour + "\" points=\"";
      for (std::size_t i = 0; i < line.values.size(); ++i)
        svg += number(at_x(i)) + "," + number(at_y(line.values[i])) + " ";
      svg += "\"/>\n<rect x=\"" + number(x0 + 90 * static_cast<double>(l)) + "\" y=\"" +
             number(top - 20) + "\" width=\"12\" height=\"4\" fill=\"" + colour +
             "\"/>\n<text x=\"" + number(x0 + 18 + 90 * static_cast<double>(l)) + "\" y=\"" +
             number(top - 14) + "\">" + line.name + "</text>\n";
    }
  }
  svg += "</svg>\n";
  std::ofstream file(path, std::ios::binary);
  file << svg;
  file.close();
  if (!file) throw ikebana::io_error("cannot write " + path);
}
