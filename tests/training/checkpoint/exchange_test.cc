// Tests models imported from and exported to other programs.
#include "training/checkpoint/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/half.h"
#include "base/path.h"
#include "base/text.h"
#include "tests/support/process.h"
#include "tests/training/checkpoint/support.h"

namespace tutti::training {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> values_of(const TensorSource& source, const std::string& name, DType dtype) {
  std::vector<T> values(static_cast<size_t>(source.find(name)->count()));
  source.read(name, 0, tensor_at(values.data(), dtype, 1, static_cast<int64_t>(values.size())));
  return values;
}

std::vector<float> counted(int64_t count, float from = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), from);
  return values;
}

void write_floats(const std::string& path, const std::vector<TensorInfo>& tensors) {
  SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  for (const TensorInfo& tensor : tensors) {
    const std::vector<float> values = counted(tensor.count());
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
}

TEST(Export, WritesTheModelUnderItsPlainNames) {
  const Scratch scratch;
  save_sample_well(scratch.path("run"), 3, 4);
  const Checkpoint checkpoint = Checkpoint::open(scratch.path("run"));
  export_safetensors(checkpoint, scratch.path("out.safetensors"));
  export_safetensors(checkpoint, scratch.path("half.safetensors"), DType::bf16);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out.safetensors.tmp")));

  const SafetensorsFile file(scratch.path("out.safetensors"));
  EXPECT_EQ(file.metadata().at("step"), "4");
  EXPECT_EQ(file.tensors().size(), sample_specs().size());
  const ImportedModel model(scratch.path("out.safetensors"));
  const ImportedModel half(scratch.path("half.safetensors"));
  for (const ParameterSpec& spec : sample_specs()) {
    ASSERT_NE(file.find(spec.name), nullptr) << spec.name;
    EXPECT_EQ(file.find(spec.name)->info.shape, spec.shape);
    const std::string name = "model." + spec.name;
    const std::vector<float> all = sample_values(4, name, spec.count());
    const std::vector<float> read = values_of<float>(model, name, DType::f32);
    EXPECT_TRUE(std::ranges::equal(read, all, {}, std::bit_cast<uint32_t, float>,
                                   std::bit_cast<uint32_t, float>));
    EXPECT_EQ(half.find(name)->dtype, DType::bf16);
    const std::vector<uint16_t> halves = values_of<uint16_t>(half, name, DType::bf16);
    for (size_t i = 0; i < halves.size(); ++i) {
      EXPECT_EQ(halves[i], from_float(DType::bf16, all[i]));
    }
  }
}

TEST(Export, LeavesNothingWhereItFails) {
  const Scratch scratch;
  save_sample_well(scratch.path("run"), 3, 4);
  write_bytes(scratch.path("old.safetensors"), "old");
  std::filesystem::resize_file(scratch.path("run/step-00000004/rank-0002-of-0003.safetensors"), 9);
  const Checkpoint checkpoint = Checkpoint::open(scratch.path("run"));
  EXPECT_THAT(error_of([&] { export_safetensors(checkpoint, scratch.path("old.safetensors")); }),
              HasSubstr("rank-0002-of-0003.safetensors"));
  EXPECT_EQ(read_bytes(scratch.path("old.safetensors")), "old");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("old.safetensors.tmp")));
  EXPECT_THAT(error_of([&] {
                export_safetensors(checkpoint, scratch.path("old.safetensors"), DType::i32);
              }),
              HasSubstr("cannot be exported as i32"));
}

// Conv1D of width 2 stores a matrix of 2 inputs x 6 outputs, row by row.
TEST(Import, TransposesLinearLayersOfHuggingFaceGpt2) {
  for (const std::string prefix : {"", "transformer."}) {
    const Scratch scratch;
    const std::string h = prefix + "h.0.";
    write_floats(scratch.path("m"), {{prefix + "wte.weight", DType::f32, {5, 2}},
                                     {h + "attn.bias", DType::f32, {1, 1, 4, 4}},
                                     {h + "attn.masked_bias", DType::f32, {}},
                                     {h + "attn.c_attn.weight", DType::f32, {2, 6}},
                                     {h + "attn.c_attn.bias", DType::f32, {6}},
                                     {h + "attn.c_proj.weight", DType::f32, {2, 2}},
                                     {h + "mlp.c_fc.weight", DType::f32, {2, 8}},
                                     {h + "mlp.c_proj.weight", DType::f32, {8, 2}},
                                     {"lm_head.weight", DType::f32, {5, 2}}});
    const ImportedModel model(scratch.path("m"));
    EXPECT_THAT(
        model.names(),
        ElementsAre("model.h.0.attn.c_attn.bias", "model.h.0.attn.c_attn.weight",
                    "model.h.0.attn.c_proj.weight", "model.h.0.mlp.c_fc.weight",
                    "model.h.0.mlp.c_proj.weight", "model.lm_head.weight", "model.wte.weight"));
    const auto values = [&](const char* name) {
      return values_of<float>(model, cat("model.h.0.", name), DType::f32);
    };
    EXPECT_THAT(model.find("model.h.0.attn.c_attn.weight")->shape, ElementsAre(6, 2));
    EXPECT_THAT(values("attn.c_attn.weight"), ElementsAre(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11));
    EXPECT_THAT(values("attn.c_proj.weight"), ElementsAre(0, 2, 1, 3));
    EXPECT_THAT(model.find("model.h.0.mlp.c_proj.weight")->shape, ElementsAre(2, 8));
    EXPECT_THAT(values("mlp.c_proj.weight"),
                ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    EXPECT_THAT(values("attn.c_attn.bias"), ElementsAreArray(counted(6)));
    EXPECT_THAT(values_of<float>(model, "model.wte.weight", DType::f32),
                ElementsAreArray(counted(10)));

    std::vector<uint16_t> part(3);
    model.read("model.h.0.mlp.c_proj.weight", 7, tensor_at(part.data(), DType::f16, 1, 3));
    EXPECT_THAT(part, ElementsAre(from_float(DType::f16, 14), from_float(DType::f16, 1),
                                  from_float(DType::f16, 3)));
  }
}

// The matrices have more than one block of the transposition.
TEST(Import, TransposesLargeMatrices) {
  const Scratch scratch;
  constexpr int64_t kWidth = 67;
  write_floats(scratch.path("m"), {{"h.0.attn.c_attn.weight", DType::f32, {kWidth, 3 * kWidth}}});
  const ImportedModel model(scratch.path("m"));
  const std::vector<float> read =
      values_of<float>(model, "model.h.0.attn.c_attn.weight", DType::f32);
  for (int64_t out = 0; out < 3 * kWidth; ++out) {
    for (int64_t in = 0; in < kWidth; ++in) {
      ASSERT_EQ(read[static_cast<size_t>(out * kWidth + in)],
                static_cast<float>(in * 3 * kWidth + out));
    }
  }
}

TEST(Import, LeavesWeightsOfOutputsTimesInputsAsTheyAre) {
  const Scratch scratch;
  write_floats(scratch.path("m"), {{"h.0.attn.c_attn.weight", DType::f32, {6, 2}},
                                   {"h.0.attn.c_proj.weight", DType::f32, {2, 2}},
                                   {"h.0.attn.bias", DType::f32, {2}}});
  const ImportedModel model(scratch.path("m"));
  EXPECT_THAT(model.find("model.h.0.attn.c_attn.weight")->shape, ElementsAre(6, 2));
  EXPECT_THAT(values_of<float>(model, "model.h.0.attn.c_proj.weight", DType::f32),
              ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(model.has("model.h.0.attn.bias"));
}

TEST(Import, TakesOtherNames) {
  const Scratch scratch;
  write_floats(scratch.path("m"), {{"embedding", DType::f32, {3}}, {"other", DType::f32, {2}}});
  const ImportedModel model(scratch.path("m"), {{"wte.weight", "embedding"}});
  EXPECT_THAT(model.names(), ElementsAre("model.other", "model.wte.weight"));
  EXPECT_THAT(values_of<float>(model, "model.wte.weight", DType::f32), ElementsAre(0, 1, 2));
  EXPECT_THAT(error_of([&] {
                ImportedModel(scratch.path("m"), {{"a", "b"}});
              }),
              HasSubstr("has no tensor \"b\""));
  EXPECT_THAT(error_of([&] {
                ImportedModel(scratch.path("m"), {{"other", "embedding"}});
              }),
              HasSubstr("two tensors that are renamed to \"other\""));
  float value = 0;
  EXPECT_THAT(
      error_of([&] { model.read("model.wte.weight", 3, tensor_at(&value, DType::f32, 1, 1)); }),
      HasSubstr("has 3 elements"));
}

// --- the reference library of the format ---

constexpr const char* kScript = R"(
import sys
import numpy
from safetensors.numpy import load_file, save_file
ours = load_file(sys.argv[1])
assert sorted(ours) == ['byte', 'empty', 'f16', 'f32', 'i64', 'scalar'], sorted(ours)
for name, tensor in ours.items():
    expected = numpy.arange(tensor.size).astype(tensor.dtype).reshape(tensor.shape)
    assert (tensor == expected).all(), name
assert ours['f32'].shape == (2, 3) and ours['f32'].dtype == numpy.float32
assert ours['empty'].shape == (0, 4) and ours['scalar'].shape == ()
save_file(ours, sys.argv[2], metadata={'made by': 'safetensors'})
)";

template <typename T>
void write_counted(SafetensorsWriter& writer, size_t count, const std::vector<T>& values) {
  ASSERT_EQ(values.size(), count);
  writer.write(std::as_bytes(std::span(values)));
}

TEST(Interop, TheFormatsOwnLibraryReadsAndWritesTheSame) {
  const std::string python = find_program("python3");
  if (python.empty()) GTEST_SKIP() << "there is no python3";
  if (testing::Process({python, "-c", "import numpy, safetensors.numpy"}).finish().code != 0) {
    GTEST_SKIP() << "python3 has no packages numpy and safetensors";
  }
  const Scratch scratch;
  const std::vector<TensorInfo> tensors = {
      {"byte", DType::u8, {3}},    {"f32", DType::f32, {2, 3}}, {"f16", DType::f16, {2}},
      {"i64", DType::i64, {1, 2}}, {"scalar", DType::f64, {}},  {"empty", DType::f32, {0, 4}}};
  {
    SafetensorsWriter writer(scratch.path("ours"), tensors, {{"a", "b"}});
    write_counted<uint8_t>(writer, 3, {0, 1, 2});
    write_counted<float>(writer, 6, counted(6));
    write_counted<uint16_t>(writer, 2, {0, from_float(DType::f16, 1)});
    write_counted<int64_t>(writer, 2, {0, 1});
    write_counted<double>(writer, 1, {0});
    writer.finish();
  }
  const testing::Result result =
      testing::Process({python, "-c", kScript, scratch.path("ours"), scratch.path("theirs")})
          .finish();
  ASSERT_EQ(result.code, 0) << result.err;
  const SafetensorsFile ours(scratch.path("ours"));
  const SafetensorsFile theirs(scratch.path("theirs"));
  EXPECT_EQ(theirs.metadata().at("made by"), "safetensors");
  for (const TensorInfo& tensor : tensors) {
    ASSERT_NE(theirs.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(theirs.find(tensor.name)->info, tensor);
    EXPECT_TRUE(std::ranges::equal(theirs.find(tensor.name)->bytes, ours.find(tensor.name)->bytes));
  }
}

}  // namespace
}  // namespace tutti::training
