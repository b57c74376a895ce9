// The subcommands of `tutti`. Each add_*() declares one on the parser; when it is the one given,
// its callback sets `chosen` to what main() shall run. An action returns the exit code, or throws.
#pragma once

#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace tutti::tool {

using Action = std::function<int()>;

void add_run(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_verify(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_tune(CLI::App& app, Action& chosen);
void add_draw(CLI::App& app, Action& chosen);
void add_pipeline(CLI::App& app, Action& chosen);
void add_tokenize(CLI::App& app, Action& chosen);
void add_partition(CLI::App& app, Action& chosen);
void add_train(CLI::App& app, Action& chosen);
void add_plot(CLI::App& app, Action& chosen);
void add_sample(CLI::App& app, Action& chosen);
void add_checkpoint(CLI::App& app, Action& chosen);
void add_info(CLI::App& app, Action& chosen);

// Closed where the path is empty. Throws Error(system) that names the option it came from, if any.
std::ofstream open_for_writing(const std::string& path, const std::string& option = {});
// The same, and what is there already stays.
std::ofstream open_for_appending(const std::string& path, const std::string& option = {});
// Writes and flushes. Throws Error(system) that names the option, if any.
void append(std::ofstream& file, const std::string& path, const std::string& text,
            const std::string& option = {});

// Throw Error(system).
std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);

// Starts this command line again, once per rank, with `more` arguments; returns the exit code. For
// commands of which only rank 0 talks.
int launch_self(int ranks, const std::vector<std::string>& more = {});

}  // namespace tutti::tool
