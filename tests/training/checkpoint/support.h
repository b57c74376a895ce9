// Saves a small model's values from ranks that are threads, and checks them.
#pragma once

#include <barrier>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/save.h"
#include "training/core/layout.h"

namespace tutti::training {

// A temporary directory of one test.
class Scratch {
 public:
  Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  std::string path(const std::string& name = "") const { return root_ / name; }

 private:
  std::filesystem::path root_;
};

std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

// Runs on `ranks` threads; returns each one's exception text, or an empty string.
std::vector<std::string> run_ranks(int ranks, const std::function<void(const Group&)>& work);

// Unusual shapes, including a single number and a parameter without elements.
std::vector<ParameterSpec> sample_specs();

// Three tensors per parameter: model., optimizer.exp_avg. and optimizer.exp_avg_sq. Element i has a
// bit pattern derived from (seed, tensor, i), including infinities and NaNs.
std::vector<std::string> sample_names();
std::vector<float> sample_values(uint64_t seed, const std::string& tensor, int64_t count);

struct SampleRequest {
  std::string directory;
  std::optional<RunStart> start = {};  // none: resumes the existing run, if there is one
  int keep = 2;
  bool in_background = false;  // saves while the values change
  std::function<void(std::string_view phase)> at_phase = [](std::string_view) {};
};

// Saves the values of `seed`, owned according to a layout for `ranks` owners, as the checkpoint of
// step `seed` by a separate job. Returns each rank's error.
std::vector<std::string> save_sample(const SampleRequest& request, int ranks, uint64_t seed,
                                     int64_t bucket_elements = 100);
// Saves in an open directory, as one of several steps of a job.
std::vector<std::string> save_sample(RunDirectory& directory, const SampleRequest& request,
                                     int ranks, uint64_t seed, int64_t bucket_elements = 100);
// Calls save_sample() with default options; fails the test if saving fails.
void save_sample_well(const std::string& directory, int ranks, uint64_t seed);

// Fails the test unless `checkpoint` contains exactly what save_sample() saved.
void expect_sample(const Checkpoint& checkpoint, uint64_t seed);

// Returns the text of the Error thrown by `work`, or "".
std::string error_of(const std::function<void()>& work);

}  // namespace tutti::training
