#pragma once

#include <string>

#include "ikebana/model/state_dict.hpp"

/// A file of test/data, by name. Compiled separately: the JSON parser takes a compiler seconds.
ikebana::state_dict load_recorded(const std::string& name);
