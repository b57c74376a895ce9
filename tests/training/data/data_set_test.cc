#include "training/data/data_set.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes 0, 1, 2, ..., size - 1. The last tenth is held out (20 of 200 bytes).
Tokens counting(size_t size = 200) {
  std::vector<uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return Tokens(split_text(std::move(bytes)));
}

Batch example(const DataSet& set, uint64_t number, uint64_t epoch = 0) {
  Batch batch;
  set.add(number, epoch, batch);
  return batch;
}

Batch held_out(const DataSet& set, uint64_t number) {
  Batch batch;
  set.add_validation(number, batch);
  return batch;
}

TEST(TokenWindows, EachTokenIsTheTargetOfTheOneBefore) {
  const TokenWindows set(counting(), 8, 1);
  Batch batch;
  for (const uint64_t number : {3, 0, 5}) set.add(number, 2, batch);
  EXPECT_EQ(batch.samples, 3);
  ASSERT_EQ(batch.tokens.size(), 24u);
  ASSERT_EQ(batch.targets.size(), 24u);
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    EXPECT_EQ(batch.tokens[i], batch.tokens[i / 8 * 8] + static_cast<int32_t>(i % 8));
  }
  EXPECT_EQ(batch.tokens[0], batch.tokens[8] + 24) << "the fourth window and the first";
  EXPECT_EQ(batch.tokens[16], batch.tokens[8] + 40);
}

TEST(TokenWindows, TileTheTextAnewInEachEpoch) {
  const TokenWindows set(counting(), 8, 1);
  EXPECT_EQ(set.size(), 21u) << "180 tokens: a target more, and room for the shift";
  std::set<int32_t> starts;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const int32_t start = example(set, 0, epoch).tokens.front();
    starts.insert(start);
    for (uint64_t number = 0; number < set.size(); ++number) {
      const Batch window = example(set, number, epoch);
      EXPECT_EQ(window.tokens.front(), start + 8 * static_cast<int32_t>(number));
      EXPECT_LT(window.targets.back(), 180) << "what is held out is never seen";
    }
  }
  EXPECT_THAT(starts, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << "all cuts";
  EXPECT_EQ(example(set, 4, 7).tokens, example(TokenWindows(counting(), 8, 1), 4, 7).tokens);
}

TEST(TokenWindows, ValidateOnWhatIsHeldOut) {
  const TokenWindows set(counting(), 8, 1);
  ASSERT_EQ(set.validation_size(), 2u) << "20 tokens";
  EXPECT_THAT(held_out(set, 0).tokens, ElementsAre(180, 181, 182, 183, 184, 185, 186, 187));
  EXPECT_THAT(held_out(set, 0).targets, ElementsAre(181, 182, 183, 184, 185, 186, 187, 188));
  EXPECT_THAT(held_out(set, 1).tokens, ElementsAre(188, 189, 190, 191, 192, 193, 194, 195));
  EXPECT_EQ(held_out(set, 1).samples, 1);
}

TEST(TokenWindows, RefusesATextWithoutAWindow) {
  EXPECT_EQ(TokenWindows(counting(), 19, 1).validation_size(), 1u) << "20 tokens just do";
  EXPECT_THAT(error_of([] { const TokenWindows set(counting(), 20, 1); }),
              AllOf(HasSubstr("180 tokens and 20 for validation is shorter than the context of 20"),
                    HasSubstr("--context")));
}

TEST(NextToken, EachTokenIsPredictedFromThoseBefore) {
  const NextToken set(counting(), 3);
  EXPECT_EQ(set.size(), 180u);
  EXPECT_THAT(example(set, 50).tokens, ElementsAre(47, 48, 49));
  EXPECT_THAT(example(set, 50).targets, ElementsAre(50));
  EXPECT_EQ(example(set, 50).samples, 1);
  EXPECT_EQ(example(set, 50, 9).tokens, example(set, 50).tokens) << "the same in each epoch";
  EXPECT_THAT(example(set, 2).tokens, ElementsAre(0, 0, 1)) << "0 before the text";
}

TEST(NextToken, ValidationBeginsWhereTheTrainingPartEnds) {
  const NextToken set(counting(), 3);
  EXPECT_EQ(set.validation_size(), 20u);
  EXPECT_THAT(held_out(set, 1).tokens, ElementsAre(178, 179, 180));
  EXPECT_THAT(held_out(set, 1).targets, ElementsAre(181));
  EXPECT_THAT(held_out(set, 19).targets, ElementsAre(199));
}

class TokensTest : public FolderTest {
 protected:
  using Read = void (Tokens::*)(uint64_t, std::span<int32_t>) const;
  static int32_t one(const Tokens& tokens, Read read, uint64_t index) {
    int32_t token = 0;
    (tokens.*read)(index, std::span(&token, 1));
    return token;
  }
  TokenFile file_of(const std::string& name, int32_t first, size_t count,
                    int64_t vocabulary = 65536) const {
    std::vector<int32_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    TokenWriter writer(path(name), {.vocabulary = vocabulary, .end_of_text = {}});
    writer.write(tokens);
    writer.finish();
    return TokenFile(path(name));
  }
};

TEST_F(TokensTest, TheLastTenthOfAFileIsHeldOut) {
  const Tokens tokens(file_of("a.bin", 1000, 205));
  EXPECT_EQ(tokens.training_size(), 185u);
  EXPECT_EQ(tokens.validation_size(), 20u);
  EXPECT_EQ(one(tokens, &Tokens::training, 184), 1184);
  EXPECT_EQ(one(tokens, &Tokens::validation, 0), 1185);
}

TEST_F(TokensTest, HoldsOutASeparateFile) {
  const Tokens tokens(file_of("a.bin", 1000, 200), file_of("b.bin", 5000, 7));
  EXPECT_EQ(tokens.training_size(), 200u);
  EXPECT_EQ(tokens.validation_size(), 7u);
  EXPECT_EQ(one(tokens, &Tokens::validation, 6), 5006);
}

TEST_F(TokensTest, KnowTheVocabulary) {
  EXPECT_EQ(Tokens(file_of("a.bin", 1000, 200, 1200)).kinds(), 1200);
  EXPECT_EQ(Tokens(file_of("a.bin", 1000, 200, 1200), file_of("b.bin", 5000, 7, 5007)).kinds(),
            5007);
  EXPECT_EQ(Tokens(file_of("a.bin", 0, 70000, 70000)).kinds(), 70000);
  EXPECT_EQ(counting().kinds(), 256);
}

TEST_F(TokensTest, DocumentsBeginWithTheEndOfTextBeforeThem) {
  constexpr int32_t kEnd = 300;
  std::vector<int32_t> tokens(200, 1);
  for (const size_t i : {190, 192, 193}) tokens[i] = kEnd;
  TokenWriter writer(path("a.bin"), {.vocabulary = 301, .end_of_text = kEnd});
  writer.write(tokens);
  writer.finish();
  const auto windows = [&](bool masks) {
    return TokenWindows(Tokens(TokenFile(path("a.bin"))), 8, 1, masks);
  };
  Batch batch = held_out(windows(true), 1);  // tokens 188 to 196
  EXPECT_THAT(batch.tokens, ElementsAre(1, 1, kEnd, 1, kEnd, kEnd, 1, 1));
  EXPECT_THAT(batch.document_starts, ElementsAre(0, 0, 2, 2, 4, 5, 5, 5));
  windows(true).add_validation(0, batch);
  EXPECT_THAT(std::vector(batch.document_starts.begin() + 8, batch.document_starts.end()),
              ::testing::Each(0))
      << "in the sample, not in the micro-batch";
  EXPECT_EQ(batch.view().document_starts.size(), 16u);
  EXPECT_TRUE(held_out(windows(false), 1).document_starts.empty());
  EXPECT_THAT(error_of([] { const TokenWindows set(counting(), 8, 1, true); }),
              AllOf(HasSubstr("document boundaries"), HasSubstr("--eot")));
}

TEST_F(TokensTest, UnpredictedTokensAreNoTargets) {
  std::vector<int32_t> tokens(200, 1);
  for (size_t i = 0; i < tokens.size(); i += 2) tokens[i] = unpredicted(2);
  TokenWriter writer(path("a.bin"),
                     {.vocabulary = 3, .end_of_text = {}, .marks_unpredicted = true});
  writer.write(tokens);
  writer.finish();
  const TokenWindows windows(Tokens(TokenFile(path("a.bin"))), 4, 1);
  EXPECT_THAT(held_out(windows, 0).tokens, ElementsAre(2, 1, 2, 1));
  EXPECT_THAT(held_out(windows, 0).targets, ElementsAre(1, -100, 1, -100));
  const NextToken next(Tokens(TokenFile(path("a.bin"))), 2);
  EXPECT_THAT(example(next, 4).tokens, ElementsAre(2, 1));
  EXPECT_THAT(example(next, 4).targets, ElementsAre(-100));
  EXPECT_THAT(example(next, 5).targets, ElementsAre(1));
}

TEST_F(TokensTest, FingerprintsDistinguishData) {
  const auto print = [&](int32_t first, size_t count) {
    return Tokens(file_of("a.bin", first, count)).fingerprint();
  };
  EXPECT_EQ(print(1000, 200), print(1000, 200));
  EXPECT_NE(print(1001, 200), print(1000, 200));
  EXPECT_NE(print(1000, 201), print(1000, 200));
  EXPECT_NE(Tokens(file_of("a.bin", 1000, 200), file_of("b.bin", 0, 7)).fingerprint(),
            Tokens(file_of("a.bin", 1000, 200), file_of("b.bin", 1, 7)).fingerprint());
  EXPECT_EQ(counting().fingerprint(), counting().fingerprint());
  EXPECT_NE(counting(199).fingerprint(), counting().fingerprint());
  EXPECT_NE(print(0, 60000), print(1, 60000));
}

TEST_F(TokensTest, ShortFilesAreRefused) {
  EXPECT_THAT(error_of([&] { const Tokens tokens(file_of("a.bin", 0, 127)); }),
              HasSubstr("127 tokens is too short"));
  EXPECT_THAT(
      error_of([&] { const Tokens tokens(file_of("a.bin", 0, 200), file_of("b.bin", 0, 0)); }),
      HasSubstr("validation file has no tokens"));
}

}  // namespace
}  // namespace tutti::training
