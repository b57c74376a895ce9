#include "training/data/tokenize_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "training/data/token_file.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

// Text is encoded in pieces of about this many bytes.
constexpr size_t kPiece = size_t{1} << 20;
// So much text without a place to cut is none that people wrote: it is cut anywhere.
constexpr size_t kLongestPiece = 16 * kPiece;

void check(const TokenizeOptions& options) {
  if (options.validation_out.empty()) return;
  if (!(options.validation_share > 0 && options.validation_share < 1)) {
    throw Error(ErrorCode::invalid_argument,
                cat("the share for validation is ", options.validation_share),
                {.remedy = "give a number between 0 and 1, such as 0.1"});
  }
  if (fs::weakly_canonical(options.out) == fs::weakly_canonical(options.validation_out)) {
    throw Error(ErrorCode::invalid_argument,
                cat("training and validation tokens would both be written to ", options.out),
                {.remedy = "name two files"});
  }
}

bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }

// Takes text in blocks, and writes the tokens of what comes before byte `boundary` to one file and
// those of the rest to another.
class Stream {
 public:
  Stream(const Tokenizer& tokenizer, TokenWriter& training, TokenWriter* validation,
         uint64_t boundary)
      : tokenizer_(tokenizer), out_(&training), validation_(validation), boundary_(boundary) {}

  void add(std::string_view block) {
    pending_ += block;
    if (pending_.size() >= kPiece) drain(false);
  }
  void finish() { drain(true); }

  uint64_t bytes() const { return done_; }
  uint64_t characters() const { return characters_; }

 private:
  void drain(bool at_end) {
    if (validation_ != nullptr && boundary_ <= done_ + pending_.size()) {
      const std::string_view before = std::string_view(pending_).substr(0, boundary_ - done_);
      put(tokenizer_.last_cut(before));
      out_ = validation_;
      validation_ = nullptr;
    }
    const size_t cut = tokenizer_.last_cut(pending_);
    put(at_end || (cut == 0 && pending_.size() >= kLongestPiece) ? pending_.size() : cut);
  }

  void put(size_t bytes) {
    const std::string_view piece = std::string_view(pending_).substr(0, bytes);
    out_->write(tokenizer_.encode(piece));
    characters_ += static_cast<uint64_t>(std::ranges::count_if(piece, begins_character));
    done_ += bytes;
    pending_.erase(0, bytes);
  }

  const Tokenizer& tokenizer_;
  TokenWriter* out_;         // where tokens go now
  TokenWriter* validation_;  // where they go from the boundary on; null after it, or if nowhere
  const uint64_t boundary_;
  std::string pending_;  // read, not yet encoded
  uint64_t done_ = 0;    // bytes encoded
  uint64_t characters_ = 0;
};

}  // namespace

TokenizeResult tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(uint64_t)>& progress) {
  check(options);
  uint64_t total = 0;
  for (const TextFile& file : files) total += file.bytes;
  const auto held_out =
      static_cast<uint64_t>(static_cast<double>(total) * options.validation_share);
  TokenWriter training(options.out);
  std::optional<TokenWriter> validation;
  if (!options.validation_out.empty()) validation.emplace(options.validation_out);
  Stream stream(tokenizer, training, validation ? &*validation : nullptr, total - held_out);
  for (const TextFile& file : files) {
    read_blocks(file.path, [&](std::string_view block) {
      stream.add(block);
      progress(stream.bytes());
    });
  }
  stream.finish();
  progress(stream.bytes());
  training.finish();
  if (validation) validation->finish();
  return {.bytes = stream.bytes(),
          .characters = stream.characters(),
          .tokens = training.count(),
          .validation_tokens = validation ? validation->count() : 0};
}

}  // namespace tutti::training
