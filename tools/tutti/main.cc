// tutti: one program, a file per subcommand.
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/version.h"
#include "tools/launcher/agent_process.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// Not for people: `tutti run --hosts` starts it on the other hosts. An empty group hides it.
void add_agent(CLI::App& app, Action& chosen) {
  CLI::App* agent = app.add_subcommand("agent", "serve a `tutti run` on another host");
  agent->group("");
  agent->callback([&chosen] { chosen = run_agent; });
}

// A job says it once, not once per rank. An agent has the settings of the launcher.
void log_settings_warnings() {
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && std::string_view(rank) != "0") return;
  // Under `tutti run` the launcher has said it.
  if (rank != nullptr && settings().value("TUTTI_LAUNCHER_FD").origin == "environment") return;
  for (const std::string& warning : settings().warnings()) log(LogLevel::warning, warning);
}

int run_tool(int argc, char** argv) {
  CLI::App app("Collective communication and data-parallel training.", "tutti");
  app.set_version_flag("--version", std::string(kVersion));
  app.require_subcommand(0, 1);
  app.footer(
      "Examples:\n"
      "  tutti run -n 4 -- ./program         four ranks on this host\n"
      "  tutti bench all_reduce -n 2         a table of times and bandwidths\n"
      "  tutti info                          this build, this host, every setting\n"
      "`tutti COMMAND --help` tells more.");
  Action chosen;
  add_run(app, chosen);
  add_bench(app, chosen);
  add_verify(app, chosen);
  add_explain(app, chosen);
  add_tune(app, chosen);
  add_draw(app, chosen);
  add_pipeline(app, chosen);
  add_tokenize(app, chosen);
  add_partition(app, chosen);
  add_train(app, chosen);
  add_plot(app, chosen);
  add_sample(app, chosen);
  add_checkpoint(app, chosen);
  add_info(app, chosen);
  add_agent(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    const CLI::App* command = &app;
    for (const CLI::App* sub : app.get_subcommands()) command = sub;
    std::cerr << "tutti: " << error.what() << "; see `tutti "
              << (command == &app ? "" : command->get_name() + " ") << "--help`\n";
    return kWrongUsage;
  }
  if (!chosen) {
    std::cout << app.help();
    return 0;
  }
  const bool is_agent = app.got_subcommand("agent");
  if (!is_agent) log_settings_warnings();
  return chosen();
}

}  // namespace

}  // namespace tutti::tool

int main(int argc, char** argv) {
  try {
    return tutti::tool::run_tool(argc, argv);
  } catch (const std::exception& error) {
    // In one write, so that ranks that share a standard error do not mix their words.
    std::cerr << tutti::cat("tutti: ", error.what(), '\n');
    return tutti::tool::kFailed;
  }
}
