#pragma once

// Included by what a frozen network does without: training, files and replicas.

#if !defined(__cpp_exceptions)
#error "Ikebana trains with exceptions: compile without -fno-exceptions, or include only deploy.hpp"
#include "ikebana needs exceptions"
#endif
