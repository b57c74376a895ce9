#include "training/data/bpe_model.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/utf8.h"

namespace tutti::training {
namespace {

using Alphabet = BpeVocabulary::Alphabet;

constexpr size_t kNone = SIZE_MAX;
constexpr int32_t kNoToken = -1;

// A token of the word in a doubly linked list. Merging two tokens removes the right one.
struct Symbol {
  int32_t token;
  size_t previous;
  size_t next;
};

// A merge's rank and the index of its left symbol, ordered by rank, then from left to right.
using Candidate = std::pair<uint32_t, size_t>;

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

std::string symbol_of(size_t byte, Alphabet alphabet) {
  if (alphabet == Alphabet::bytes) return {static_cast<char>(byte)};
  char text[8];
  std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
  return text;
}

}  // namespace

BpeModel::BpeModel(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (size_t id = 0; id < vocabulary_.symbols.size(); ++id) {
    const std::string& symbol = vocabulary_.symbols[id];
    if (!symbol.empty()) ids_.emplace(symbol, static_cast<int32_t>(id));
  }
  std::optional<size_t> missing;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = find(symbol_of(byte, vocabulary_.alphabet)).value_or(kNoToken);
    if (byte_ids_[byte] == kNoToken && !missing) missing = byte;
  }
  has_bytes_ = !missing;
  const bool may_miss = vocabulary_.alphabet == Alphabet::characters && vocabulary_.unknown;
  if (missing && !may_miss) {
    throw Error(ErrorCode::invalid_argument, cat("the vocabulary has no token for byte ", *missing),
                {.remedy = "use a vocabulary that covers all bytes, such as GPT-2's"});
  }
  uint32_t rank = 0;
  for (const auto& [left, right, token] : vocabulary_.merges) {
    merges_.insert_or_assign(pair_of(left, right), Rank{.rank = rank++, .token = token});
  }
  vocabulary_.merges = {};
}

std::optional<int32_t> BpeModel::find(std::string_view symbol) const {
  const auto found = ids_.find(symbol);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const BpeModel::Rank* BpeModel::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::append_character(std::string_view character, std::vector<int32_t>& tokens) const {
  if (const std::optional<int32_t> token = find(character)) {
    tokens.push_back(*token);
  } else if (has_bytes_) {
    for (const char byte : character) tokens.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  } else if (!vocabulary_.fuse_unknown || tokens.empty() || tokens.back() != *vocabulary_.unknown) {
    tokens.push_back(*vocabulary_.unknown);
  }
}

std::vector<int32_t> BpeModel::letters(std::string_view word) const {
  std::vector<int32_t> tokens;
  tokens.reserve(word.size());
  if (vocabulary_.alphabet == Alphabet::bytes) {
    for (const char byte : word) tokens.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    return tokens;
  }
  for (; !word.empty(); word.remove_prefix(character_size(word))) {
    append_character(word.substr(0, character_size(word)), tokens);
  }
  return tokens;
}

// Uses a heap, which takes O(n log n), because words may be as long as the text.
void BpeModel::encode(std::string_view word, std::vector<int32_t>& tokens) const {
  if (vocabulary_.whole_words) {
    if (const std::optional<int32_t> token = find(word)) return tokens.push_back(*token);
  }
  std::vector<Symbol> symbols;
  const std::vector<int32_t> first = letters(word);
  symbols.reserve(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    symbols.push_back({first[i], i == 0 ? kNone : i - 1, i + 1 == first.size() ? kNone : i + 1});
  }
  // Returns the merge of a symbol with the next symbol, or null if there is none. A removed symbol
  // has no next symbol.
  const auto merge_at = [&](size_t left) {
    const size_t right = symbols[left].next;
    return right == kNone ? nullptr : find_merge(symbols[left].token, symbols[right].token);
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](size_t left) {
    if (const Rank* merge = merge_at(left)) candidates.emplace(merge->rank, left);
  };
  for (size_t i = 0; i < symbols.size(); ++i) consider(i);
  while (!candidates.empty()) {
    const auto [rank, left] = candidates.top();
    candidates.pop();
    const Rank* merge = merge_at(left);
    if (merge == nullptr || merge->rank != rank) continue;  // a neighbour has been merged since
    const size_t right = symbols[left].next;
    symbols[left].token = merge->token;
    symbols[left].next = symbols[right].next;
    if (symbols[left].next != kNone) symbols[symbols[left].next].previous = left;
    symbols[right].next = kNone;
    consider(left);
    if (symbols[left].previous != kNone) consider(symbols[left].previous);
  }
  for (size_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].next) {
    tokens.push_back(symbols[i].token);
  }
}

}  // namespace tutti::training
