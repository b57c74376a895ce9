// tutti verify: proves every algorithm for every number of ranks and every root.
#include "collectives/verify.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithm.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {

namespace {

struct Options {
  int max_ranks = 16;
  std::string collective;  // empty: all
  std::string algorithm;   // empty: all
};

std::vector<const Algorithm*> selected(const Options& options) {
  std::vector<const Algorithm*> found;
  std::string known;
  for (const Algorithm& algorithm : all_algorithms()) {
    known += cat(known.empty() ? "" : ", ", name(algorithm.collective), ' ', algorithm.name);
    if (!options.collective.empty() && options.collective != name(algorithm.collective)) continue;
    if (!options.algorithm.empty() && options.algorithm != algorithm.name) continue;
    found.push_back(&algorithm);
  }
  if (!found.empty()) return found;
  throw Error(ErrorCode::invalid_argument,
              cat("there is no algorithm ",
                  options.algorithm.empty() ? "" : cat('"', options.algorithm, "\" "), "for ",
                  options.collective.empty() ? "any collective"
                                             : cat("collective \"", options.collective, '"')),
              {.remedy = cat("take one of: ", known)});
}

struct Proof {
  std::vector<int> ranks;  // covered
  Grade lowest = Grade::canonical;
  long proved = 0;
  std::vector<std::string> problems;
};

Proof prove(const Algorithm& algorithm, int max_ranks) {
  const bool shows_progress = ::isatty(STDERR_FILENO) != 0;
  Proof proof;
  for (int ranks = 1; ranks <= max_ranks; ++ranks) {
    if (!algorithm.supports(ranks).empty()) continue;
    if (shows_progress) {
      const std::string text = cat(name(algorithm.collective), ' ', algorithm.name);
      std::fprintf(stderr, "\r%s: %d of %d ranks \x1b[K", text.c_str(), ranks, max_ranks);
    }
    proof.ranks.push_back(ranks);
    const int roots = has_root(algorithm.collective) ? ranks : 1;
    for (int root = 0; root < roots; ++root) {
      const Verdict verdict = verify(algorithm, ranks, root);
      proof.lowest = std::min(proof.lowest, verdict.grade);
      if (verdict.grade >= algorithm.grade) {
        ++proof.proved;
        continue;
      }
      const std::string problem =
          verdict.grade != Grade::wrong
              ? cat("is only graded ", name(verdict.grade), ", not ", name(algorithm.grade))
              : verdict.problem;
      proof.problems.push_back(
          cat(ranks, " ranks", roots > 1 ? cat(", root ", root) : "", ": ", problem));
    }
  }
  if (shows_progress) std::fputs("\r\x1b[K", stderr);
  return proof;
}

int run(const Options& options) {
  if (options.max_ranks < 1) {
    throw Error(ErrorCode::invalid_argument,
                cat("--max-ranks is ", options.max_ranks, ": it must be at least 1"));
  }
  long proved = 0;
  bool good = true;
  for (const Algorithm* algorithm : selected(options)) {
    const Proof proof = prove(*algorithm, options.max_ranks);
    proved += proof.proved;
    good = good && proof.problems.empty();
    std::printf("%-15s %-19s ranks %-6s %-10s %s\n",
                std::string(name(algorithm->collective)).c_str(),
                std::string(algorithm->name).c_str(), rank_ranges(proof.ranks).c_str(),
                std::string(name(proof.lowest)).c_str(), std::string(algorithm->source).c_str());
    for (const std::string& problem : proof.problems) std::printf("  %s\n", problem.c_str());
    std::fflush(stdout);
  }
  std::printf("%ld programs proved\n", proved);
  return good ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Action& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Prove every algorithm: progress, results and their order, on every rank");
  command->add_option("--max-ranks", options->max_ranks, "prove 1 to P ranks")
      ->type_name("P")
      ->capture_default_str();
  command->add_option("--collective", options->collective, "only this one")->type_name("NAME");
  command->add_option("--algorithm", options->algorithm, "only algorithms of this name")
      ->type_name("NAME");
  command->footer(
      "Grades: correct (every input counts once), same bits (on all ranks), canonical (the bits\n"
      "depend on inputs and ranks only).\n"
      "Example:\n"
      "  tutti verify --max-ranks 64 --collective all_reduce");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace tutti::tool
