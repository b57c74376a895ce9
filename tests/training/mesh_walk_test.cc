// Tests that each combination of a mesh and options trains the same model as one rank. Meshes are
// data x pipeline x context x tensor ranks, up to 8; options are ZeRO, shared rows, schedules,
// recomputation, dropout, ignored targets and accumulation. By default, the combinations that run
// contain each pair of choices at least once; with TUTTI_TEST_FULL=1, all combinations run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/training/support/meshes.h"
#include "tests/training/support/tiny_run.h"
#include "training/models/gpt.h"
#include "training/models/llama.h"
#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

using testing::Outcome;
using testing::TinyRun;

// A combination has one value for each of these choices; kWays has the number of values.
enum Choice : size_t {
  tensor,
  sp,
  context,
  by_heads,
  data,
  stages,
  zero,
  kind,
  dropout,
  recompute,
  chunk,
  batch,
  experts
};
constexpr size_t kChoices = 13;
constexpr std::array<int, kChoices> kWays = {4, 2, 4, 2, 3, 3, 4, 4, 2, 4, 2, 2, 5};
using Combination = std::array<int, kChoices>;

constexpr std::array kTensor = {1, 2, 3, 4};
constexpr std::array kContext = {1, 2, 3, 4};
constexpr std::array kData = {1, 2, 3};
// Numbers of ranks among which the experts are divided.
constexpr std::array kExperts = {1, 2, 3, 4, 5};
struct Pipeline {
  int stages;
  const char* schedule;
  int virtual_stages = 1;
};
constexpr std::array<Pipeline, 3> kPipelines = {{{1, "1f1b"}, {2, "1f1b"}, {2, "zb-h1"}}};
constexpr std::array kKinds = {"gpt2", "llama", "few keys", "experts"};
constexpr std::array kRecompute = {"none", "selective", "full", "full, in parts"};

int ranks_of(const Combination& c) {
  return kTensor[static_cast<size_t>(c[tensor])] * kContext[static_cast<size_t>(c[context])] *
         kData[static_cast<size_t>(c[data])] * kPipelines[static_cast<size_t>(c[stages])].stages;
}

std::string describe(const Combination& c) {
  const Pipeline& pipeline = kPipelines[static_cast<size_t>(c[stages])];
  return cat(kKinds[static_cast<size_t>(c[kind])], ": tensor ",
             kTensor[static_cast<size_t>(c[tensor])], c[sp] != 0 ? " sharing rows" : "",
             " x context ", kContext[static_cast<size_t>(c[context])],
             c[by_heads] != 0 ? " by heads" : "", " x data ", kData[static_cast<size_t>(c[data])],
             " x pipeline ", pipeline.stages, ' ', pipeline.schedule, ", ZeRO ", c[zero],
             ", recomputation ", kRecompute[static_cast<size_t>(c[recompute])], ", dropout ",
             c[dropout], ", loss in chunks ", c[chunk], ", accumulation ", c[batch],
             ", experts over ", kExperts[static_cast<size_t>(c[experts])]);
}

// The model has 12 heads, which 1, 2, 3 or 4 ranks can share, and 4 or 2 key heads. Neither the
// hidden size nor the vocabulary is evenly divisible.
std::unique_ptr<Model> model_of(const Combination& c, const MeshPlace& place) {
  const ComputeOptions compute{.selective_recomputation = c[recompute] == 1,
                               .sequence_parallel = c[sp] != 0,
                               .context = c[by_heads] != 0 ? ContextKind::heads : ContextKind::ring,
                               .loss_chunk = c[chunk] == 0 ? 0 : 11};
  const double share = c[dropout] == 0 ? 0 : 0.1;
  if (c[kind] == 0) {
    return std::make_unique<Gpt>(GptConfig{.layers = 2,
                                           .heads = 12,
                                           .width = 48,
                                           .context = testing::kTinyContext,
                                           .vocabulary = 263,
                                           .hidden = 101,
                                           .dropout = share,
                                           .compute = compute},
                                 place);
  }
  LlamaConfig config{.layers = 2,
                     .heads = 12,
                     .kv_heads = c[kind] == 1 ? 4 : 2,
                     .width = 48,
                     .hidden = 67,
                     .context = testing::kTinyContext,
                     .vocabulary = 263,
                     .dropout = share,
                     .compute = compute};
  if (c[kind] == 3) {
    config.family = LlamaFamily::qwen3moe;
    config.router = {.experts = 5, .topk = 2, .balance_loss = 0.1, .z_loss = 0.01};
    config.shared_hidden = 13;
    config.shared_gate = true;
  }
  return std::make_unique<Llama>(config, place);
}

MeshShape mesh_of(const Combination& c) {
  return {.tensor = kTensor[static_cast<size_t>(c[tensor])],
          .context = kContext[static_cast<size_t>(c[context])],
          .data = kData[static_cast<size_t>(c[data])],
          .pipeline = kPipelines[static_cast<size_t>(c[stages])].stages,
          .expert = kExperts[static_cast<size_t>(c[experts])]};
}

// Returns true if the experts can be divided over the ranks of this mesh.
bool can_share_experts(const Combination& c) {
  try {
    mesh_place(mesh_of(c), ranks_of(c));
    return c[experts] == 0 || c[kind] == 3;
  } catch (const Error&) {
    return false;
  }
}

TinyRun run_of(const Combination& c) {
  const Pipeline& pipeline = kPipelines[static_cast<size_t>(c[stages])];
  TinyRun run;
  run.mesh = mesh_of(c);
  run.model.context = testing::kTinyContext;  // context length of the data
  run.other_model = [c](const MeshPlace& place) { return model_of(c, place); };
  run.replica.storage.stage = c[zero];
  run.replica.storage.bucket_elements = 1000;
  run.replica.storage.first_bucket_elements = 300;
  run.replica.clip = 0.5;
  run.replica.runner.checkpoint_units = c[recompute] >= 2;
  run.replica.runner.partition_checkpoints = c[recompute] == 3;
  run.replica.pipeline = {.schedule = pipeline.schedule, .virtual_stages = pipeline.virtual_stages};
  run.batch = 6;
  run.micro_batch = c[batch] == 0 ? 2 : 1;
  run.last_batch = 5;  // so that ranks have different numbers of samples
  run.steps = 4;
  return run;
}

std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  Combination at{};
  const auto next = [&] {
    for (size_t choice = 0; choice < kChoices; ++choice) {
      if (++at[choice] < kWays[choice]) return true;
      at[choice] = 0;
    }
    return false;
  };
  do {
    if (ranks_of(at) > 8 || (at[sp] != 0 && at[tensor] == 0)) continue;
    if (at[by_heads] != 0 && at[context] == 0) continue;
    // A single tensor rank has no rank to share with.
    if (at[recompute] == 3 && at[tensor] == 0) continue;
    if (!can_share_experts(at)) continue;
    all.push_back(at);
  } while (next());
  return all;
}

// Visits all combinations in three random orders. Returns those that contained a pair of choices
// that had not occurred before.
std::set<Combination> samples(const std::vector<Combination>& all) {
  constexpr size_t kMostWays = *std::ranges::max_element(kWays);
  constexpr size_t kValues = kChoices * kMostWays;  // values of all choices
  std::set<Combination> chosen;
  for (unsigned order = 0; order < 3; ++order) {
    std::vector<Combination> shuffled = all;
    std::ranges::shuffle(shuffled, std::mt19937(order));
    bool met[kValues][kValues] = {};
    for (const Combination& c : shuffled) {
      bool is_new = false;
      for (size_t a = 0; a < kChoices; ++a) {
        for (size_t b = 0; b < a; ++b) {
          bool& pair = met[a * kMostWays + static_cast<size_t>(c[a])]
                          [b * kMostWays + static_cast<size_t>(c[b])];
          is_new = is_new || !pair;
          pair = true;
        }
      }
      if (is_new) chosen.insert(c);
    }
  }
  return chosen;
}

TEST(MeshWalk, EveryMeshTrainsTheSameModel) {
  const char* full = std::getenv("TUTTI_TEST_FULL");
  const std::vector<Combination> all = all_combinations();
  const std::set<Combination> walked = full != nullptr && *full == '1'
                                           ? std::set<Combination>(all.begin(), all.end())
                                           : samples(all);
  std::map<std::tuple<int, int, int>, Outcome> alone;  // by kind of model, dropout and accumulation
  for (const Combination& c : walked) {
    SCOPED_TRACE(describe(c));
    Combination one{};
    one[kind] = c[kind];
    one[dropout] = c[dropout];
    one[batch] = c[batch];
    const auto key = std::tuple(c[kind], c[dropout], c[batch]);
    if (!alone.contains(key)) alone[key] = testing::train(1, run_of(one));
    Outcome found;
    ASSERT_NO_THROW(found = testing::train(ranks_of(c), run_of(c)));
    EXPECT_LT(testing::relative_difference(found.losses, alone[key].losses), 1e-5);
    EXPECT_LT(testing::relative_difference(found.norms, alone[key].norms), 1e-5);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("%zu of %zu combinations\n", walked.size(), all.size());
}

// GPT-2's vocabulary, which is not divisible by 2 or 4.
TEST(MeshWalk, AVocabularyOf50257) {
  const auto run = [](int tensor_ranks, int64_t loss_chunk) {
    TinyRun run;
    run.mesh = {.tensor = tensor_ranks, .data = 1};
    run.model.context = testing::kTinyContext;
    run.other_model = [loss_chunk](const MeshPlace& place) {
      return std::make_unique<Gpt>(GptConfig{.layers = 1,
                                             .heads = 4,
                                             .width = 16,
                                             .context = testing::kTinyContext,
                                             .vocabulary = 50257,
                                             .compute = {.loss_chunk = loss_chunk}},
                                   place);
    };
    run.batch = 4;
    run.micro_batch = 4;
    run.steps = 3;
    return run;
  };
  const Outcome alone = testing::train(1, run(1, 0));
  for (const auto& [ranks, loss_chunk] : {std::pair(2, 0), {4, 10}}) {
    const Outcome found = testing::train(ranks, run(ranks, loss_chunk));
    EXPECT_LT(testing::relative_difference(found.losses, alone.losses), 1e-5);
    EXPECT_LT(testing::relative_difference(found.norms, alone.norms), 1e-5);
  }
}

}  // namespace
}  // namespace tutti::training
