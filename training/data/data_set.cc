#include "training/data/data_set.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

constexpr size_t kMinTokens = 128;  // minimum number of tokens for training

constexpr int32_t kIgnoredTarget = -100;  // PyTorch's value for ignored targets

int32_t target_of(int32_t token) { return is_predicted(token) ? token : kIgnoredTarget; }

// Adds a window of which only the last token is a target.
void add_last(std::span<const int32_t> window, Batch& batch) {
  std::ranges::transform(window.first(window.size() - 1), std::back_inserter(batch.tokens), id_of);
  batch.targets.push_back(target_of(window.back()));
  ++batch.samples;
}

}  // namespace

void Batch::deal_out(int64_t window, int rank, int ranks) {
  const TokenMask mask{samples, std::ssize(tokens) / samples, document_starts, window};
  partition = std::make_shared<const TokenPartition>(mask, rank, ranks);
  for (std::vector<int32_t>* all : {&tokens, &targets, &document_starts}) {
    std::vector<int32_t> own;
    for (const Share& range : partition->ranges(rank)) {
      if (all->empty()) break;
      own.insert(own.end(), all->begin() + range.first, all->begin() + range.first + range.count);
    }
    *all = std::move(own);
  }
}

Tokens::Tokens(TextData text)
    : text_(std::move(text)),
      training_size_(text_->training_size),
      kinds_(256),
      fingerprint_(text_->fingerprint()) {}

Tokens::Tokens(TokenFile training, std::optional<TokenFile> validation, bool holds_out)
    : training_file_(std::move(training)), validation_file_(std::move(validation)) {
  const uint64_t size = training_file_->size();
  if (validation_file_ && validation_file_->size() == 0) {
    throw Error(ErrorCode::invalid_argument, "the validation file has no tokens");
  }
  if (size < kMinTokens) {
    throw Error(ErrorCode::invalid_argument,
                cat("a file of ", size, " tokens is too short to train on"),
                {.remedy = cat("use at least ", kMinTokens, " tokens")});
  }
  training_size_ = validation_file_ || !holds_out ? size : size - size / 10;
  const TokenSummary all = training_file_->summary();
  const TokenSummary own = validation_file_ ? validation_file_->summary() : TokenSummary{};
  kinds_ = std::max(all.format.vocabulary, own.format.vocabulary);
  end_of_text_ = all.format.end_of_text;
  fingerprint_ = mix_bits(all.fingerprint ^ mix_bits(own.fingerprint ^ validation_size()));
}

uint64_t Tokens::validation_size() const {
  if (text_) return text_->validation_size();
  return validation_file_ ? validation_file_->size() : training_file_->size() - training_size_;
}

void Tokens::training(uint64_t first, std::span<int32_t> tokens) const {
  if (!text_) return training_file_->read(first, tokens);
  std::ranges::copy(std::span(text_->bytes).subspan(first, tokens.size()), tokens.begin());
}

void Tokens::validation(uint64_t first, std::span<int32_t> tokens) const {
  if (validation_file_) return validation_file_->read(first, tokens);
  // the held-out tokens are the last part of the same file
  training(training_size_ + first, tokens);
}

TokenWindows::TokenWindows(Tokens tokens, int64_t context, uint64_t seed, bool document_masks)
    : tokens_(std::move(tokens)),
      context_(static_cast<uint64_t>(context)),
      seed_(seed),
      document_masks_(document_masks) {
  if (context < 1) {
    throw Error(ErrorCode::invalid_argument, cat("the model's context cannot be ", context),
                {.remedy = "use at least 1"});
  }
  if (document_masks && !tokens_.end_of_text()) {
    throw Error(
        ErrorCode::invalid_argument, "the data does not mark document boundaries",
        {.where = "--document-mask",
         .cause =
             "texts read as bytes, and token files of other programs, have no end-of-text token",
         .remedy = "create a token file with one: tutti tokenize --eot TOKEN"});
  }
  // A window needs one more token for the last target, and room for a shift by up to context - 1.
  const uint64_t training = tokens_.training_size();
  size_ = training < 2 * context_ ? 0 : (training - context_) / context_;
  validation_size_ = tokens_.validation_size() < 1 ? 0 : (tokens_.validation_size() - 1) / context_;
  if (size_ > 0 && (validation_size_ > 0 || tokens_.validation_size() == 0)) return;
  throw Error(ErrorCode::invalid_argument,
              cat("a text of ", training, " tokens and ", tokens_.validation_size(),
                  " for validation is shorter than the context of ", context),
              {.remedy = "use a longer text or a shorter --context"});
}

// Adds a window, in which each token but the first is the target of the previous one. The
// end-of-text token before a document belongs to the document.
void TokenWindows::add_window(std::span<const int32_t> window, Batch& batch) const {
  const std::span<const int32_t> seen = window.first(window.size() - 1);
  std::ranges::transform(seen, std::back_inserter(batch.tokens), id_of);
  std::ranges::transform(window.subspan(1), std::back_inserter(batch.targets), target_of);
  ++batch.samples;
  if (!document_masks_) return;
  int32_t start = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (id_of(seen[i]) == *tokens_.end_of_text()) start = static_cast<int32_t>(i);
    batch.document_starts.push_back(start);
  }
}

void TokenWindows::add(uint64_t example, uint64_t epoch, Batch& batch) const {
  const uint64_t shift = scale_below(random_bits(seed_, ~uint64_t{0}, epoch), context_);
  std::vector<int32_t> window(context_ + 1);
  tokens_.training(example * context_ + shift, window);
  add_window(window, batch);
}

void TokenWindows::add_validation(uint64_t example, Batch& batch) const {
  std::vector<int32_t> window(context_ + 1);
  tokens_.validation(example * context_, window);
  add_window(window, batch);
}

NextToken::NextToken(Tokens tokens, int64_t context)
    : tokens_(std::move(tokens)), context_(context) {}

// Adds a window whose last token is the target.
void NextToken::add(uint64_t example, uint64_t, Batch& batch) const {
  const uint64_t known = std::min(example, static_cast<uint64_t>(context_));
  std::vector<int32_t> window(static_cast<size_t>(context_) + 1);
  tokens_.training(example - known, std::span(window).last(known + 1));
  add_last(window, batch);
}

void NextToken::add_validation(uint64_t example, Batch& batch) const {
  // Held-out tokens follow the training part.
  const uint64_t known = std::min(example, static_cast<uint64_t>(context_));
  const uint64_t before =
      std::min(tokens_.training_size(), static_cast<uint64_t>(context_) - known);
  std::vector<int32_t> window(static_cast<size_t>(context_) + 1);
  const std::span<int32_t> found = std::span(window).last(before + known + 1);
  tokens_.training(tokens_.training_size() - before, found.first(before));
  tokens_.validation(example - known, found.subspan(before));
  add_last(window, batch);
}

}  // namespace tutti::training
