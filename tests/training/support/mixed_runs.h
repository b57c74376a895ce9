// Runs models whose layers are divided over tensor ranks, for tests of mixes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/training/support/tiny_run.h"

namespace tutti::training::testing {

using MakeMixed = std::function<std::unique_ptr<Model>(const MeshPlace&)>;

// 6 steps with 10 images each, except that the last has 4, so that one rank has no micro-batch and
// one has 4 samples. The images have the shape and classes of `images`.
TinyRun mixed_run(const MakeMixed& make, const ResNetConfig& images, int tensor, int data,
                  int zero);

// Returns the bytes that the first tensor rank sends in a step of one micro-batch: first those of
// units, second those of gradient sums.
std::pair<double, double> sent_by(const MakeMixed& make, const ResNetConfig& images, int ranks,
                                  int64_t samples);

// Trains 2 steps on two ranks, saves a checkpoint, and trains 3 more steps. Returns the losses of
// these 3 steps.
std::vector<double> losses_behind_save(const TinyRun& run, const std::string& directory);
// Resumes the run on `ranks` ranks from `directory`, and expects the losses to be `losses`.
void expect_goes_on(const TinyRun& run, int ranks, const std::string& directory,
                    const std::vector<double>& losses);

}  // namespace tutti::training::testing
