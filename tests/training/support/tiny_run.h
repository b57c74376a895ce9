// Small models trained on ranks that are threads of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "training/data/data_set.h"
#include "training/engine/replica.h"
#include "training/models/gpt.h"
#include "training/models/mlp_model.h"
#include "training/models/resnet.h"
#include "training/models/unet.h"
#include "training/parallel/hooks/powersgd.h"
#include "training/parallel/mesh.h"
#include "training/parallel/rank_statistics.h"
#include "training/run/feed.h"
#include "training/run/trainer.h"

namespace tutti::training::testing {

// During its lifetime, TUTTI_DETERMINISTIC is set, so that sums have the same bits for any layout.
class Deterministic {
 public:
  Deterministic();
  ~Deterministic();
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
};

// Returns about 5000 bytes of words. A small model begins to learn them within 20 steps.
Tokens sample_tokens();
inline constexpr int64_t kTinyContext = 16;
// 2 blocks of width 32, whose tokens are bytes: about 35 000 parameters.
GptConfig tiny_gpt();
std::unique_ptr<DataSet> tiny_data();

struct TinyRun {
  MeshShape mesh;
  int ranks_of_a_host = 0;  // ranks per simulated host; 0: all ranks are on this host
  GptConfig model = tiny_gpt();
  // Other models: an MLP on the same text, or a ResNet on images of noise whose mean identifies the
  // class.
  std::optional<MlpModelConfig> mlp;
  std::optional<ResNetConfig> resnet;
  std::optional<UNetConfig> unet;  // on images of shapes
  // Any other model, and its data.
  std::function<std::unique_ptr<Model>(const MeshPlace&)> other_model;
  std::function<std::unique_ptr<DataSet>()> other_data;
  bool sync_batch_norm = false;
  ReplicaOptions replica;        // TinyRank derives the number of passes from the batch
  bool whole_gradients = false;  // whole f32 gradients on each rank, even with one micro-batch
  std::optional<PowerSgdOptions> powersgd;
  Json optimizer = {{"name", "adamw"}};
  double learning_rate = 3e-3;
  uint64_t batch = 4;
  uint64_t micro_batch = 1;
  uint64_t steps = 20;
  uint64_t last_batch = 0;  // batch size of the last step; 0: `batch`
  // number of samples of the evaluation after the last step; 0: no evaluation
  uint64_t validation_samples = 0;
};

std::unique_ptr<Model> make_model(const TinyRun& run, StatisticsReducer* statistics = nullptr,
                                  const MeshPlace& place = {});
std::unique_ptr<DataSet> make_data(const TinyRun& run);

// All elements of each parameter or buffer, collected from all ranks.
using Whole = std::vector<std::vector<float>>;

struct Outcome {
  std::vector<double> losses;
  std::vector<double> correct;
  std::vector<double> norms;                         // gradient norms; 0 in skipped steps
  std::map<std::string, std::vector<double>> named;  // losses of units, by name
  Whole parameters;
  std::vector<Whole> states;  // optimizer states
  Whole buffers;
  double validation = 0;

  // Equal only if all numbers are. NaN equals nothing.
  bool operator==(const Outcome&) const = default;
};

// One rank's part of a run.
struct TinyRank {
  TinyRank(const Job& job, const TinyRun& run);
  StepResult step();      // runs the next step
  void skip(int64_t to);  // lets step `to` + 1 be the next one
  Evaluation evaluate();

  TinyRun run;
  std::unique_ptr<DataSet> data;
  Mesh mesh;
  RankStatistics statistics;
  std::unique_ptr<Model> model;
  Feed feed;
  Replica replica;
  std::unique_ptr<Loader<StepFeed>> steps;
  int64_t done = 0;
};

// Trains on `ranks` threads. Fails the test if ranks report different losses or norms, if copies of
// parameters, states or buffers differ, or if parts are missing.
Outcome train(int ranks, const TinyRun& run);

// Returns the names of the parts that differ, each with its first different place, or "".
std::string difference(const Outcome& found, const Outcome& expected);

// Returns the maximum of |a[i] - b[i]| / |b[i]|.
double relative_difference(std::span<const double> a, std::span<const double> b);

}  // namespace tutti::training::testing
