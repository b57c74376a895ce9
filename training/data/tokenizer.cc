#include "training/data/tokenizer.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/bpe_tokenizer.h"
#include "training/data/bpe_vocabulary.h"
#include "training/data/tokenizer_json.h"

namespace tutti::training {
namespace {

std::unique_ptr<Tokenizer> make_bpe(BpeDescription description, const std::string& path) {
  try {
    return std::make_unique<BpeTokenizer>(std::move(description));
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), {.where = path});
  }
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  const TextPiece piece{text};
  return std::move(encode(std::span(&piece, 1)).front());
}

std::vector<std::vector<int32_t>> ByteTokenizer::encode(std::span<const TextPiece> pieces) const {
  std::vector<std::vector<int32_t>> all;
  for (const TextPiece& piece : pieces) {
    std::vector<int32_t>& tokens = all.emplace_back();
    tokens.reserve(piece.text.size());
    for (const char c : piece.text) tokens.push_back(static_cast<uint8_t>(c));
  }
  return all;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += text_of(token);
  return text;
}

std::string ByteTokenizer::text_of(int32_t token) const {
  if (token < 0 || token >= 256) {
    throw Error(ErrorCode::invalid_argument, cat("token ", token, " is not a byte"),
                {.cause = "the tokens come from another tokenizer"});
  }
  return {static_cast<char>(token)};
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return std::make_unique<ByteTokenizer>();
  std::error_code error;
  const fs::path json = fs::path(path) / kTokenizerJson;
  if (fs::is_regular_file(json, error)) return make_bpe(read_tokenizer_json(json), json);
  if (fs::is_regular_file(path, error)) return make_bpe(read_tokenizer_json(path), path);
  return make_bpe(read_gpt2_vocabulary(path), path);
}

}  // namespace tutti::training
