// Byte-pair encoding with GPT-2's vocabulary.
//
// Sources: Radford et al., Language models are unsupervised multitask learners, 2019 (2.2), and its
// src/encoder.py; Sennrich, Haddow, Birch, Neural machine translation of rare words with subword
// units, ACL 2016.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "training/data/tokenizer.h"
#include "training/data/word_splitter.h"

namespace tutti::training {

// Text is cut into words; within a word, the neighbouring tokens whose merge was learnt first
// become one, until none is left to merge. What looks like a special token in a text (such as
// <|endoftext|>) is text.
class BpeTokenizer final : public Tokenizer {
 public:
  // Reads encoder.json and vocab.bpe (OpenAI's names), or vocab.json and merges.txt (Hugging
  // Face's). Throws Error naming the file, and the token or line that is wrong in it. The
  // vocabulary must have every byte, and the ids 0 to its size less one, at most 65 536.
  explicit BpeTokenizer(const std::string& directory);

  std::vector<uint16_t> encode(std::string_view text) const override;
  std::string decode(std::span<const uint16_t> tokens) const override;
  size_t vocabulary_size() const override { return texts_.size(); }
  size_t last_cut(std::string_view text) const override { return WordSplitter::last_cut(text); }

 private:
  struct Merge {
    uint32_t rank;  // lower: learnt earlier
    uint16_t token;
  };

  void read_merges(const std::string& path);
  const Merge* find_merge(uint16_t left, uint16_t right) const;
  void encode_word(std::string_view word, std::vector<uint16_t>& tokens) const;

  WordSplitter splitter_;
  std::vector<std::string> texts_;  // of token i, its bytes
  std::unordered_map<std::string, uint16_t> ids_;
  std::array<uint16_t, 256> byte_ids_{};
  std::unordered_map<uint32_t, Merge> merges_;  // of left << 16 | right
};

}  // namespace tutti::training
