// Documents in files: plain text, JSON lines, Parquet and Arrow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::training {

// Fields of a record that contain its text. Names with dots refer to nested objects: "meta.body" is
// the member "body" of "meta".
struct DocumentFields {
  std::string text = "text";
  // For fine-tuning: the completion is trained on, the prompt before it is not. Used if a record
  // has both and no text.
  std::string prompt = "prompt";
  std::string completion = "completion";
  bool pairs_only = false;         // ignore `text`: records have prompts and completions
  std::string python = "python3";  // needs pyarrow, which reads Parquet and Arrow
};

// A document, or a part of a long one.
struct Document {
  std::string text;
  std::optional<std::string> prompt;  // precedes the text, and is not trained on
  bool begins = true;                 // nothing of the document precedes this part
  bool ends = true;                   // nothing follows
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // The next document; none at the end. Throws Error naming the file, and the line.
  virtual std::optional<Document> next() = 0;
  // Approximate number of bytes of the file on disk that have been consumed.
  virtual uint64_t position() const = 0;
};

enum class DocumentKind {
  text,     // a single document, in parts; any name
  lines,    // .jsonl, or .json with an object per line
  columns,  // .parquet, .arrow, .feather
};

DocumentKind kind_of(const std::string& path);  // by its name, ignoring .gz and .zst

// Throws Error naming the path if it cannot be read.
std::unique_ptr<DocumentReader> open_documents(const std::string& path,
                                               const DocumentFields& fields);

}  // namespace tutti::training
