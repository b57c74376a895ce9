#include "training/data/bpe_tokenizer.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

std::string replaced(std::string_view text, const std::string& from, const std::string& to) {
  std::string out;
  for (size_t found = text.find(from); found != text.npos; found = text.find(from)) {
    out += text.substr(0, found);
    out += to;
    text.remove_prefix(found + from.size());
  }
  return out += text;
}

// Returns true if the symbol has a marker after another character.
bool reaches_over(std::string_view symbol, std::string_view marker) {
  bool other = false;
  while (!symbol.empty()) {
    const bool here = symbol.starts_with(marker);
    if (here && other) return true;
    other = other || !here;
    symbol.remove_prefix(here ? marker.size() : 1);
  }
  return false;
}

std::vector<WordSplitter> splitters_of(const std::vector<std::string>& patterns) {
  std::vector<WordSplitter> splitters;
  for (const std::string& pattern : patterns) splitters.emplace_back(pattern);
  return splitters;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeDescription description)
    : added_(std::move(description.added)),
      normalizer_(std::move(description.normalizer)),
      added_to_normalized_(std::move(description.added_to_normalized)),
      before_words_(std::move(description.before_words)),
      splitters_(splitters_of(description.patterns)),
      marker_(description.marker),
      marker_cuts_(marker_cuts(description)),
      model_(std::move(description.vocabulary)),
      texts_(std::move(description.texts)),
      blanks_to_strip_(description.blanks_to_strip),
      end_of_text_(description.end_of_text),
      frame_(std::move(description.frame)) {}

// Returns the places at which a text is cut into words in addition to the patterns. Without
// patterns the whole text would be one word. If no token has a marker after another character, no
// merge extends over such a place, so cutting there changes no tokens.
BpeTokenizer::MarkerCuts BpeTokenizer::marker_cuts(const BpeDescription& description) const {
  if (marker_.empty()) return MarkerCuts::none;
  if (description.cut_at_marker) return MarkerCuts::before_each;
  const std::vector<std::string>& symbols = description.vocabulary.symbols;
  const bool is_known = std::ranges::find(symbols, marker_) != symbols.end();
  const bool any_over = std::ranges::any_of(
      symbols, [&](const std::string& symbol) { return reaches_over(symbol, marker_); });
  return is_known && !any_over && splitters_.empty() ? MarkerCuts::before_runs : MarkerCuts::none;
}

void BpeTokenizer::append_words(std::string_view text, std::vector<std::string_view>& words) const {
  std::vector<std::string_view> parts = {text};
  for (const WordSplitter& splitter : splitters_) {
    std::vector<std::string_view> finer;
    for (const std::string_view part : parts) splitter.split(part, finer);
    parts = std::move(finer);
  }
  if (marker_cuts_ == MarkerCuts::none) {
    words.insert(words.end(), parts.begin(), parts.end());
    return;
  }
  for (std::string_view part : parts) {
    bool after_marker = false;
    size_t size = 0;
    while (size < part.size()) {
      const bool here = part.substr(size).starts_with(marker_);
      const bool cut =
          here && size > 0 && (marker_cuts_ == MarkerCuts::before_each || !after_marker);
      if (cut) {
        words.push_back(part.substr(0, size));
        part.remove_prefix(size);
        size = 0;
      }
      after_marker = here;
      size += here ? marker_.size() : 1;
    }
    if (!part.empty()) words.push_back(part);
  }
}

// State of one call of encode(). Words repeat in texts, so their tokens are cached.
class BpeTokenizer::Encoding {
 public:
  explicit Encoding(const BpeTokenizer& tokenizer) : of_(tokenizer) {}

  void append(const TextPiece& piece, std::vector<int32_t>& tokens) {
    bool first = true;
    for (const AddedTokens::Part& part : of_.added_.split(piece.text)) {
      if (part.token) {
        tokens.push_back(*part.token);
      } else {
        append_between(part.text, {.first = first, .begins = piece.begins}, tokens);
      }
      first = false;
    }
  }

 private:
  struct Place {
    bool first;   // true at the start of the piece
    bool begins;  // true if the piece begins its text
  };

  void append_between(std::string_view text, Place place, std::vector<int32_t>& tokens) {
    for (const AddedTokens::Part& part :
         of_.added_to_normalized_.split(rewritten(of_.normalizer_, text, place))) {
      if (part.token) {
        tokens.push_back(*part.token);
      } else {
        words_.clear();
        of_.append_words(rewritten(of_.before_words_, part.text, place), words_);
        for (const std::string_view word : words_) append_word(word, tokens);
      }
      place.first = false;
    }
  }

  std::string_view rewritten(const TextRewrite& rewrite, std::string_view text, Place place) {
    if (rewrite.empty() || text.empty()) return text;
    std::string& out = rewritten_.emplace_back(text);
    for (const auto& [from, to] : rewrite.replacements) out = replaced(out, from, to);
    const bool continues = place.first && !place.begins;
    const bool here = rewrite.only_at_the_beginning ? place.first && place.begins : !continues;
    if (here && !(rewrite.unless_there && out.starts_with(rewrite.prefix))) {
      out.insert(0, rewrite.prefix);
    }
    return out;
  }

  void append_word(std::string_view word, std::vector<int32_t>& tokens) {
    const auto [entry, is_new] = known_.try_emplace(word);
    auto& [first, count] = entry->second;
    if (is_new) {
      first = kept_.size();
      of_.model_.encode(word, kept_);
      count = kept_.size() - first;
    }
    const auto begin = kept_.begin() + static_cast<ptrdiff_t>(first);
    tokens.insert(tokens.end(), begin, begin + static_cast<ptrdiff_t>(count));
  }

  const BpeTokenizer& of_;
  std::deque<std::string> rewritten_;  // words_ are views of these
  // value: first index and count in kept_
  std::unordered_map<std::string_view, std::pair<size_t, size_t>> known_;
  std::vector<int32_t> kept_;
  std::vector<std::string_view> words_;
};

std::vector<std::vector<int32_t>> BpeTokenizer::encode(std::span<const TextPiece> pieces) const {
  Encoding encoding(*this);
  std::vector<std::vector<int32_t>> all;
  all.reserve(pieces.size());
  for (const TextPiece& piece : pieces) encoding.append(piece, all.emplace_back());
  return all;
}

std::string BpeTokenizer::text_of(int32_t token) const {
  if (token < 0 || static_cast<size_t>(token) >= texts_.size() ||
      !texts_[static_cast<size_t>(token)]) {
    throw Error(ErrorCode::invalid_argument,
                cat("token ", token, " is not in the vocabulary of size ", texts_.size()),
                {.cause = "the tokens come from another tokenizer"});
  }
  return *texts_[static_cast<size_t>(token)];
}

std::string BpeTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += text_of(token);
  for (size_t i = 0; i < blanks_to_strip_ && text.starts_with(' '); ++i) text.erase(0, 1);
  return text;
}

std::optional<int32_t> BpeTokenizer::find(std::string_view name) const {
  if (const std::optional<int32_t> token = added_.find(name)) return token;
  if (const std::optional<int32_t> token = added_to_normalized_.find(name)) return token;
  return model_.find(name);
}

size_t BpeTokenizer::last_cut(std::string_view text) const {
  if (!added_.may_cut_before_blanks() || !added_to_normalized_.may_cut_before_blanks()) return 0;
  if (marker_cuts_ != MarkerCuts::none) {
    for (size_t cut = text.size(); cut-- > 1;) {
      const std::string_view before = text.substr(0, cut);
      if (text[cut] != ' ' || before.ends_with(' ') || before.ends_with(marker_)) continue;
      // no cut here: a text after an added token gets a prefix
      if (!added_.end(before)) return cut;
    }
    return 0;
  }
  if (!normalizer_.replacements.empty() || !marker_.empty()) return 0;
  const WordSplitter* cutter = nullptr;
  for (const WordSplitter& splitter : splitters_) {
    if (splitter.cuts_anywhere()) continue;
    if (cutter != nullptr) return 0;
    cutter = &splitter;
  }
  return cutter == nullptr ? 0 : cutter->last_cut(text);
}

}  // namespace tutti::training
