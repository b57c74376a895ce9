// The subcommands of `tutti`. Each add_*() declares one on the parser; when it is the one given, its
// callback sets `chosen` to what main() shall run. An action returns the exit code, or throws.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tutti::tool {

using Action = std::function<int()>;

void add_run(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_verify(CLI::App& app, Action& chosen);
void add_train(CLI::App& app, Action& chosen);
void add_info(CLI::App& app, Action& chosen);

}  // namespace tutti::tool
