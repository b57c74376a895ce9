#include "training/optimizers/gradient_norm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/training/optimizers/owners.h"

namespace tutti::training {
namespace {

// Computes the norm of the example gradients on all owners. Returns each owner's result.
std::vector<double> norms(const std::vector<ParameterSpec>& specs, const LayoutOptions& options,
                          float spoil = 0) {
  const Layout layout = make_layout(specs, options);
  std::vector<double> norms(static_cast<size_t>(options.ranks.front()));
  run_owners(options.ranks.front(), [&](int owner, NormReducer& reducer) {
    std::vector<float> gradients(static_cast<size_t>(layout.owned_size));
    std::vector<OwnedPiece> pieces;
    for (const Piece& piece : layout.pieces({owner})) {
      const ParameterSpec& spec = specs[static_cast<size_t>(piece.parameter)];
      float* const start = &gradients[static_cast<size_t>(piece.owned_offset)];
      for (int64_t i = 0; i < piece.count; ++i) {
        start[i] = example_gradient(spec, piece.first + i, 1);
      }
      if (piece.parameter == 0 && piece.first == 0) start[0] += spoil;
      pieces.push_back({piece, &spec, {}, tensor_at(start, DType::f32, 1, piece.count), {}});
    }
    norms[static_cast<size_t>(owner)] = gradient_norm(pieces, reducer);
  });
  return norms;
}

TEST(GradientNormTest, HasTheSameBitsForEveryLayout) {
  const std::vector<ParameterSpec> specs = example_specs();
  long double square = 0;
  for (const ParameterSpec& spec : specs) {
    for (int64_t i = 0; i < spec.count(); ++i) {
      const long double gradient = example_gradient(spec, i, 1);
      square += gradient * gradient;
    }
  }
  const double expected = norms(specs, {}).at(0);
  EXPECT_NEAR(expected, static_cast<double>(std::sqrt(square)), 1e-14 * expected);
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int64_t bucket : {1, 1000, 1 << 20}) {
      for (const double norm : norms(specs, {{ranks}, bucket, bucket})) EXPECT_EQ(norm, expected);
    }
  }
}

TEST(GradientNormTest, EveryOwnerDetectsANonFiniteGradient) {
  for (const double norm : norms(example_specs(), {.ranks = {3}}, HUGE_VALF)) {
    EXPECT_TRUE(std::isnan(norm));
  }
}

TEST(ClipFactorTest, ShrinksLargeGradientsAlone) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_EQ(clip_factor(4, 1), 1 / 4.000001);
  EXPECT_LT(clip_factor(1, 1), 1);  // because, as in PyTorch, a small number is added to the norm
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1)));
}

}  // namespace
}  // namespace tutti::training
