// tutti sample: writes text from a model.
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
  // No token is shorter than a byte.
  const int64_t needed =
      std::ssize(options.prompt) + std::max<int64_t>(options.generation.tokens, 1);
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
  Command command = line.add("sample", "Write text from a language model");
  command
      .add_option("model,--checkpoint", options->model,
                  "the directory given to train --checkpoint, one of Hugging Face's, or a file of "
                  "`tutti export`")
      .type_name("PATH");
  command.add_option("--prompt", options->prompt, "text to go on from");
  command.add_option("--tokens", options->generation.tokens, "to write, at most").show_default();
  command.add_option("--temperature", options->generation.temperature, "0: the likeliest token")
      .show_default();
  command.add_option("--top-k", options->generation.top_k,
                     "choose among so many likeliest tokens; 0: all");
  command
      .add_option("--top-p", options->generation.top_p,
                  "and among the likeliest that together have this probability")
      .show_default();
  command.add_option("--seed", options->generation.seed, "of the choices").show_default();
  command.add_flag(
      "--ignore-eos", options->generation.ignore_end,
      "go on where the model ends the text: at the tokens that its configuration names, or "
      "else at its tokenizer's end of text");
  command.add_option("--context", options->context,
                     "tokens that the model sees (default: as in training)");
  command
      .add_option("--weights", options->weights,
                  "keep matrices in blocks of few bits: q8_0, q4_0 (llama.cpp's 8 and 4 bits, "
                  "blocks of 32) or nf4 (bitsandbytes' 4 bits, blocks of 64)")
      .one_of({"none", "q8_0", "q4_0", "nf4"})
      .type_name("FORMAT")
      .show_default();
  command.add_option("--tokenizer", options->tokenizer,
                     "a tokenizer.json, or a directory with one or with GPT-2's vocabulary "
                     "(default: what came with the model, else tokens are bytes)");
  command.footer("Example:\n  tutti sample DIR --prompt \"ROMEO:\" --temperature 0.7 --top-p 0.9");
  command.runs([options] {
    if (options->model.empty()) throw UsageError("a model is required: tutti sample PATH");
    return sample(*options);
  });
}

}  // namespace tutti::tool
