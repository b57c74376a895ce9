// tutti tokenize: converts text into token files.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "training/data/text_files.h"
#include "training/data/tokenize_files.h"
#include "training/data/tokenizer.h"

namespace tutti::tool {
namespace {

using training::TextFile;
using training::TokenizeResult;

struct TokenizeOptions {
  std::vector<std::string> data;
  std::string tokenizer;    // path of the tokenizer; empty: tokens are bytes
  std::string end_of_text;  // name of the token; empty: the tokenizer's own token, if it has one
  training::TokenizeOptions files;
};

constexpr const char* kNoEndOfText = "none";

// A progress line, on a terminal only.
class TokenProgress {
 public:
  explicit TokenProgress(uint64_t total) : total_(static_cast<double>(total)) {}
  ~TokenProgress() {
    if (shown_) std::printf("\r\033[K");
  }
  TokenProgress(const TokenProgress&) = delete;
  TokenProgress& operator=(const TokenProgress&) = delete;

  void show(uint64_t bytes) {
    const Clock::time_point now = Clock::now();
    if (!terminal_ || now < next_ || bytes == 0) return;
    next_ = now + std::chrono::milliseconds(200);
    const auto done = static_cast<double>(bytes);
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    std::printf("\r%.1f%%  %s of %s  %.1f MB/s  %.0f s left\033[K", 100 * done / total_,
                human_bytes(bytes).c_str(), human_bytes(static_cast<uint64_t>(total_)).c_str(),
                done / elapsed / 1e6, std::ceil(elapsed * (total_ / done - 1)));
    std::fflush(stdout);
    shown_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double total_;  // number of bytes
  bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
};

std::optional<int32_t> end_of_text(const training::Tokenizer& tokenizer, const std::string& name) {
  if (name.empty()) return tokenizer.end_of_text();
  if (name == kNoEndOfText) return std::nullopt;
  if (const std::optional<int32_t> token = tokenizer.find(name)) return token;
  throw Error(
      ErrorCode::invalid_argument, cat("the tokenizer has no token ", in_quotes(name)),
      {.where = "--eot", .remedy = "use one of its special tokens, or none to append nothing"});
}

void print_documents(const TokenizeResult& result, const training::Tokenizer& tokenizer,
                     std::optional<int32_t> end) {
  if (end) {
    std::printf("%llu documents, each followed by %s\n",
                static_cast<unsigned long long>(result.documents), tokenizer.text_of(*end).c_str());
  }
  if (result.unpredicted > 0) {
    std::printf("%llu prompt tokens are excluded from the loss\n",
                static_cast<unsigned long long>(result.unpredicted));
  }
}

void print_result(const TokenizeOptions& options, const TokenizeResult& result, size_t vocabulary) {
  const uint64_t tokens = result.tokens + result.validation_tokens;
  std::printf("%s: %llu tokens\n", options.files.out.c_str(),
              static_cast<unsigned long long>(result.tokens));
  if (!options.files.validation_out.empty()) {
    std::printf("%s: %llu tokens\n", options.files.validation_out.c_str(),
                static_cast<unsigned long long>(result.validation_tokens));
  }
  std::printf("%.3f characters per token (%llu characters, %llu bytes; a vocabulary of %zu)\n",
              static_cast<double>(result.characters) / static_cast<double>(tokens),
              static_cast<unsigned long long>(result.characters),
              static_cast<unsigned long long>(result.bytes), vocabulary);
}

int tokenize(TokenizeOptions options) {
  const std::unique_ptr<training::Tokenizer> tokenizer =
      training::make_tokenizer(options.tokenizer);
  options.files.end_of_text = end_of_text(*tokenizer, options.end_of_text);
  std::vector<std::string> skipped;
  const std::vector<TextFile> files = training::find_text_files(options.data, &skipped);
  for (const std::string& text : skipped) std::fprintf(stderr, "tutti: %s\n", text.c_str());
  const uint64_t total =
      std::accumulate(files.begin(), files.end(), uint64_t{0},
                      [](uint64_t sum, const TextFile& file) { return sum + file.bytes; });
  const TokenizeResult result = [&] {
    TokenProgress progress(total);
    return training::tokenize_files(files, *tokenizer, options.files,
                                    [&](uint64_t bytes) { progress.show(bytes); });
  }();
  print_result(options, result, tokenizer->vocabulary_size());
  print_documents(result, *tokenizer, options.files.end_of_text);
  return 0;
}

void add_fields(Command command, training::DocumentFields& fields) {
  constexpr auto kGroup = "Records of JSON lines, Parquet and Arrow";
  const auto add = [&](const char* name, std::string& value, const char* meaning) {
    return command.add_option(name, value, meaning).type_name("NAME").show_default().group(kGroup);
  };
  add("--field", fields.text,
      "field that holds the text; a dot selects a nested field (meta.body)");
  add("--prompt-field", fields.prompt,
      "field that holds the prompt of a fine-tuning record; prompts are excluded from the loss");
  add("--completion-field", fields.completion,
      "field that holds the response of a fine-tuning record, which is trained on");
  command
      .add_option("--python", fields.python,
                  "Python interpreter that reads Parquet and Arrow files (requires pyarrow)")
      .type_name("PROGRAM")
      .show_default()
      .group(kGroup);
}

}  // namespace

void add_tokenize(CommandLine& line) {
  const auto options = std::make_shared<TokenizeOptions>();
  Command command = line.add("tokenize", "convert text into token files in llm.c's format");
  command
      .add_option(
          "--data", options->data,
          "input files or directories: text, .jsonl (both also .gz and .zst), .parquet and .arrow")
      .required()
      .type_name("PATH");
  command
      .add_option(
          "--tokenizer", options->tokenizer,
          "a Hugging Face tokenizer.json, or a directory that contains tokenizer.json, GPT-2's "
          "pair "
          "encoder.json + vocab.bpe, or the pair vocab.json + merges.txt (default: every byte is a "
          "token)")
      .type_name("PATH");
  command
      .add_option("--eot", options->end_of_text,
                  "token appended to each document, or none to append nothing (default: the "
                  "tokenizer's end-of-text token, if it has one)")
      .type_name("TOKEN");
  add_fields(command, options->files.fields);
  command.add_option("--out", options->files.out, "token file to write")
      .required()
      .type_name("FILE");
  const Option validation =
      command
          .add_option("--validation-out", options->files.validation_out,
                      "hold out the last part of the text and write its tokens to this file")
          .type_name("FILE");
  command
      .add_option("--validation-share", options->files.validation_share,
                  "fraction of the text that is held out")
      .type_name("SHARE")
      .needs(validation)
      .show_default();
  command.footer(
      "Examples:\n"
      "  tutti tokenize --data books/ --tokenizer gpt2/ --out train.bin --validation-out val.bin\n"
      "  tutti tokenize --data web.jsonl.zst --field content --tokenizer llama/tokenizer.json \\\n"
      "    --out train.bin");
  command.runs([options, command] {
    options->files.fields.pairs_only =
        command.count("--prompt-field") + command.count("--completion-field") > 0;
    return tokenize(*options);
  });
}

}  // namespace tutti::tool
