#pragma once

// Data from files: CSV (numbers, or columns of numbers and text) and IDX (MNIST), as datasets for a
// data_loader; datasets of one's own, read by threads, and transforms of samples. States are read
// and written by <ikebana/io/safetensors.hpp>, which needs nlohmann/json.

#include "ikebana/core/with_exceptions.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/io/idx.hpp"
#include "ikebana/io/sample_loader.hpp"
#include "ikebana/io/text_table.hpp"
#include "ikebana/io/transform.hpp"
