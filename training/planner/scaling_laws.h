// Scaling laws, which predict the compute-optimal model size N and number of tokens D for a budget
// C = 6 N D.
//
//   L(N, D) = E + A / N^alpha + B / D^beta       (Hoffmann et al., 2022, "Chinchilla")
//   N = G (C/6)^a, D = (C/6)^b / G,  a = beta / (alpha + beta), b = alpha / (alpha + beta),
//   G = (alpha A / (beta B))^(1 / (alpha + beta))
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti::training::planner {

struct ScalingLaw {
  std::string name;
  double alpha = 0;
  double beta = 0;
  double A = 0;
  double B = 0;
  double E = 0;  // irreducible loss

  double loss(double parameters, double tokens) const;
};

struct Optimum {
  double a = 0;  // exponents of C in the formulas of N and D
  double b = 0;
  double G = 0;
  double parameters = 0;
  double tokens = 0;
};
Optimum optimum(const ScalingLaw& law, double operations);

// Returns the published fit of approach 3, then two laws for each of the approaches 1, 2 and 3, one
// with alpha 0.34 and one with 0.28. Their exponents `a` are 0.5 (approach 1), 0.49 and 0.46. All
// laws have the same A, B and E.
std::span<const ScalingLaw> chinchilla();
// Returns N = 1.3e9 C^0.73, D = 2e10 C^0.27, with C in PF-days (Kaplan et al., 2020, table 6 and
// appendix).
Optimum kaplan(double operations);

inline constexpr double kPetaFlopDay = 8.64e19;

struct ScalingRun {
  double parameters = 0;
  double tokens = 0;
  double loss = 0;
};
// Reads CSV with columns N, D and L (or parameters, tokens, loss). `name` is the file's name for
// errors. Throws Error(invalid_argument) for invalid text.
std::vector<ScalingRun> read_scaling_runs(const std::string& text, const std::string& name);

struct FittedLaw {
  ScalingLaw law;
  ScalingLaw low;  // limits of the 80% bootstrap interval of each constant
  ScalingLaw high;
  double error = 0;  // mean over runs of |predicted loss / measured loss - 1|
};
// Fits a law to the runs: minimizes Huber's loss (delta 1e-3) of log(predicted / measured) from
// many starts (Hoffmann et al., D.3). Throws Error(invalid_argument) for fewer than five runs, two
// model sizes or two numbers of tokens.
FittedLaw fit_scaling_law(const std::vector<ScalingRun>& runs);

std::string to_json(const ScalingLaw& law);
ScalingLaw parse_scaling_law(const std::string& text);

}  // namespace tutti::training::planner
