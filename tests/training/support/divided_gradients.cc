#include "tests/training/support/divided_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/ranks.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/saved_tensors.h"
#include "training/core/random.h"
#include "training/parallel/mesh.h"
#include "training/pipeline/runner.h"

namespace tutti::training::testing {
namespace {

// A model and its parameters, in float64.
struct Bound {
  Bound(std::unique_ptr<Model> made, Mesh* mesh = nullptr, bool recomputes = false)
      : model(std::move(made)),
        parameters(model->parameters(), DType::f64, 0.25, true),
        runner(*model, {.dtype = DType::f64, .checkpoint_units = recomputes, .mesh = mesh}) {}

  const ParameterSpec& spec(int index) const {
    return model->parameters().specs()[static_cast<size_t>(index)];
  }

  std::unique_ptr<Model> model;
  BoundParameters parameters;
  UnitHooks hooks;
  ModelRunner runner;
};

// Returns the values of `slice`, copied from those of the whole parameter.
std::vector<double> sliced(const std::vector<double>& all, const Slice& slice) {
  std::vector<double> values;
  for_each_run(slice, 0, slice.count(), [&](const Slice::Run& run, int64_t) {
    const auto first = all.begin() + run.whole;
    values.insert(values.end(), first, first + run.count);
  });
  return values;
}

void take_values(const Bound& whole, Bound& own) {
  for (int index = 0; index < own.parameters.size(); ++index) {
    assign(own.parameters.value(index),
           sliced(doubles(whole.parameters.value(index)), own.spec(index).slice()));
  }
}

// Sums this rank's gradients over the ranks that have parts of them. Returns the largest distance
// from the gradients of the whole model.
double distance_of_gradients(const Bound& whole, const Bound& own, Mesh& mesh) {
  double largest = 0;
  for (int index = 0; index < own.parameters.size(); ++index) {
    const ParameterSpec& spec = own.spec(index);
    std::vector<double> found = doubles(own.parameters.gradient(index));
    if (spec.placement.partial.has(Axis::tensor)) {
      mesh.along(Axis::tensor).all_reduce(std::span<double>(found), ReduceOp::sum);
    }
    const std::vector<double> expected =
        sliced(doubles(whole.parameters.gradient(index)), spec.slice());
    if (!expected.empty()) largest = std::max(largest, relative_distance(found, expected));
  }
  return largest;
}

}  // namespace

RandomImages random_images(int64_t size, int64_t classes, int64_t samples) {
  RandomImages images;
  for (int64_t i = 0; i < samples * size; ++i) {
    images.features.push_back(scale_symmetric(random_bits(1, 2, static_cast<uint64_t>(i)), 0.5f));
  }
  for (int64_t i = 0; i < samples; ++i) {
    images.targets.push_back(i == 1 ? -100 : static_cast<int32_t>(i % classes));
  }
  return images;
}

void check_divided_gradients(int ranks,
                             const std::function<std::unique_ptr<Model>(const MeshPlace&)>& make,
                             const RandomImages& images, bool recomputes) {
  Bound whole(make({}));
  const MicroBatch batch = images.batch();
  const PassResult expected = whole.runner.train(batch, {0.5}, whole.hooks);
  tutti::testing::run_ranks(ranks, [&](const Job& job) {
    Mesh mesh(Communicator::init(job), {.tensor = ranks, .data = 1});
    Bound own(make(mesh.place()), &mesh, recomputes);
    take_values(whole, own);
    const MicroBatch again = images.batch(), weightless = images.batch(0);
    const PassResult found = own.runner.train(again, {0.5}, own.hooks);
    EXPECT_NEAR(found.loss_sum, expected.loss_sum, 1e-12 * expected.loss_sum);
    EXPECT_EQ(found.correct, expected.correct);
    own.runner.train(weightless, {0.5}, own.hooks);  // a micro-batch of weight 0 adds nothing
    EXPECT_LT(distance_of_gradients(whole, own, mesh), 1e-12);
    const MicroBatch unknown{.samples = batch.samples, .features = images.features};
    const std::vector<double> logits = doubles(own.runner.predict(unknown, own.hooks));
    if (job.rank == 0) {
      const std::vector<double> all = doubles(whole.runner.predict(unknown, whole.hooks));
      EXPECT_LT(relative_distance(logits, all), 1e-12);
    }
  });
}

}  // namespace tutti::training::testing
