// Tests tensors sent between stages: whole ones, and those of which each tensor-parallel rank sends
// a part.
#include "training/pipeline/boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "training/parallel/mesh.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using tutti::testing::run_ranks;

Tensor row(std::vector<float>& values) {
  return tensor_at(static_cast<void*>(values.data()), DType::f32, 1, std::ssize(values));
}

// Returns message `number`, of `size` elements.
std::vector<float> message(int64_t size, int number) {
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<float>(1000 * number + i));
  return values;
}

// Sizes that `replicas` ranks divide evenly, unevenly, or so that some ranks have nothing.
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 12, 1000, 4097};

TEST(BoundaryTest, TensorsArriveWholeAndEachRankSendsItsPart) {
  for (const int replicas : {1, 2, 3, 4}) {
    run_ranks(2 * replicas, [&](const Job& job) {
      Mesh mesh(Communicator::init(job), {.tensor = replicas, .data = 1, .pipeline = 2});
      Boundary boundary(mesh.along(Axis::pipeline), mesh.along(Axis::tensor));
      const int64_t place = mesh.place(Axis::tensor);
      for (const int64_t size : kSizes) {
        SCOPED_TRACE(cat(size, " elements, ", replicas, " replicas"));
        std::vector<float> values = message(size, 1);
        const int64_t before = boundary.bytes_sent();
        if (mesh.place(Axis::pipeline) == 0) {
          boundary.send(row(values), 1).wait();
          const int64_t own = size * (place + 1) / replicas - size * place / replicas;
          EXPECT_EQ(boundary.bytes_sent() - before, own * 4);
        } else {
          std::ranges::fill(values, -1);
          boundary.receive(row(values), 0).wait();
          EXPECT_THAT(values, ElementsAreArray(message(size, 1)));
          EXPECT_EQ(boundary.bytes_sent(), 0);
        }
      }
    });
  }
}

TEST(BoundaryTest, NarrowTypesAndNothing) {
  run_ranks(4, [](const Job& job) {
    Mesh mesh(Communicator::init(job), {.tensor = 2, .data = 1, .pipeline = 2});
    Boundary boundary(mesh.along(Axis::pipeline), mesh.along(Axis::tensor));
    const bool sends = mesh.place(Axis::pipeline) == 0;
    std::vector<uint16_t> values(5, 0);
    if (sends) values = {1, 2, 3, 4, 5};
    const Tensor tensor = tensor_at(static_cast<void*>(values.data()), DType::bf16, 1, 5);
    const Tensor nothing = tensor_at(static_cast<void*>(values.data()), DType::bf16, 0, 7);
    if (sends) {
      boundary.send(nothing, 1).wait();
      boundary.send(tensor, 1).wait();
      EXPECT_EQ(boundary.bytes_sent(), mesh.place(Axis::tensor) == 0 ? 4 : 6);
    } else {
      boundary.receive(nothing, 0).wait();
      boundary.receive(tensor, 0).wait();
      EXPECT_EQ(values, (std::vector<uint16_t>{1, 2, 3, 4, 5}));
    }
  });
}

// Several messages are in flight at once in both directions, as in a pipeline.
TEST(BoundaryTest, SeveralMessagesAreInFlight) {
  for (const int replicas : {1, 3}) {
    run_ranks(2 * replicas, [&](const Job& job) {
      Mesh mesh(Communicator::init(job), {.tensor = replicas, .data = 1, .pipeline = 2});
      Boundary boundary(mesh.along(Axis::pipeline), mesh.along(Axis::tensor));
      const int own = mesh.place(Axis::pipeline);
      constexpr int kMessages = 6;
      std::vector<std::vector<float>> sent, received;
      std::vector<Boundary::Transfer> sends, receives;
      for (int i = 0; i < kMessages; ++i) {
        const int64_t size = 10 + 17 * i;
        sent.push_back(message(size, 10 * own + i));
        received.emplace_back(static_cast<size_t>(size), -1.0f);
      }
      for (int i = 0; i < kMessages; ++i) {
        receives.push_back(boundary.receive(row(received[static_cast<size_t>(i)]), 1 - own));
        sends.push_back(boundary.send(row(sent[static_cast<size_t>(i)]), 1 - own));
      }
      for (Boundary::Transfer& transfer : receives) transfer.wait();
      for (Boundary::Transfer& transfer : sends) transfer.wait();
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_EQ(received[static_cast<size_t>(i)], message(10 + 17 * i, 10 * (1 - own) + i));
      }
    });
  }
}

}  // namespace
}  // namespace tutti::training::pipeline
