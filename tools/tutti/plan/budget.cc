// Implements tutti plan --budget and --fit-laws: finds the optimal model size and number of tokens.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/plan/faces.h"
#include "training/planner/scaling_laws.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;
using planner::Optimum;
using planner::ScalingLaw;

Json to_json(const std::string& method, const Optimum& best) {
  Json json = {{"method", method}, {"a", best.a}, {"b", best.b}};
  if (best.G > 0) json["G"] = best.G;
  json["parameters"] = best.parameters;
  json["tokens"] = best.tokens;
  return json;
}

Json to_json(const ScalingLaw& law, double operations) {
  const Optimum best = optimum(law, operations);
  Json json = to_json(law.name, best);
  json["alpha"] = law.alpha;
  json["beta"] = law.beta;
  json["loss"] = law.loss(best.parameters, best.tokens);
  return json;
}

void print(const Json& row) {
  const auto number = [&](const char* member, int digits) {
    return row.contains(member) ? cat(std::round(row[member].get<double>() * std::pow(10, digits)) /
                                      std::pow(10, digits))
                                : std::string("-");
  };
  std::printf("%-26s %6s %6s %7s %7s %8s %12.1f %12.1f %8s\n",
              row["method"].get<std::string>().c_str(), number("alpha", 2).c_str(),
              number("beta", 2).c_str(), number("a", 3).c_str(), number("b", 3).c_str(),
              number("G", 4).c_str(), row["parameters"].get<double>() / 1e9,
              row["tokens"].get<double>() / 1e9, number("loss", 3).c_str());
}

double operations_in(const std::string& text) {
  const auto value = parse_number<double>(text);
  if (value && std::isfinite(*value) && *value > 0) return *value;
  throw Error(ErrorCode::invalid_argument,
              cat("--budget '", text, "' is not a number of operations"),
              {.remedy = "write it as 4.3e23 (a PF-day is 8.64e19)"});
}

}  // namespace

int plan_budget(const PlanOptions& o) {
  const double operations = operations_in(o.budget);
  Json methods = Json::array();
  if (o.laws.empty() || o.laws == "chinchilla") {
    for (const ScalingLaw& law : planner::chinchilla()) methods.push_back(to_json(law, operations));
  }
  if (o.laws.empty() || o.laws == "kaplan") {
    methods.push_back(to_json("Kaplan", planner::kaplan(operations)));
  }
  if (!o.laws.empty() && o.laws != "chinchilla" && o.laws != "kaplan") {
    methods.push_back(
        to_json(planner::parse_scaling_law(file_text(o.laws, FileKind::cost_model)), operations));
  }
  std::printf(
      "C = %g operations = %.4g PF-days; N parameters and D tokens with 6 N D = C\n"
      "%-26s %6s %6s %7s %7s %8s %12s %12s %8s\n",
      operations, operations / planner::kPetaFlopDay, "method", "alpha", "beta", "a", "b", "G",
      "N, 1e9", "D, 1e9", "loss");
  for (const Json& method : methods) print(method);
  if (o.json.empty()) return 0;
  Json document = {{"budget", operations},
                   {"petaflop_days", operations / planner::kPetaFlopDay},
                   {"methods", methods}};
  write_file(o.json, document.dump(2) + "\n");
  return 0;
}

int fit_laws(const PlanOptions& o) {
  const std::vector<planner::ScalingRun> runs =
      planner::read_scaling_runs(file_text(o.fit_laws, FileKind::profile), o.fit_laws);
  const planner::FittedLaw fitted = planner::fit_scaling_law(runs);
  std::printf("L = E + A / N^alpha + B / D^beta, fitted to %zu runs; the mean error is %.2f%%\n",
              runs.size(), 100 * fitted.error);
  const auto row = [&](const char* name, double ScalingLaw::*value) {
    std::printf("  %-6s %10.4g  (%.4g to %.4g)\n", name, fitted.law.*value, fitted.low.*value,
                fitted.high.*value);
  };
  row("E", &ScalingLaw::E);
  row("A", &ScalingLaw::A);
  row("B", &ScalingLaw::B);
  row("alpha", &ScalingLaw::alpha);
  row("beta", &ScalingLaw::beta);
  std::printf("The brackets hold 80%% bootstrap intervals: fits to resampled runs.\n");
  if (!o.json.empty()) write_file(o.json, to_json(fitted.law));
  return 0;
}

}  // namespace tutti::tool
