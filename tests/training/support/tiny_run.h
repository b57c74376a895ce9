// Small models trained on ranks that are threads of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/ranks.h"
#include "training/data/data_set.h"
#include "training/feed.h"
#include "training/models/gpt.h"
#include "training/replica.h"
#include "training/trainer.h"

namespace tutti::training::testing {

// While it lives, the library's sums have the same bits for any layout (TUTTI_DETERMINISTIC).
class Deterministic {
 public:
  Deterministic();
  ~Deterministic();
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
};

// About 5000 bytes of words, which a small model begins to learn within 20 steps.
Tokens sample_tokens();
inline constexpr int64_t kTinyContext = 16;
// 2 blocks of width 32 on bytes: about 35 000 parameters.
GptConfig tiny_gpt();
std::unique_ptr<DataSet> tiny_data();

struct TinyRun {
  GptConfig model = tiny_gpt();
  ReplicaOptions replica;
  TrainOptions optimizer;  // its kind and constants
  double learning_rate = 3e-3;
  uint64_t batch = 4;
  uint64_t micro_batch = 1;
  uint64_t steps = 20;
};

// Of each parameter, all elements, whichever rank has them.
using Whole = std::vector<std::vector<float>>;

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;  // of gradients; 0 in steps that were skipped
  Whole parameters;
  std::vector<Whole> states;  // of the optimizer

  // Bit for bit; NaN is never the same.
  bool operator==(const Outcome&) const = default;
};

// Writes what this rank has of `kind` (Replica::kinds) into `whole`, which ranks that are threads
// share.
void copy_owned(Replica& replica, Model& model, size_t kind, Whole& whole);

// Everything that one rank of a run has.
struct TinyRank {
  TinyRank(const Job& job, const TinyRun& run);
  StepResult step();  // the next one

  TinyRun run;
  std::unique_ptr<DataSet> data;
  Gpt model;
  Communicator communicator;
  Replica replica;
  Feed feed;
  std::unique_ptr<Loader<StepFeed>> steps;
  int64_t done = 0;
};

// Trains on `ranks` threads. Fails the test if ranks see different losses, norms or, where each has
// them all, parameters.
Outcome train(int ranks, const TinyRun& run);

// The largest |a - b| / |b| of two lists of losses.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tutti::training::testing
