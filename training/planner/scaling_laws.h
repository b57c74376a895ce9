// How large a model to train on how many tokens, for a budget of operations C = 6 N D.
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
  double E = 0;  // the loss that no model goes below

  double loss(double parameters, double tokens) const;
};

struct Optimum {
  double a = 0;  // the exponent of C in N, and in D
  double b = 0;
  double G = 0;
  double parameters = 0;
  double tokens = 0;
};
Optimum optimum(const ScalingLaw& law, double operations);

// Approach 3's published fit; then the exponents that approaches 1, 2 and 3 give (0.5, 0.49 and
// 0.46 of C in N), each with two values of alpha and the same A and B.
std::span<const ScalingLaw> chinchilla();
// N = 1.3e9 C^0.73, D = 2e10 C^0.27, C in PF-days (Kaplan et al., 2020, table 6 and appendix).
Optimum kaplan(double operations);

inline constexpr double kPetaFlopDay = 8.64e19;

struct ScalingRun {
  double parameters = 0;
  double tokens = 0;
  double loss = 0;
};
// Columns N, D and L (or parameters, tokens, loss). Throws Error(invalid_argument).
std::vector<ScalingRun> read_scaling_runs(const std::string& text, const std::string& name);

struct FittedLaw {
  ScalingLaw law;
  ScalingLaw low;  // of 80% of fits to runs drawn from these, number by number
  ScalingLaw high;
  double error = 0;  // mean of |predicted loss - measured| / measured
};
// Huber's loss (1e-3) of the logarithm of the loss, from many starts (Hoffmann et al., D.3). Needs
// five runs of different sizes.
FittedLaw fit_scaling_law(const std::vector<ScalingRun>& runs);

std::string to_json(const ScalingLaw& law);
ScalingLaw parse_scaling_law(const std::string& text);

}  // namespace tutti::training::planner
