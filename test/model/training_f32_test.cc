#include "recorded_training.hpp"

using recorded_training::check_on_every_instruction_set;

TEST_CASE("ten steps of every optimizer in float agree with PyTorch, with a static batch") {
  check_on_every_instruction_set<float, ikebana::shape{8, 1, 8, 8}>();
}

TEST_CASE("ten steps of every optimizer in float agree with PyTorch, with a dynamic batch") {
  check_on_every_instruction_set<float, ikebana::shape{ikebana::dynamic, 1, 8, 8}>();
}
