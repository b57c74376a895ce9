// The subcommands of `tutti`. Each add_*() adds one to the command line.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tools/launcher/launcher.h"
#include "training/setup/command_line.h"

namespace tutti::tool {

void add_run(CommandLine& line);
void add_chaos(CommandLine& line);
void add_bench(CommandLine& line);
void add_verify(CommandLine& line);
void add_explain(CommandLine& line);
void add_tune(CommandLine& line);
void add_top(CommandLine& line);
void add_topo(CommandLine& line);
void add_draw(CommandLine& line);
void add_simulate(CommandLine& line);
void add_pipeline(CommandLine& line);
void add_plan(CommandLine& line);
void add_tokenize(CommandLine& line);
void add_data(CommandLine& line);
void add_partition(CommandLine& line);
void add_train(CommandLine& line);
void add_plot(CommandLine& line);
void add_sample(CommandLine& line);
void add_evaluate(CommandLine& line);
void add_import(CommandLine& line);
void add_export(CommandLine& line);
void add_checkpoint(CommandLine& line);
void add_doctor(CommandLine& line);
void add_mpi(CommandLine& line);
void add_info(CommandLine& line);
void add_completion(CommandLine& line);

// Opens a file for writing; with an empty path returns a closed stream. Throws Error(system) that
// names `option`, if it is not empty.
std::ofstream open_for_writing(const std::string& path, const std::string& option = {});
// Opens a file as open_for_writing() does, but keeps the existing contents and writes after them.
std::ofstream open_for_appending(const std::string& path, const std::string& option = {});
// Appends `text` to the file and flushes it. Throws Error(system) that names `option`, if it is not
// empty.
void append(std::ofstream& file, const std::string& path, const std::string& text,
            const std::string& option = {});

// Replaces the content of the file. Throws Error(system) if that fails.
void write_file(const std::string& path, const std::string& text);

// Writes `document` as JSON to `path`, after copying the members of results[0] to its top level and
// adding all results as "results". Does nothing if `path` is empty.
void write_results(const std::string& path, Json document, const Json& results);

// Throws UsageError if `min_ranks` exceeds the number of ranks.
void check_min_ranks(std::optional<int> min_ranks, int ranks);
// Starts the job and returns the exit code. If it fails and TUTTI_REPORT names a directory, prints
// a summary of the ranks' reports in it.
int launch_job(const LaunchOptions& options);
// Restarts this command line once per rank with `more` arguments, and returns the exit code. Used
// by commands of which only rank 0 prints. Sets options.command.
int launch_self(LaunchOptions options, const std::vector<std::string>& more = {});

}  // namespace tutti::tool
