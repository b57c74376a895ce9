// tutti sample: generates text with a model.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "tools/tutti/commands.h"
#include "training/language/generation.h"
#include "training/language/loaded_model.h"

namespace tutti::tool {
namespace {

struct SampleOptions {
  std::string model;
  std::string tokenizer;
  std::string prompt = "\n";
  std::string weights = "none";
  std::optional<int64_t> context;
  training::GenerationOptions generation{.tokens = 500, .temperature = 0.8};
};

int sample(const SampleOptions& options) {
  // A token has at least one byte, except the few marks that tokenizers add around a text.
  constexpr int64_t kMarks = 8;
  const int64_t needed =
      std::ssize(options.prompt) + kMarks + std::max<int64_t>(options.generation.tokens, 1);
  training::LoadedModel loaded(options.model,
                               {.context = options.context,
                                .needed = needed,
                                .weights = training::weight_format_named(options.weights)});
  const std::string& tokenizer = options.tokenizer.empty() ? loaded.tokenizer() : options.tokenizer;
  training::GenerationOptions generation = options.generation;
  if (options.tokenizer.empty()) generation.ends = loaded.ends();
  training::generate_text(loaded.model(), DType::f32, tokenizer, options.prompt, generation,
                          [](const std::string& text) {
                            std::fwrite(text.data(), 1, text.size(), stdout);
                            std::fflush(stdout);
                          });
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace

void add_sample(CommandLine& line) {
  const auto options = std::make_shared<SampleOptions>();
  Command command = line.add("sample", "generate text with a language model");
  command
      .add_option("model,--checkpoint", options->model,
                  "run directory (`tutti train --checkpoint`), Hugging Face model directory, or a "
                  "file from `tutti export`")
      .type_name("PATH");
  command.add_option("--prompt", options->prompt, "text to continue");
  command.add_option("--tokens", options->generation.tokens, "maximum number of tokens to generate")
      .show_default();
  command
      .add_option("--temperature", options->generation.temperature,
                  "sampling temperature; 0: always the most likely token")
      .show_default();
  command
      .add_option("--top-k", options->generation.top_k,
                  "sample from the K most likely tokens; 0: from all tokens (default: 0)")
      .type_name("K");
  command
      .add_option("--top-p", options->generation.top_p,
                  "sample from the most likely tokens whose probabilities sum to P")
      .type_name("P")
      .show_default();
  command.add_option("--seed", options->generation.seed, "random seed").show_default();
  command.add_flag(
      "--ignore-eos", options->generation.ignore_end,
      "continue after end-of-text tokens (those in the model's configuration, or the tokenizer's)");
  command.add_option("--context", options->context,
                     "context length in tokens (default: the context length of training)");
  command
      .add_option(
          "--weights", options->weights,
          "format in which matrices are kept in memory: none (not quantized), q8_0 or q4_0 "
          "(llama.cpp's 8 or 4 bits, blocks of 32), or nf4 (bitsandbytes' 4 bits, blocks of "
          "64)")
      .one_of({"none", "q8_0", "q4_0", "nf4"})
      .type_name("FORMAT")
      .show_default();
  command.add_option(
      "--tokenizer", options->tokenizer,
      "a tokenizer.json, or a directory that contains tokenizer.json or GPT-2's "
      "vocabulary files (default: the model's tokenizer; if the model has none, every "
      "byte is a token)");
  command.footer("Example:\n  tutti sample DIR --prompt \"ROMEO:\" --temperature 0.7 --top-p 0.9");
  command.runs([options] {
    if (options->model.empty()) throw UsageError("a model is required: tutti sample PATH");
    return sample(*options);
  });
}

}  // namespace tutti::tool
