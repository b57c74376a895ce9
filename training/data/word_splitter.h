// Cuts text into the words inside which a tokenizer merges.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace tutti::training {

// The regular expressions of GPT-2 (github.com/openai/gpt-2, src/encoder.py) and of Llama 3
// (github.com/meta-llama/llama3, llama/tokenizer.py).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// By a regular expression, as Oniguruma, which Hugging Face's tokenizers use, reads it. Any number
// of threads may share one.
class WordSplitter {
 public:
  // Throws Error(unsupported) for what PCRE2 cannot compile, or does not read as Oniguruma does.
  explicit WordSplitter(std::string_view pattern = kGpt2Pattern);

  // The words in order: what matches, and what is between. Together they are the text. A run of
  // bytes that is not UTF-8 is a word.
  std::vector<std::string_view> split(std::string_view text) const;
  // The same, of one word of another splitter's.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

  // Tokenizer::last_cut. No word reaches over such a place, and nothing before it is matched by
  // what comes after. Known for the patterns above and their like; else 0.
  size_t last_cut(std::string_view text) const;
  // Whether all places where another splitter cuts may stay: this one only cuts further.
  bool cuts_anywhere() const { return cuts_ == Cuts::anywhere; }

 private:
  enum class Cuts {
    unknown,
    before_space,        // before white space that follows something else
    before_inner_space,  // the same, unless it may be a punctuation's line end
    anywhere,
  };
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  static Cuts cuts_of(std::string_view pattern);

  Cuts cuts_;
  std::unique_ptr<pcre2_real_code_8, Free> pattern_;
};

}  // namespace tutti::training
