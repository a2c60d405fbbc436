#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bench {

/// Binds the process to the last of its processors, and starts it anew with one thread in each
/// peer and, where `set` is narrower than the machine's widest, peers limited likewise. Peers read
/// such variables before main begins.
void start_alone(char** argv, const std::string& set);

/// Processor, caches, compiler, instruction set.
nlohmann::json describe_machine(const std::string& set);

}  // namespace bench
