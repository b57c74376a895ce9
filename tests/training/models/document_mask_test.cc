// Tests that documents in one window, with a mask between them, train as if each had its own
// window.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/training/data/folder.h"
#include "tests/training/support/gradient_check.h"
#include "tests/training/support/model_pass.h"
#include "training/data/data_set.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {
namespace {

constexpr int32_t kEnd = 6;
constexpr int32_t kIgnored = -100;
constexpr int64_t kContext = 8;

constexpr GptConfig kModel{.layers = 2,
                           .heads = 2,
                           .width = 8,
                           .context = kContext,
                           .vocabulary = 7,
                           .hidden = 6,
                           .positions = Positions::rope};

class DocumentMaskTest : public FolderTest {
 protected:
  DocumentMaskTest() : model_(kModel), parameters_(model_.parameters(), DType::f64, 0.4) {}

  // Writes a file that begins with these tokens. Returns its first window.
  Batch window(std::vector<int32_t> tokens, bool masks, bool marks = false) const {
    tokens.resize(200, 1);
    TokenWriter writer(path("a.bin"),
                       {.vocabulary = 7, .end_of_text = kEnd, .marks_unpredicted = marks});
    writer.write(tokens);
    writer.finish();
    // Held-out windows are not shifted.
    const TokenWindows set(Tokens(TokenFile(path("a.bin")), TokenFile(path("a.bin"))), kContext, 1,
                           masks);
    Batch batch;
    set.add_validation(0, batch);
    return batch;
  }
  // Adds the gradients of `batch` to those of the parameters. Returns the sum of the losses.
  double learn(const Batch& batch) {
    TestPass test;
    test.batch = batch.view();
    forward(model_, test.pass);
    backward(model_, test.pass);
    return test.pass.loss.get().sum;
  }

  Gpt model_;
  BoundParameters parameters_;
};

TEST_F(DocumentMaskTest, APackedWindowEqualsItsDocuments) {
  const std::vector<int32_t> packed = {kEnd, 1, 2, 3, kEnd, 4, 5, 0, kEnd};
  const double together = learn(window(packed, true));
  std::vector<std::vector<double>> gradients;
  for (int i = 0; i < parameters_.size(); ++i)
    gradients.push_back(doubles(parameters_.gradient(i)));
  parameters_.clear_gradients();
  double apart = 0;
  for (const size_t begin : {size_t{0}, size_t{4}}) {
    Batch one = window({packed.begin() + static_cast<ptrdiff_t>(begin),
                        packed.begin() + static_cast<ptrdiff_t>(begin) + 5},
                       false);
    std::fill(one.targets.begin() + 4, one.targets.end(), kIgnored);
    apart += learn(one);
  }
  EXPECT_NEAR(together, apart, 1e-12 * together);
  for (int i = 0; i < parameters_.size(); ++i) {
    EXPECT_LT(
        relative_distance(doubles(parameters_.gradient(i)), gradients[static_cast<size_t>(i)]),
        1e-12)
        << model_.parameters().specs()[static_cast<size_t>(i)].name;
  }
  parameters_.clear_gradients();
  EXPECT_GT(std::abs(learn(window(packed, false)) - together), 1e-3) << "without masks it is not";
}

TEST_F(DocumentMaskTest, PromptsAreReadButNotLearnt) {
  const std::vector<int32_t> tokens = {kEnd, 1, 2, 3, kEnd, 4, 5, 0, kEnd};
  std::vector<int32_t> marked = tokens;
  for (const size_t i : {1, 2, 5}) marked[i] = unpredicted(marked[i]);
  const Batch batch = window(marked, true, true);
  EXPECT_EQ(batch.tokens, window(tokens, true).tokens);
  EXPECT_THAT(batch.targets,
              ::testing::ElementsAre(kIgnored, kIgnored, 3, kEnd, kIgnored, 5, 0, kEnd));
  EXPECT_EQ(model_.targets_in(batch.view()), 5);
}

}  // namespace
}  // namespace tutti::training::testing
