#include "training/data/documents.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "training/data/byte_source.h"
#include "training/data/columns.h"

namespace tutti::training {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

class TextReader final : public DocumentReader {
 public:
  explicit TextReader(const std::string& path) : source_(open_bytes(path)) {}

  std::optional<Document> next() override {
    if (ended_) return std::nullopt;
    Document part;
    part.begins = std::exchange(begun_, true) == false;
    part.text.resize(kBlock);
    part.text.resize(source_->read(part.text));
    part.ends = ended_ = part.text.empty();
    return part;
  }
  uint64_t position() const override { return source_->position(); }

 private:
  std::unique_ptr<ByteSource> source_;
  bool begun_ = false;
  bool ended_ = false;
};

// Finds a field by a name with dots. A member that has the whole name takes precedence.
const Json* find_field(const Json& record, std::string_view name) {
  if (!record.is_object()) return nullptr;
  if (const Json* found = record.find(name)) return found;
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const Json* outer = record.find(name.substr(0, dot));
    if (outer == nullptr) continue;
    if (const Json* found = find_field(*outer, name.substr(dot + 1))) return found;
  }
  return nullptr;
}

std::string names_in(const Json& record) {
  if (!record.is_object()) return "not an object";
  std::string names;
  for (const auto& [name, value] : record.items()) names += cat(names.empty() ? "" : ", ", name);
  return names;
}

// Returns the line with Python's NaN and Infinity, which are not JSON, replaced by null.
std::string without_words_of_python(std::string_view line) {
  std::string all;
  bool in_text = false;
  for (size_t i = 0; i < line.size();) {
    size_t length = 1;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_text && line.substr(i).starts_with(word)) length = word.size();
    }
    if (in_text && line[i] == '\\') length = std::min<size_t>(2, line.size() - i);
    if (line[i] == '"') in_text = !in_text;
    all += !in_text && length > 1 ? std::string_view("null") : line.substr(i, length);
    i += length;
  }
  return all;
}

Json parse_record(const std::string& line) {
  try {
    return Json::parse(line);
  } catch (const Error&) {
    const std::string changed = without_words_of_python(line);
    if (changed == line) throw;
    return Json::parse(changed);
  }
}

class LineReader final : public DocumentReader {
 public:
  LineReader(const std::string& path, DocumentFields fields)
      : path_(path), fields_(std::move(fields)), source_(open_bytes(path)) {}

  std::optional<Document> next() override {
    while (const std::optional<std::string> line = next_line()) {
      if (line->find_first_not_of(" \t\r") == line->npos) continue;
      if (std::optional<Document> found = document(*line)) return found;
    }
    return std::nullopt;
  }
  // Interpolates inside the block, because compressed files have no exact position.
  uint64_t position() const override {
    const uint64_t read = source_->position() - before_;
    return before_ + (block_.empty() ? read : read * at_ / block_.size());
  }

 private:
  std::optional<std::string> next_line() {
    ++number_;
    std::string line;
    while (true) {
      const size_t end = block_.find('\n', at_);
      if (end != block_.npos) {
        line.append(block_, at_, end - at_);
        at_ = end + 1;
        return line;
      }
      line.append(block_, at_);
      at_ = 0;
      before_ = source_->position();
      block_.resize(kBlock);
      block_.resize(source_->read(block_));
      if (block_.empty()) return line.empty() ? std::nullopt : std::optional(std::move(line));
    }
  }

  // Parses a line. Returns nothing for a record whose text, prompt or completion is null.
  std::optional<Document> document(const std::string& line) const {
    try {
      const Json record = parse_record(line);
      const Json* text = fields_.pairs_only ? nullptr : find_field(record, fields_.text);
      if (text != nullptr && text->is_null()) return std::nullopt;
      if (text != nullptr) return Document{.text = text->get<std::string>(), .prompt = {}};
      const Json* prompt = find_field(record, fields_.prompt);
      const Json* completion = find_field(record, fields_.completion);
      if (prompt != nullptr && completion != nullptr) {
        if (prompt->is_null() || completion->is_null()) return std::nullopt;
        return Document{.text = completion->get<std::string>(),
                        .prompt = prompt->get<std::string>()};
      }
      throw Error(ErrorCode::invalid_argument, cat("the line has ", names_in(record)));
    } catch (const Error& error) {
      const std::string wanted =
          cat(fields_.pairs_only ? "" : cat("the field \"", fields_.text, "\" or "),
              "the fields \"", fields_.prompt, "\" and \"", fields_.completion, '"');
      throw Error(ErrorCode::invalid_argument,
                  cat("line ", number_, " of ", path_, " is not a JSON object with ", wanted),
                  {.cause = error.what(),
                   .remedy = "write every line as {\"text\": \"...\"}, or name its field; to read "
                             "the file as plain text, rename it to a name without .jsonl"});
    }
  }

  std::string path_;
  DocumentFields fields_;
  std::unique_ptr<ByteSource> source_;
  std::string block_;    // block of data read from source_
  size_t at_ = 0;        // index in block_ of the first byte that is not consumed yet
  uint64_t before_ = 0;  // the source's position before the block
  uint64_t number_ = 0;
};

// Returns true if the first line is a JSON object, because some JSON lines files are named .json.
bool begins_with_record(const std::string& path) {
  constexpr size_t kMost = 16 * kBlock;  // maximum length of the line
  const std::unique_ptr<ByteSource> source = open_bytes(path);
  std::string text;
  size_t end = text.npos;
  for (size_t got = 1; got > 0 && end == text.npos && text.size() < kMost;) {
    const size_t before = text.size();
    text.resize(before + kBlock);
    got = source->read(std::span(text).subspan(before));
    text.resize(before + got);
    end = text.find('\n', before);
  }
  const std::string line = text.substr(0, end);
  if (!line.starts_with('{')) return false;
  try {
    return parse_record(line).is_object();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

DocumentKind kind_of(const std::string& path) {
  std::string name = uncompressed_name(path);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto ends_in = [&](const char* ending) { return name.ends_with(ending); };
  if (ends_in(".jsonl") || ends_in(".ndjson")) return DocumentKind::lines;
  if (ends_in(".json")) return begins_with_record(path) ? DocumentKind::lines : DocumentKind::text;
  constexpr std::array kColumns = {".parquet", ".arrow", ".feather"};
  return std::ranges::any_of(kColumns, ends_in) ? DocumentKind::columns : DocumentKind::text;
}

std::unique_ptr<DocumentReader> open_documents(const std::string& path,
                                               const DocumentFields& fields) {
  switch (kind_of(path)) {
    case DocumentKind::lines:
      return std::make_unique<LineReader>(path, fields);
    case DocumentKind::columns:
      return std::make_unique<ColumnReader>(path, fields);
    case DocumentKind::text:
      break;
  }
  return std::make_unique<TextReader>(path);
}

}  // namespace tutti::training
