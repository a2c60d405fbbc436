#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bench {

/// Binds the process to the last of its processors and restarts it with one thread in each peer
/// and, if `set` is narrower than the machine's widest instruction set, with peers limited
/// likewise. Peers read such variables before main starts.
void start_alone(char** argv, const std::string& set);

/// Processor, caches, compiler, instruction set.
nlohmann::json describe_machine(const std::string& set);

}  // namespace bench
