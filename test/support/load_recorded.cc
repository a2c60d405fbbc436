#include "test/support/load_recorded.hpp"

#include "ikebana/io/safetensors.hpp"

ikebana::state_dict load_recorded(const std::string& name) {
  return ikebana::load("test/data/" + name + ".safetensors");
}
