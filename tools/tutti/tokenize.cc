// tutti tokenize: turns text into files of tokens.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/text.h"
#include "tools/tutti/commands.h"
#include "training/data/text_files.h"
#include "training/data/tokenize_files.h"
#include "training/data/tokenizer.h"

namespace tutti::tool {
namespace {

using training::TextFile;
using training::TokenizeResult;

struct Options {
  std::vector<std::string> data;
  std::string tokenizer;  // empty: bytes
  training::TokenizeOptions files;
};

// One line that is rewritten on a terminal; nothing elsewhere.
class Progress {
 public:
  explicit Progress(uint64_t total) : total_(static_cast<double>(total)) {}
  ~Progress() {
    if (shown_) std::printf("\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

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

  double total_;  // bytes
  bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
};

void print_result(const Options& options, const TokenizeResult& result, size_t vocabulary) {
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

int tokenize(const Options& options) {
  const std::unique_ptr<training::Tokenizer> tokenizer =
      training::make_tokenizer(options.tokenizer);
  const std::vector<TextFile> files = training::find_text_files(options.data);
  const uint64_t total =
      std::accumulate(files.begin(), files.end(), uint64_t{0},
                      [](uint64_t sum, const TextFile& file) { return sum + file.bytes; });
  const TokenizeResult result = [&] {
    Progress progress(total);
    return training::tokenize_files(files, *tokenizer, options.files,
                                    [&](uint64_t bytes) { progress.show(bytes); });
  }();
  print_result(options, result, tokenizer->vocabulary_size());
  return 0;
}

}  // namespace

void add_tokenize(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command = line.add("tokenize", "Turn text into files of tokens, in llm.c's format");
  command.add_option("--data", options->data, "text files, or directories of them")
      .required()
      .type_name("PATH");
  command
      .add_option("--tokenizer", options->tokenizer,
                  "directory with GPT-2's encoder.json and vocab.bpe, or vocab.json and "
                  "merges.txt (default: every byte is a token)")
      .type_name("DIR");
  command.add_option("--out", options->files.out, "write the tokens").required().type_name("FILE");
  const Option validation =
      command
          .add_option("--validation-out", options->files.validation_out,
                      "hold out the last part of the text, and write its tokens")
          .type_name("FILE");
  command.add_option("--validation-share", options->files.validation_share, "how much is held out")
      .type_name("SHARE")
      .needs(validation)
      .show_default();
  command.footer(
      "Example:\n"
      "  tutti tokenize --data books/ --tokenizer gpt2/ --out train.bin --validation-out val.bin");
  command.runs([options] { return tokenize(*options); });
}

}  // namespace tutti::tool
