#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

/// The lines about plans that f prints to stderr, where an emulator has warnings, too.
template <class F>
std::string printed_by(const F& f) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  f();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::rewind(file);
  std::string text, line;
  for (int c; (c = std::fgetc(file)) != EOF;) {
    line += static_cast<char>(c);
    if (c != '\n') continue;
    if (line.starts_with("ikebana_verbose,")) text += line;
    line.clear();
  }
  std::fclose(file);
  return text;
}
