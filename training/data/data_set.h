// Data to train on: numbered examples that are collected into batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "training/core/pass.h"
#include "training/core/token_partition.h"
#include "training/data/sampler.h"
#include "training/data/text_data.h"
#include "training/data/token_file.h"

namespace tutti::training {

// A micro-batch that owns its memory.
struct Batch {
  int64_t samples = 0;
  uint64_t first_sample = 0;
  std::vector<int32_t> tokens;
  std::vector<float> features;
  std::vector<int32_t> targets;  // target of each token or sample; negative: ignored
  std::vector<float> float_targets;
  std::vector<int32_t> document_starts;  // see MicroBatch::document_starts
  int weight = 1;                        // 0: a copy of another rank's batch that has no effect
  // Set if the tokens of samples are divided over ranks. The other members then contain the tokens
  // of one rank.
  std::shared_ptr<const TokenPartition> partition;

  // Reduces the batch to the tokens of rank `rank` of `ranks`. `window`: attention window in
  // tokens; 0: unlimited. Each token must have a target.
  void deal_out(int64_t window, int rank, int ranks);

  MicroBatch view() const {
    MicroBatch batch{.samples = samples,
                     .first_sample = first_sample,
                     .tokens = tokens,
                     .features = features,
                     .targets = targets,
                     .float_targets = float_targets,
                     .document_starts = document_starts,
                     .partition = partition.get(),
                     .weight = weight};
    if (partition != nullptr) {
      batch.ranges = partition->ranges(partition->rank());
      batch.positions = partition->mask().positions;
    }
    return batch;
  }
};

// A set of numbered examples. Const functions are thread-safe.
class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual uint64_t size() const = 0;  // Returns the number of training examples in one epoch.
  virtual uint64_t validation_size() const = 0;  // Returns the number of held-out examples.
  // Appends one training example to `batch`. Another epoch may cut the same example differently.
  virtual void add(uint64_t example, uint64_t epoch, Batch& batch) const = 0;
  virtual void add_validation(uint64_t example, Batch& batch) const = 0;
  // Returns the class of each training example; empty if examples have no class.
  virtual std::span<const uint8_t> labels() const { return {}; }
  // Returns a number that is equal for equal data; ranks compare it.
  virtual uint64_t fingerprint() const = 0;
};

// The tokens of a text (its bytes) or of a token file. The last tenth is held out unless there is a
// validation file.
class Tokens {
 public:
  explicit Tokens(TextData text);
  // Creates the tokens. Without a validation file the last tenth is held out, or nothing if
  // `holds_out` is false (only one shard of a data set need be validated). Throws
  // Error(invalid_argument) for files that are too short for training.
  explicit Tokens(TokenFile training, std::optional<TokenFile> validation = {},
                  bool holds_out = true);

  uint64_t training_size() const { return training_size_; }
  uint64_t validation_size() const;
  // Read tokens from index `first` on. Tokens that are not targets are marked as in token_file.h.
  // Throw Error if the file no longer has these tokens.
  void training(uint64_t first, std::span<int32_t> tokens) const;
  void validation(uint64_t first, std::span<int32_t> tokens) const;
  int64_t kinds() const { return kinds_; }  // Returns the exclusive upper bound of tokens.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::optional<TextData> text_;
  std::optional<TokenFile> training_file_;
  std::optional<TokenFile> validation_file_;
  uint64_t training_size_ = 0;
  int64_t kinds_ = 0;
  std::optional<int32_t> end_of_text_;
  uint64_t fingerprint_ = 0;
};

// Examples for language models that predict at every position: windows of `context` tokens, in
// which each token's target is the next token. Windows tile the text, and the start of the tiling
// changes from epoch to epoch. With document masks a token attends only to its own document and to
// the end-of-text token before it.
class TokenWindows : public DataSet {
 public:
  // Creates the set. Throws Error(invalid_argument) for a context below 1, for a training part of
  // fewer than 2 * context tokens, for held-out tokens that do not fill a window, and for document
  // masks without an end-of-text token.
  TokenWindows(Tokens tokens, int64_t context, uint64_t seed, bool document_masks = false);

  uint64_t size() const override { return size_; }
  uint64_t validation_size() const override { return validation_size_; }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override;
  void add_validation(uint64_t example, Batch& batch) const override;
  uint64_t fingerprint() const override { return tokens_.fingerprint(); }

 private:
  void add_window(std::span<const int32_t> window, Batch& batch) const;

  Tokens tokens_;
  uint64_t context_;
  uint64_t seed_;
  bool document_masks_;
  uint64_t size_ = 0;
  uint64_t validation_size_ = 0;
};

// Examples for models that predict one token from the previous `context` tokens. Tokens before the
// start of the text are 0.
class NextToken : public DataSet {
 public:
  NextToken(Tokens tokens, int64_t context);

  uint64_t size() const override { return tokens_.training_size(); }
  uint64_t validation_size() const override { return tokens_.validation_size(); }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override;
  void add_validation(uint64_t example, Batch& batch) const override;
  uint64_t fingerprint() const override { return tokens_.fingerprint(); }

 private:
  Tokens tokens_;
  int64_t context_;
};

}  // namespace tutti::training
