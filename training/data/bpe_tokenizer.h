// Tokenizers by byte-pair encoding: GPT-2's, and those that a tokenizer.json describes.
//
// Sources: Radford et al., Language models are unsupervised multitask learners, 2019 (2.2), and its
// src/encoder.py; Hugging Face's tokenizers (github.com/huggingface/tokenizers), whose steps these
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/data/added_tokens.h"
#include "training/data/bpe_model.h"
#include "training/data/tokenizer.h"
#include "training/data/word_splitter.h"

namespace tutti::training {

// How a text is changed before it is cut.
struct TextRewrite {
  std::vector<std::pair<std::string, std::string>> replacements;  // from, to
  std::string prefix;                  // is put before each text between added tokens, or ...
  bool only_at_the_beginning = false;  // ... before the whole text
  bool unless_there = false;           // not before what begins with it

  bool empty() const { return replacements.empty() && prefix.empty(); }
};

// All that a tokenizer is made of, in the order in which a text passes it.
struct BpeDescription {
  std::vector<AddedToken> added;  // found in the text as it is
  TextRewrite normalizer;
  std::vector<AddedToken> added_to_normalized;  // found in the text after that
  TextRewrite before_words;
  // Text is cut into words by each of these, one after the other, and before every marker.
  std::vector<std::string> patterns;
  std::string marker;          // what stands for a blank in the words; empty: it is a blank
  bool cut_at_marker = false;  // before every one
  BpeVocabulary vocabulary;

  std::vector<std::optional<std::string>> texts;  // what token i stands for; none: no such token
  size_t blanks_to_strip = 0;                     // from the beginning of a decoded text
  std::optional<int32_t> end_of_text;
  Tokenizer::Frame frame;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Throws Error for what cannot be done as described.
  explicit BpeTokenizer(BpeDescription description);

  using Tokenizer::encode;
  std::vector<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  std::string text_of(int32_t token) const override;
  size_t vocabulary_size() const override { return texts_.size(); }
  std::optional<int32_t> find(std::string_view name) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  Frame frame() const override { return frame_; }
  size_t last_cut(std::string_view text) const override;

 private:
  class Encoding;
  enum class MarkerCuts { none, before_runs, before_each };

  MarkerCuts marker_cuts(const BpeDescription& description) const;
  void append_words(std::string_view text, std::vector<std::string_view>& words) const;

  AddedTokens added_;
  TextRewrite normalizer_;
  AddedTokens added_to_normalized_;
  TextRewrite before_words_;
  std::vector<WordSplitter> splitters_;
  std::string marker_;
  MarkerCuts marker_cuts_;
  BpeModel model_;
  std::vector<std::optional<std::string>> texts_;
  size_t blanks_to_strip_;
  std::optional<int32_t> end_of_text_;
  Frame frame_;
};

}  // namespace tutti::training
