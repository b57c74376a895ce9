// tutti sample: writes text from a checkpoint.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "training/checkpoint/checkpoint.h"
#include "training/generation.h"
#include "training/models/gpt.h"
#include "training/models/registry.h"

namespace tutti::tool {
namespace {

struct Options {
  std::string checkpoint;
  std::string tokenizer;
  std::string prompt = "\n";
  training::GenerationOptions generation{.tokens = 500, .temperature = 0.8};
};

std::unique_ptr<training::Gpt> language_model(const Json& configuration) {
  auto model = training::make_model(training::completed_model(configuration));
  if (auto* const gpt = dynamic_cast<training::Gpt*>(model.get())) {
    static_cast<void>(model.release());
    return std::unique_ptr<training::Gpt>(gpt);
  }
  throw Error(ErrorCode::invalid_argument,
              cat("this model writes no text: ", printable(training::in_words(configuration), 200)),
              {.remedy = "give a checkpoint of tutti train --model gpt2"});
}

// The model's parameters in memory of their own.
class LoadedModel {
 public:
  explicit LoadedModel(const std::string& directory)
      : checkpoint_(training::Checkpoint::open(directory)),
        model_(language_model(checkpoint_.manifest().model)) {
    training::ParameterTable& table = model_->parameters();
    for (int index = 0; index < table.size(); ++index) {
      const training::ParameterSpec& spec = table.specs()[static_cast<size_t>(index)];
      const int64_t rows = spec.local_rows();
      const training::Tensor value =
          memory_.take(DType::f32, rows, rows == 0 ? 0 : spec.local_count() / rows);
      checkpoint_.read("model." + spec.name, 0,
                       training::tensor_at(value.data, DType::f32, 1, value.size()));
      table.set_value(index, value);
    }
  }

  training::Gpt& model() { return *model_; }

 private:
  training::Checkpoint checkpoint_;
  std::unique_ptr<training::Gpt> model_;
  training::Arena memory_;
};

int sample(const Options& options) {
  LoadedModel loaded(options.checkpoint);
  training::generate_text(loaded.model(), DType::f32, options.tokenizer, options.prompt,
                          options.generation, [](const std::string& text) {
                            std::fwrite(text.data(), 1, text.size(), stdout);
                            std::fflush(stdout);
                          });
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace

void add_sample(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command = line.add("sample", "Write text from a checkpoint of a GPT");
  command
      .add_option("checkpoint,--checkpoint", options->checkpoint,
                  "the directory given to train --checkpoint")
      .required()
      .type_name("DIR");
  command.add_option("--prompt", options->prompt, "text to go on from");
  command.add_option("--tokens", options->generation.tokens, "to write").show_default();
  command.add_option("--temperature", options->generation.temperature, "0: the likeliest token")
      .show_default();
  command.add_option("--top-k", options->generation.top_k,
                     "choose among so many likeliest tokens; 0: all");
  command.add_option("--seed", options->generation.seed, "of the choices").show_default();
  command.add_option("--tokenizer", options->tokenizer,
                     "tokenizer.json, or a directory with one or with GPT-2's vocabulary (default: "
                     "tokens are bytes)");
  command.footer("Example:\n  tutti sample DIR --prompt \"ROMEO:\" --temperature 0.7");
  command.runs([options] { return sample(*options); });
}

}  // namespace tutti::tool
