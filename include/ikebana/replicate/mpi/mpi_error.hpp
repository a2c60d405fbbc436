#pragma once

// MPI's C++ bindings would need a separate library.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstddef>
#include <string>

#include "ikebana/core/error.hpp"

namespace ikebana::detail {

/// MPI's message for an error of one of its functions.
inline std::string mpi_error_text(const char* function, int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(function) + ": " + std::string(text, static_cast<std::size_t>(length));
}

/// Throws communication_error if the function failed.
inline void check_mpi(const char* function, int code) {
  if (code != MPI_SUCCESS) throw communication_error(mpi_error_text(function, code));
}

}  // namespace ikebana::detail
