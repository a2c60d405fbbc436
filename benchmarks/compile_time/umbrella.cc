// What including the umbrella header costs.
#include <ikebana/ikebana.hpp>

int main() {}
