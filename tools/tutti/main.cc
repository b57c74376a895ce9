// Implements the program tutti; each subcommand has its own file.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/version.h"
#include "tools/launcher/agent_process.h"
#include "tools/tutti/aliases.h"
#include "tools/tutti/commands.h"
#include "transport/bootstrap/discovery/job_sources.h"

namespace tutti::tool {

namespace {

constexpr int kFailed = 1;

// Logs the warnings about settings once per job, not once per rank. Not called by agents, which
// receive their settings later.
void log_settings_warnings() {
  try {
    const std::optional<FoundJob> found = find_job(own_environment);
    if (found && found->rank != 0) return;
    // Under `tutti run`, the launcher has already logged the warnings.
    if (found && settings().value("TUTTI_LAUNCHER_FD").origin == "environment") return;
  } catch (const Error&) {  // the command itself reports this error
  }
  for (const std::string& warning : settings().warnings()) log(LogLevel::warning, warning);
}

// Resets signal dispositions that a program inherits: if SIGCHLD is ignored, waiting for child
// processes fails. Ignoring SIGXFSZ turns a file size limit (ulimit -f) into an error.
void take_own_dispositions() {
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);
}

// The first process of a container has no default signal actions, so it needs handlers to end on
// SIGTERM.
void end_when_asked_to() {
  if (::getpid() != 1) return;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    std::signal(number, [](int got) { ::_exit(128 + got); });
  }
}

int run_tool(int argc, char** argv) {
  CommandLine line(
      "Collective communication and distributed training.", std::string(kVersion),
      "Examples:\n"
      "  tutti run -n 4 -- ./program         run four ranks on this host\n"
      "  tutti bench all_reduce -n 2         print times and bandwidths\n"
      "  tutti doctor                        diagnose this host, or several\n"
      "  tutti info                          show this build, this host and every setting\n"
      "See `tutti COMMAND --help` for the options of a command.");
  for (const auto add :
       {add_run,      add_mpi,        add_bench,     add_verify,   add_explain,  add_tune,
        add_top,      add_topo,       add_draw,      add_simulate, add_pipeline, add_plan,
        add_tokenize, add_data,       add_partition, add_train,    add_plot,     add_sample,
        add_evaluate, add_checkpoint, add_import,    add_export,   add_chaos,    add_doctor,
        add_info,     add_completion}) {
    add(line);
  }
  add_aliases(line);
  // Internal command, which `tutti run --hosts` starts on the other hosts.
  Command agent = line.add("agent", "serve a `tutti run` on another host");
  agent.hide();
  agent.runs(run_agent);
  const std::string_view command = argc > 1 ? argv[1] : "";
  // These commands report mistakes in settings themselves.
  if (command == "info" || command == "doctor") tolerate_setting_mistakes();
  // An agent and the doctor's process receive their settings later and report mistakes in them.
  const bool is_agent = command == "agent" || command == "doctor-host";
  if (!is_agent) log_settings_warnings();
  return line.run(argc, argv, check_borrowed_options);
}

// Flushes the output. A command fails if its output cannot be written.
void finish_output() {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int reason = errno;
  if (std::cout.flush() && written) return;
  const ErrorDetail context = {.remedy = "check its destination: a full disk or a closed file"};
  const std::string what = "cannot write to standard output";
  if (reason != 0) throw system_error(what, reason, context);
  throw Error(ErrorCode::system, what, context);  // an earlier write failed, its errno is unknown
}

}  // namespace

}  // namespace tutti::tool

int main(int argc, char** argv) {
  try {
    tutti::require_stack();
    tutti::tool::take_own_dispositions();
    tutti::tool::end_when_asked_to();
    const int code = tutti::tool::run_tool(argc, argv);
    tutti::tool::finish_output();
    return code;
  } catch (const std::bad_alloc&) {
    std::cerr << tutti::cat("tutti: ", tutti::memory_shortage().what(), '\n');
    return tutti::tool::kFailed;
  } catch (const std::exception& error) {
    // A single write, so that messages of ranks with a common standard error do not interleave.
    std::cerr << tutti::cat("tutti: ", error.what(), '\n');
    return tutti::tool::kFailed;
  }
}
