// Tests the import of models into a run's directory, and their export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "tests/training/checkpoint/support.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/files.h"
#include "training/hugging_face/architecture.h"
#include "training/hugging_face/directory.h"
#include "training/hugging_face/export.h"
#include "training/hugging_face/import.h"
#include "training/language/model_source.h"
#include "training/models/registry.h"

namespace tutti::training::hugging_face {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) {
  return "tests/training/fixtures/hugging_face/" + name;
}

// Returns, for each tensor of a directory, its type, shape and bits.
std::map<std::string, std::string> tensors_in(const std::string& directory) {
  std::map<std::string, std::string> tensors;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const SafetensorsFile file(entry.path());
    EXPECT_EQ(file.metadata().at("format"), "pt");
    for (const StoredTensor& tensor : file.tensors()) {
      std::string text(training::safetensors_name(tensor.info.dtype));
      for (const int64_t size : tensor.info.shape) text += " " + std::to_string(size);
      text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      EXPECT_TRUE(tensors.emplace(tensor.info.name, text).second) << tensor.info.name;
    }
  }
  return tensors;
}

void export_run(const std::string& run, const std::string& directory,
                const ExportOptions& options = {}) {
  const Checkpoint checkpoint = Checkpoint::open(run);
  export_model(checkpoint, companions_of_step(checkpoint.path()), directory, options);
}

class RoundTripTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Scratch scratch_;
};

TEST_P(RoundTripTest, EveryBitComesBack) {
  import_model(fixture(GetParam()), scratch_.path("run"));
  export_run(scratch_.path("run"), scratch_.path("out"));
  EXPECT_EQ(tensors_in(scratch_.path("out")), tensors_in(fixture(GetParam())));
  EXPECT_EQ(Directory(scratch_.path("out")).model(), Directory(fixture(GetParam())).model());
}

TEST_P(RoundTripTest, ShardedCheckpointsSurvive) {
  import_model(fixture(GetParam()), scratch_.path("run"));
  export_run(scratch_.path("run"), scratch_.path("out"), {.max_shard_size = 4096});
  EXPECT_TRUE(fs::exists(scratch_.path("out/model.safetensors.index.json")));
  EXPECT_FALSE(fs::exists(scratch_.path("out/model.safetensors")));
  EXPECT_EQ(tensors_in(scratch_.path("out")), tensors_in(fixture(GetParam())));
  import_model(scratch_.path("out"), scratch_.path("again"));
  export_run(scratch_.path("again"), scratch_.path("once more"));
  EXPECT_EQ(tensors_in(scratch_.path("once more")), tensors_in(fixture(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(All, RoundTripTest,
                         ::testing::Values("gpt2", "llama", "llama_tied", "llama3", "mistral",
                                           "mixtral", "qwen2moe", "qwen3moe", "olmoe"),
                         [](const auto& info) { return info.param; });

// Other settings of the model's configuration, and its tokenizer, are kept by import and export.
TEST(HuggingFaceExport, KeepsTheModelsOtherFiles) {
  const Scratch scratch;
  fs::copy(fixture("llama"), scratch.path("in"));
  write_bytes(scratch.path("in/tokenizer.json"), "{}");
  write_bytes(scratch.path("in/README.md"), "not the model's");
  import_model(scratch.path("in"), scratch.path("run"));
  export_run(scratch.path("run"), scratch.path("out"));
  EXPECT_EQ(read_bytes(scratch.path("out/tokenizer.json")), "{}");
  EXPECT_FALSE(fs::exists(scratch.path("out/README.md")));
  const Json config = Json::parse(read_bytes(scratch.path("out/config.json")));
  EXPECT_EQ(config.at("bos_token_id"), 1);
  EXPECT_EQ(config.at("architectures"), Json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(tokenizer_of(open_model(scratch.path("run"))), scratch.path("run") + "/hugging-face");
}

TEST(HuggingFaceExport, TheArchitectureIsTheModels) {
  const auto class_of = [](const Json& more) {
    Json model = {{"kind", "llama"}, {"layers", 1},  {"heads", 2},
                  {"width", 8},      {"context", 8}, {"vocabulary", 9}};
    for (const Json::Member& member : more.items()) model[member.name] = member.value;
    return architecture_of_model(completed_model(model)).class_name;
  };
  EXPECT_EQ(class_of({{"attention_bias", true}}), "LlamaForCausalLM");
  EXPECT_EQ(class_of({{"window", 3}}), "MistralForCausalLM");
  EXPECT_THAT(error_of([&] {
                class_of({{"window", 3}, {"attention_bias", true}});
              }),
              AllOf(HasSubstr("for this llama"), HasSubstr("biases")));
}

TEST(HuggingFaceExport, TakesOtherTypes) {
  const Scratch scratch;
  import_model(fixture("gpt2"), scratch.path("run"));
  for (const DType type : {DType::bf16, DType::f16}) {
    export_run(scratch.path("run"), scratch.path("out"), {.dtype = type, .overwrite = true});
    const Directory out(scratch.path("out"));
    EXPECT_EQ(out.find("model.h.0.attn.c_attn.weight")->dtype, type);
    import_model(scratch.path("out"), scratch.path("again"), {.overwrite = true});
    export_run(scratch.path("again"), scratch.path("once more"),
               {.dtype = type, .overwrite = true});
    EXPECT_EQ(tensors_in(scratch.path("once more")), tensors_in(scratch.path("out")));
  }
  EXPECT_THAT(
      error_of([&] { export_run(scratch.path("run"), scratch.path("no"), {.dtype = DType::i32}); }),
      HasSubstr("cannot be exported as i32"));
}

TEST(HuggingFaceExport, LeavesExistingFilesAlone) {
  const Scratch scratch;
  import_model(fixture("llama"), scratch.path("run"));
  fs::create_directory(scratch.path("out"));
  // An empty directory is treated like a missing one.
  export_run(scratch.path("run"), scratch.path("out"));
  const std::string config = read_bytes(scratch.path("out/config.json"));
  write_bytes(scratch.path("out/mine"), "mine");
  EXPECT_THAT(error_of([&] { export_run(scratch.path("run"), scratch.path("out")); }),
              HasSubstr("--overwrite"));
  const auto overwrite = [&] {
    export_run(scratch.path("run"), scratch.path("out"), {.overwrite = true});
  };
  EXPECT_THAT(error_of(overwrite), HasSubstr("that no export wrote"));
  EXPECT_EQ(read_bytes(scratch.path("out/mine")), "mine");
  fs::remove(scratch.path("out/mine"));
  write_bytes(scratch.path("out/config.json"), "{}");
  overwrite();
  EXPECT_EQ(read_bytes(scratch.path("out/config.json")), config);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), 2);  // nothing else is left
}

TEST(HuggingFaceImport, LeavesAnExistingRunAlone) {
  const Scratch scratch;
  import_model(fixture("llama"), scratch.path("run"));
  EXPECT_THAT(error_of([&] { import_model(fixture("gpt2"), scratch.path("run")); }),
              HasSubstr("--overwrite"));
  EXPECT_EQ(open_model(scratch.path("run")).configuration.at("kind"), "llama");
  import_model(fixture("gpt2"), scratch.path("run"), {.overwrite = true});
  EXPECT_EQ(open_model(scratch.path("run")).configuration.at("kind"), "gpt2");
}

}  // namespace
}  // namespace tutti::training::hugging_face
