#define PCRE2_CODE_UNIT_WIDTH 8
#include "training/data/word_splitter.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

// Unicode's White_Space. PCRE2's own \s is ASCII only, or includes U+180E.
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";
// Escapes that have the same meaning in both libraries.
constexpr std::string_view kSameEscapes = "pPdDrntf";

[[noreturn]] void refuse_splitter(std::string_view pattern, const std::string& cause) {
  throw Error(ErrorCode::unsupported, "cannot use the tokenizer's regular expression",
              {.where = std::string(pattern), .cause = cause});
}

// Returns the pattern translated for PCRE2. Throws for syntax that the two libraries interpret
// differently.
std::string translated(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (++i == pattern.size()) refuse_splitter(pattern, "it ends with a backslash");
      const char escaped = pattern[i];
      const bool letter = std::isalnum(static_cast<uint8_t>(escaped)) != 0;
      if (escaped == 's') {
        out += in_class ? std::string(kSpace) : cat('[', kSpace, ']');
      } else if (escaped == 'S' && !in_class) {
        out += cat("[^", kSpace, ']');
      } else if (letter && kSameEscapes.find(escaped) == kSameEscapes.npos) {
        refuse_splitter(pattern, cat("\\", escaped, " is not supported"));
      } else {
        out += {'\\', escaped};
        const bool property = (escaped == 'p' || escaped == 'P') && pattern.substr(i + 1, 1) == "{";
        while (property && i + 1 < pattern.size() && pattern[i] != '}') out += pattern[++i];
      }
      continue;
    }
    const bool anchor = !in_class && (c == '^' || c == '$');
    const bool nested = in_class && (c == '[' || pattern.substr(i, 2) == "&&");
    const bool doubled = !in_class && c == '}' && pattern.substr(i + 1, 1) == "+";
    if (anchor || nested || doubled) refuse_splitter(pattern, cat("its ", c, " is not supported"));
    if (!in_class && c == '[') {
      in_class = true;
      out += c;
      if (pattern.substr(i + 1, 1) == "^") out += pattern[++i];
      continue;
    }
    if (in_class && c == ']') in_class = false;
    out += c;
  }
  return out;
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

// Returns true if the text ends in white space. Conservative: also true for every character of the
// blocks that contain most of Unicode's spaces.
bool ends_in_space(std::string_view text) {
  if (text.empty() || is_ascii_space(text.back())) return true;
  const std::string_view two = text.substr(text.size() - std::min<size_t>(text.size(), 2));
  const std::string_view three = text.substr(text.size() - std::min<size_t>(text.size(), 3));
  return two.starts_with("\xc2") || three.starts_with("\xe2\x80") ||
         three.starts_with("\xe2\x81") || three == "\xe1\x9a\x80" || three == "\xe3\x80\x80";
}

}  // namespace

void WordSplitter::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

WordSplitter::Cuts WordSplitter::cuts_of(std::string_view pattern) {
  constexpr std::string_view kThree = R"(\p{N}{1,3})";
  std::string single(kLlama3Pattern);  // the pattern of Qwen 2, which splits digits one by one
  single.replace(single.find(kThree), kThree.size(), R"(\p{N})");
  if (pattern == kGpt2Pattern) return Cuts::before_space;
  if (pattern == kLlama3Pattern || pattern == single) return Cuts::before_inner_space;
  if (pattern == R"(\p{N})" || pattern == R"(\p{N}+)" || pattern == kThree) return Cuts::anywhere;
  return Cuts::unknown;
}

WordSplitter::WordSplitter(std::string_view given) : cuts_(cuts_of(given)) {
  int error = 0;
  PCRE2_SIZE position = 0;
  const std::string pattern = translated(given);
  pattern_.reset(pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF,
                               &error, &position, nullptr));
  if (!pattern_) refuse_splitter(given, message_of(error));
  // If this fails for lack of a just-in-time compiler, matching is slower but equally correct.
  pcre2_jit_compile(pattern_.get(), PCRE2_JIT_COMPLETE);
}

std::vector<std::string_view> WordSplitter::split(std::string_view text) const {
  std::vector<std::string_view> words;
  split(text, words);
  return words;
}

void WordSplitter::split(std::string_view text, std::vector<std::string_view>& words) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(pattern_.get(), nullptr));
  if (!match) throw Error(ErrorCode::system, "no memory for matching a regular expression");
  for (size_t done = 0; done < text.size();) {
    const int found = pcre2_match(pattern_.get(), units(text), text.size(), done, PCRE2_NOTEMPTY,
                                  match.get(), nullptr);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      throw Error(ErrorCode::internal, cat("cannot split the text at byte ", done),
                  {.cause = message_of(found)});
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    const size_t begin = found < 0 ? text.size() : range[0];
    if (begin > done) words.push_back(text.substr(done, begin - done));
    if (found < 0) break;
    words.push_back(text.substr(begin, range[1] - begin));
    done = range[1];
  }
}

size_t WordSplitter::last_cut(std::string_view text) const {
  if (cuts_ != Cuts::before_space && cuts_ != Cuts::before_inner_space) return 0;
  for (size_t cut = text.size(); cut-- > 1;) {
    if (!is_ascii_space(text[cut]) || ends_in_space(text.substr(0, cut))) continue;
    const bool line_end = text[cut] == '\r' || text[cut] == '\n';
    const bool after_word = std::isalnum(static_cast<uint8_t>(text[cut - 1])) != 0;
    if (cuts_ == Cuts::before_space || !line_end || after_word) return cut;
  }
  return 0;
}

}  // namespace tutti::training
