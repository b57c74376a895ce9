// tutti: one program, a file per subcommand.
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

// A job says it once, not once per rank. An agent has the settings of the launcher.
void log_settings_warnings() {
  try {
    const std::optional<FoundJob> found = find_job(own_environment);
    if (found && found->rank != 0) return;
    // Under `tutti run` the launcher has said it.
    if (found && settings().value("TUTTI_LAUNCHER_FD").origin == "environment") return;
  } catch (const Error&) {  // who needs to know will say it
  }
  for (const std::string& warning : settings().warnings()) log(LogLevel::warning, warning);
}

// What whoever starts this program may have set, and a program inherits: where SIGCHLD is ignored,
// nobody can wait for a process. Without SIGXFSZ a limit of file sizes (ulimit -f) is an error.
void take_own_dispositions() {
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);
}

// The first process of a container has no default actions: without a handler it would not end when
// it is asked to.
void end_when_asked_to() {
  if (::getpid() != 1) return;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    std::signal(number, [](int got) { ::_exit(128 + got); });
  }
}

int run_tool(int argc, char** argv) {
  CommandLine line(
      "Collective communication and data-parallel training.", std::string(kVersion),
      "Examples:\n"
      "  tutti run -n 4 -- ./program         four ranks on this host\n"
      "  tutti bench all_reduce -n 2         a table of times and bandwidths\n"
      "  tutti doctor                        what is wrong with this host, or with several\n"
      "  tutti info                          this build, this host, every setting\n"
      "`tutti COMMAND --help` tells more.");
  for (const auto add :
       {add_run,      add_mpi,        add_bench,     add_verify,   add_explain,  add_tune,
        add_top,      add_topo,       add_draw,      add_simulate, add_pipeline, add_plan,
        add_tokenize, add_data,       add_partition, add_train,    add_plot,     add_sample,
        add_evaluate, add_checkpoint, add_import,    add_export,   add_chaos,    add_doctor,
        add_info,     add_completion}) {
    add(line);
  }
  add_aliases(line);
  // Not for people: `tutti run --hosts` starts it on the other hosts.
  Command agent = line.add("agent", "serve a `tutti run` on another host");
  agent.hide();
  agent.runs(run_agent);
  const std::string_view command = argc > 1 ? argv[1] : "";
  // These tell themselves of what is wrong with settings.
  if (command == "info" || command == "doctor") tolerate_setting_mistakes();
  // Both are told what is set, and report what is wrong with it.
  const bool is_agent = command == "agent" || command == "doctor-host";
  if (!is_agent) log_settings_warnings();
  return line.run(argc, argv, check_borrowed_options);
}

// What was to be shown may be all that a command is for: that it cannot be written is a failure.
void finish_output() {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int reason = errno;
  if (std::cout.flush() && written) return;
  const ErrorDetail context = {.remedy = "look at where it goes: a full disk, a closed file"};
  const std::string what = "cannot write to standard output";
  if (reason != 0) throw system_error(what, reason, context);
  throw Error(ErrorCode::system, what, context);  // an earlier write failed: why is not known now
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
    // In one write, so that ranks that share a standard error do not mix their words.
    std::cerr << tutti::cat("tutti: ", error.what(), '\n');
    return tutti::tool::kFailed;
  }
}
