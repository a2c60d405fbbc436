#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <string_view>
#include <utility>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// Options of progress_bar.
struct progress_options {
  std::string_view label = "";  ///< Before the bar: "epoch 3/20". Must outlive the bar.
  std::FILE* to = stderr;
  bool enabled = true;      ///< If false, prints nothing: for ranks other than 0.
  bool every_call = false;  ///< Redraw at each update, not at most ten times a second.
};

/// A progress bar on one line of a terminal: label, bar, percentage, metrics, samples per second,
/// remaining time. If the output is not a terminal, it prints one plain line at the end. Never
/// allocates.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_progress_bar {
 public:
  static constexpr std::size_t most_metrics = 6;

  explicit basic_progress_bar(dim_t total, progress_options options = {})
      : total_{total},
        options_{options},
        terminal_{options.enabled && isatty(fileno(options.to)) != 0},
        start_{now()},
        drawn_{start_} {}

  basic_progress_bar(const basic_progress_bar&) = delete;
  basic_progress_bar& operator=(const basic_progress_bar&) = delete;
  ~basic_progress_bar() { finish(); }

  /// Shows a number next to the bar: set("loss", 0.12). `name` must outlive the bar. Names beyond
  /// `most_metrics` are ignored.
  void set(std::string_view name, double value) {
    for (std::size_t i = 0; i < count_; ++i)
      if (metrics_[i].name == name) {
        metrics_[i].value = value;
        return;
      }
    if (count_ < most_metrics) metrics_[count_++] = {name, value};
  }

  /// Adds the samples processed since the last call.
  void advance(dim_t samples) {
    done_ += samples;
    if (!terminal_ || finished_) return;
    const double time = now();
    if (!options_.every_call && time - drawn_ < 0.1) return;
    drawn_ = time;
    draw(time, '\r');
  }

  /// Ends the line. The destructor calls it, too.
  void finish() {
    if (finished_) return;
    finished_ = true;
    if (options_.enabled) draw(now(), '\n');
  }

  dim_t done() const { return done_; }
  double seconds() const { return now() - start_; }

 private:
  struct metric {
    std::string_view name;
    double value = 0;
  };

  /// Seconds of the steady clock, without <chrono>, which takes longer to read than this file.
  static double now() {
    std::timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  void draw(double time, char end) {
    char line[256];
    std::size_t n = 0;
    const auto put = [&](const char* format, auto... args) {
      const int wrote = std::snprintf(line + n, sizeof line - n, format, args...);
      if (wrote > 0)
        n = n + static_cast<std::size_t>(wrote) < sizeof line ? n + static_cast<std::size_t>(wrote)
                                                              : sizeof line - 1;
    };
    const double elapsed = time - start_;
    const double share = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1;
    put("%.*s", static_cast<int>(options_.label.size()), options_.label.data());
    if (terminal_) {
      constexpr int width = 24;
      const int full = static_cast<int>((share > 1 ? 1 : share) * width);
      put(" [%.*s%.*s] %3.0f %%", full, "========================", width - full,
          "                        ", 100 * share);
    }
    for (std::size_t i = 0; i < count_; ++i)
      put("  %.*s %.4f", static_cast<int>(metrics_[i].name.size()), metrics_[i].name.data(),
          metrics_[i].value);
    if (elapsed > 0) put("  %.0f samples/s", static_cast<double>(done_) / elapsed);
    if (finished_)
      put("  %.2f s", elapsed);
    else if (done_ > 0 && total_ > done_)
      put("  %.0f s left",
          elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_));
    // On a terminal, erases the rest of a longer previous line.
    std::fprintf(options_.to, terminal_ ? "\r%s\x1b[K" : "%s", line);
    if (end == '\n') std::fputc('\n', options_.to);
    std::fflush(options_.to);
  }

  dim_t total_;
  progress_options options_;
  bool terminal_;
  bool finished_ = false;
  dim_t done_ = 0;
  double start_, drawn_;
  std::array<metric, most_metrics> metrics_{};
  std::size_t count_ = 0;
};
using progress_bar = basic_progress_bar<void>;

namespace detail {

/// A range with a size that advances a bar by one for each element.
template <class Range>
class progress_range {
 public:
  progress_range(Range&& range, progress_options options)
      : range_{std::forward<Range>(range)}, bar_{static_cast<dim_t>(std::size(range_)), options} {}

  template <class Iterator>
  struct iterator {
    Iterator at;
    progress_bar* bar;
    decltype(auto) operator*() const { return *at; }
    iterator& operator++() {
      ++at;
      bar->advance(1);
      return *this;
    }
    template <class End>
    bool operator!=(const End& end) const {
      return at != end.at;
    }
  };
  template <class End>
  struct sentinel {
    End at;
  };

  auto begin() { return iterator<decltype(range_.begin())>{range_.begin(), &bar_}; }
  auto end() { return sentinel<decltype(range_.end())>{range_.end()}; }
  progress_bar& bar() { return bar_; }

 private:
  Range range_;
  progress_bar bar_;
};

}  // namespace detail

/// A range (a data_loader) with a progress bar that counts batches: `for (auto [x, t] :
/// progress(loader)) ...`.
template <class Range>
auto progress(Range&& range, progress_options options = {}) {
  return detail::progress_range<Range>(std::forward<Range>(range), options);
}

}  // namespace ikebana
