// Runs of models whose layers are divided over tensor ranks, for tests of mixes.
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

// 6 steps of 10 images with the shape and classes of `images`, the last one of 4: one rank has no
// micro-batch, and one has 4 samples.
TinyRun mixed_run(const MakeMixed& make, const ResNetConfig& images, int tensor, int data,
                  int zero);

// Returns the bytes that the first tensor rank sends in a step of one micro-batch, by units and by
// gradient sums.
std::pair<double, double> sent_by(const MakeMixed& make, const ResNetConfig& images, int ranks,
                                  int64_t samples);

// Trains 2 steps on two ranks and saves them in a directory. Returns the losses of three more.
std::vector<double> losses_behind_save(const TinyRun& run, const std::string& directory);
// Resumes the run on `ranks` ranks from `directory`, and expects these losses.
void expect_goes_on(const TinyRun& run, int ranks, const std::string& directory,
                    const std::vector<double>& losses);

}  // namespace tutti::training::testing
