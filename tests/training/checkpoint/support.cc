#include "tests/training/checkpoint/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "base/error.h"
#include "training/checkpoint/background_save.h"
#include "training/checkpoint/step_directory.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

constexpr const char* kKinds[] = {"model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."};

// An all-gather of texts among threads.
class Exchange {
 public:
  explicit Exchange(int ranks) : texts_(static_cast<size_t>(ranks)), barrier_(ranks) {}

  Group group(int rank) {
    return {.rank = rank,
            .size = static_cast<int>(texts_.size()),
            .gather_to_first =
                [this, rank](std::string text) {
                  texts_[static_cast<size_t>(rank)] = std::move(text);
                  barrier_.arrive_and_wait();
                  std::vector<std::string> all;
                  if (rank == 0) all = texts_;
                  barrier_.arrive_and_wait();
                  return all;
                },
            .from_first =
                [this, rank](std::string text) {
                  if (rank == 0) texts_[0] = std::move(text);
                  barrier_.arrive_and_wait();
                  std::string result = texts_[0];
                  barrier_.arrive_and_wait();
                  return result;
                }};
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0;
  for (const char character : text) hash = hash * 31 + static_cast<uint8_t>(character);
  return hash;
}

}  // namespace

Scratch::Scratch() {
  std::string pattern = ::testing::TempDir() + "/checkpoint-XXXXXX";
  root_ = std::filesystem::path(::mkdtemp(pattern.data())).lexically_normal();
}

Scratch::~Scratch() {
  std::error_code error;
  std::filesystem::remove_all(root_, error);
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // because overwriting a file is slow on some file systems
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  ASSERT_TRUE(file) << path;
}

std::vector<std::string> run_ranks(int ranks, const std::function<void(const Group&)>& work) {
  Exchange exchange(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      errors[static_cast<size_t>(rank)] = error_of([&] { work(exchange.group(rank)); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<ParameterSpec> sample_specs() {
  std::vector<ParameterSpec> specs;
  int unit = 0;
  const auto add = [&](const char* name, std::vector<int64_t> shape) {
    specs.push_back({.name = name, .shape = std::move(shape), .initial = {}, .unit = unit++});
  };
  add("wte.weight", {37, 11});
  add("h.0.ln_1.weight", {11});
  add("h.0.mlp.weight", {3, 5, 29});
  add("scale", {});
  add("nothing", {4, 0});
  add("ln_f.bias", {1000});
  return specs;
}

std::vector<std::string> sample_names() {
  std::vector<std::string> names;
  for (const char* kind : kKinds) {
    for (const ParameterSpec& spec : sample_specs()) names.push_back(kind + spec.name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<float> sample_values(uint64_t seed, const std::string& tensor, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<uint32_t>(random_bits(seed, hash_of(tensor), i));
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

std::vector<std::string> save_sample(const SampleRequest& request, int ranks, uint64_t seed,
                                     int64_t bucket_elements) {
  std::optional<RunDirectory> directory;
  const std::string error = error_of([&] {
    const RunStart as_there_is{.resume = std::filesystem::is_directory(request.directory) &&
                                         !steps_in(request.directory).empty()};
    directory.emplace(request.directory, request.start.value_or(as_there_is));
    directory->begin();
  });
  if (!error.empty()) return std::vector(static_cast<size_t>(ranks), error);
  return save_sample(*directory, request, ranks, seed, bucket_elements);
}

std::vector<std::string> save_sample(RunDirectory& directory, const SampleRequest& request,
                                     int ranks, uint64_t seed, int64_t bucket_elements) {
  const std::vector<ParameterSpec> specs = sample_specs();
  const Layout layout = make_layout(
      specs, {.ranks = {ranks}, .bucket_elements = bucket_elements, .first_bucket_elements = 1});
  const Json state = {{"seed", seed}, {"loss", 0.1}, {"data", {{"position", 1u << 31}}}};
  return run_ranks(ranks, [&](const Group& group) {
    std::vector<std::vector<float>> owned;  // not resized below, because pieces point into it
    std::vector<TensorPiece> pieces;
    const auto add = [&](const std::string& name, const ParameterSpec& spec, int64_t first,
                         int64_t count) {
      const std::vector<float> all = sample_values(seed, name, spec.count());
      owned.emplace_back(all.begin() + first, all.begin() + first + count);
      const float* values = owned.back().data();
      pieces.push_back({name, spec.shape, first, tensor_at(values, DType::f32, 1, count)});
    };
    for (const char* kind : kKinds) {
      for (const Piece& piece : layout.pieces({group.rank})) {
        const ParameterSpec& spec = specs[static_cast<size_t>(piece.parameter)];
        add(kind + spec.name, spec, piece.first, piece.count);
      }
      // Tensors without elements have no pieces.
      for (const ParameterSpec& spec : specs) {
        if (group.rank == 0 && spec.count() == 0) add(kind + spec.name, spec, 0, 0);
      }
    }
    const SaveRequest save{.directory = group.rank == 0 ? &directory : nullptr,
                           .step = static_cast<int64_t>(seed),
                           .model = "sample",
                           .configuration = {},
                           .state = state,
                           .keep = request.keep,
                           .at_phase = request.at_phase};
    if (!request.in_background) return save_checkpoint(save, pieces, group);
    std::vector<std::byte> memory;
    BackgroundSave in_flight(save, pieces, group, memory);
    for (std::vector<float>& values : owned) std::ranges::fill(values, -1.0f);
    while (!in_flight.advance()) {
    }
  });
}

void save_sample_well(const std::string& directory, int ranks, uint64_t seed) {
  for (const std::string& error : save_sample({.directory = directory}, ranks, seed)) {
    ASSERT_EQ(error, "");
  }
}

void expect_sample(const Checkpoint& checkpoint, uint64_t seed) {
  EXPECT_EQ(checkpoint.manifest().step, static_cast<int64_t>(seed));
  EXPECT_EQ(checkpoint.manifest().model, "sample");
  EXPECT_EQ(checkpoint.manifest().state,
            Json({{"seed", seed}, {"loss", 0.1}, {"data", {{"position", 1u << 31}}}}));
  ASSERT_EQ(checkpoint.names(), sample_names());
  for (const std::string& name : checkpoint.names()) {
    const std::vector<float> expected = sample_values(seed, name, checkpoint.find(name)->count());
    std::vector<float> values(expected.size());
    checkpoint.read(name, 0,
                    tensor_at(values.data(), DType::f32, 1, static_cast<int64_t>(values.size())));
    EXPECT_TRUE(std::ranges::equal(values, expected, {}, std::bit_cast<uint32_t, float>,
                                   std::bit_cast<uint32_t, float>))
        << name;
  }
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace tutti::training
