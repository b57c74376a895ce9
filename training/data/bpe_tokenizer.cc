#include "training/data/bpe_tokenizer.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/bpe_vocabulary.h"

namespace tutti::training {
namespace {

struct Files {
  std::string vocabulary;
  std::string merges;
};

Files find_files(const std::string& directory) {
  const std::filesystem::path folder(directory);
  const Files openai{folder / "encoder.json", folder / "vocab.bpe"};
  const Files hugging_face{folder / "vocab.json", folder / "merges.txt"};
  for (const Files& files : {openai, hugging_face}) {
    std::error_code error;
    if (std::filesystem::exists(files.vocabulary, error) &&
        std::filesystem::exists(files.merges, error)) {
      return files;
    }
  }
  throw Error(ErrorCode::invalid_argument, cat("there is no tokenizer in ", directory),
              {.cause = "it has neither encoder.json and vocab.bpe, nor vocab.json and merges.txt",
               .remedy = "name a directory with the two files of a GPT-2 tokenizer"});
}

constexpr size_t kNone = SIZE_MAX;

// A token of the word in a doubly linked list: merging takes the right one out.
struct Symbol {
  uint16_t token;
  size_t previous;
  size_t next;
};

// A merge's rank and the index of its left symbol: the leftmost of the lowest rank comes first.
using Candidate = std::pair<uint32_t, size_t>;

}  // namespace

BpeTokenizer::BpeTokenizer(const std::string& directory) {
  const Files files = find_files(directory);
  texts_ = read_vocabulary(files.vocabulary);
  for (size_t id = 0; id < texts_.size(); ++id) ids_.emplace(texts_[id], id);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto found = ids_.find(std::string(1, static_cast<char>(byte)));
    if (found == ids_.end()) {
      throw Error(ErrorCode::invalid_argument,
                  cat(files.vocabulary, " has no token for byte ", byte),
                  {.remedy = "take the vocabulary of a byte-level tokenizer, such as GPT-2's"});
    }
    byte_ids_[byte] = found->second;
  }
  read_merges(files.merges);
}

void BpeTokenizer::read_merges(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw system_error(cat("cannot read the merges ", path), errno);
  uint32_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const auto refuse = [&](const std::string& cause) {
      throw Error(ErrorCode::invalid_argument, cat("line ", number, " of ", path, " is no merge"),
                  {.cause = cause, .remedy = "take the two files of one and the same tokenizer"});
    };
    const std::vector<std::string> symbols = split(line, ' ');
    if (symbols.size() != 2) refuse(cat("\"", line, "\" is not two tokens with a space between"));
    const auto id_of = [&](const std::string& symbol) {
      const std::optional<std::string> bytes = bytes_of_symbol(symbol);
      const auto found = bytes ? ids_.find(*bytes) : ids_.end();
      if (found == ids_.end()) refuse(cat("\"", symbol, "\" is not in the vocabulary"));
      return found->second;
    };
    const uint32_t pair = uint32_t{id_of(symbols[0])} << 16 | id_of(symbols[1]);
    merges_.emplace(pair, Merge{.rank = number, .token = id_of(symbols[0] + symbols[1])});
  }
  if (file.bad()) throw system_error(cat("cannot read the merges ", path), errno);
}

const BpeTokenizer::Merge* BpeTokenizer::find_merge(uint16_t left, uint16_t right) const {
  const auto found = merges_.find(uint32_t{left} << 16 | right);
  return found == merges_.end() ? nullptr : &found->second;
}

// With a heap, as words may be as long as the text: n log n.
void BpeTokenizer::encode_word(std::string_view word, std::vector<uint16_t>& tokens) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.push_back({byte_ids_[static_cast<uint8_t>(word[i])], i == 0 ? kNone : i - 1,
                       i + 1 == word.size() ? kNone : i + 1});
  }
  // The merge of a symbol with the one after it. One that was taken out has none after it.
  const auto merge_at = [&](size_t left) {
    const size_t right = symbols[left].next;
    return right == kNone ? nullptr : find_merge(symbols[left].token, symbols[right].token);
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](size_t left) {
    if (const Merge* merge = merge_at(left)) candidates.emplace(merge->rank, left);
  };
  for (size_t i = 0; i < symbols.size(); ++i) consider(i);
  while (!candidates.empty()) {
    const auto [rank, left] = candidates.top();
    candidates.pop();
    const Merge* merge = merge_at(left);
    if (merge == nullptr || merge->rank != rank) continue;  // a neighbour was merged meanwhile
    const size_t right = symbols[left].next;
    symbols[left].token = merge->token;
    symbols[left].next = symbols[right].next;
    if (symbols[left].next != kNone) symbols[symbols[left].next].previous = left;
    symbols[right].next = kNone;
    consider(left);
    if (symbols[left].previous != kNone) consider(symbols[left].previous);
  }
  for (size_t i = 0; i != kNone; i = symbols[i].next) tokens.push_back(symbols[i].token);
}

std::vector<uint16_t> BpeTokenizer::encode(std::string_view text) const {
  // Text repeats its words: where the tokens of a word already are in the result.
  struct Place {
    size_t first;
    size_t count;
  };
  std::unordered_map<std::string_view, Place> known;
  std::vector<uint16_t> tokens;
  tokens.reserve(text.size() / 2);
  for (const std::string_view word : splitter_.split(text)) {
    const auto [entry, is_new] = known.try_emplace(word);
    Place& place = entry->second;
    const size_t first = tokens.size();
    if (is_new) {
      encode_word(word, tokens);
      place = {first, tokens.size() - first};
    } else {
      tokens.resize(first + place.count);
      std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(place.first), place.count,
                  tokens.begin() + static_cast<ptrdiff_t>(first));
    }
  }
  return tokens;
}

std::string BpeTokenizer::decode(std::span<const uint16_t> tokens) const {
  std::string text;
  for (const uint16_t token : tokens) {
    if (token >= texts_.size()) {
      throw Error(ErrorCode::invalid_argument,
                  cat("token ", token, " is not in the vocabulary of ", texts_.size()),
                  {.cause = "the tokens are of another tokenizer"});
    }
    text += texts_[token];
  }
  return text;
}

}  // namespace tutti::training
