#include "tests/training/support/tiny_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/settings.h"
#include "base/text.h"
#include "training/core/random.h"
#include "training/data/shape_set.h"
#include "training/kernels/elementwise.h"

namespace tutti::training::testing {
namespace {

// Images of noise. The mean grey level identifies the class.
class TinyImages : public DataSet {
 public:
  explicit TinyImages(const ResNetConfig& config) : config_(config) {}

  uint64_t size() const override { return 1000; }
  uint64_t validation_size() const override { return 100; }
  void add(uint64_t example, uint64_t, Batch& batch) const override {
    const auto classes = static_cast<uint64_t>(config_.classes);
    const auto target = static_cast<int32_t>(example * example % 7 % classes);
    const float grey = static_cast<float>(target + 1) / static_cast<float>(classes + 1);
    const auto pixels = static_cast<uint64_t>(config_.channels * config_.height * config_.width);
    for (uint64_t i = 0; i < pixels; ++i) {
      batch.features.push_back(grey + scale_symmetric(random_bits(1, example, i), 0.1f));
    }
    batch.targets.push_back(target);
    ++batch.samples;
  }
  void add_validation(uint64_t example, Batch& batch) const override {
    add(size() + example, 0, batch);
  }
  uint64_t fingerprint() const override { return 1; }

 private:
  ResNetConfig config_;
};

// On one rank: a range of a parameter's values or states, or of a buffer.
struct Part {
  size_t index = 0;
  size_t first = 0;
  std::vector<float> values;
};

// Results and final state of a run on one rank.
struct Seen {
  Outcome same;  // must be equal on all ranks
  // Indexed by kind (Replica::kinds); the last entry has the buffers.
  std::vector<std::vector<Part>> parts;
  std::vector<size_t> parameter_sizes;  // sizes of the whole parameters
  std::vector<size_t> buffer_sizes;
};

Seen train_as_rank(const Job& job, const TinyRun& run) {
  TinyRank rank(job, run);
  Seen seen;
  for (uint64_t step = 0; step < run.steps; ++step) {
    const StepResult result = rank.step();
    seen.same.losses.push_back(result.loss);
    seen.same.correct.push_back(result.correct);
    seen.same.norms.push_back(result.skipped ? 0 : result.gradient_norm);
    for (const auto& [name, loss] : result.losses) seen.same.named[name].push_back(loss);
  }
  if (run.validation_samples > 0) seen.same.validation = rank.evaluate().loss;
  Replica& replica = rank.replica;
  replica.finish_values();
  for (size_t kind = 0; kind < replica.kinds().size(); ++kind) {
    std::vector<Part>& parts = seen.parts.emplace_back();
    for (const OwnedPiece& piece : replica.owned()) {
      const Tensor values = replica.values_of(piece, kind);
      std::vector<float> floats(static_cast<size_t>(values.size()));
      if (values.dtype == DType::u8) {  // the values are codes
        std::ranges::copy(values.values<uint8_t>(), floats.begin());
      } else {
        convert(values, tensor_at(floats.data(), DType::f32, 1, values.size()));
      }
      for_each_run(piece.spec->slice(), piece.piece.first, piece.piece.count,
                   [&](const Slice::Run& run, int64_t at) {
                     const auto first = floats.begin() + at;
                     parts.push_back({static_cast<size_t>(piece.piece.parameter),
                                      static_cast<size_t>(run.whole),
                                      {first, first + run.count}});
                   });
    }
  }
  replica.share_buffers();
  std::vector<Part>& buffers = seen.parts.emplace_back();
  const std::vector<NamedBuffer> all = rank.model->buffers();
  for (const NamedBuffer& buffer : all) seen.buffer_sizes.push_back(buffer.values.size());
  for (const ParameterSpec& spec : rank.model->parameters().specs()) {
    seen.parameter_sizes.push_back(static_cast<size_t>(spec.count()));
  }
  for (const NamedBuffer& own : replica.buffers()) {
    const auto at = std::ranges::find(all, own.name, &NamedBuffer::name) - all.begin();
    buffers.push_back({static_cast<size_t>(at), 0, {own.values.begin(), own.values.end()}});
  }
  return seen;
}

// Copies `part` into `whole`. Returns false if another rank has put different values there before.
bool fits(const Part& part, Whole& whole) {
  std::vector<float>& all = whole.at(part.index);
  bool same = true;
  for (size_t i = 0; i < part.values.size(); ++i) {
    float& place = all.at(part.first + i);
    same = same && (std::isnan(place) || place == part.values[i]);
    place = part.values[i];
  }
  return same;
}

Whole put_together(const std::vector<Seen>& seen, size_t kind, const std::vector<size_t>& sizes) {
  Whole whole;
  for (const size_t size : sizes) {
    whole.emplace_back(size, std::numeric_limits<float>::quiet_NaN());
  }
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    for (const Part& part : seen[rank].parts.at(kind)) {
      EXPECT_TRUE(fits(part, whole)) << "rank " << rank << " has another " << kind << "/"
                                     << part.index << " than a rank before";
    }
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(std::ranges::none_of(whole[i], [](float x) { return std::isnan(x); }))
        << "not every element of " << kind << "/" << i << " is somewhere";
  }
  return whole;
}

// Returns the index and values of the first difference between two lists of lists, or "".
template <typename Number>
std::string first_place(const std::vector<std::vector<Number>>& found,
                        const std::vector<std::vector<Number>>& expected) {
  if (found.size() != expected.size()) return "another number of them";
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].size() != expected[i].size()) return cat(i, " has another size");
    const auto at = std::ranges::mismatch(found[i], expected[i]);
    if (at.in1 == found[i].end()) continue;
    return cat(i, "[", at.in1 - found[i].begin(), "]: ", *at.in1, " instead of ", *at.in2);
  }
  return "";
}

ReplicaOptions replica_options_of(const TinyRun& run, const Feed& feed) {
  ReplicaOptions options = replica_options(run.replica, feed);
  if (run.whole_gradients) options.passes = 0;
  return options;
}

HookFactory hook_factory(const TinyRun& run, Model& model) {
  if (!run.powersgd) return nullptr;
  return [&run, &model](const Layout& layout) {
    return std::make_unique<PowerSgd>(layout, model.parameters().specs(), *run.powersgd);
  };
}

Mesh mesh_of(const Job& job, const TinyRun& run) {
  Mesh mesh(Communicator::init(job), run.mesh);
  if (run.ranks_of_a_host > 0) mesh.set_host(cat("host", job.rank / run.ranks_of_a_host));
  return mesh;
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

std::unique_ptr<Model> make_model(const TinyRun& run, StatisticsReducer* statistics,
                                  const MeshPlace& place) {
  if (run.other_model) return run.other_model(place);
  if (run.resnet) {
    return std::make_unique<ResNet>(*run.resnet, statistics, place);
  }
  if (run.unet) return std::make_unique<UNet>(*run.unet, statistics, place);
  if (run.mlp) return std::make_unique<MlpModel>(*run.mlp);
  return std::make_unique<Gpt>(run.model);
}

std::unique_ptr<DataSet> make_data(const TinyRun& run) {
  if (run.other_data) return run.other_data();
  if (run.resnet) return std::make_unique<TinyImages>(*run.resnet);
  if (run.unet) {
    return std::make_unique<ShapeSet>(
        ShapeSet::Options{.height = run.unet->height, .width = run.unet->width, .count = 64}, true);
  }
  if (run.mlp) return std::make_unique<NextToken>(sample_tokens(), run.mlp->context);
  return std::make_unique<TokenWindows>(sample_tokens(), run.model.context, 1);
}

TinyRank::TinyRank(const Job& job, const TinyRun& given)
    : run(given),
      data(make_data(run)),
      mesh(mesh_of(job, run)),
      statistics(mesh.group(run.sync_batch_norm ? kBatchAxes : AxisSet{Axis::spatial})),
      model(make_model(run, &statistics, mesh.place())),
      feed(
          {data.get()},
          {.batch = run.batch,
           .micro_batch = run.micro_batch,
           .samples = run.batch * run.steps - (run.last_batch > 0 ? run.batch - run.last_batch : 0),
           .rank = mesh.place().number_along(kSampleAxes),
           .ranks = roles_of(run.replica.sync, mesh.place().ranks_along(kSampleAxes)).workers(),
           .token_rank = mesh.place(Axis::context),
           .token_ranks = mesh.size(Axis::context),
           .window = model->attention_window(),
           .workers = 0}),
      replica(mesh, *model, make_optimizer(run.optimizer), replica_options_of(run, feed),
              hook_factory(run, *model)),
      steps(feed.steps_from(0)) {}

StepResult TinyRank::step() {
  const StepFeed batches = steps->next().value();
  std::vector<MicroBatch> own;
  for (const Batch& batch : batches.own) own.push_back(batch.view());
  return replica.step({.own = own, .passes = static_cast<int64_t>(batches.passes)}, ++done,
                      run.learning_rate);
}

void TinyRank::skip(int64_t to) {
  done = to;
  steps = feed.steps_from(static_cast<uint64_t>(to));
}

Evaluation TinyRank::evaluate() {
  const StepFeed batches = feed.validation(run.validation_samples);
  std::vector<MicroBatch> own;
  for (const Batch& batch : batches.own) own.push_back(batch.view());
  return replica.evaluate(own, static_cast<int64_t>(batches.passes));
}

Outcome train(int ranks, const TinyRun& run) {
  std::vector<Seen> seen(static_cast<size_t>(ranks));
  tutti::testing::run_ranks(ranks, [&](const Job& job) {
    seen[static_cast<size_t>(job.rank)] = train_as_rank(job, run);
  });
  Outcome outcome = seen.front().same;
  for (const Seen& other : seen) EXPECT_EQ(difference(other.same, outcome), "") << "ranks disagree";
  const std::vector<size_t>& parameters = seen.front().parameter_sizes;
  const size_t kinds = seen.front().parts.size() - 1;
  outcome.parameters = put_together(seen, 0, parameters);
  for (size_t kind = 1; kind < kinds; ++kind) {
    outcome.states.push_back(put_together(seen, kind, parameters));
  }
  outcome.buffers = put_together(seen, kinds, seen.front().buffer_sizes);
  return outcome;
}

std::string difference(const Outcome& found, const Outcome& expected) {
  std::string text;
  const auto add = [&](const char* what, const auto& a, const auto& b) {
    const std::string place = first_place(a, b);
    if (!place.empty()) text += cat(what, " ", place, "; ");
  };
  using Lists = std::vector<std::vector<double>>;
  add("losses, shares of right ones, norms, validation",
      Lists{found.losses, found.correct, found.norms, {found.validation}},
      Lists{expected.losses, expected.correct, expected.norms, {expected.validation}});
  if (found.named != expected.named) text += "units' losses; ";
  add("parameters", found.parameters, expected.parameters);
  if (found.states.size() != expected.states.size()) text += "another number of states; ";
  for (size_t i = 0; i < std::min(found.states.size(), expected.states.size()); ++i) {
    add("optimizer state", found.states[i], expected.states[i]);
  }
  add("buffers", found.buffers, expected.buffers);
  return text;
}

double relative_difference(std::span<const double> a, std::span<const double> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(a[i] - b[i]) / std::abs(b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace tutti::training::testing
