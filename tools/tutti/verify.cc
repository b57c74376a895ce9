// Implements tutti verify: proves every algorithm for every number of ranks up to --max-ranks,
// every root, and even and uneven groupings of ranks by host, in rank order and permuted. Beyond
// --max-ranks it proves samples up to 1024 ranks.
#include "collectives/proof/verify.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/program/algorithm.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/named.h"

namespace tutti::tool {

namespace {

constexpr int kSampledRanks[] = {96, 128, 257, 512, 1000, 1024};
// Maximum number of steps of a program over all ranks, beyond --max-ranks. Larger programs are
// skipped, because the time and memory of a proof grow with the square of the number of ranks.
constexpr size_t kMostSampledSteps = 150'000;
// Uneven groups and permuted orders are only proved up to this number of ranks; larger numbers add
// no new cases.
constexpr int kMostUneven = 16;

struct VerifyOptions {
  int max_ranks = 16;
  int ranks = 0;                // the only number of ranks to prove; 0: 1 to max_ranks
  std::optional<bool> samples;  // default: only without --max-ranks
  std::string collective;       // empty: all
  std::string algorithm;        // empty: all
  std::string wire = "plain";
};

std::vector<const Algorithm*> selected(const VerifyOptions& options) {
  std::vector<const Algorithm*> found;
  std::string known;
  for (const Algorithm* algorithm : all_algorithms()) {
    known += cat(known.empty() ? "" : ", ", name(algorithm->collective), ' ', algorithm->name);
    if (!options.collective.empty() && options.collective != name(algorithm->collective)) continue;
    if (!options.algorithm.empty() && options.algorithm != algorithm->name) continue;
    found.push_back(algorithm);
  }
  if (!found.empty()) return found;
  throw Error(ErrorCode::invalid_argument,
              cat("unknown algorithm ",
                  options.algorithm.empty() ? "" : cat('"', options.algorithm, "\" "), "for ",
                  options.collective.empty() ? "any collective"
                                             : cat("collective \"", options.collective, '"')),
              {.remedy = cat("use one of: ", known)});
}

// Returns the roots to prove: every rank or, if `sampled`, three of them.
std::vector<int> roots_of(const Algorithm& algorithm, int ranks, bool sampled) {
  std::vector<int> roots{0};
  if (!has_root(algorithm.collective)) return roots;
  for (int root = 1; root < ranks; ++root) {
    if (!sampled || root == ranks / 3 || root == ranks - 1) roots.push_back(root);
  }
  return roots;
}

// Returns the layout that distributes the ranks to hosts round-robin.
Layout cyclic(int ranks, int hosts) {
  std::vector<Place> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back({std::to_string(rank % hosts), {}});
  return Layout::of(places);
}

// Returns the groupings to prove. If the algorithm requires a grouping, these are the groupings
// that it supports. Otherwise returns only the layout without groups.
std::vector<Layout> groups_for(const Algorithm& algorithm, int ranks, int root, bool sampled) {
  if (algorithm.supports({.ranks = ranks, .root = root}).empty()) return {Layout()};
  std::vector<Layout> wanted;
  for (int group = 2; group < ranks; ++group) {
    const bool is_sample = group == 8 || group * group == ranks;
    if (ranks % group == 0 && (!sampled || is_sample)) {
      wanted.push_back(Layout::equal(ranks, group));
    } else if (ranks <= kMostUneven) {
      wanted.push_back(Layout::equal(ranks, group));  // the last group may be smaller
      wanted.push_back(Layout::of_sizes(std::vector{ranks - group, group}));
    }
  }
  std::erase_if(wanted, [&](const Layout& layout) {
    const Shape shape{.ranks = ranks, .root = root, .layout = layout};
    return layout.levels() == 0 || !algorithm.supports(shape).empty();
  });
  return wanted;
}

std::vector<Layout> layouts_for(const Algorithm& algorithm, int ranks, int root, bool sampled) {
  std::vector<Layout> layouts = groups_for(algorithm, ranks, root, sampled);
  if (ranks < 3 || ranks > kMostUneven) return layouts;
  const Shape shape{.ranks = ranks, .root = root, .layout = cyclic(ranks, 2)};
  if (why_unsupported(algorithm, shape).empty()) layouts.push_back(shape.layout);
  return layouts;
}

bool is_too_long(const Algorithm& algorithm, const Shape& shape) {
  size_t steps = 0;  // number of steps of four representative ranks
  for (const int rank : {0, 1, shape.ranks / 2, shape.ranks - 1}) {
    Shape one = shape;
    one.rank = rank;
    steps += program_of(algorithm, one).steps.size();
  }
  return steps / 4 * static_cast<size_t>(shape.ranks) > kMostSampledSteps;
}

struct Task {
  const Algorithm* algorithm = nullptr;
  Shape shape;
  Verdict verdict;
};

std::vector<Task> tasks_for(const Algorithm& algorithm, const VerifyOptions& options) {
  std::vector<Task> tasks;
  const auto add = [&](int ranks, bool sampled) {
    const bool may_skip = sampled && options.ranks == 0;
    for (const int root : roots_of(algorithm, ranks, sampled)) {
      for (const Layout& layout : layouts_for(algorithm, ranks, root, sampled)) {
        const Shape shape{.ranks = ranks, .root = root, .layout = layout};
        if (!may_skip || !is_too_long(algorithm, shape)) tasks.push_back({&algorithm, shape, {}});
      }
    }
  };
  if (options.ranks > 0) {
    add(options.ranks, options.ranks > options.max_ranks);
    return tasks;
  }
  for (int ranks = 1; ranks <= options.max_ranks; ++ranks) add(ranks, false);
  for (const int ranks : kSampledRanks) {
    if (options.samples.value_or(false) && ranks > options.max_ranks) add(ranks, true);
  }
  return tasks;
}

// Runs the independent proofs on all processors, large ones first.
void prove(std::vector<Task>& tasks) {
  const bool shows_progress = ::isatty(STDERR_FILENO) != 0;
  std::vector<Task*> order;
  for (Task& task : tasks) order.push_back(&task);
  std::ranges::stable_sort(order, {}, [](const Task* task) { return -task->shape.ranks; });
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < order.size(); i = next.fetch_add(1)) {
      order[i]->verdict = verify(*order[i]->algorithm, order[i]->shape);
      if (shows_progress && i % 64 == 0) {
        std::fprintf(stderr, "\r%zu of %zu programs \x1b[K", i, order.size());
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  if (shows_progress) std::fputs("\r\x1b[K", stderr);
}

std::string where(const Task& task) {
  const Shape& shape = task.shape;
  return cat(shape.ranks, " ranks",
             has_root(task.algorithm->collective) ? cat(", root ", shape.root) : "",
             shape.layout.levels() > 0 ? cat(", in ", to_text(shape.layout)) : "",
             shape.layout.in_order() ? "" : ", out of order");
}

// Returns the problem of a proof, or "".
std::string problem_of(const Task& task) {
  const Verdict& verdict = task.verdict;
  const Grade promised = grade_of(*task.algorithm, task.shape);
  if (verdict.grade >= promised) return {};
  if (verdict.grade == Grade::wrong) return verdict.problem;
  return cat("is only graded ", name(verdict.grade), ", not ", name(promised));
}

// Returns a text: "same bits, lossy: 5 roundings at 8 ranks".
std::string grade_of(Grade grade, const Task& longest, WireFormat wire) {
  const std::string text(name(grade));
  if (wire == WireFormat::plain) return text;
  const int roundings = longest.verdict.roundings + 1;
  return cat(grade >= Grade::same_bits ? "same bits, " : "", "lossy: ", roundings,
             roundings == 1 ? " rounding" : " roundings", " at ", longest.shape.ranks, " ranks");
}

// Returns the largest number of ranks that is proved exhaustively.
int most_ranks(const VerifyOptions& options) {
  return options.ranks > 0 ? options.ranks : options.max_ranks;
}

// Returns why there is no program of this algorithm.
std::string why_none(const Algorithm& algorithm, const VerifyOptions& options) {
  return why_unsupported(algorithm, {.ranks = most_ranks(options)});
}

// Throws Error(unsupported) if there is nothing to prove.
void check_any(const std::vector<Task>& tasks, const std::vector<const Algorithm*>& algorithms,
               const VerifyOptions& options) {
  if (!tasks.empty()) return;
  const int ranks = most_ranks(options);
  std::string reasons;
  for (const Algorithm* algorithm : algorithms) {
    reasons += cat(reasons.empty() ? "" : "; ", name(algorithm->collective), ' ', algorithm->name,
                   ": ", why_none(*algorithm, options));
  }
  throw Error(
      ErrorCode::unsupported,
      cat("none of the chosen algorithms has a program for ",
          ranks == 1 ? "1 rank" : cat(ranks, " ranks")),
      {.cause = reasons, .remedy = "use another --ranks or --max-ranks, or other algorithms"});
}

// Prints an algorithm's line, and returns the number of programs that were proved.
long report(const Algorithm& algorithm, const std::vector<Task>& tasks,
            const VerifyOptions& options, WireFormat wire, bool& good) {
  long proved = 0;
  Grade lowest = Grade::canonical;
  const Task* longest = nullptr;
  std::vector<int> ranks;
  std::string problems;
  for (const Task& task : tasks) {
    if (task.algorithm != &algorithm) continue;
    if (ranks.empty() || ranks.back() != task.shape.ranks) ranks.push_back(task.shape.ranks);
    if (longest == nullptr || task.verdict.roundings > longest->verdict.roundings) longest = &task;
    if (task.shape.layout.in_order()) lowest = std::min(lowest, task.verdict.grade);
    const std::string problem = problem_of(task);
    if (problem.empty()) ++proved;
    if (!problem.empty()) problems += cat("  ", where(task), ": ", problem, '\n');
  }
  const size_t exhaustive =
      std::ranges::find_if(ranks, [&](int p) { return p > most_ranks(options); }) - ranks.begin();
  // Prints the range up to --max-ranks, or the count if it has gaps; then the largest sample.
  const std::vector<int> all(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(exhaustive));
  std::string range = rank_ranges(all);
  if (range.size() > 14) range = cat(all.size(), " sizes to ", all.back());
  if (exhaustive < ranks.size()) range += cat(", ", ranks.back());
  const std::string grade = longest == nullptr ? "" : grade_of(lowest, *longest, wire);
  std::printf("%-15s %-24s ranks %-20s %-*s %s\n", std::string(name(algorithm.collective)).c_str(),
              algorithm.name.c_str(), range.c_str(), wire == WireFormat::plain ? 10 : 45,
              grade.c_str(), algorithm.source.c_str());
  std::fputs(problems.c_str(), stdout);
  if (ranks.empty()) std::printf("  not proved: %s\n", why_none(algorithm, options).c_str());
  std::fflush(stdout);
  good = good && problems.empty();
  return proved;
}

int run(const VerifyOptions& options) {
  if (options.ranks < 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("--ranks is ", options.ranks, ", but it must be at least 1"),
                {.remedy = "use --ranks 4096, for example"});
  }
  if (options.max_ranks < 1) {
    throw Error(ErrorCode::invalid_argument,
                cat("--max-ranks is ", options.max_ranks, ", but it must be at least 1"),
                {.remedy = "use --max-ranks 16, for example"});
  }
  const WireFormat wire = wire_named(options.wire);
  const std::vector<const Algorithm*> algorithms = selected(options);
  std::vector<Task> tasks;
  for (const Algorithm* algorithm : algorithms) {
    const std::vector<Task> more = tasks_for(*algorithm, options);
    tasks.insert(tasks.end(), more.begin(), more.end());
  }
  check_any(tasks, algorithms, options);
  prove(tasks);
  long proved = 0;
  bool good = true;
  for (const Algorithm* algorithm : algorithms) {
    proved += report(*algorithm, tasks, options, wire, good);
  }
  const bool sampled = options.ranks > options.max_ranks;
  std::printf("%ld programs proved%s\n", proved,
              sampled
                  ? ", for selected roots and groupings (--max-ranks raises the number of ranks "
                    "for which all are proved)"
                  : "");
  return good ? 0 : 1;
}

}  // namespace

void add_verify(CommandLine& line) {
  const auto options = std::make_shared<VerifyOptions>();
  Command command = line.add(
      "verify", "prove every algorithm: progress, results and summation order on every rank");
  command
      .add_option("--max-ranks", options->max_ranks,
                  "prove the algorithms for 1 to P ranks; without this option, also for selected "
                  "rank counts up to 1024")
      .type_name("P")
      .show_default();
  command
      .add_option(
          "--ranks", options->ranks,
          "prove this number of ranks alone, however long the programs are; above --max-ranks, "
          "only selected roots and groupings")
      .type_name("P");
  command.add_switch(
      "--samples,!--no-samples", [options](bool on) { options->samples = on; },
      "also prove the algorithms for selected rank counts above --max-ranks, up to 1024 (default: "
      "only if --max-ranks is not given)");
  command
      .add_option("--collective", options->collective, "prove only this collective (default: all)")
      .type_name("NAME")
      .suggest(collective_names());
  command
      .add_option("--algorithm", options->algorithm,
                  "prove only algorithms of this name (default: all)")
      .type_name("NAME")
      .suggest(algorithm_names());
  command
      .add_option(
          "--wire", options->wire,
          "wire format of the elements; for formats other than plain, also print the maximum "
          "number of times that a result is rounded")
      .type_name("FORMAT")
      .show_default()
      .suggest(wire_names());
  command.footer(
      "Grades of an algorithm: correct (every input counts once), same bits (results are bitwise\n"
      "equal on all ranks), canonical (the bits depend only on the inputs and the number of "
      "ranks).\n"
      "With --wire the grade can be lossy: the table then shows how often an input and the "
      "partial\n"
      "sums that contain it are rounded.\n"
      "Example:\n"
      "  tutti verify --max-ranks 64 --collective all_reduce");
  command.runs([command, options] {
    if (!options->samples) options->samples = command.count("--max-ranks") == 0;
    return run(*options);
  });
}

}  // namespace tutti::tool
