#include <ikebana/core/shape.hpp>
int main() {}
