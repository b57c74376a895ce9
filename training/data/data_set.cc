#include "training/data/data_set.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/random.h"

namespace tutti::training {
namespace {

constexpr size_t kMinTokens = 128;  // fewer are nothing to learn from

uint64_t hash_of(std::span<const uint16_t> tokens) {
  uint64_t hash = tokens.size();
  for (const uint16_t token : tokens) hash = mix_bits(hash + token);
  return hash;
}

}  // namespace

Tokens::Tokens(TextData text) : text_(std::move(text)), training_size_(text_->training_size) {}

Tokens::Tokens(TokenFile training, std::optional<TokenFile> validation)
    : training_file_(std::move(training)), validation_file_(std::move(validation)) {
  words_ = training_file_->tokens();
  if (validation_file_ && validation_file_->tokens().empty()) {
    throw Error(ErrorCode::invalid_argument, "the file to validate on has no tokens");
  }
  if (words_.size() < kMinTokens) {
    throw Error(ErrorCode::invalid_argument,
                cat("a file of ", words_.size(), " tokens is too short to train on"),
                {.remedy = cat("give at least ", kMinTokens, " tokens")});
  }
  training_size_ = validation_file_ ? words_.size() : words_.size() - words_.size() / 10;
  validation_words_ =
      validation_file_ ? validation_file_->tokens() : words_.subspan(training_size_);
}

uint64_t Tokens::validation_size() const {
  return text_ ? text_->validation_size() : validation_words_.size();
}

int32_t Tokens::validation(uint64_t index) const {
  return text_ ? text_->bytes[text_->training_size + index] : validation_words_[index];
}

uint64_t Tokens::fingerprint() const {
  if (text_) return text_->fingerprint();
  return mix_bits(hash_of(words_) ^ mix_bits(hash_of(validation_words_)));
}

TokenWindows::TokenWindows(Tokens tokens, int64_t context, uint64_t seed)
    : tokens_(std::move(tokens)), context_(static_cast<uint64_t>(context)), seed_(seed) {
  if (context < 1) {
    throw Error(ErrorCode::invalid_argument, cat("the model's context cannot be ", context),
                {.remedy = "give at least 1"});
  }
  // A window needs the token after it, and room to be moved by up to context - 1.
  const uint64_t training = tokens_.training_size();
  size_ = training < 2 * context_ ? 0 : (training - context_) / context_;
  validation_size_ = tokens_.validation_size() < 1 ? 0 : (tokens_.validation_size() - 1) / context_;
  if (size_ > 0 && validation_size_ > 0) return;
  throw Error(ErrorCode::invalid_argument,
              cat("a text of ", training, " tokens and ", tokens_.validation_size(),
                  " for validation has no window of ", context),
              {.remedy = "give a longer text or a shorter --context"});
}

void TokenWindows::add(uint64_t example, uint64_t epoch, Batch& batch) const {
  const uint64_t shift = scale_below(random_bits(seed_, ~uint64_t{0}, epoch), context_);
  const uint64_t start = example * context_ + shift;
  for (uint64_t i = 0; i < context_; ++i) {
    batch.tokens.push_back(tokens_.training(start + i));
    batch.targets.push_back(tokens_.training(start + i + 1));
  }
  ++batch.samples;
}

void TokenWindows::add_validation(uint64_t example, Batch& batch) const {
  for (uint64_t i = example * context_; i < (example + 1) * context_; ++i) {
    batch.tokens.push_back(tokens_.validation(i));
    batch.targets.push_back(tokens_.validation(i + 1));
  }
  ++batch.samples;
}

NextToken::NextToken(Tokens tokens, int64_t context)
    : tokens_(std::move(tokens)), context_(context) {}

void NextToken::add(uint64_t example, uint64_t, Batch& batch) const {
  const auto position = static_cast<int64_t>(example);
  for (int64_t i = position - context_; i < position; ++i) {
    batch.tokens.push_back(i < 0 ? 0 : tokens_.training(static_cast<uint64_t>(i)));
  }
  batch.targets.push_back(tokens_.training(example));
  ++batch.samples;
}

void NextToken::add_validation(uint64_t example, Batch& batch) const {
  const auto position = static_cast<int64_t>(example);
  for (int64_t i = position - context_; i < position; ++i) {
    // What is held out goes on where the training part ends.
    const int64_t in_training = static_cast<int64_t>(tokens_.training_size()) + i;
    batch.tokens.push_back(i >= 0             ? tokens_.validation(static_cast<uint64_t>(i))
                           : in_training >= 0 ? tokens_.training(static_cast<uint64_t>(in_training))
                                              : 0);
  }
  batch.targets.push_back(tokens_.validation(example));
  ++batch.samples;
}

}  // namespace tutti::training
