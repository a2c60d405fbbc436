// The cost of including data-parallel training, too.
#include <ikebana/ikebana.hpp>
#include <ikebana/replicate.hpp>

int main() {}
