// Implements tutti chaos: runs a command repeatedly, injects faults, and judges the outcome.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "tools/chaos/moved_clock.h"
#include "tools/chaos/plan.h"
#include "tools/chaos/processes.h"
#include "tools/chaos/report.h"
#include "tools/chaos/scratch.h"
#include "tools/chaos/silent_pair.h"
#include "tools/chaos/trial.h"
#include "tools/chaos/verdict.h"
#include "tools/launcher/captured.h"
#include "tools/launcher/signals.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"

namespace tutti::tool {

namespace {

using chaos::Conditions;
using chaos::Outcome;
using chaos::Plan;

constexpr const char* kRandom = "random";
constexpr int kDefaultTrials = 20;

struct ChaosOptions {
  std::string plan = kRandom;
  chaos::Draw draw{.trials = kDefaultTrials, .span_ms = 1000, .messages = 300};
  std::string ranks;  // empty: all ranks of the command
  double within = 30;
  chaos::Demands demands;
  std::string json;
  std::string write_plan;
  std::vector<std::string> command;
};

// Parses "1-3" or "2".
void read_ranks(const std::string& text, chaos::Draw& draw) {
  const size_t dash = text.find('-');
  const auto first = parse_number<int>(text.substr(0, dash));
  const auto last = dash == text.npos ? first : parse_number<int>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *first > *last) {
    throw UsageError(cat("--ranks ", text, " is not a range of ranks: write it as 0-3 or 2"));
  }
  draw.first_rank = *first;
  draw.last_rank = *last;
}

std::vector<Plan> read_plans(const std::string& file) {
  const std::string text = file_text(file, FileKind::faults);
  try {
    return chaos::plans_from_json(Json::parse(text));
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), {.where = file});
  }
}

// Throws if faults of these classes cannot be injected on this machine.
void require_means(bool moves_clock, bool fills_disk) {
  if (moves_clock) chaos::require_clock_library();
  if (fills_disk) static_cast<void>(chaos::Scratch(1 << 20));
}

// Throws unless `host` is in --hosts: a lost host must be separated from all others.
void require_host(const std::string& host, const std::vector<std::string>& hosts) {
  if (std::ranges::count(hosts, host) != 1) {
    throw UsageError(cat("--hosts must name every host of the command exactly once; ", host,
                         " is missing or repeated"));
  }
  chaos::SilentPair::require(host);
}

bool any_has_fault(const std::vector<Plan>& plans, chaos::Kind kind) {
  return std::ranges::any_of(plans, [&](const Plan& plan) { return has_fault(plan, kind); });
}

// Checks the options before the command runs, because a run may take long. If --plan is a file,
// returns its plans. Otherwise returns none, because random plans need the number of ranks, which
// is only known after the first run.
std::vector<Plan> check(ChaosOptions& options) {
  const std::string& expression = options.demands.same_output;
  if (!expression.empty()) chaos::matches(expression, "");
  if (options.plan != kRandom) {
    std::vector<Plan> plans = read_plans(options.plan);
    require_means(any_has_fault(plans, chaos::Kind::clock),
                  any_has_fault(plans, chaos::Kind::full));
    for (const Plan& plan : plans) {
      for (const std::string& host : hosts_of(plan)) require_host(host, options.draw.hosts);
    }
    return plans;
  }
  chaos::Draw& draw = options.draw;
  if (!options.ranks.empty()) read_ranks(options.ranks, draw);
  if (draw.links.empty() && std::ranges::any_of(draw.classes, chaos::cuts_links)) {
    throw UsageError("--faults cut and sever require --links, the interfaces to take down");
  }
  if (draw.hosts.size() < 2 && std::ranges::any_of(draw.classes, chaos::parts_hosts)) {
    throw UsageError(
        "--faults partition, pairs and lost require --hosts, at least two network namespaces in "
        "which the command starts ranks");
  }
  for (const std::string& host : draw.hosts) require_host(host, draw.hosts);
  require_means(std::ranges::count(draw.classes, "clock") > 0,
                std::ranges::count(draw.classes, "full") > 0);
  if (draw.classes.empty()) {
    draw.classes = chaos::all_classes();
    std::erase(draw.classes, "full");   // requires root
    std::erase(draw.classes, "clock");  // requires libfaketime
    std::erase(draw.classes, "swap");   // requires TCP
    if (draw.links.empty()) std::erase_if(draw.classes, chaos::cuts_links);
    if (draw.hosts.empty()) std::erase_if(draw.classes, chaos::parts_hosts);
  }
  return {};
}

Outcome run_undisturbed(const ChaosOptions& options, const Conditions& conditions) {
  Outcome outcome = run_trial({}, conditions);
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
  };
  const std::string& expression = options.demands.same_output;
  if (outcome.code != 0) {
    refuse(cat("the command fails without faults, with exit code ", outcome.code, ": ",
               last_words(outcome.err)),
           "fix the command first");
  }
  if (outcome.ranks == 0) {
    refuse("the command started no ranks (processes with RANK in their environment)",
           "use a command that starts ranks, such as `tutti run -n 4 -- ./program`");
  }
  if (!outcome.left.empty())
    refuse(cat("the command leaves ", outcome.left[0], " behind"), "fix the command first");
  if (!expression.empty() && chaos::matches(expression, outcome.out).empty()) {
    refuse(cat("--same-output '", expression, "' does not match the command's output"),
           "test the expression with grep -E");
  }
  return outcome;
}

std::vector<Plan> random_plans(const ChaosOptions& options, size_t ranks) {
  chaos::Draw draw = options.draw;
  const int last = static_cast<int>(ranks) - 1;
  if (options.ranks.empty()) draw.last_rank = last;
  if (draw.last_rank > last) {
    throw UsageError(cat("--ranks ", options.ranks, " is out of range: the command's last rank is ",
                         last, " here"));
  }
  return draw_plans(draw);
}

// A progress line on a terminal, erased at the end.
class TrialProgress {
 public:
  ~TrialProgress() {
    if (shown_) std::cerr << "\r\x1b[K";
  }
  void show(size_t trial, size_t trials) const {
    if (shown_) std::cerr << cat("\rtrial ", trial, " of ", trials);
  }

 private:
  const bool shown_ = ::isatty(STDERR_FILENO) != 0;
};

// Runs all trials and prints each failure immediately.
void try_all(const std::vector<Plan>& plans, const Conditions& conditions,
             const Outcome& undisturbed, const chaos::Demands& demands,
             std::vector<chaos::TrialRecord>& trials) {
  const TrialProgress progress;
  for (const Plan& plan : plans) {
    progress.show(trials.size() + 1, plans.size());
    Outcome outcome = run_trial(plan, conditions);
    const chaos::Verdict verdict = judge(plan, outcome, undisturbed, demands);
    trials.push_back({plan, std::move(outcome), verdict});
    if (verdict.problems.empty()) continue;
    std::cout << failure_in_words(trials.back(), static_cast<int>(trials.size())) << std::flush;
  }
}

void run_trials(const ChaosOptions& options, std::vector<Plan> plans, Conditions conditions,
                std::vector<chaos::TrialRecord>& trials) {
  const Outcome undisturbed = run_undisturbed(options, conditions);
  std::cout << cat("undisturbed: ", undisturbed.ranks, " ranks, ", undisturbed.seconds, " s\n");
  conditions.ranks = undisturbed.ranks;
  conditions.limit = std::chrono::milliseconds(
      static_cast<int64_t>((undisturbed.seconds + options.within) * 1000));
  if (plans.empty()) plans = random_plans(options, undisturbed.ranks);
  if (!options.write_plan.empty()) {
    write_file(options.write_plan, to_json(plans).dump(2) + "\n");
  }
  try_all(plans, conditions, undisturbed, options.demands, trials);
}

int exit_code(const std::vector<chaos::TrialRecord>& trials) {
  const auto missed = [](const chaos::TrialRecord& tried) { return tried.verdict.missed; };
  if (std::ranges::all_of(trials, missed)) {
    std::cerr << "tutti: no fault struck in any trial, so nothing was tested\n";
    return 1;
  }
  const auto passed = [](const chaos::TrialRecord& tried) {
    return tried.verdict.problems.empty();
  };
  return std::ranges::all_of(trials, passed) ? 0 : 1;
}

int run(ChaosOptions options) {
  std::vector<Plan> plans = check(options);
  std::ofstream json = open_for_writing(options.json, "--json");
  open_for_writing(options.write_plan, "--write-plan");
  chaos::adopt_orphans();
  SignalInbox signals({SIGINT, SIGTERM, SIGHUP});
  Conditions conditions{.command = options.command,
                        .environment = {},
                        .signals = &signals,
                        .hosts = options.draw.hosts};
  for (const char* const limit : {"TUTTI_TIMEOUT", "TUTTI_INIT_TIMEOUT"}) {
    if (std::getenv(limit) == nullptr) conditions.environment[limit] = cat(options.within / 2);
  }
  const bool swaps = any_has_fault(plans, chaos::Kind::swap) ||
                     std::ranges::count(options.draw.classes, "swap") > 0;
  if (swaps && std::getenv("TUTTI_INTEGRITY") == nullptr) {
    conditions.environment["TUTTI_INTEGRITY"] = "on";
  }
  std::vector<chaos::TrialRecord> trials;
  int signal = 0;
  try {
    run_trials(options, std::move(plans), std::move(conditions), trials);
  } catch (const chaos::Stopped& stopped) {
    std::cerr << cat("tutti: ", stopped.what(), ", after ", trials.size(), " trials\n");
    signal = stopped.signal();
  }
  std::cout << table(trials);
  if (!options.json.empty()) {
    append(json, options.json, to_json(trials).dump(2, Json::BadText::replace) + "\n", "--json");
  }
  return signal != 0 ? 128 + signal : exit_code(trials);
}

void add_demands(Command command, ChaosOptions& options) {
  command
      .add_option("--within", options.within,
                  "time in seconds within which the command must end after the last fault, in "
                  "addition to the command's run time without faults")
      .between(0.1, 1e6)
      .show_default();
  command.add_flag("--survives", options.demands.survives,
                   "require the command to succeed whenever at least one rank survives");
  command
      .add_option(
          "--same-output", options.demands.same_output,
          "require the last match in the command's output to equal that of a run without faults")
      .type_name("REGEX");
  command
      .add_option("--tolerance", options.demands.tolerance,
                  "relative tolerance of the numbers in the --same-output match")
      .show_default();
}

}  // namespace

void add_chaos(CommandLine& line) {
  const auto options = std::make_shared<ChaosOptions>();
  Command command =
      line.add("chaos", "inject faults into the ranks of a command and check how it reacts");
  command
      .add_option("--plan", options->plan,
                  "fault plan: random (draw a plan for each trial), or a file with a plan that "
                  "--write-plan wrote or that --json reported for a failure")
      .type_name("random|FILE")
      .show_default();
  command
      .add_option("--seed", options->draw.seed,
                  "seed of the random plans; equal seeds give equal plans")
      .show_default();
  command
      .add_option("--trials", options->draw.trials,
                  "number of random plans; the command runs once for each")
      .between(1, 1e6)
      .show_default();
  command.add_option("--ranks", options->ranks, "ranks that faults may strike (default: all ranks)")
      .type_name("A-B");
  command
      .add_option(
          "--faults", options->draw.classes,
          "fault classes: kill, two (two ranks at once), again (during recovery), pause, delay, "
          "truncate, stop, stall, launcher (kill the launcher), abort, cut and sever (take --links "
          "down temporarily or permanently), partition (separate --hosts temporarily or "
          "permanently), pairs (separate pairs of --hosts permanently), lost (lose one of "
          "--hosts), clock (clock jumps), swap (swap two words of a message, over TCP), full (full "
          "disk) (default: all but clock, swap and full; cut and sever only with --links; "
          "partition, "
          "pairs and lost only with --hosts)")
      .separated_by_commas()
      .one_of(chaos::all_classes());
  command
      .add_option("--links", options->draw.links,
                  "network interfaces that may be taken down, as NAMESPACE/INTERFACE for those in "
                  "a network namespace (requires root). An interface outside a namespace loses its "
                  "routes and IPv6 addresses permanently, so use namespaces")
      .separated_by_commas()
      .type_name("LINK,...");
  command
      .add_option("--hosts", options->draw.hosts,
                  "all hosts of the command, as network namespaces. Faults silently drop packets "
                  "between hosts, or lose one host (its packets are dropped and its processes are "
                  "killed), but never the first host (requires root)")
      .separated_by_commas()
      .type_name("NAMESPACE,...");
  command
      .add_option("--from", options->draw.from_ms,
                  "time in milliseconds from the start of all ranks to the first timed fault, for "
                  "programs that cannot lose a rank during initialization")
      .between(0, 1e9)
      .show_default();
  command
      .add_option("--span", options->draw.span_ms,
                  "length of the period after --from in which timed faults strike, in "
                  "milliseconds")
      .between(1, 1e9)
      .show_default();
  command
      .add_option("--messages", options->draw.messages,
                  "number of messages of each rank, from the first on, during which a fault may "
                  "strike")
      .between(1, 1e9)
      .show_default();
  add_demands(command, *options);
  command
      .add_option("--json", options->json, "write the table and each failure with its plan as JSON")
      .type_name("FILE");
  command.add_option("--write-plan", options->write_plan, "write all fault plans to this file")
      .type_name("FILE");
  command.add_option("command", options->command, "program and its arguments, after --")
      .required()
      .type_name("PROGRAM ARGS...");
  command.positionals_at_end();
  command.footer(
      "Examples:\n"
      "  tutti chaos --seed 7 --trials 100 -- tutti run -n 4 -- ./program\n"
      "  tutti chaos --faults kill,two,again,pause --survives --same-output 'final loss +[0-9.]+' "
      "\\\n"
      "    -- tutti run -n 4 --min-ranks 1 -- ./program\n"
      "  tutti chaos --faults full -- tutti train --data TEXT --ranks 2 --checkpoint {dir}/run\n"
      "  TUTTI_RSH='ip netns exec' tutti chaos --faults partition,pairs,lost --hosts a,b,c "
      "--survives \\\n"
      "    -- tutti run --hosts a,b,c -n 6 --min-ranks 2 -- ./program\n"
      "  tutti chaos --plan failure.json -- tutti run -n 4 -- ./program\n"
      "A trial fails if the command hangs, leaves processes or files behind, does not name the "
      "rank\n"
      "that the fault struck, or fails after a short pause. The exit code is 0 if no trial failed "
      "and\n"
      "a fault struck in at least one. SIGINT and SIGTERM end the trials and print the results so "
      "far.");
  command.runs([command, options] {
    if (options->plan != kRandom) {
      exclude(command, "--plan FILE",
              {"--seed", "--trials", "--ranks", "--faults", "--links", "--from", "--span",
               "--messages"});
    }
    return run(*options);
  });
}

}  // namespace tutti::tool
