#include "training/planner/scaling_laws.h"

#include <array>
#include <cmath>

#include "base/csv.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tutti::training::planner {

double ScalingLaw::loss(double parameters, double tokens) const {
  return E + A / std::pow(parameters, alpha) + B / std::pow(tokens, beta);
}

Optimum optimum(const ScalingLaw& law, double operations) {
  Optimum best;
  const double sum = law.alpha + law.beta;
  best.a = law.beta / sum;
  best.b = law.alpha / sum;
  best.G = std::pow(law.alpha * law.A / (law.beta * law.B), 1 / sum);
  best.parameters = best.G * std::pow(operations / 6, best.a);
  best.tokens = std::pow(operations / 6, best.b) / best.G;
  return best;
}

namespace {

// Returns the law of an approach that gives alpha and the exponent `a` of C in N; beta is derived.
ScalingLaw with_exponents(const char* name, double alpha, double a) {
  ScalingLaw law = {.name = name, .alpha = alpha, .A = 406.4, .B = 410.7, .E = 1.69};
  law.beta = alpha * a / (1 - a);
  return law;
}

}  // namespace

std::span<const ScalingLaw> chinchilla() {
  static const std::vector<ScalingLaw> laws = {
      {"approach 3, as published", 0.34, 0.28, 406.4, 410.7, 1.69},
      with_exponents("approach 1", 0.34, 0.5),
      with_exponents("approach 1", 0.28, 0.5),
      with_exponents("approach 2", 0.34, 0.49),
      with_exponents("approach 2", 0.28, 0.49),
      with_exponents("approach 3", 0.34, 0.46),
      with_exponents("approach 3", 0.28, 0.46)};
  return laws;
}

Optimum kaplan(double operations) {
  const double days = operations / kPetaFlopDay;
  return {.a = 0.73,
          .b = 0.27,
          .G = 0,
          .parameters = 1.3e9 * std::pow(days, 0.73),
          .tokens = 2e10 * std::pow(days, 0.27)};
}

std::vector<ScalingRun> read_scaling_runs(const std::string& text, const std::string& name) {
  const std::vector<CsvRow> rows = parse_csv(text);
  if (rows.empty()) throw Error(ErrorCode::invalid_argument, cat(name, " is empty"));
  const auto column = [&](std::string_view a, std::string_view b) {
    for (size_t i = 0; i < rows[0].values.size(); ++i) {
      if (rows[0].values[i] == a || rows[0].values[i] == b) return i;
    }
    throw Error(ErrorCode::invalid_argument, cat(name, " has no column '", a, "' or '", b, "'"),
                {.remedy = "write one run per row: N, D and L"});
  };
  const std::array<size_t, 3> columns = {column("N", "parameters"), column("D", "tokens"),
                                         column("L", "loss")};
  std::vector<ScalingRun> runs;
  for (size_t row = 1; row < rows.size(); ++row) {
    std::array<double, 3> values;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& word =
          columns[i] < rows[row].values.size() ? rows[row].values[columns[i]] : "";
      const auto value = parse_number<double>(word);
      if (!value || !std::isfinite(*value) || *value <= 0) {
        throw Error(ErrorCode::invalid_argument,
                    cat(name, ", line ", rows[row].line, ": '", word, "' is not a number above 0"));
      }
      values[i] = *value;
    }
    runs.push_back({values[0], values[1], values[2]});
  }
  return runs;
}

std::string to_json(const ScalingLaw& law) {
  const Json json = {{"format", 1}, {"name", law.name}, {"alpha", law.alpha}, {"beta", law.beta},
                     {"A", law.A},  {"B", law.B},       {"E", law.E}};
  return json.dump(2) + "\n";
}

ScalingLaw parse_scaling_law(const std::string& text) {
  const Json json = Json::parse(text);
  ScalingLaw law{.name = json.value("name", std::string("the file's")),
                 .alpha = json.at("alpha").get<double>(),
                 .beta = json.at("beta").get<double>(),
                 .A = json.at("A").get<double>(),
                 .B = json.at("B").get<double>(),
                 .E = json.value("E", 0.0)};
  for (const double value : {law.alpha, law.beta, law.A, law.B}) {
    if (!std::isfinite(value) || value <= 0) {
      throw Error(ErrorCode::invalid_argument,
                  cat("alpha, beta, A and B of a law must be above 0, not ", value));
    }
  }
  return law;
}

}  // namespace tutti::training::planner
