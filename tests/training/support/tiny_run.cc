#include "tests/training/support/tiny_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/settings.h"

namespace tutti::training::testing {
namespace {

Outcome train_as_rank(const Job& job, const TinyRun& run, Outcome& whole) {
  TinyRank rank(job, run);
  Outcome seen;
  for (uint64_t step = 0; step < run.steps; ++step) {
    const StepResult result = rank.step();
    seen.losses.push_back(result.loss);
    seen.norms.push_back(result.skipped ? 0 : result.gradient_norm);
  }
  const auto keep = [&](Outcome& to) {
    copy_owned(rank.replica, rank.model, 0, to.parameters);
    for (size_t kind = 1; kind < rank.replica.kinds().size(); ++kind) {
      copy_owned(rank.replica, rank.model, kind, to.states[kind - 1]);
    }
  };
  if (rank.replica.sharded()) {
    keep(whole);
    return seen;
  }
  Whole& parameters = seen.parameters;
  parameters.resize(whole.parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].resize(whole.parameters[i].size());
  seen.states.assign(whole.states.size(), parameters);
  keep(seen);
  return seen;
}

Whole empty_like(const ParameterTable& table) {
  Whole whole;
  for (const ParameterSpec& spec : table.specs()) {
    whole.emplace_back(static_cast<size_t>(spec.count()));
  }
  return whole;
}

}  // namespace

Deterministic::Deterministic() { settings().set("TUTTI_DETERMINISTIC", "1"); }
Deterministic::~Deterministic() { settings().set("TUTTI_DETERMINISTIC", "0"); }

Tokens sample_tokens() {
  std::vector<uint8_t> bytes;
  const std::string words[] = {"one ", "two ", "three ", "four ", "five\n"};
  for (size_t i = 0; bytes.size() < 5000; ++i) {
    const std::string& word = words[i * i % 7 % 5];
    bytes.insert(bytes.end(), word.begin(), word.end());
  }
  return Tokens(split_text(std::move(bytes)));
}

GptConfig tiny_gpt() {
  return {.layers = 2, .heads = 2, .width = 32, .context = kTinyContext, .vocabulary = 256};
}

std::unique_ptr<DataSet> tiny_data() {
  return std::make_unique<TokenWindows>(sample_tokens(), kTinyContext, 1);
}

void copy_owned(Replica& replica, Model& model, size_t kind, Whole& whole) {
  if (whole.empty()) whole = empty_like(model.parameters());
  for (const OwnedPiece& piece : replica.owned()) {
    const std::span<float> values = replica.values_of(piece, kind);
    std::ranges::copy(
        values, whole[static_cast<size_t>(piece.piece.parameter)].begin() + piece.piece.first);
  }
}

TinyRank::TinyRank(const Job& job, const TinyRun& given)
    : run(given),
      data(tiny_data()),
      model(run.model),
      communicator(Communicator::init(job)),
      replica(communicator, model, make_optimizer(run.optimizer), run.replica),
      feed({data.get()}, {.batch = run.batch,
                          .micro_batch = run.micro_batch,
                          .samples = run.batch * run.steps,
                          .rank = job.rank,
                          .ranks = job.size,
                          .workers = 0}),
      steps(feed.steps_from(0)) {}

StepResult TinyRank::step() {
  const StepFeed batches = steps->next().value();
  std::vector<MicroBatch> own;
  for (const Batch& batch : batches.own) own.push_back(batch.view());
  return replica.step(
      {.own = own,
       .passes = static_cast<int64_t>(batches.passes),
       .targets = static_cast<int64_t>(batches.samples) * model.targets_per_sample()},
      ++done, run.learning_rate);
}

Outcome train(int ranks, const TinyRun& run) {
  std::vector<Outcome> seen(static_cast<size_t>(ranks));
  Outcome whole;
  whole.parameters = empty_like(Gpt(run.model).parameters());
  whole.states.assign(make_optimizer(run.optimizer)->state_names().size(), whole.parameters);
  tutti::testing::run_ranks(ranks, [&](const Job& job) {
    seen[static_cast<size_t>(job.rank)] = train_as_rank(job, run, whole);
  });
  for (const Outcome& other : seen) EXPECT_TRUE(other == seen.front()) << "ranks disagree";
  if (run.replica.storage.stage == 0) return seen.front();
  whole.losses = seen.front().losses;
  whole.norms = seen.front().norms;
  return whole;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(a[i] - b[i]) / std::abs(b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace tutti::training::testing
