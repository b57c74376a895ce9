#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tutti::fuzz {

namespace {

// Numbers that parsers tend to handle wrongly.
constexpr std::array<const char*, 21> kNumbers = {"0",
                                                  "-1",
                                                  "1",
                                                  "2",
                                                  "255",
                                                  "65535",
                                                  "65536",
                                                  "1000000",
                                                  "2147483647",
                                                  "2147483648",
                                                  "4294967295",
                                                  "4294967296",
                                                  "-2147483649",
                                                  "1e9",
                                                  "9223372036854775807",
                                                  "1e308",
                                                  "1e999",
                                                  "0.5",
                                                  "nan",
                                                  "18446744073709551615",
                                                  "18446744073709551616"};
constexpr std::array<uint64_t, 14> kWords = {0,
                                             1,
                                             2,
                                             0x7f,
                                             0xff,
                                             0x7fff,
                                             0xffff,
                                             0x10000,
                                             0x7fffffff,
                                             0x80000000,
                                             0xffffffff,
                                             0x100000000,
                                             0x7fffffffffffffff,
                                             0xffffffffffffffff};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Mutator::Mutator(std::vector<std::string> corpus, uint64_t seed, size_t longest)
    : corpus_(std::move(corpus)), random_(seed), longest_(longest) {}

size_t Mutator::below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

Mutator::Part Mutator::part_of(const std::string& input) {
  const size_t begin = below(input.size());
  const size_t most = one_in(4) ? input.size() - begin : std::min<size_t>(input.size() - begin, 16);
  return {begin, most == 0 ? 0 : 1 + below(most)};
}

Mutator::Part Mutator::token_of(const std::string& input) {
  size_t begin = below(input.size());
  size_t end = std::min(begin + 1, input.size());
  if (begin < input.size() && is_word(input[begin])) {
    while (begin > 0 && is_word(input[begin - 1])) --begin;
    while (end < input.size() && is_word(input[end])) ++end;
  }
  return {begin, end - begin};
}

void Mutator::change_number_in_text(std::string& input) {
  const size_t from = below(input.size());
  const auto digit = std::find_if(input.begin() + static_cast<ptrdiff_t>(from), input.end(),
                                  [](char c) { return is_digit(c); });
  if (digit == input.end()) return;
  const auto begin = static_cast<size_t>(digit - input.begin());
  const size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
  std::string number = kNumbers[below(kNumbers.size())];
  if (one_in(3) && end - begin < 18) {  // an error of one is less likely to be detected
    number = std::to_string(std::stoll(input.substr(begin, end - begin)) + (one_in(2) ? 1 : -1));
  }
  input.replace(begin, end - begin, number);
}

void Mutator::change_number_in_bytes(std::string& input) {
  const size_t width = size_t{1} << below(4);
  if (input.size() < width) return;
  const size_t at = below(input.size() - width + 1);
  uint64_t word = kWords[below(kWords.size())];
  if (one_in(3)) {
    std::memcpy(&word, input.data() + at, width);
    word += one_in(2) ? 1 : -1;
  }
  std::array<char, sizeof word> bytes{};
  std::memcpy(bytes.data(), &word, sizeof word);
  if (one_in(4)) std::reverse(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(width));
  std::memcpy(input.data() + at, bytes.data(), width);
}

// Replaces a part by a part of another input.
void Mutator::splice(std::string& input) {
  const std::string& other = corpus_[below(corpus_.size())];
  const Part from = part_of(other);
  const Part to = part_of(input);
  input.replace(to.begin, one_in(2) ? to.length : 0, other, from.begin, from.length);
}

void Mutator::change(std::string& input) {
  const Part part = part_of(input);
  const Part token = token_of(input);
  switch (below(11)) {
    case 0:
      if (!input.empty()) {
        input[part.begin] = static_cast<char>(input[part.begin] ^ (1 << below(8)));
      }
      break;
    case 1:
      if (!input.empty()) input[part.begin] = static_cast<char>(random_());
      break;
    case 2:
      input.erase(part.begin, part.length);
      break;
    case 3:
      input.insert(part.begin, input.substr(part.begin, part.length));
      break;
    case 4:
      if (one_in(4)) input.resize(part.begin);
      break;
    case 5:
      input.erase(token.begin, token.length);
      break;
    case 6:
      input.insert(token.begin, input.substr(token.begin, token.length));
      break;
    case 7: {
      const Part other = token_of(input);
      input.replace(token.begin, token.length, input.substr(other.begin, other.length));
      break;
    }
    case 8:
      change_number_in_text(input);
      break;
    case 9:
      change_number_in_bytes(input);
      break;
    case 10:
      splice(input);
      break;
  }
}

// Makes few changes, because a parser refuses the input at the first invalid change and never
// reaches the later ones.
std::string Mutator::next() {
  std::string input = corpus_[below(corpus_.size())];
  for (size_t changes = 1 + below(4); changes > 0; --changes) change(input);
  if (input.size() > longest_) input.resize(longest_);
  return input;
}

}  // namespace tutti::fuzz
