#include "training/data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/git_lfs.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/data/bpe_vocabulary.h"

namespace tutti::training {
namespace {

using ByteAlphabet = BpeVocabulary::Alphabet;
constexpr std::string_view kMarker = "\u2581";
constexpr uint64_t kMostTokens = uint64_t{1} << 24;

[[noreturn]] void refuse_tokenizer(const std::string& cause) {
  throw Error(ErrorCode::unsupported, cause);
}

const Json* given(const Json& json, std::string_view name) {
  const Json* found = json.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

// Returns the default if the key is missing or null.
template <typename T>
T value_or(const Json& json, std::string_view name, T fallback) {
  const Json* const found = given(json, name);
  return found == nullptr ? fallback : found->get<T>();
}

// Throws if one of these settings of a component is on, because none of them is supported.
void require_off(const Json& json, const std::string& what,
                 std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Json* value = given(json, name);
    if (value == nullptr || *value == Json(false) || *value == Json(0) || *value == Json("")) {
      continue;
    }
    refuse_tokenizer(cat(what, " has ", name, " ", value->dump(), ", which is not supported"));
  }
}

std::string type_of(const Json& component) { return component.at("type").get<std::string>(); }

// Returns the component, or the components of a Sequence, whose list is called `list`.
std::vector<const Json*> components(const Json& json, const char* name, const char* list) {
  const Json* component = given(json, name);
  if (component == nullptr) return {};
  if (type_of(*component) != "Sequence") return {component};
  std::vector<const Json*> all;
  for (const Json& one : component->at(list)) all.push_back(&one);
  return all;
}

std::string text_pattern(const Json& component) {
  const Json* text = component.at("pattern").find("String");
  if (text == nullptr || text->get<std::string>().empty()) {
    refuse_tokenizer(cat(type_of(component), " by a regular expression is not supported"));
  }
  return text->get<std::string>();
}

std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}/-").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

class TokenizerReader {
 public:
  explicit TokenizerReader(const Json& json) : json_(json), model_(json.at("model")) {}

  BpeDescription read() {
    const Json* type = given(model_, "type");
    if (type != nullptr && *type != Json("BPE")) {
      refuse_tokenizer(cat("its model ", in_quotes(type->get<std::string>()), " is not BPE"));
    }
    read_normalizer();
    read_pre_tokenizer();
    read_vocabulary();
    read_decoder();
    read_added_tokens();
    find_marker();
    read_post_processor();
    return std::move(description_);
  }

 private:
  void read_normalizer() {
    TextRewrite& rewrite = description_.normalizer;
    for (const Json* step : components(json_, "normalizer", "normalizers")) {
      const std::string type = type_of(*step);
      if (type == "Prepend") {
        rewrite.prefix = step->at("prepend").get<std::string>() + rewrite.prefix;
      } else if (type == "Replace") {
        const std::string from = text_pattern(*step);
        if (rewrite.prefix.find(from) != std::string::npos) {
          refuse_tokenizer("its normalizer replaces part of the prefix that it adds");
        }
        rewrite.replacements.emplace_back(from, step->at("content").get<std::string>());
      } else {
        refuse_tokenizer(cat("its normalizer ", in_quotes(type), " is not supported"));
      }
    }
  }

  void read_pre_tokenizer() {
    for (const Json* step : components(json_, "pre_tokenizer", "pretokenizers")) {
      const std::string type = type_of(*step);
      if (byte_level_ || description_.cut_at_marker) {
        refuse_tokenizer(
            cat("its pre-tokenizer has ", in_quotes(type), " after one that rewrites texts"));
      }
      if (type == "ByteLevel") {
        read_byte_level(*step);
      } else if (type == "Split") {
        read_split(*step);
      } else if (type == "Digits") {
        const bool each = step->value("individual_digits", false);
        description_.patterns.emplace_back(each ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "Metaspace") {
        read_metaspace(*step);
      } else {
        refuse_tokenizer(cat("its pre-tokenizer ", in_quotes(type), " is not supported"));
      }
    }
  }

  void read_byte_level(const Json& step) {
    byte_level_ = true;
    if (value_or(step, "add_prefix_space", true)) {
      if (!description_.patterns.empty()) {
        refuse_tokenizer(
            "its pre-tokenizer adds a space before every word (add_prefix_space after Split)");
      }
      description_.before_words = {.prefix = " ", .unless_there = true};
    }
    if (value_or(step, "use_regex", true)) description_.patterns.emplace_back(kGpt2Pattern);
  }

  void read_split(const Json& step) {
    const std::string behavior = step.at("behavior").get<std::string>();
    if (behavior != "Isolated") {
      refuse_tokenizer(cat("Split with the behavior ", in_quotes(behavior), " is not supported"));
    }
    const Json* expression = step.at("pattern").find("Regex");
    const std::string pattern =
        expression != nullptr ? expression->get<std::string>() : escaped(text_pattern(step));
    description_.patterns.push_back(pattern);
  }

  void read_metaspace(const Json& step) {
    const std::string marker = value_or(step, "replacement", std::string(kMarker));
    std::string scheme = value_or(step, "prepend_scheme", std::string());
    if (scheme.empty()) scheme = value_or(step, "add_prefix_space", true) ? "always" : "never";
    if (!description_.patterns.empty() || !description_.normalizer.empty()) {
      refuse_tokenizer("Metaspace after other steps is not supported");
    }
    TextRewrite& rewrite = description_.before_words;
    rewrite.replacements.emplace_back(" ", marker);
    rewrite.unless_there = true;
    rewrite.only_at_the_beginning = scheme == "first";
    if (scheme != "never") rewrite.prefix = marker;
    description_.marker = marker;
    description_.cut_at_marker = value_or(step, "split", true);
  }

  void read_vocabulary() {
    require_off(model_, "its model",
                {"dropout", "continuing_subword_prefix", "end_of_word_suffix"});
    const Json& entries = model_.at("vocab");
    size_t size = 0;
    for (const auto& [symbol, id] : entries.items()) size = std::max(size, checked(symbol, id) + 1);
    for (const Json& token : added()) {
      const auto text = token.at("content").get<std::string>();
      size = std::max(size, checked(text, token.at("id")) + 1);
    }
    BpeVocabulary& vocabulary = description_.vocabulary;
    vocabulary.alphabet = byte_level_ ? ByteAlphabet::bytes : ByteAlphabet::characters;
    vocabulary.symbols.resize(size);
    description_.texts.resize(size);
    for (const auto& [symbol, id] : entries.items()) {
      const size_t place = id.get<size_t>();
      if (description_.texts[place]) refuse_tokenizer(cat("two tokens have the id ", place));
      ids_.emplace(symbol, static_cast<int32_t>(place));
      const std::optional<std::string> bytes =
          byte_level_ ? bytes_of_symbol(symbol) : std::optional(symbol);
      if (bytes) vocabulary.symbols[place] = *bytes;
      description_.texts[place] = bytes.value_or(symbol);  // if it has no bytes: the literal symbol
    }
    if (const Json* unknown = given(model_, "unk_token")) {
      vocabulary.unknown = id_of(unknown->get<std::string>());
    }
    vocabulary.fuse_unknown = value_or(model_, "fuse_unk", false);
    vocabulary.whole_words = value_or(model_, "ignore_merges", false);
    if (!byte_level_ && !value_or(model_, "byte_fallback", false)) forget_bytes();
    read_merges();
  }

  // Checks a model of characters without byte_fallback, in which a character without a token is
  // unknown: it must have an unknown token, and no tokens for bytes.
  void forget_bytes() {
    if (!description_.vocabulary.unknown) {
      refuse_tokenizer("its model has neither bytes (ByteLevel or byte_fallback) nor an unk_token");
    }
    if (ids_.contains("<0x00>")) {
      refuse_tokenizer("its model has tokens for bytes, but byte_fallback is off");
    }
  }

  void read_merges() {
    std::vector<BpeVocabulary::Merge>& merges = description_.vocabulary.merges;
    for (const Json& merge : model_.at("merges")) {
      std::vector<std::string> symbols = merge.is_string() ? split(merge.get<std::string>(), ' ')
                                                           : merge.get<std::vector<std::string>>();
      if (symbols.size() != 2)
        refuse_tokenizer(cat("the merge ", merge.dump(), " does not consist of two tokens"));
      merges.push_back({id_of(symbols[0]), id_of(symbols[1]), id_of(symbols[0] + symbols[1])});
    }
  }

  void read_decoder() {
    for (const Json* step : components(json_, "decoder", "decoders")) {
      const std::string type = type_of(*step);
      if (type == "ByteLevel" && byte_level_) continue;  // the texts are bytes already
      if (type == "Fuse") continue;
      if (type == "Replace") {
        replace_in_texts(text_pattern(*step), step->at("content").get<std::string>());
      } else if (type == "ByteFallback") {
        decode_bytes();
      } else if (type == "Metaspace") {
        replace_in_texts(step->value("replacement", std::string(kMarker)), " ");
        const bool prefixed = !description_.before_words.prefix.empty();
        description_.blanks_to_strip = prefixed ? 1 : 0;
      } else if (type == "Strip" && step->at("content") == Json(" ") &&
                 step->at("stop") == Json(0)) {
        description_.blanks_to_strip = step->at("start").get<size_t>();
      } else {
        refuse_tokenizer(cat("its decoder ", in_quotes(type), " is not supported here"));
      }
    }
  }

  void replace_in_texts(const std::string& from, const std::string& to) {
    for (std::optional<std::string>& text : description_.texts) {
      if (!text) continue;
      for (size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size())) {
        text->replace(at, from.size(), to);
      }
    }
  }

  // Replaces <0x41> by the byte 0x41.
  void decode_bytes() {
    for (std::optional<std::string>& text : description_.texts) {
      if (!text || text->size() != 6 || !text->starts_with("<0x") || !text->ends_with('>'))
        continue;
      char* end = nullptr;
      const long byte = std::strtol(text->c_str() + 3, &end, 16);
      if (end == text->data() + 5) *text = std::string(1, static_cast<char>(byte));
    }
  }

  void read_added_tokens() {
    for (const Json& token : added()) {
      const auto text = token.at("content").get<std::string>();
      const auto id = token.at("id").get<int32_t>();
      require_off(token, cat("the token ", in_quotes(text)), {"single_word", "lstrip", "rstrip"});
      description_.texts[static_cast<size_t>(id)] = text;
      const bool normalized =
          value_or(token, "normalized", false) && !description_.normalizer.empty();
      if (!normalized) {
        description_.added.push_back({text, id});
        continue;
      }
      std::string pattern = text;
      for (const auto& [from, to] : description_.normalizer.replacements) {
        for (size_t at = pattern.find(from); at != pattern.npos;
             at = pattern.find(from, at + to.size())) {
          pattern.replace(at, from.size(), to);
        }
      }
      description_.added_to_normalized.push_back({description_.normalizer.prefix + pattern, id});
    }
  }

  // Reads tokens around a text, from a template or in BERT's and RoBERTa's form. Other
  // post-processors (ByteLevel) change no tokens.
  void read_post_processor() {
    Tokenizer::Frame& frame = description_.frame;
    for (const Json* step : components(json_, "post_processor", "processors")) {
      const std::string type = type_of(*step);
      if (type == "TemplateProcessing") {
        read_template(*step, frame);
      } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        frame.before.insert(frame.before.begin(), step->at("cls").at(1).get<int32_t>());
        frame.after.push_back(step->at("sep").at(1).get<int32_t>());
      }
    }
  }

  // Reads a template, such as {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {...}}],
  // "special_tokens": {"<s>": {"ids": [1]}}}.
  static void read_template(const Json& step, Tokenizer::Frame& frame) {
    std::vector<int32_t> before;
    bool passed = false;
    for (const Json& part : step.at("single")) {
      if (part.contains("Sequence")) {
        passed = true;
        continue;
      }
      const auto name = part.at("SpecialToken").at("id").get<std::string>();
      const auto ids = step.at("special_tokens").at(name).at("ids").get<std::vector<int32_t>>();
      std::vector<int32_t>& side = passed ? frame.after : before;
      side.insert(side.end(), ids.begin(), ids.end());
    }
    frame.before.insert(frame.before.begin(), before.begin(), before.end());
  }

  // Sets the marker if the normalizer's only replacement replaces blanks.
  void find_marker() {
    for (const auto& [from, to] : description_.normalizer.replacements) {
      const bool only = description_.normalizer.replacements.size() == 1;
      if (only && from == " " && !byte_level_) description_.marker = to;
    }
  }

  std::vector<Json> added() const {
    const Json* tokens = given(json_, "added_tokens");
    return tokens == nullptr ? std::vector<Json>()
                             : std::vector<Json>(tokens->begin(), tokens->end());
  }

  static size_t checked(const std::string& symbol, const Json& id) {
    if (!id.is_natural_number() || id.get<uint64_t>() >= kMostTokens) {
      refuse_tokenizer(cat("the id of ", in_quotes(symbol), " is ", id.words(),
                           ", not an integer below ", kMostTokens));
    }
    return id.get<size_t>();
  }

  int32_t id_of(const std::string& symbol) const {
    const auto found = ids_.find(symbol);
    if (found == ids_.end()) refuse_tokenizer(cat(in_quotes(symbol), " is not in the vocabulary"));
    return found->second;
  }

  const Json& json_;
  const Json& model_;
  BpeDescription description_;
  bool byte_level_ = false;
  std::unordered_map<std::string, int32_t> ids_;  // key: symbol as written in the file
};

// Returns the text of the token that "eos_token" in tokenizer_config.json gives, either as a string
// or as {"content": string}.
std::optional<std::string> configured_end(const std::string& path) {
  const std::filesystem::path config =
      std::filesystem::path(path).parent_path() / "tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(config, error)) return std::nullopt;
  const Json json = Json::parse(file_text(config, FileKind::tokenizer));
  const Json* token = given(json, "eos_token");
  if (token == nullptr) return std::nullopt;
  return token->is_string() ? token->get<std::string>() : token->at("content").get<std::string>();
}

std::optional<int32_t> find_end(const BpeDescription& description, const std::string& path) {
  std::vector<std::string> names = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
  if (const std::optional<std::string> name = configured_end(path)) names = {*name};
  for (const std::string& name : names) {
    const auto is_it = [&](const AddedToken& token) { return token.text == name; };
    for (const auto* tokens : {&description.added, &description.added_to_normalized}) {
      const auto found = std::ranges::find_if(*tokens, is_it);
      if (found != tokens->end()) return found->id;
    }
  }
  return std::nullopt;
}

bool is_pointer(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         is_git_lfs_pointer(file_text(path, FileKind::tokenizer));
}

}  // namespace

BpeDescription read_tokenizer_json(const std::string& path) {
  try {
    const Json json = Json::parse(file_text(path, FileKind::tokenizer));
    BpeDescription description = TokenizerReader(json).read();
    description.end_of_text = find_end(description, path);
    return description;
  } catch (const Error& error) {
    if (is_pointer(path)) {
      throw Error(error.code(), cat("cannot use the tokenizer ", path),
                  {.cause = kGitLfsCause, .remedy = kGitLfsRemedy});
    }
    throw Error(error.code(), cat("cannot use the tokenizer ", path),
                {.cause = error.what(),
                 .remedy = "use a tokenizer.json with byte-pair encoding, such as those of GPT-2 "
                           "and Llama, or create the tokens with its own tools, as llm.c does"});
  }
}

}  // namespace tutti::training
