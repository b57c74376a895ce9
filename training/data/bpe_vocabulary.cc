#include "training/data/bpe_vocabulary.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kCharacters = 256 + 68;  // 68 of the bytes are not printable characters
constexpr int16_t kNoByte = -1;

// Returns, for each character below U+0144, the byte that it represents.
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

[[noreturn]] void refuse_vocabulary(const std::string& path, const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, cat(path, " is not a vocabulary"),
              {.cause = cause, .remedy = "use the encoder.json or vocab.json of a GPT-2 model"});
}

Json read_json(const std::string& path) {
  const std::string text =
      file_text(path, FileKind::tokenizer, {.remedy = "check the path and its permissions"});
  try {
    return Json::parse(text);
  } catch (const Error& error) {
    refuse_vocabulary(path, error.what());
  }
}

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
  throw Error(
      ErrorCode::invalid_argument, cat("no tokenizer found in ", directory),
      {.cause = "the directory has neither tokenizer.json, nor encoder.json and vocab.bpe, nor "
                "vocab.json and merges.txt",
       .remedy = "use a tokenizer.json, or a directory with one of these"});
}

// Reads a JSON file {"token": id, ...}. Returns the bytes of each token, by id.
std::vector<std::string> read_vocabulary(const std::string& path) {
  const Json entries = read_json(path);
  if (!entries.is_object() || entries.empty())
    refuse_vocabulary(path, "the file is not a JSON object of tokens");
  std::vector<std::string> texts(entries.size());
  for (const auto& [symbol, id] : entries.items()) {
    if (!id.is_natural_number() || id.get<uint64_t>() >= texts.size()) {
      refuse_vocabulary(path, cat("the id of ", in_quotes(symbol), " is ", id.words(),
                                  ", not an integer below the number of tokens, ", texts.size()));
    }
    const std::optional<std::string> bytes = bytes_of_symbol(symbol);
    if (!bytes || bytes->empty()) {
      refuse_vocabulary(
          path, cat("the token ", in_quotes(symbol), " has a character that encodes no byte"));
    }
    std::string& text = texts[id.get<size_t>()];
    if (!text.empty()) refuse_vocabulary(path, cat("two tokens have the id ", id.words()));
    text = *bytes;
  }
  return texts;
}

// Reads the merges; `texts`: the bytes of each token.
std::vector<BpeVocabulary::Merge> read_merges(const std::string& path,
                                              const std::vector<std::string>& texts) {
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < texts.size(); ++id) ids.emplace(texts[id], static_cast<int32_t>(id));
  std::istringstream file(file_text(path, FileKind::tokenizer));
  std::vector<BpeVocabulary::Merge> merges;
  uint32_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const auto refuse_vocabulary = [&](const std::string& cause) {
      throw Error(ErrorCode::invalid_argument,
                  cat("line ", number, " of ", path, " is not a merge"),
                  {.cause = cause, .remedy = "use two files of the same tokenizer"});
    };
    const std::vector<std::string> symbols = split(line, ' ');
    if (symbols.size() != 2)
      refuse_vocabulary(cat("\"", line, "\" is not two tokens with a space between"));
    const auto id_of = [&](const std::string& symbol) {
      const std::optional<std::string> bytes = bytes_of_symbol(symbol);
      const auto found = bytes ? ids.find(*bytes) : ids.end();
      if (found == ids.end()) refuse_vocabulary(cat("\"", symbol, "\" is not in the vocabulary"));
      return found->second;
    };
    merges.push_back({id_of(symbols[0]), id_of(symbols[1]), id_of(symbols[0] + symbols[1])});
  }
  return merges;
}

// Throws for other tokenizers (Qwen's, RoBERTa's) that have files of the same names, but use other
// patterns or additional tokens, which these files do not describe.
void refuse_other_tokenizer(const std::string& directory, const std::vector<std::string>& symbols) {
  const std::filesystem::path folder(directory);
  const auto refuse_vocabulary = [&](const char* file, const std::string& cause) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("the tokenizer in ", directory, " is not GPT-2's tokenizer"),
        {.where = folder / file,
         .cause = cause,
         .remedy = "use its tokenizer.json, which save_pretrained() of transformers writes"});
  };
  std::error_code error;
  constexpr const char* kConfig = "tokenizer_config.json";
  if (std::filesystem::exists(folder / kConfig, error)) {
    const Json config = read_json(folder / kConfig);
    const Json* const name = config.is_object() ? config.find("tokenizer_class") : nullptr;
    if (name != nullptr && *name != "GPT2Tokenizer" && *name != "GPT2TokenizerFast") {
      refuse_vocabulary(kConfig, cat("its tokenizer_class is ", name->words()));
    }
  }
  constexpr const char* kAdded = "added_tokens.json";
  if (!std::filesystem::exists(folder / kAdded, error)) return;
  const Json added = read_json(folder / kAdded);
  if (!added.is_object()) return;
  for (const auto& [token, id] : added.items()) {
    if (std::ranges::find(symbols, token) != symbols.end()) continue;
    refuse_vocabulary(
        kAdded, cat("the file has the token ", in_quotes(token), ", which no vocabulary has"));
  }
}

}  // namespace

std::optional<std::string> bytes_of_symbol(std::string_view symbol) {
  static const std::array<int16_t, kCharacters> byte_of = make_byte_of_character();
  std::string bytes;
  for (size_t i = 0; i < symbol.size(); ++i) {
    size_t character = static_cast<uint8_t>(symbol[i]);
    // a character of two bytes, from U+0080 to U+017F
    if (character >= 0xc2 && character <= 0xc5 && i + 1 < symbol.size()) {
      character = (character & 0x1f) << 6 | (static_cast<uint8_t>(symbol[++i]) & 0x3f);
    } else if (character >= 0x80) {
      return std::nullopt;
    }
    if (character >= kCharacters || byte_of[character] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of[character]));
  }
  return bytes;
}

BpeDescription read_gpt2_vocabulary(const std::string& directory) {
  const Files files = find_files(directory);
  BpeDescription description{.patterns = {std::string(kGpt2Pattern)}};
  description.vocabulary.symbols = read_vocabulary(files.vocabulary);
  std::vector<std::string>& symbols = description.vocabulary.symbols;
  refuse_other_tokenizer(directory, symbols);
  description.texts.assign(symbols.begin(), symbols.end());
  for (int byte = 0; byte < 256; ++byte) {
    if (std::ranges::find(symbols, std::string(1, static_cast<char>(byte))) != symbols.end()) {
      continue;
    }
    refuse_vocabulary(files.vocabulary, cat("the file has no token for byte ", byte));
  }
  description.vocabulary.merges = read_merges(files.merges, symbols);
  const auto end = std::ranges::find(symbols, "<|endoftext|>");
  if (end != symbols.end()) description.end_of_text = static_cast<int32_t>(end - symbols.begin());
  return description;
}

}  // namespace tutti::training
