#include "training/data/tokenize_files.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/processors.h"
#include "base/text.h"
#include "training/data/document_pieces.h"
#include "training/data/loader.h"
#include "training/data/token_file.h"
#include "training/data/utf8.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

void check(const std::vector<TextFile>& files, const TokenizeOptions& options) {
  for (const std::string& out : {options.out, options.validation_out}) {
    for (const TextFile& file : files) {
      std::error_code none;  // if `out` does not exist, the files are not the same
      if (!fs::equivalent(file.path, out, none)) continue;
      throw Error(ErrorCode::invalid_argument,
                  cat("the tokens of ", file.path, " would overwrite that file"),
                  {.where = out, .remedy = "use another file for the tokens"});
    }
  }
  if (options.validation_out.empty()) return;
  if (!(options.validation_share > 0 && options.validation_share < 1)) {
    throw Error(ErrorCode::invalid_argument,
                cat("the share for validation is invalid: ", options.validation_share),
                {.remedy = "use a number between 0 and 1, such as 0.1"});
  }
  if (fs::weakly_canonical(options.out) == fs::weakly_canonical(options.validation_out)) {
    throw Error(ErrorCode::invalid_argument,
                cat("training and validation tokens would both be written to ", options.out),
                {.remedy = "use two different files"});
  }
}

// Returns true if files have prompts, judged by the first record of one file of each kind.
bool has_prompts(const std::vector<TextFile>& files, const DocumentFields& fields) {
  std::set<DocumentKind> seen = {DocumentKind::text};
  for (const TextFile& file : files) {
    if (!seen.insert(kind_of(file.path)).second) continue;
    const std::optional<Document> first = open_documents(file.path, fields)->next();
    if (first && first->prompt) return true;
  }
  return false;
}

uint64_t count_characters(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count_if(text, begins_character));
}

struct Encoded {
  bool is_end = false;
  bool held_out = false;
  uint64_t position = 0;
  std::vector<int32_t> tokens;
  TokenizeResult counts;  // result, in which tokens are not counted yet
};

// Reads pieces sequentially, and encodes them concurrently on the threads that call make().
class Pipeline {
 public:
  Pipeline(PieceReader reader, const Tokenizer& tokenizer, const TokenizeOptions& options,
           bool marks_prompts)
      : reader_(std::move(reader)),
        tokenizer_(tokenizer),
        end_of_text_(options.end_of_text),
        marks_prompts_(marks_prompts) {}

  Encoded make(uint64_t index) { return encode(read(index)); }

 private:
  // Waits until all earlier items are read, then reads item `index`. After an error, reads nothing
  // and returns the end.
  Pieces read(uint64_t index) {
    std::unique_lock lock(mutex_);
    turns_.wait(lock, [&] { return next_ == index; });
    Pieces pieces;
    std::exception_ptr error;
    try {
      if (!failed_) pieces = reader_.next();
    } catch (...) {
      failed_ = true;
      error = std::current_exception();
    }
    ++next_;
    turns_.notify_all();
    if (error) std::rethrow_exception(error);
    return pieces;
  }

  Encoded encode(const Pieces& pieces) const {
    Encoded encoded{
        .is_end = pieces.is_end(), .held_out = pieces.held_out, .position = pieces.position};
    std::vector<TextPiece> texts;
    for (const Document& document : pieces.documents) {
      if (document.prompt) texts.push_back({*document.prompt, document.begins});
      texts.push_back({document.text, document.begins && !document.prompt});
    }
    const std::vector<std::vector<int32_t>> tokens = tokenizer_.encode(texts);
    size_t next = 0;
    for (const Document& document : pieces.documents) {
      if (document.prompt) append_prompt(tokens[next++], encoded);
      encoded.tokens.insert(encoded.tokens.end(), tokens[next].begin(), tokens[next].end());
      ++next;
      if (!document.ends) continue;
      ++encoded.counts.documents;
      if (end_of_text_) encoded.tokens.push_back(*end_of_text_);
    }
    for (const TextPiece& text : texts) {
      encoded.counts.bytes += text.text.size();
      encoded.counts.characters += count_characters(text.text);
    }
    return encoded;
  }

  void append_prompt(const std::vector<int32_t>& tokens, Encoded& encoded) const {
    if (!marks_prompts_) {
      throw Error(ErrorCode::invalid_argument,
                  "some records have a text, others a prompt and a completion",
                  {.remedy = "tokenize them separately, or name the fields that all records have: "
                             "--prompt-field NAME --completion-field NAME"});
    }
    for (const int32_t token : tokens) encoded.tokens.push_back(unpredicted(token));
    encoded.counts.unpredicted += tokens.size();
  }

  std::mutex mutex_;  // guards the members below
  std::condition_variable turns_;
  uint64_t next_ = 0;  // index of the next item to read
  bool failed_ = false;
  PieceReader reader_;

  const Tokenizer& tokenizer_;
  const std::optional<int32_t> end_of_text_;
  const bool marks_prompts_;
};

PieceOptions piece_options(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                           const TokenizeOptions& options) {
  PieceOptions pieces{
      .fields = options.fields,
      .last_cut = [&tokenizer](std::string_view text) { return tokenizer.last_cut(text); },
      .joined = !options.end_of_text,
      .held_out_from = {}};
  if (options.validation_out.empty()) return pieces;
  const auto total =
      std::accumulate(files.begin(), files.end(), uint64_t{0},
                      [](uint64_t sum, const TextFile& file) { return sum + file.bytes; });
  pieces.held_out_from =
      total - static_cast<uint64_t>(static_cast<double>(total) * options.validation_share);
  return pieces;
}

}  // namespace

TokenizeResult tokenize_files(const std::vector<TextFile>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options,
                              const std::function<void(uint64_t)>& progress) {
  check(files, options);
  const TokenFormat format{
      .vocabulary = static_cast<int64_t>(tokenizer.vocabulary_size()),
      .end_of_text = options.end_of_text,
      .marks_unpredicted = options.fields.pairs_only || has_prompts(files, options.fields)};
  TokenWriter training(options.out, format);
  std::optional<TokenWriter> validation;
  if (!options.validation_out.empty()) validation.emplace(options.validation_out, format);
  Pipeline pipeline(PieceReader(files, piece_options(files, tokenizer, options)), tokenizer,
                    options, format.marks_unpredicted);
  const int threads = options.threads > 0 ? options.threads : usable_processors();
  Loader<Encoded> loader([&](uint64_t index) { return pipeline.make(index); }, 0,
                         std::numeric_limits<uint64_t>::max(), threads, 2 * threads);
  TokenizeResult result;
  while (true) {
    const Encoded encoded = loader.next().value();
    if (encoded.is_end) break;
    (encoded.held_out && validation ? *validation : training).write(encoded.tokens);
    result.documents += encoded.counts.documents;
    result.bytes += encoded.counts.bytes;
    result.characters += encoded.counts.characters;
    result.unpredicted += encoded.counts.unpredicted;
    progress(encoded.position);
  }
  const uint64_t all = training.count() + (validation ? validation->count() : 0);
  if (all == result.unpredicted || training.count() == 0) {
    throw Error(ErrorCode::invalid_argument, cat("no training tokens are left for ", options.out),
                {.where = files.front().path,
                 .cause = all == 0                    ? "the texts are empty"
                          : all == result.unpredicted ? "the records contain only prompts"
                                                      : "all of the data are held out"});
  }
  if (validation && validation->count() == 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("no validation tokens are held out for ", options.validation_out),
                {.cause = cat("no document or word ends in the last ", options.validation_share,
                              " of the data"),
                 .remedy = "hold out a larger share, or tokenize validation data separately"});
  }
  training.finish();
  if (validation) validation->finish();
  result.tokens = training.count();
  result.validation_tokens = validation ? validation->count() : 0;
  return result;
}

}  // namespace tutti::training
