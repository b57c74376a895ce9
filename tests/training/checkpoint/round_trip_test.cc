// Tests that data saved by any number of owners is read by any other number of owners, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/text.h"
#include "tests/training/checkpoint/support.h"

namespace tutti::training {
namespace {

// Reads with `ranks` owners, joins the tensors by name and checks their bits.
void expect_read_by_owners(const Checkpoint& checkpoint, int ranks, uint64_t seed) {
  const std::vector<ParameterSpec> specs = sample_specs();
  const Layout layout =
      make_layout(specs, {.ranks = {ranks}, .bucket_elements = 300, .first_bucket_elements = 50});
  int64_t elements = 0;
  for (int owner = 0; owner < ranks; ++owner) {
    std::vector<float> owned(static_cast<size_t>(layout.owned_size));
    for (const Piece& piece : layout.pieces({owner})) {
      const ParameterSpec& spec = specs[static_cast<size_t>(piece.parameter)];
      float* values = owned.data() + piece.owned_offset;
      checkpoint.read("optimizer.exp_avg." + spec.name, piece.first,
                      tensor_at(values, DType::f32, 1, piece.count));
      const std::vector<float> all =
          sample_values(seed, "optimizer.exp_avg." + spec.name, spec.count());
      EXPECT_EQ(0, std::memcmp(values, all.data() + piece.first,
                               static_cast<size_t>(piece.count) * sizeof(float)))
          << spec.name << " from element " << piece.first;
      elements += piece.count;
    }
  }
  EXPECT_EQ(elements, 37 * 11 + 11 + 3 * 5 * 29 + 1 + 1000);
}

TEST(RoundTrip, EveryNumberOfOwnersReadsWhatEveryOtherWrote) {
  constexpr int kCounts[] = {1, 2, 3, 4, 8};
  for (const int writers : kCounts) {
    const Scratch scratch;
    save_sample_well(scratch.path("run"), writers, 7);
    const Checkpoint checkpoint = Checkpoint::open(scratch.path("run"));
    EXPECT_EQ(checkpoint.manifest().world(), writers);
    expect_sample(checkpoint, 7);
    for (const int readers : kCounts) {
      SCOPED_TRACE(cat(writers, " wrote, ", readers, " read"));
      expect_read_by_owners(checkpoint, readers, 7);
    }
  }
}

TEST(RoundTrip, AnyRangeIsReadAcrossTheEndsOfPieces) {
  const Scratch scratch;
  save_sample_well(scratch.path("run"), 3, 1);
  const Checkpoint checkpoint = Checkpoint::open(scratch.path("run/step-00000001/"));
  const std::vector<float> all = sample_values(1, "model.wte.weight", 37 * 11);
  for (int64_t first = 0; first <= 37 * 11; first += 13) {
    for (int64_t count = 0; first + count <= 37 * 11; count += 17) {
      std::vector<float> values(static_cast<size_t>(count) + 1, 42.0f);
      checkpoint.read("model.wte.weight", first, tensor_at(values.data(), DType::f32, 1, count));
      ASSERT_EQ(0, std::memcmp(values.data(), all.data() + first,
                               static_cast<size_t>(count) * sizeof(float)));
      ASSERT_EQ(values.back(), 42.0f) << "written beyond the end";
    }
  }
}

// The values include subnormals and values that overflow or are rounded in the other types.
TEST(RoundTrip, ValuesAreConvertedToTheTypeThatIsAskedFor) {
  const Scratch scratch;
  save_sample_well(scratch.path("run"), 2, 3);
  const Checkpoint checkpoint = Checkpoint::open(scratch.path("run"));
  const std::vector<float> all = sample_values(3, "model.ln_f.bias", 1000);
  for (const DType type : {DType::bf16, DType::f16}) {
    std::vector<uint16_t> read(1000);
    checkpoint.read("model.ln_f.bias", 0, tensor_at(read.data(), type, 1, 1000));
    for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], from_float(type, all[i])) << i;
  }
  std::vector<double> doubles(1000);
  checkpoint.read("model.ln_f.bias", 0, tensor_at(doubles.data(), DType::f64, 1, 1000));
  for (size_t i = 0; i < doubles.size(); ++i) {
    if (!std::isnan(all[i])) {
      EXPECT_EQ(doubles[i], all[i]) << i;
    }
  }
}

TEST(RoundTrip, HalvesAndIntegersAreStoredAsTheyAre) {
  const Scratch scratch;
  const std::vector<uint16_t> halves = {0x3f80, 0x7fc1, 0xff80, 0x0001};
  const std::vector<int64_t> whole = {1, -1, std::numeric_limits<int64_t>::min()};
  const std::vector<TensorPiece> pieces = {
      {"model.h", {2, 2}, 0, tensor_at(halves.data(), DType::bf16, 1, 4)},
      {"trainer.counts", {3}, 0, tensor_at(whole.data(), DType::i64, 1, 3)}};
  RunDirectory directory(scratch.path(), {});
  save_checkpoint({.directory = &directory, .step = 5}, pieces, group_of_one());
  const Checkpoint checkpoint = Checkpoint::open(scratch.path());
  EXPECT_EQ(*checkpoint.find("model.h"), (TensorInfo{"model.h", DType::bf16, {2, 2}}));

  std::vector<uint16_t> same(4);
  checkpoint.read("model.h", 0, tensor_at(same.data(), DType::bf16, 1, 4));
  EXPECT_EQ(same, halves);
  std::vector<float> wide(1);
  checkpoint.read("model.h", 2, tensor_at(wide.data(), DType::f32, 1, 1));
  EXPECT_EQ(wide[0], -std::numeric_limits<float>::infinity());
  std::vector<int64_t> counts(3);
  checkpoint.read("trainer.counts", 0, tensor_at(counts.data(), DType::i64, 1, 3));
  EXPECT_EQ(counts, whole);
  EXPECT_NE(error_of([&] {
              checkpoint.read("trainer.counts", 0, tensor_at(wide.data(), DType::f32, 1, 1));
            }),
            "");
}

TEST(RoundTrip, MissingDataIsReported) {
  const Scratch scratch;
  save_sample_well(scratch.path("run"), 2, 1);
  const Checkpoint checkpoint = Checkpoint::open(scratch.path("run"));
  std::vector<float> values(8);
  const auto read = [&](const char* name, int64_t first, int64_t count) {
    return error_of(
        [&] { checkpoint.read(name, first, tensor_at(values.data(), DType::f32, 1, count)); });
  };
  EXPECT_NE(read("model.ln_f.bia", 0, 1).find("did you mean \"model.ln_f.bias\"?"),
            std::string::npos);
  EXPECT_NE(read("model.ln_f.bias", 995, 6).find("has 1000 elements"), std::string::npos);
  EXPECT_NE(read("model.ln_f.bias", -1, 2), "");
  EXPECT_EQ(read("model.ln_f.bias", 995, 5), "");
  EXPECT_EQ(read("model.nothing", 0, 0), "");
  EXPECT_FALSE(checkpoint.has("model.ln_f.bia"));
  EXPECT_NE(
      error_of([&] { Checkpoint::open(scratch.path("elsewhere")); }).find("no checkpoint found in"),
      std::string::npos);
}

}  // namespace
}  // namespace tutti::training
