#include "training/data/bpe_vocabulary.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 16;  // a token is a uint16
constexpr size_t kCharacters = 256 + 68;        // 68 bytes are not printable
constexpr int16_t kNoByte = -1;

// Of each character below U+0144, the byte that it stands for.
std::array<int16_t, kCharacters> make_byte_of_character() {
  std::array<int16_t, kCharacters> byte_of{};
  byte_of.fill(kNoByte);
  size_t next = 256;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    byte_of[printable ? static_cast<size_t>(byte) : next++] = byte;
  }
  return byte_of;
}

[[noreturn]] void refuse(const std::string& path, const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, cat(path, " is not a vocabulary"),
              {.cause = cause, .remedy = "take the encoder.json or vocab.json of a GPT-2 model"});
}

Json read_json(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw system_error(cat("cannot read the vocabulary ", path), errno,
                       {.remedy = "check the path and its permissions"});
  }
  try {
    return Json::parse(std::string(std::istreambuf_iterator(file), {}));
  } catch (const Error& error) {
    refuse(path, error.what());
  }
}

}  // namespace

std::optional<std::string> bytes_of_symbol(std::string_view symbol) {
  static const std::array<int16_t, kCharacters> byte_of = make_byte_of_character();
  std::string bytes;
  for (size_t i = 0; i < symbol.size(); ++i) {
    size_t character = static_cast<uint8_t>(symbol[i]);
    if (character >= 0xc2 && character <= 0xc5 && i + 1 < symbol.size()) {  // two bytes of UTF-8
      character = (character & 0x1f) << 6 | (static_cast<uint8_t>(symbol[++i]) & 0x3f);
    } else if (character >= 0x80) {
      return std::nullopt;
    }
    if (character >= kCharacters || byte_of[character] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of[character]));
  }
  return bytes;
}

std::vector<std::string> read_vocabulary(const std::string& path) {
  const Json entries = read_json(path);
  if (!entries.is_object() || entries.empty()) refuse(path, "it is no JSON object of tokens");
  if (entries.size() > kMaxTokens) {
    refuse(path, cat("it has ", entries.size(), " tokens; 16 bits number ", kMaxTokens));
  }
  std::vector<std::string> texts(entries.size());
  for (const auto& [symbol, id] : entries.items()) {
    if (!id.is_natural_number() || id.get<uint64_t>() >= texts.size()) {
      refuse(path,
             cat("the id of ", in_quotes(symbol), " is ", id.words(), ", not a whole number below ",
                 texts.size(), ", which is how many tokens there are"));
    }
    const std::optional<std::string> bytes = bytes_of_symbol(symbol);
    if (!bytes || bytes->empty()) {
      refuse(path,
             cat("the token ", in_quotes(symbol), " has a character that stands for no byte"));
    }
    std::string& text = texts[id.get<size_t>()];
    if (!text.empty()) refuse(path, cat("two tokens have the id ", id.words()));
    text = *bytes;
  }
  return texts;
}

}  // namespace tutti::training
