// tutti chaos: runs a command again and again, hurts it, and says what became of it.
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
  std::string ranks;  // empty: all that the command starts
  double within = 30;
  chaos::Demands demands;
  std::string json;
  std::string write_plan;
  std::vector<std::string> command;
};

// "1-3" or "2".
void read_ranks(const std::string& text, chaos::Draw& draw) {
  const size_t dash = text.find('-');
  const auto first = parse_number<int>(text.substr(0, dash));
  const auto last = dash == text.npos ? first : parse_number<int>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *first > *last) {
    throw UsageError(cat("--ranks ", text, ": write it as in 0-3, or 2"));
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

// Throws where no trial could have such faults here.
void require_means(bool moves_clock, bool fills_disk) {
  if (moves_clock) chaos::require_clock_library();
  if (fills_disk) static_cast<void>(chaos::Scratch(1 << 20));
}

// One of --hosts, so that a lost one is kept apart from all others.
void require_host(const std::string& host, const std::vector<std::string>& hosts) {
  if (std::ranges::count(hosts, host) != 1) {
    throw UsageError(cat("--hosts has to name all hosts of the command, each once; ", host,
                         " is not among them, or twice"));
  }
  chaos::SilentPair::require(host);
}

bool any_has_fault(const std::vector<Plan>& plans, chaos::Kind kind) {
  return std::ranges::any_of(plans, [&](const Plan& plan) { return has_fault(plan, kind); });
}

// What is wrong for sure is said before the command runs, which may take long. Returns the plans of
// a file; random ones need to know how many ranks there are.
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
    throw UsageError("--faults cut and sever need --links: which interfaces to take down");
  }
  if (draw.hosts.size() < 2 && std::ranges::any_of(draw.classes, chaos::parts_hosts)) {
    throw UsageError(
        "--faults partition, pairs and lost need --hosts: two network namespaces or "
        "more, in which the command starts ranks");
  }
  for (const std::string& host : draw.hosts) require_host(host, draw.hosts);
  require_means(std::ranges::count(draw.classes, "clock") > 0,
                std::ranges::count(draw.classes, "full") > 0);
  if (draw.classes.empty()) {
    draw.classes = chaos::all_classes();
    std::erase(draw.classes, "full");   // it is root's
    std::erase(draw.classes, "clock");  // it needs a library
    std::erase(draw.classes, "swap");   // it needs TCP
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
    refuse(cat("without any fault the command ends with exit code ", outcome.code, ": ",
               last_words(outcome.err)),
           "mend that first");
  }
  if (outcome.ranks == 0) {
    refuse("the command started no process with RANK in its environment",
           "give one that starts ranks, such as `tutti run -n 4 -- ./program`");
  }
  if (!outcome.left.empty())
    refuse(cat("it leaves ", outcome.left[0], " behind"), "mend that first");
  if (!expression.empty() && chaos::matches(expression, outcome.out).empty()) {
    refuse(cat("--same-output '", expression, "' matches nothing of what the command says"),
           "try it with grep -E");
  }
  return outcome;
}

std::vector<Plan> random_plans(const ChaosOptions& options, size_t ranks) {
  chaos::Draw draw = options.draw;
  const int last = static_cast<int>(ranks) - 1;
  if (options.ranks.empty()) draw.last_rank = last;
  if (draw.last_rank > last) {
    throw UsageError(cat("--ranks ", options.ranks, ": the command has only started ranks up to ",
                         last, " here"));
  }
  return draw_plans(draw);
}

// A line that is rewritten on a terminal, and goes in the end.
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

// Tells of each failure as it comes.
void try_all(const std::vector<Plan>& plans, const Conditions& conditions,
             const Outcome& undisturbed, const chaos::Demands& demands,
             std::vector<chaos::Tried>& trials) {
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
                std::vector<chaos::Tried>& trials) {
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

int exit_code(const std::vector<chaos::Tried>& trials) {
  const auto missed = [](const chaos::Tried& tried) { return tried.verdict.missed; };
  if (std::ranges::all_of(trials, missed)) {
    std::cerr << "tutti: no fault has struck in any trial: nothing was tested\n";
    return 1;
  }
  const auto passed = [](const chaos::Tried& tried) { return tried.verdict.problems.empty(); };
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
  std::vector<chaos::Tried> trials;
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
                  "seconds in which the command has to end after the last fault, beyond what it "
                  "takes undisturbed")
      .between(0.1, 1e6)
      .show_default();
  command.add_flag("--survives", options.demands.survives,
                   "the command has to end well wherever a rank is left to go on");
  command
      .add_option("--same-output", options.demands.same_output,
                  "the last match in what the command says has to be that of a run without faults")
      .type_name("REGEX");
  command
      .add_option("--tolerance", options.demands.tolerance,
                  "relative, of the numbers in that match")
      .show_default();
}

}  // namespace

void add_chaos(CommandLine& line) {
  const auto options = std::make_shared<ChaosOptions>();
  Command command = line.add("chaos", "Kill, stop and cheat the ranks of a command, and judge it");
  command
      .add_option("--plan", options->plan,
                  "random, or a file of --write-plan, or of a failure in --json")
      .type_name("random|FILE")
      .show_default();
  command.add_option("--seed", options->draw.seed, "of random plans: the same gives the same")
      .show_default();
  command.add_option("--trials", options->draw.trials, "random plans, a run for each")
      .between(1, 1e6)
      .show_default();
  command.add_option("--ranks", options->ranks, "whom faults strike (default: all ranks)")
      .type_name("A-B");
  command
      .add_option(
          "--faults", options->draw.classes,
          "kill, two (at once), again (in the recovery), pause, delay, truncate, stop, "
          "stall, launcher, abort, cut and sever (of --links, for a while and for good), "
          "partition (of --hosts, for a while or for good), pairs (of them, for good), lost (one "
          "of them), clock (jumps), swap (words, over TCP), full (disk; default: all but these "
          "last three)")
      .separated_by_commas()
      .one_of(chaos::all_classes());
  command
      .add_option("--links", options->draw.links,
                  "network interfaces that may be taken down, NAMESPACE/INTERFACE where they are "
                  "in a network namespace (root). One of the host itself loses its routes and "
                  "IPv6 addresses by that, and does not get them back: take namespaces")
      .separated_by_commas()
      .type_name("LINK,...");
  command
      .add_option("--hosts", options->draw.hosts,
                  "all hosts of the command, as network namespaces: packets between them are "
                  "dropped in silence, or one but the first is lost with its processes (root)")
      .separated_by_commas()
      .type_name("NAMESPACE,...");
  command
      .add_option("--from", options->draw.from_ms,
                  "milliseconds since all ranks run, before which there are no faults by time: "
                  "whoever cannot do without a rank while they join is left alone so long")
      .between(0, 1e9)
      .show_default();
  command
      .add_option("--span", options->draw.span_ms,
                  "milliseconds after that, in which faults by time are")
      .between(1, 1e9)
      .show_default();
  command
      .add_option("--messages", options->draw.messages,
                  "of a rank, at the first so many of which faults are")
      .between(1, 1e9)
      .show_default();
  add_demands(command, *options);
  command.add_option("--json", options->json, "write the table, and each failure with its plan")
      .type_name("FILE");
  command.add_option("--write-plan", options->write_plan, "write all plans").type_name("FILE");
  command.add_option("command", options->command, "program and arguments, behind --")
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
      "A trial fails where the command does not end, leaves something behind, does not name the "
      "rank\n"
      "that was struck, or ends badly after a short pause. The exit code is 0 where none failed, "
      "and\n"
      "a fault has struck in one at least. What was found until SIGINT or SIGTERM is told too.");
  command.runs([options] { return run(*options); });
}

}  // namespace tutti::tool
