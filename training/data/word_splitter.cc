#define PCRE2_CODE_UNIT_WIDTH 8
#include "training/data/word_splitter.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// \s is spelt out as Unicode's White_Space: PCRE2's own either knows ASCII only or has U+180E too.
std::string gpt2_pattern() {
  constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";
  return cat(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{L}\p{N})", kSpace, "]+|[", kSpace,
             "]+(?![^", kSpace, "])|[", kSpace, "]+");
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// May err towards true: it takes every character of the blocks that have most of Unicode's spaces.
bool ends_in_space(std::string_view text) {
  if (text.empty() || is_ascii_space(text.back())) return true;
  const std::string_view two = text.substr(text.size() - std::min<size_t>(text.size(), 2));
  const std::string_view three = text.substr(text.size() - std::min<size_t>(text.size(), 3));
  return two.starts_with("\xc2") || three.starts_with("\xe2\x80") ||
         three.starts_with("\xe2\x81") || three == "\xe1\x9a\x80" || three == "\xe3\x80\x80";
}

}  // namespace

void WordSplitter::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

WordSplitter::WordSplitter() {
  int error = 0;
  PCRE2_SIZE position = 0;
  const std::string pattern = gpt2_pattern();
  pattern_.reset(pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF,
                               &error, &position, nullptr));
  if (!pattern_) {
    throw Error(
        ErrorCode::unsupported, "cannot compile the tokenizer's regular expression",
        {.cause = message_of(error), .remedy = "install PCRE2 10.34 or newer with Unicode"});
  }
  // Where there is no just-in-time compiler, matching is slower and no less right.
  pcre2_jit_compile(pattern_.get(), PCRE2_JIT_COMPLETE);
}

std::vector<std::string_view> WordSplitter::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(pattern_.get(), nullptr));
  if (!match) throw Error(ErrorCode::system, "out of memory for a regular expression's match");
  std::vector<std::string_view> words;
  for (size_t done = 0; done < text.size();) {
    const int found =
        pcre2_match(pattern_.get(), units(text), text.size(), done, 0, match.get(), nullptr);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      throw Error(ErrorCode::internal, cat("cannot split the text at byte ", done),
                  {.cause = message_of(found)});
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    const size_t begin = found < 0 ? text.size() : range[0];
    // Every character matches; what is passed over is none.
    if (begin > done) words.push_back(text.substr(done, begin - done));
    if (found < 0) break;
    words.push_back(text.substr(begin, range[1] - begin));
    done = range[1];
  }
  return words;
}

size_t WordSplitter::last_cut(std::string_view text) {
  for (size_t cut = text.size(); cut-- > 1;) {
    if (is_ascii_space(text[cut]) && !ends_in_space(text.substr(0, cut))) return cut;
  }
  return 0;
}

}  // namespace tutti::training
