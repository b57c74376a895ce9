// Byte-pair encoding of one word.
//
// Source: Sennrich, Haddow, Birch, Neural machine translation of rare words with subword units, ACL
// 2016. The details follow Hugging Face's tokenizers (github.com/huggingface/tokenizers,
// models/bpe) and its tokenizer.json.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti::training {

struct BpeVocabulary {
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t token;
  };
  // The initial symbols into which a word is split.
  enum class Alphabet {
    bytes,       // the word's bytes, each of which is a token
    characters,  // the word's characters; a character without a token becomes the tokens of its
                 // bytes (<0x00> to <0xFF>) or, if these do not exist, the unknown token
  };

  Alphabet alphabet = Alphabet::bytes;
  std::vector<std::string> symbols;  // text of each token; empty: the token never occurs in a word
  std::vector<Merge> merges;         // in the order in which training found them
  std::optional<int32_t> unknown;
  bool fuse_unknown = false;  // true: a run of unknown characters becomes one token
  bool whole_words = false;   // true: words that are tokens are not split (ignore_merges)
};

// Tokenizes words: repeatedly merges the adjacent pair of tokens whose merge was learnt first,
// until no pair has a merge.
class BpeModel {
 public:
  // Throws Error(invalid_argument) that names the first byte without a token, unless the symbols
  // are characters and there is an unknown token.
  explicit BpeModel(BpeVocabulary vocabulary);
  BpeModel(BpeModel&&) = default;  // not copyable: ids_ has views of the vocabulary

  void encode(std::string_view word, std::vector<int32_t>& tokens) const;
  std::optional<int32_t> find(std::string_view symbol) const;

 private:
  struct Rank {
    uint32_t rank;  // position in training; lower ranks merge first
    int32_t token;
  };

  std::vector<int32_t> letters(std::string_view word) const;
  void append_character(std::string_view character, std::vector<int32_t>& tokens) const;
  const Rank* find_merge(int32_t left, int32_t right) const;

  BpeVocabulary vocabulary_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of vocabulary_.symbols
  std::array<int32_t, 256> byte_ids_{};
  bool has_bytes_ = false;                     // true if every byte is a token
  std::unordered_map<uint64_t, Rank> merges_;  // key: left token << 32 | right token
};

}  // namespace tutti::training
