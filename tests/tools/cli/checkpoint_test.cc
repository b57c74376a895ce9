// Tests that tutti checkpoint shows, verifies and exports saved steps.
#include "tests/tools/cli/cli.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/exchange.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointCommand : public Cli {
 protected:
  void SetUp() override {
    training::save_sample_well(path("run"), 2, 1);
    training::save_sample_well(path("run"), 3, 2);
  }
};

TEST_F(CheckpointCommand, ListsStepsAndTensors) {
  const Result result = run({"checkpoint", path("run"), "--json", path("report.json")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("step-00000001  2 file(s), 18 tensors, "),
                                HasSubstr("step-00000002  3 file(s), 18 tensors, "),
                                HasSubstr(", the latest"), HasSubstr("step 2 of sample"),
                                Not(HasSubstr("model.h.0.mlp.weight")), Not(HasSubstr("whole"))));
  EXPECT_THAT(run({"checkpoint", path("run"), "--tensors"}).out,
              AllOf(HasSubstr("model.h.0.mlp.weight"), HasSubstr("3 x 5 x 29")));
  const auto report = Json::parse(read(path("report.json")));
  EXPECT_EQ(report.at("latest"), 2);
  EXPECT_EQ(report.at("steps").at(1).at("state").at("seed"), 2);
  EXPECT_EQ(report.at("steps").at(1).at("tensors").size(), 18u);
  EXPECT_EQ(report.at("steps").at(0).at("files").size(), 2u);
}

TEST_F(CheckpointCommand, VerifiesEveryFile) {
  const Result good = run({"checkpoint", path("run"), "--verify"});
  EXPECT_EQ(good.code, 0);
  EXPECT_THAT(good.out, HasSubstr("complete, the latest"));

  std::filesystem::resize_file(path("run/step-00000001/rank-0001-of-0002.safetensors"), 500);
  const Result damaged = run({"checkpoint", path("run"), "--verify"});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("step-00000001  damaged: "),
                                 HasSubstr("rank-0001-of-0002.safetensors has 500 bytes"),
                                 HasSubstr("step-00000002, which is complete")));
  // The directory may also be a single step.
  EXPECT_EQ(run({"checkpoint", path("run/step-00000001"), "--verify"}).code, 1);
  EXPECT_EQ(run({"checkpoint", path("run/step-00000002"), "--verify"}).code, 0);
}

TEST_F(CheckpointCommand, FindsMissingAndShortFilesAtAGlance) {
  std::filesystem::resize_file(path("run/step-00000001/rank-0001-of-0002.safetensors"), 500);
  const Result cut = run({"checkpoint", path("run")});
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.out, AllOf(HasSubstr("step-00000001  damaged: "), HasSubstr("has 500 bytes"),
                             HasSubstr("step-00000002  3 file(s)")));
  std::filesystem::remove(path("run/step-00000002/rank-0002-of-0003.safetensors"));
  const Result missing = run({"checkpoint", path("run/step-00000002")});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.out, AllOf(HasSubstr("step-00000002  damaged: "),
                                 HasSubstr("rank-0002-of-0003.safetensors")));
}

TEST_F(CheckpointCommand, ExportsTheModel) {
  const std::string file = path("model.safetensors");
  const Result result = run({"export", path("run"), file, "--dtype", "bf16"});
  EXPECT_EQ(result.code, 0) << result.err;
  const training::ImportedModel model(file);
  EXPECT_EQ(model.find("model.ln_f.bias")->dtype, DType::bf16);

  const Result twice = run({"export", path("run"), file});
  EXPECT_EQ(twice.code, 1);
  EXPECT_THAT(twice.err, AllOf(HasSubstr("model.safetensors exists"), HasSubstr("--overwrite")));
  const Result refused = run({"export", path("run"), file, "--overwrite", "--dtype", "i32"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("cannot be exported as i32"));

  // Former spelling of `tutti export`.
  EXPECT_EQ(run({"checkpoint", path("run"), "--export", file}).code, 0);
}

TEST_F(CheckpointCommand, ReportsAMissingCheckpoint) {
  const Result result = run({"checkpoint", path("elsewhere")});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("no checkpoint found in"));
}

}  // namespace
}  // namespace tutti::tool
