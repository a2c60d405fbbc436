// The cost of including the umbrella header.
#include <ikebana/ikebana.hpp>

int main() {}
