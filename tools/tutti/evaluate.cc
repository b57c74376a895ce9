// tutti evaluate: measures how well a model predicts a text.
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/process_memory.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "training/data/text_files.h"
#include "training/data/token_file.h"
#include "training/data/tokenizer.h"
#include "training/language/evaluation.h"
#include "training/language/loaded_model.h"

namespace tutti::tool {
namespace {

struct EvaluateOptions {
  std::string model;
  std::vector<std::string> data;
  std::string tokenizer;
  std::optional<int64_t> context;
  std::string precision = "f32";
  std::string weights = "none";
  int ranks = 1;
  std::string json;
};

// The tokens to predict, and the size of their text in bytes (0: unknown).
struct Text {
  std::vector<int32_t> tokens;
  std::optional<training::TokenFile> file;
  uint64_t bytes = 0;

  training::TokenReader reader() const {
    if (file) {
      return {file->size(),
              [this](uint64_t first, std::span<int32_t> out) { file->read(first, out); }};
    }
    return {tokens.size(), [this](uint64_t first, std::span<int32_t> out) {
              std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
            }};
  }
};

Text load_text(const std::vector<std::string>& paths, const std::string& tokenizer,
               int64_t vocabulary) {
  Text text;
  if (paths.size() == 1 && paths.front().ends_with(".bin")) {
    text.file.emplace(paths.front());
    return text;
  }
  std::string all;
  std::vector<std::string> skipped;
  const std::vector<training::TextFile> files = training::find_text_files(paths, &skipped);
  for (const std::string& line : skipped) std::fprintf(stderr, "tutti: %s\n", line.c_str());
  for (const training::TextFile& file : files) {
    training::read_texts(file.path, [&](std::string_view one) { all += one; });
  }
  const auto words = training::make_tokenizer(tokenizer);
  if (tokenizer.empty() && vocabulary > 256) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("the model has ", vocabulary, " tokens in its vocabulary, so its tokens are not bytes"),
        {.where = "--data", .remedy = "add --tokenizer PATH, or use a token file"});
  }
  text.tokens = words->encode(all);
  text.bytes = all.size();
  return text;
}

// Collective. Returns the sum of `own` over all ranks.
training::TextLoss sum_over(Communicator& world, const training::TextLoss& own) {
  std::array<double, 3> sums = {own.sum, static_cast<double>(own.targets),
                                static_cast<double>(own.correct)};
  world.all_reduce(std::span<double>(sums), ReduceOp::sum);
  return {sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2])};
}

// Memory of one rank's parameters in bytes: the computed size, and the increase of the process's
// memory when they were loaded.
struct Memory {
  int64_t weights = 0;
  int64_t measured = 0;  // increase of the proportional set size
};

// Prints the results and returns them.
Json tell(const training::TextLoss& loss, const Text& text, int64_t context, const Memory& memory) {
  const double mean = loss.mean();
  const double right = static_cast<double>(loss.correct) / static_cast<double>(loss.targets);
  std::printf("loss        %.6f nats, %.6f bits per token\n", mean, mean / std::numbers::ln2);
  std::printf("perplexity  %.4f\n", std::exp(mean));
  std::printf("accuracy    %.2f%% of %lld tokens, in windows of %lld\n", 100 * right,
              static_cast<long long>(loss.targets), static_cast<long long>(context));
  std::printf("parameters  %.2f MB, measured %.2f MB\n", static_cast<double>(memory.weights) / 1e6,
              static_cast<double>(memory.measured) / 1e6);
  Json json = {{"loss", mean},
               {"bits", mean / std::numbers::ln2},
               {"perplexity", std::exp(mean)},
               {"targets", loss.targets},
               {"correct", right},
               {"context", context},
               {"parameter_bytes", memory.weights},
               {"measured_bytes", memory.measured}};
  if (text.bytes > 0) {
    const double bits = loss.sum / std::numbers::ln2 / static_cast<double>(text.bytes);
    std::printf("text        %.6f bits per byte\n", bits);
    json["bits_per_byte"] = bits;
  }
  return json;
}

int evaluate_as_rank(const EvaluateOptions& options) {
  Communicator world = Communicator::init();
  open_for_appending(world.rank() == 0 ? options.json : "", "--json");
  const DType dtype = parse_dtype(options.precision).value();
  const int64_t before = proportional_set_size();
  training::LoadedModel loaded(options.model,
                               {.context = options.context,
                                .dtype = dtype,
                                .weights = training::weight_format_named(options.weights)});
  const Memory memory{loaded.weight_bytes(), proportional_set_size() - before};
  training::Decoder& model = loaded.model();
  const Text text =
      load_text(options.data, options.tokenizer.empty() ? loaded.tokenizer() : options.tokenizer,
                model.vocabulary());
  const training::TextLoss loss = sum_over(
      world, training::evaluate_text(model, dtype, text.reader(), world.rank(), world.size()));
  if (loss.targets == 0) {
    throw Error(ErrorCode::invalid_argument, "the text has no token to predict",
                {.where = "--data", .remedy = "use a text of at least two tokens"});
  }
  if (world.rank() != 0) return 0;
  const Json json = tell(loss, text, model.context(), memory);
  if (!options.json.empty()) write_file(options.json, json.dump() + "\n");
  return 0;
}

int evaluate(const EvaluateOptions& options) {
  if (options.ranks > 1 && !is_launched()) {
    open_for_appending(options.json, "--json");
    return launch_self({.ranks = options.ranks});
  }
  return evaluate_as_rank(options);
}

}  // namespace

void add_evaluate(CommandLine& line) {
  const auto options = std::make_shared<EvaluateOptions>();
  Command command =
      line.add("evaluate", "measure the loss and perplexity of a language model on a text");
  command
      .add_option("model", options->model,
                  "run directory, Hugging Face model directory, or a file from `tutti export`")
      .required()
      .type_name("PATH");
  command
      .add_option("--data", options->data,
                  "token file (.bin), text files or directories of text files")
      .required()
      .type_name("PATH");
  command.add_option(
      "--tokenizer", options->tokenizer,
      "tokenizer of text files: a tokenizer.json, or a directory that contains tokenizer.json or "
      "GPT-2's vocabulary files (default: the model's tokenizer; if the model has none, every byte "
      "is a token)");
  command.add_option("--context", options->context,
                     "context length in tokens (default: the context length of training)");
  command.add_option("--precision", options->precision, "data type of parameters and activations")
      .one_of({"f32", "float32", "fp32", "bf16", "bfloat16", "f16", "fp16", "float16"})
      .type_name("NAME")
      .show_default();
  command
      .add_option(
          "--weights", options->weights,
          "format in which matrices are kept in memory: none (not quantized), q8_0 or q4_0 "
          "(llama.cpp's 8 or 4 bits, blocks of 32), or nf4 (bitsandbytes' 4 bits, blocks of "
          "64)")
      .one_of({"none", "q8_0", "q4_0", "nf4"})
      .type_name("FORMAT")
      .show_default();
  command.add_option("--ranks,-n", options->ranks, "number of ranks to start on this host")
      .between(1, 65536)
      .show_default();
  command.add_option("--json", options->json, "write the results as JSON to this file")
      .type_name("FILE");
  command.footer(
      "The text is split into windows of the context length; every token but the first is "
      "predicted\n"
      "once.\n"
      "Example:\n"
      "  tutti evaluate RUN_DIR --data TOKENS.bin --ranks 2");
  command.runs([options] { return evaluate(*options); });
}

}  // namespace tutti::tool
