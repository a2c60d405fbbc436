// What the umbrella header's cost is compared with.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

int main() {}
