#include "training/models/mix.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

constexpr std::string_view kSeparators = ", \t\r\n";

// Calls visit(word, line number) for each word outside of comments.
template <typename Visit>
void for_each_word(std::string_view text, const Visit& visit) {
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    const char first = text[at];
    if (first == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (kSeparators.find(first) != std::string_view::npos) {
      if (first == '\n') ++line;
      ++at;
    } else {
      const size_t end = std::min(text.find_first_of(", \t\r\n#", at), text.size());
      visit(text.substr(at, end - at), line);
      at = end;
    }
  }
}

constexpr char letter_of(LayerSplit split) {
  return split == LayerSplit::batch ? 'b' : split == LayerSplit::model ? 'm' : 'd';
}

LayerSplit split_named(std::string_view word, const std::string& place) {
  for (const LayerSplit split : kAllLayerSplits) {
    if (word.size() == 1 && word[0] == letter_of(split)) return split;
  }
  throw Error(ErrorCode::invalid_argument,
              cat("unknown division of a layer: ", in_quotes(std::string(word))),
              {.where = place,
               .cause = "a mix has one letter per layer",
               .remedy = "use b (batch) or m (model), or d (domain) for a convolution"});
}

}  // namespace

Mix parse_mix(std::string_view text, const std::string& where) {
  const bool has_lines = text.find('\n') != std::string_view::npos;
  Mix mix;
  for_each_word(text, [&](std::string_view word, int line) {
    mix.push_back(split_named(word, has_lines ? cat(where, ", line ", line) : where));
    if (static_cast<double>(mix.size()) <= kMostLayers) return;
    throw Error(ErrorCode::invalid_argument, cat("the mix has more than ", kMostLayers, " layers"),
                {.where = where, .remedy = "use one letter per layer of the model"});
  });
  if (!mix.empty()) return mix;
  throw Error(ErrorCode::invalid_argument, "the mix has no layers",
              {.where = where, .remedy = "use one letter per layer: b,m,m,b"});
}

bool is_mix(std::string_view text) {
  bool single = true;
  for_each_word(text, [&](std::string_view word, int) { single = single && word.size() == 1; });
  return single;
}

std::string to_text(const Mix& mix) {
  std::string text;
  for (const LayerSplit split : mix) {
    if (!text.empty()) text += ',';
    text += letter_of(split);
  }
  return text;
}

std::vector<Mix> all_mixes(size_t layers, size_t convolutions) {
  std::vector<Mix> all = {{}};
  for (size_t layer = 0; layer < layers; ++layer) {
    std::vector<Mix> longer;
    for (const Mix& mix : all) {
      for (const LayerSplit split : kAllLayerSplits) {
        if (split == LayerSplit::domain && layer >= convolutions) continue;
        longer.push_back(mix);
        longer.back().push_back(split);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace tutti::training
