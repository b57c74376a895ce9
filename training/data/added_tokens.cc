#include "training/data/added_tokens.h"

#include <algorithm>
#include <utility>

namespace tutti::training {
namespace {

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens) {
    if (token.text.empty()) continue;
    for (size_t i = 1; i < token.text.size(); ++i) {
      if (is_blank(token.text[i]) && !is_blank(token.text[i - 1])) may_cut_ = false;
    }
    ++size_;
    by_first_byte_[static_cast<uint8_t>(token.text.front())].push_back(std::move(token));
  }
  for (std::vector<AddedToken>& alike : by_first_byte_) {
    std::ranges::stable_sort(alike, std::ranges::greater(),
                             [](const AddedToken& token) { return token.text.size(); });
  }
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; size_ > 0 && at < text.size();) {
    const std::vector<AddedToken>& alike = by_first_byte_[static_cast<uint8_t>(text[at])];
    const std::string_view rest = text.substr(at);
    const auto found = std::ranges::find_if(
        alike, [&](const AddedToken& token) { return rest.starts_with(token.text); });
    if (found == alike.end()) {
      ++at;
      continue;
    }
    if (at > done) parts.push_back({text.substr(done, at - done), std::nullopt});
    parts.push_back({rest.substr(0, found->text.size()), found->id});
    at += found->text.size();
    done = at;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
  return parts;
}

std::optional<int32_t> AddedTokens::find(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  for (const AddedToken& token : by_first_byte_[static_cast<uint8_t>(text.front())]) {
    if (token.text == text) return token.id;
  }
  return std::nullopt;
}

bool AddedTokens::end(std::string_view text) const {
  return std::ranges::any_of(by_first_byte_, [&](const std::vector<AddedToken>& alike) {
    return std::ranges::any_of(alike,
                               [&](const AddedToken& token) { return text.ends_with(token.text); });
  });
}

}  // namespace tutti::training
