// tutti draw: shows an algorithm as a picture, as JSON, or as a list of steps.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "collectives/interchange/json.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/interchange/resolve.h"
#include "collectives/interchange/svg.h"
#include "collectives/interchange/timing.h"
#include "collectives/program/algorithm.h"
#include "collectives/program/plan.h"
#include "collectives/proof/verify.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/groups.h"
#include "tools/tutti/named.h"

namespace tutti::tool {

namespace {

struct DrawOptions {
  std::string algorithm;
  std::string collective;  // empty: the first collective that has this algorithm
  Shape shape{.ranks = 0};
  std::string group;  // empty: none
  std::string svg;
  std::string json;
};

const Algorithm& selected(const DrawOptions& options) {
  if (!options.collective.empty()) {
    return resolve_algorithm(collective_named(options.collective), options.algorithm);
  }
  if (is_algorithm_file(options.algorithm)) return import_algorithm(options.algorithm);
  std::vector<std::string> names;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (const Algorithm* found = find_algorithm(collective, options.algorithm)) return *found;
    for (const Algorithm* other : algorithms_for(collective)) names.push_back(other->name);
  }
  // Compositions are defined by their names.
  if (options.algorithm.find('(') != std::string::npos) {
    return resolve_algorithm(Collective::all_reduce, options.algorithm);
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  throw Error(ErrorCode::invalid_argument, cat("unknown algorithm \"", options.algorithm, '"'),
              {.remedy = cat(did_you_mean(options.algorithm, names), "use an XML file, or one of ",
                             listed(names))});
}

std::string facts(const Algorithm& algorithm, const Shape& shape, const Figures& figures) {
  const Verdict verdict = verify(algorithm, shape);
  if (verdict.grade == Grade::wrong) {
    throw Error(ErrorCode::invalid_argument, cat(algorithm.name, " fails its proof for ",
                                                 shape.ranks, " ranks: ", verdict.problem));
  }
  char volume[32];
  std::snprintf(volume, sizeof(volume), "%.3g", figures.volume);
  return cat("grade: ", name(verdict.grade), "; rounds: ", figures.rounds,
             "; messages: ", figures.messages, "; a rank sends at most ", volume,
             " times the buffer");
}

void print_steps(const std::vector<Plan>& plans, const Timing& timing) {
  for (const Plan& plan : plans) {
    std::printf("\nrank %d\n", plan.shape.rank);
    for (size_t i = 0; i < plan.program.steps.size(); ++i) {
      std::printf("  %4zu  round %-3d  %s\n", i, timing.ended[plan.shape.rank][i],
                  to_string(plan.program.steps[i]).c_str());
    }
  }
}

int draw(const DrawOptions& options) {
  const Algorithm& algorithm = selected(options);
  Shape shape = options.shape;
  if (shape.ranks < 1) {
    throw Error(ErrorCode::invalid_argument,
                cat("-n is ", shape.ranks, ", but it must be at least 1"),
                {.remedy = "use -n 4, for example"});
  }
  if (shape.root < 0 || shape.root >= shape.ranks) {
    throw Error(ErrorCode::invalid_argument,
                cat("unknown rank ", shape.root, " among ", shape.ranks, " for --root"),
                {.remedy = cat("use a rank from 0 to ", shape.ranks - 1)});
  }
  if (!options.group.empty()) {
    shape.layout = Layout::of_sizes(parse_groups(options.group, shape.ranks));
  }
  const std::string reason = algorithm.supports(shape);
  if (!reason.empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat(algorithm.name, " does not run on ", shape.ranks, " ranks: ", reason),
                {.remedy = "use another -n"});
  }
  ProgramSet set{
      .collective = algorithm.collective, .algorithm = algorithm.name, .root = shape.root};
  std::vector<Plan> plans;
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    set.programs.push_back(program_of(algorithm, shape));
    plans.push_back(make_plan(algorithm.collective, shape, set.programs.back()));
  }
  shape.rank = 0;
  const Timing timing = time_steps(plans);
  const std::string title =
      cat(name(algorithm.collective), ' ', algorithm.name, ", ", shape.ranks, " ranks",
          has_root(algorithm.collective) ? cat(", root ", shape.root) : "",
          shape.layout.levels() > 0 ? cat(", in ", to_text(shape.layout)) : "");
  const std::string counted = facts(algorithm, shape, figures(plans, timing));
  if (!options.svg.empty()) {
    write_file(options.svg, to_svg(plans, timing, title, {algorithm.source, counted}));
  }
  if (!options.json.empty()) write_file(options.json, to_json(set));
  if (options.svg.empty() && options.json.empty()) {
    std::printf("%s\n%s\n%s\n", title.c_str(), algorithm.source.c_str(), counted.c_str());
    print_steps(plans, timing);
  }
  return 0;
}

}  // namespace

void add_draw(CommandLine& line) {
  const auto options = std::make_shared<DrawOptions>();
  Command command =
      line.add("draw", "show an algorithm as a picture, as JSON or as the steps of every rank");
  command.add_option("algorithm", options->algorithm, "name of the algorithm, or an MSCCL XML file")
      .type_name("ALGORITHM")
      .required()
      .suggest(algorithm_names());
  command.add_option("-n,--ranks", options->shape.ranks, "number of ranks")
      .type_name("P")
      .required();
  command
      .add_option("--collective", options->collective,
                  "collective (default: the first one that the algorithm implements)")
      .type_name("C")
      .suggest(collective_names());
  command.add_option("--root", options->shape.root, "root rank, for collectives that have one")
      .type_name("R")
      .show_default();
  command.add_option("--group", options->group, kGroupHelp).type_name("G").show_default();
  command.add_option("--svg", options->svg, "write a picture to this file").type_name("FILE");
  command.add_option("--json", options->json, "write the programs of all ranks as JSON")
      .type_name("FILE");
  command.footer(
      "A message takes one round; a rank may send to several ranks in the same round.\n"
      "Example:\n"
      "  tutti draw ring -n 4 --svg ring.svg");
  command.runs([options] { return draw(*options); });
}

}  // namespace tutti::tool
