// Fixture for tests of checkpoints: saves a small model's values from ranks that are threads, and
// checks what was saved.
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

// A temporary directory that is deleted at the end of the test.
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

// Runs `work` on `ranks` threads. Returns, for each rank, the text of its exception, or "".
std::vector<std::string> run_ranks(int ranks, const std::function<void(const Group&)>& work);

// Unusual shapes, including a parameter of one element and one without elements.
std::vector<ParameterSpec> sample_specs();

// Three tensors per parameter, whose names begin with "model.", "optimizer.exp_avg." and
// "optimizer.exp_avg_sq.". The bits of element i are a function of (seed, tensor, i); infinities
// and NaNs occur.
std::vector<std::string> sample_names();
std::vector<float> sample_values(uint64_t seed, const std::string& tensor, int64_t count);

struct SampleRequest {
  std::string directory;
  std::optional<RunStart> start = {};  // null: resumes the existing run, if there is one
  int keep = 2;
  bool in_background = false;  // changes the values while they are being saved
  std::function<void(std::string_view phase)> at_phase = [](std::string_view) {};
};

// Starts a job, which saves the values of `seed` as the checkpoint of step `seed` and ends. The
// parameters are divided among `ranks` owners. Returns each rank's error.
std::vector<std::string> save_sample(const SampleRequest& request, int ranks, uint64_t seed,
                                     int64_t bucket_elements = 100);
// Like the above, but saves within a running job, which has opened the directory.
std::vector<std::string> save_sample(RunDirectory& directory, const SampleRequest& request,
                                     int ranks, uint64_t seed, int64_t bucket_elements = 100);
// Calls save_sample() with default options; fails the test if saving fails.
void save_sample_well(const std::string& directory, int ranks, uint64_t seed);

// Fails the test unless `checkpoint` contains exactly what save_sample() saved.
void expect_sample(const Checkpoint& checkpoint, uint64_t seed);

// Returns the text of the Error thrown by `work`, or "".
std::string error_of(const std::function<void()>& work);

}  // namespace tutti::training
