// Documents that share a window, with masks, are learnt as if each had a window of its own.
#include <gtest/gtest.h>

#include <vector>

#include "tests/training/data/folder.h"
#include "tests/training/support/bound_parameters.h"
#include "tests/training/support/model_pass.h"
#include "training/data/data_set.h"
#include "training/models/gpt.h"

namespace tutti::training::testing {
namespace {

constexpr int32_t kEnd = 6;
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

  // The first window of a file with these tokens.
  Batch window(std::vector<int32_t> tokens, bool masks) const {
    tokens.resize(200, 1);
    TokenWriter writer(path("a.bin"), {.vocabulary = 7, .end_of_text = kEnd});
    writer.write(tokens);
    writer.finish();
    // Held-out windows are not moved.
    const TokenWindows set(Tokens(TokenFile(path("a.bin")), TokenFile(path("a.bin"))), kContext, 1,
                           masks);
    Batch batch;
    set.add_validation(0, batch);
    return batch;
  }
  // The logits of each token.
  HostTensor logits(const Batch& batch) {
    TestPass test;
    test.batch = {.samples = batch.samples,
                  .tokens = batch.tokens,
                  .document_starts = batch.document_starts};
    return rounded_to(DType::f64, forward(model_, test.pass));
  }

  Gpt model_;
  BoundParameters parameters_;
};

TEST_F(DocumentMaskTest, APackedWindowIsItsDocuments) {
  const std::vector<int32_t> packed = {kEnd, 1, 2, 3, kEnd, 4, 5, 0, kEnd};
  const HostTensor together = logits(window(packed, true));
  const HostTensor blended = logits(window(packed, false));
  for (const int64_t begin : {0, 4}) {
    const std::vector<int32_t> one(packed.begin() + begin, packed.begin() + begin + 4);
    const HostTensor apart = logits(window(one, false));
    const ConstTensor expected = apart.view().row_range(0, 4);
    EXPECT_LT(relative_distance(together.view().row_range(begin, 4), expected), 1e-13);
    EXPECT_EQ(relative_distance(blended.view().row_range(begin, 4), expected) > 1e-3, begin > 0)
        << "without masks the second sees the first";
  }
}

}  // namespace
}  // namespace tutti::training::testing
