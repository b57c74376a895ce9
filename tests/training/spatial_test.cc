// Tests models whose images are divided over a grid of ranks, combined with every other axis: they
// must train like models of whole images.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "base/text.h"
#include "tests/training/support/tiny_run.h"

namespace tutti::training::testing {
namespace {

// The sizes are odd, and the images of the last stage have 4 x 3 pixels.
TinyRun images() {
  TinyRun run;
  run.resnet = ResNetConfig{.channels = 2,
                            .height = 13,
                            .width = 9,
                            .classes = 3,
                            .blocks = {1, 1, 1},
                            .widths = {4, 6, 8}};
  run.batch = 8;
  run.micro_batch = 4;
  run.steps = 8;
  run.validation_samples = 10;
  run.optimizer = {{"name", "sgd"}, {"momentum", 0.9}};
  run.learning_rate = 0.05;
  return run;
}

TinyRun segments() {
  TinyRun run = images();
  run.resnet.reset();
  run.unet = UNetConfig{.height = 13, .width = 10, .widths = {4, 6, 8}};
  return run;
}

void expect_close(const Outcome& found, const Outcome& whole) {
  EXPECT_LT(relative_difference(found.losses, whole.losses), 2e-5);
  EXPECT_LT(relative_difference(found.norms, whole.norms), 1e-3);
  EXPECT_NEAR(found.validation, whole.validation, 1e-4);
  ASSERT_EQ(found.buffers.size(), whole.buffers.size());
  for (size_t i = 0; i < whole.buffers.size(); ++i) {
    for (size_t c = 0; c < whole.buffers[i].size(); ++c) {
      EXPECT_NEAR(found.buffers[i][c], whole.buffers[i][c], 1e-4) << i;
    }
  }
}

void expect_as_whole(TinyRun run, GridShape grid) {
  SCOPED_TRACE(cat(run.unet ? "unet" : "resnet", " on ", grid.rows, " x ", grid.columns));
  const int others = run.mesh.data * run.mesh.pipeline;
  const Outcome whole = train(others, run);
  run.mesh.spatial = grid;
  expect_close(train(others * grid.ranks(), run), whole);
}

TEST(Spatial, GridsTrainAsWholeImages) {
  for (TinyRun run : {images(), segments()}) {
    run.mesh.data = 1;
    for (const GridShape grid :
         {GridShape{1, 2}, GridShape{2, 1}, GridShape{1, 3}, GridShape{3, 1}, GridShape{2, 2}}) {
      expect_as_whole(run, grid);
    }
  }
}

// Some ranks have no pixel in the last stage (ResNet) or at the lowest level (U-Net).
TEST(Spatial, GridsMayHaveMoreRowsThanImages) {
  for (TinyRun run : {images(), segments()}) {
    run.mesh.data = 1;
    run.steps = 3;
    expect_as_whole(run, {7, 1});
    expect_as_whole(run, {5, 2});
  }
}

TEST(Spatial, TrainsWithDataParallelRanks) {
  for (TinyRun run : {images(), segments()}) {
    run.mesh.data = 2;
    run.last_batch = 7;
    expect_as_whole(run, {2, 1});
    run.sync_batch_norm = true;
    expect_as_whole(run, {1, 2});
  }
}

TEST(Spatial, TrainsWithZero) {
  for (TinyRun run : {images(), segments()}) {
    run.mesh.data = 2;
    for (const int stage : {1, 2, 3}) {
      run.replica.storage.stage = stage;
      expect_as_whole(run, {2, 1});
    }
  }
}

// When forward is recomputed, halos are exchanged again. They are kept until the gradients of
// weights are computed.
TEST(Spatial, TrainsWithRecomputationAndSplitBackward) {
  for (TinyRun run : {images(), segments()}) {
    run.mesh.data = 1;
    run.replica.runner.checkpoint_units = true;
    expect_as_whole(run, {2, 1});
    run.replica.runner.checkpoint_units = false;
    run.mesh.pipeline = 2;
    for (const char* schedule : {"zb-h1", "zb-h2"}) {
      run.replica.pipeline.schedule = schedule;
      expect_as_whole(run, {1, 2});
    }
  }
}

TEST(Spatial, TrainsWithPipelines) {
  for (TinyRun run : {images(), segments()}) {
    run.mesh.data = 1;
    run.mesh.pipeline = 2;
    expect_as_whole(run, {1, 2});
    run.mesh.data = 2;
    expect_as_whole(run, {2, 1});
  }
}

}  // namespace
}  // namespace tutti::training::testing
