// Byte-pair encoding tokenizers: GPT-2's, and those described by a tokenizer.json.
//
// Sources: Radford et al., Language models are unsupervised multitask learners, 2019 (2.2), and its
// src/encoder.py; Hugging Face's tokenizers (github.com/huggingface/tokenizers), whose processing
// steps these are.
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

// Changes that are made to a text before it is split.
struct TextRewrite {
  // pairs of the text to replace and its replacement
  std::vector<std::pair<std::string, std::string>> replacements;
  std::string prefix;                  // inserted before each text between added tokens
  bool only_at_the_beginning = false;  // true: `prefix` is inserted only before the whole text
  bool unless_there = false;  // true: `prefix` is not inserted before texts that begin with it

  bool empty() const { return replacements.empty() && prefix.empty(); }
};

// Description of a tokenizer, in the order of processing.
struct BpeDescription {
  std::vector<AddedToken> added;  // tokens that are matched in the original text
  TextRewrite normalizer;
  std::vector<AddedToken> added_to_normalized;  // tokens that are matched in the normalized text
  TextRewrite before_words;
  // Regular expressions that are applied one after the other to split the text into words. If
  // cut_at_marker is set, every marker splits as well.
  std::vector<std::string> patterns;
  std::string marker;          // replaces blanks in words; empty: blanks are kept
  bool cut_at_marker = false;  // true: words are cut before every marker
  BpeVocabulary vocabulary;

  // text of each token, indexed by ID; unset if no token has this ID
  std::vector<std::optional<std::string>> texts;
  size_t blanks_to_strip = 0;  // number of blanks to remove from the beginning of a decoded text
  std::optional<int32_t> end_of_text;
  Tokenizer::Frame frame;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Creates the tokenizer. Throws Error for descriptions that are not supported.
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
